"""``windlass down``: stop the control plane and all pods."""

from __future__ import annotations

import os
import signal

import click

from windlass.api.errors import WindlassError
from windlass.cli.bootstrap import state_error
from windlass.cli.errors import check_is_local, remedy_with_target
from windlass.cli.invocation import Invocation, PausingClock
from windlass.cli.options import standard, yes_flag
from windlass.cli.output.formats import emit
from windlass.cli.text import plural
from windlass.kits.files import FileLock
from windlass.kits.state import StateError, StateFolder

_STOP_TIMEOUT_SECONDS = 75.0
_POLL_SECONDS = 0.05
"""Interval between attempts to take the lock, in seconds."""


@click.command("down")
@click.option("--now", is_flag=True, help="Kill running pods without a grace period.")
@click.option("--purge", is_flag=True, help="Remove the state directory with all objects and logs.")
@yes_flag()
@standard(namespace=False)
def command(invocation: Invocation, now: bool, purge: bool, yes: bool) -> int:
    """Stop the control plane and all that it runs."""
    check_is_local("down", invocation.context.target_flags, "uninstall")
    state = invocation.target.state
    if not state.path.exists():
        return _report(invocation, state, stopped=False, purged=False, ended=[])
    if purge and not yes and invocation.out.interactive:
        click.confirm(f"Remove {state.path} with all objects and logs?", abort=True, err=True)
    stopped = _stop(state, now=now)
    lock = _take_lock(state, invocation.clock)
    if lock is None:
        return _report(invocation, state, stopped=stopped, purged=True, ended=[])
    try:
        ended = _end_leftover_pods(state, 0.0 if now else 5.0)
        if purge:
            _purge(state)
    finally:
        lock.release()
    return _report(invocation, state, stopped=stopped, purged=purge, ended=ended)


def _take_lock(state: StateFolder, clock: PausingClock) -> FileLock | None:
    """Return the held lock of a state directory without a control plane; ``None`` if the directory is gone.

    This waits for another ``windlass down``, which holds the lock while it ends pods. Raises
    ``WL-DOWN-409`` if a control plane was started in the meantime.
    """
    lock = FileLock(state.lock)
    deadline = clock.monotonic() + _STOP_TIMEOUT_SECONDS
    while True:
        try:
            if lock.acquire():
                return lock
        except FileNotFoundError:  # another `down --purge` has removed the directory
            return None
        except OSError as error:
            raise state_error(StateError.of(state.path, error)) from error
        pid = _supervisor_of(state)
        if pid or clock.monotonic() >= deadline:
            holder = "another control plane was started" if pid else "another process uses the lock"
            raise WindlassError(
                "WL-DOWN-409",
                f"{holder} on this state directory in the meantime",
                evidence=f"{state.lock} is held{f' by pid {pid}' if pid else ''}",
                remedies=("windlass down",) if pid else (f"fuser -v {state.lock}", "windlass down"),
            )
        clock.pause(_POLL_SECONDS)


def _supervisor_of(state: StateFolder) -> int:
    """Return the pid of the supervisor that the directory names and that runs; 0 if there is none."""
    from windlass.kits import processes

    record = state.read_supervisor() or {}
    pid, ticks = record.get("pid"), record.get("startTicks")
    if isinstance(pid, int) and isinstance(ticks, int) and processes.is_alive(pid, ticks):
        return pid
    return 0


def _stop(state: StateFolder, *, now: bool) -> bool:
    """End the supervisor if one runs. Return whether one did.

    The lock shows that one runs. If the lock file was removed, the supervisor's record shows it.
    """
    from windlass.kits import processes

    probe = FileLock(state.lock)
    try:
        if probe.acquire():
            probe.release()
            if not _supervisor_of(state):
                return False
    except OSError as error:
        raise state_error(StateError.of(state.path, error)) from error
    record = state.read_supervisor() or {}
    pid, ticks = record.get("pid"), record.get("startTicks")
    if "stopped" in record and pid is None:
        return True  # another `down` has stopped it, and still ends its pods
    if not isinstance(pid, int):
        raise WindlassError(
            "WL-DOWN-500",
            "a control plane holds the state directory, but its process is unknown",
            evidence=f"{state.lock} is held; {state.supervisor} names no process",
            remedies=(f"fuser -v {state.lock}", "windlass down"),
        )
    first = signal.SIGQUIT if now else signal.SIGTERM
    if not processes.end(pid, ticks, patience_seconds=_STOP_TIMEOUT_SECONDS, signum=first):
        raise WindlassError(
            "WL-DOWN-403",
            f"the control plane (pid {pid}) cannot be stopped",
            evidence="the signal was rejected, or the process does not end even on SIGKILL",
            remedies=(f"ps -fp {pid}",),
        )
    return True


def _end_leftover_pods(state: StateFolder, grace_seconds: float) -> list[int]:
    """End pods that a killed control plane left behind. The caller holds the lock."""
    from windlass.node.cleanup import end_all

    return end_all(state, grace_seconds)


def _purge(state: StateFolder) -> None:
    import shutil

    socket_directory = state.socket.parent
    try:
        shutil.rmtree(state.path)
        if socket_directory != state.path and socket_directory.exists():
            shutil.rmtree(socket_directory)
    except OSError as error:
        raise state_error(StateError.of(state.path, error)) from error


def _report(
    invocation: Invocation, state: StateFolder, *, stopped: bool, purged: bool, ended: list[int]
) -> int:
    record = {
        "state": str(state.path),
        "stopped": stopped,
        "purged": purged,
        "endedProcesses": ended,
    }
    if invocation.structured:
        emit(invocation, record, names=[str(state.path)])
        return 0
    if ended:
        invocation.out.line(
            f"ended {plural(len(ended), 'process', 'processes')} that a killed control plane had left"
        )
    if stopped:
        invocation.out.line("stopped the control plane and all that it ran")
    elif not ended:
        invocation.out.line(f"no control plane runs on {state.path}")
    if purged:
        invocation.out.line(f"removed {state.path}")
    elif os.path.exists(state.path):
        purge = remedy_with_target("windlass down --purge", invocation.context.target_flags)
        invocation.out.line(f"objects and logs stay in {state.path}; to remove them: {purge}")
    return 0
