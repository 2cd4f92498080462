"""Files in the directory of an attempt, by which shim and agent communicate.

======================  =====================================================================
``spec.json``           what to run. The agent writes it before it starts the shim
``claim.json``          pid and start time of the shim, which creates it exclusively. A second
                        shim of the same attempt exits
``process.json``        pid and start time of the container's init, written before exec
``started.json``        time at which exec succeeded
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

SPEC, CLAIM, PROCESS, STARTED, STOP, EXIT = (
    "spec.json",
    "claim.json",
    "process.json",
    "started.json",
    "stop",
    "exit.json",
)

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
        with open(os.path.join(directory, name), "rb") as stream:
            record = json.loads(stream.read())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return record if isinstance(record, dict) else None


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
