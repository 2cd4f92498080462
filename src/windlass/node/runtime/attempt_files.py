"""Files in the directory of an attempt, by which shim and agent communicate.

======================  =====================================================================
``spec.json``           what to run. The agent writes it before it starts the shim
``claim.json``          pid and start time of the shim, which creates it exclusively. A second
                        shim of the same attempt exits
``process.json``        pid and start time of the container's init, written before exec. A second
                        line has the time at which exec succeeded
``stop``                grace period in seconds for the SIGTERM that the shim is about to get
``exit.json``           end of the container. Only the shim writes it, atomically
======================  =====================================================================

The result of an attempt is *unknown* if it has a claim and no exit record, and its shim (pid and
start time, same boot) is gone. An unknown result never counts as success.

This module uses only the standard library and few imports, because the shim starts with it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from windlass.node.runtime import syscalls

if TYPE_CHECKING:
    from collections.abc import Mapping

SPEC, CLAIM, PROCESS, STOP, EXIT = (
    "spec.json",
    "claim.json",
    "process.json",
    "stop",
    "exit.json",
)

_STARTED_FORMERLY = "started.json"
"""Time of the start, written by a supervisor that started before an upgrade."""

_BLOCK = 65_536

ALREADY_CLAIMED = 75
"""Exit status of a shim if the attempt is already claimed (EX_TEMPFAIL)."""


def encode(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record).encode()


def write(directory: str, name: str, record: dict[str, Any], *, durable: bool = True) -> None:
    """Replace the record atomically. Raises ``OSError``.

    ``durable``: it survives a crash of the machine, at the cost of waiting for the disk. Records
    of processes need not be durable, since processes do not survive either.
    """
    path = os.path.join(directory, name)
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, json.dumps(record).encode())
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)


def create(directory: str, name: str, record: dict[str, Any]) -> bool:
    """Create the record. Return False if it exists."""
    try:
        descriptor = os.open(
            os.path.join(directory, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
    except FileExistsError:
        return False
    try:
        os.write(descriptor, json.dumps(record).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def read(directory: str, name: str) -> dict[str, Any] | None:
    """Return the record, or None if it is missing or was truncated by a crash."""
    try:
        data = _content(os.path.join(directory, name))
        record = json.loads(data.partition(b"\n")[0] if name == PROCESS else data)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def _content(path: str) -> bytes:
    """Return the content of a file. Most are read by short processes, with few calls therefore."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = block = os.read(descriptor, _BLOCK)
        while len(block) == _BLOCK:
            block = os.read(descriptor, _BLOCK)
            data += block
        return data
    finally:
        os.close(descriptor)


def add_start(directory: str, started_at_ns: int) -> None:
    """Write the time of the start to the record of the process. Raises ``OSError``.

    A line that is appended costs neither a file nor a wait for the disk. After a crash of the
    machine it may be missing: then the exit is unknown, and its time counts as that of the start.
    """
    descriptor = os.open(os.path.join(directory, PROCESS), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"\n" + json.dumps({"started_at_ns": started_at_ns}).encode())
    finally:
        os.close(descriptor)


def started_at(directory: str) -> float | None:
    """Return the Unix time at which exec succeeded, or None if it has not."""
    try:
        record = json.loads(_content(os.path.join(directory, PROCESS)).partition(b"\n")[2])
    except (FileNotFoundError, NotADirectoryError, ValueError):
        record = read(directory, _STARTED_FORMERLY)
    return record["started_at_ns"] / 1e9 if record else None


def identity(pid: int) -> dict[str, Any]:
    """Return the identity of a process: pid, start time and boot id."""
    return {"pid": pid, "start_time": syscalls.start_time(pid) or 0, "boot_id": syscalls.boot_id()}


def is_running(record: dict[str, Any] | None) -> bool:
    """Return whether the process of an :func:`identity` record is running."""
    if record is None or record.get("boot_id") != syscalls.boot_id():
        return False
    return syscalls.is_alive(int(record["pid"]), int(record["start_time"]))


def signal(record: dict[str, Any] | None, number: int) -> bool:
    """Send a signal to the process of an :func:`identity` record. Return False if it is gone."""
    if record is None or not is_running(record):
        return False
    try:
        os.kill(int(record["pid"]), number)
    except ProcessLookupError:  # it ended meanwhile and was reaped
        return False
    return True


ATTEMPT_MARK = "WINDLASS_ATTEMPT"
"""Environment variable of every process of an attempt. It identifies leftover processes."""


def kill_leftovers(directory: str) -> None:
    """Kill what a killed shim left. Init dies with it if the machine has parent-death signals."""
    signal(read(directory, PROCESS), 9)
    spec = read(directory, SPEC) or {}
    mark = (spec.get("env") or {}).get(ATTEMPT_MARK)
    if mark and (spec.get("target") or not spec.get("pid_namespace")):  # no namespace died with init
        syscalls.kill_marked(f"{ATTEMPT_MARK}={mark}")
