"""Delivery of a stop signal to the processes of a container.

The grace period belongs to all processes of the container. A shell, a launcher or a pipe
around a program must neither shield the program from SIGTERM nor end what it still needs:

- A *receiver* is a process that catches the signal and has no such process above it. It is
  signalled, and everything below it is left to it. A training loop, for example, needs its
  data loaders while it saves a checkpoint, and `torchrun` signals its workers itself.
- A shell above a receiver is signalled at once, so that it does not run its next command.
- A shell with a trap cannot run the trap while it waits for a command in the foreground.
  The shell is signalled, and so is the receiver in that command. What the trap starts is
  left to the shell.
- Everything else (`tee`, a launcher without a handler, the `sleep` before which a trap
  waits) is signalled :data:`RELEASE_DELAY` after the last receiver has ended. If no process
  has a handler, all are signalled at once.

The supervisor starts with this module, so imports stay few.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from windlass.node.runtime import syscalls

_SHELLS = frozenset(("sh", "ash", "bash", "busybox", "dash", "fish", "ksh", "ksh93", "mksh", "yash", "zsh"))

RELEASE_DELAY = 2.0
"""Time (seconds) for processes that depend on receivers to end by themselves, such as the reader of a pipe."""


class Process(NamedTuple):
    """One process of a container, as far as the delivery of a signal depends on it."""

    children: tuple[int, ...] = ()
    catches: bool = False
    """It has a handler for the signal."""
    shell: bool = False
    background: bool = False
    """It ignores SIGQUIT, as POSIX shells make commands do that they start with ``&``."""


class Delivery(NamedTuple):
    """Processes to signal now, and those of them that are to end by themselves."""

    signalled: tuple[int, ...]
    receivers: tuple[int, ...] = ()
    held: tuple[int, ...] = ()
    """Processes that are signalled after the receivers have ended."""


def delivery(processes: Mapping[int, Process], roots: Iterable[int]) -> Delivery:
    """Return the processes below and including ``roots`` that are signalled first.

    ``signalled`` lists parents before their children. It contains all processes if none of
    them has a handler.
    """
    receivers: list[int] = []
    urgent: set[int] = set()
    reached: list[int] = []

    def visit(pid: int) -> bool:
        """Return whether the process or one below it has a handler."""
        process = processes.get(pid)
        if process is None:  # it ended since its parent was read
            return False
        reached.append(pid)
        waits_for = _foreground(process, processes) if process.catches else process.children
        found = any([visit(child) for child in waits_for])
        if process.catches and not waits_for:
            receivers.append(pid)
        if process.catches or (found and process.shell):
            urgent.add(pid)
        return found or process.catches

    for root in roots:
        visit(root)
    if not urgent:
        return Delivery(tuple(reached))
    now, later = [p for p in reached if p in urgent], [p for p in reached if p not in urgent]
    return Delivery(tuple(now), tuple(receivers), tuple(later))


def _foreground(process: Process, processes: Mapping[int, Process]) -> list[int]:
    """Return the commands for which a shell with a trap waits before it runs the trap."""
    if not process.shell:
        return []
    return [pid for pid in process.children if pid in processes and not processes[pid].background]


class ProcessTable(Protocol):
    """Processes of one container."""

    def read(self, number: int) -> Mapping[int, Process]:
        """Return all living processes, with ``catches`` for signal ``number``."""
        ...

    def is_running(self, pid: int) -> bool: ...

    def send(self, pid: int, number: int) -> None: ...


class GracefulStop:
    """Progress of one stop: which processes were signalled, and which of them are still working."""

    def __init__(self, number: int, table: ProcessTable) -> None:
        self._number = number
        self._table = table
        self._signalled: set[int] = set()
        self._receivers: tuple[int, ...] = ()
        self._held: frozenset[int] = frozenset()
        self._release_at = -math.inf

    def proceed(self, now: float) -> None:
        """Signal the next processes, unless a receiver is still working. ``now``: monotonic seconds."""
        if any(self._table.is_running(pid) for pid in self._receivers):
            self._release_at = now + RELEASE_DELAY
            return
        if now < self._release_at:
            return
        processes = self._table.read(self._number)
        left = {pid: processes[pid] for pid in self._open(processes) if pid not in self._signalled}
        found = delivery(left, _uppermost(left))
        self._receivers = found.receivers
        self._release_at = now + RELEASE_DELAY
        self._held = frozenset(found.held)
        self._signalled.update(found.signalled)
        for pid in found.signalled:
            self._table.send(pid, self._number)

    def _open(self, processes: Mapping[int, Process]) -> set[int]:
        """Return all processes but those that a signalled process with a handler started since."""
        left_to_others: set[int] = set()
        waiting = [pid for pid, process in processes.items() if process.catches and pid in self._signalled]
        while waiting:
            below = set(processes[waiting.pop()].children) & processes.keys()
            new = below - self._held - self._signalled - left_to_others
            left_to_others |= new
            waiting += new
        return set(processes) - left_to_others


def _uppermost(processes: Mapping[int, Process]) -> list[int]:
    below = {child for process in processes.values() for child in process.children}
    return [pid for pid in processes if pid not in below]


class Descendants:
    """Processes below this one, read from ``/proc``. Zombies are left out."""

    def read(self, number: int) -> dict[int, Process]:
        found: dict[int, Process] = {}
        waiting = syscalls.children(os.getpid())
        while waiting:
            pid = waiting.pop()
            masks = _signal_masks(pid)
            if masks is None or pid in found:
                continue
            caught, ignored = masks
            below = tuple(syscalls.children(pid))
            background = _contains(ignored, signal.SIGQUIT)
            found[pid] = Process(below, _contains(caught, number), _is_shell(pid), background)
            waiting += below
        return found

    def is_running(self, pid: int) -> bool:
        return _signal_masks(pid) is not None

    def send(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _contains(mask: int, number: int) -> bool:
    return bool(mask >> (number - 1) & 1)


def _signal_masks(pid: int) -> tuple[int, int] | None:
    """Return the caught and the ignored signals of a process, None if it has ended."""
    caught = ignored = 0
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as stream:
            for line in stream:
                name, _, value = line.partition(":")
                if name == "State" and value.split()[0] in ("Z", "X"):
                    return None
                if name == "SigIgn":
                    ignored = int(value, 16)
                elif name == "SigCgt":
                    caught = int(value, 16)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return caught, ignored


def _is_shell(pid: int) -> bool:
    try:
        name = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:  # of another user, or ended
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as stream:
                name = stream.read().strip()
        except OSError:
            return False
    return name.removesuffix(" (deleted)") in _SHELLS
