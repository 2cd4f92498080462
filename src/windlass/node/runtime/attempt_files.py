"""What shim and agent tell each other: small files in the folder of an attempt.

======================  =====================================================================
``spec.json``           what to run; written by the agent before it starts the shim
``claim.json``          created exclusively by the shim: its pid and start time. Who creates it
                        runs the attempt; a second shim for the same attempt gives up
``process.json``        pid and start time of the container's init; written before exec
``started.json``        the exec succeeded, and when
``stop``                grace in seconds for the SIGTERM that the shim is about to get
``exit.json``           how it ended; replaced atomically; never written by anyone but the shim
======================  =====================================================================

An attempt with a claim, without an exit record, whose shim (pid and start time, same boot) is gone is
*unknown*: it may have done anything, so it never counts as success.

Standard library only and few imports: the shim starts with this module.
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
"""Exit status of a shim that found the attempt claimed (EX_TEMPFAIL)."""


def encode(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record).encode()


def write(folder: str, name: str, record: dict[str, Any], *, durable: bool = True) -> None:
    """Replace the record in one step; ``durable``: it outlives a crash of the machine, which costs a wait for the disk.
    What names processes need not be, since no process does. Raises ``OSError``."""
    path = os.path.join(folder, name)
    temporary = f"{path}.{os.getpid()}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, json.dumps(record).encode())
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)


def create(folder: str, name: str, record: dict[str, Any]) -> bool:
    """Create the record; False if there is one already."""
    try:
        descriptor = os.open(
            os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
    except FileExistsError:
        return False
    try:
        os.write(descriptor, json.dumps(record).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def read(folder: str, name: str) -> dict[str, Any] | None:
    """The record, or None when there is none or it was cut off by a crash."""
    try:
        with open(os.path.join(folder, name), "rb") as stream:
            record = json.loads(stream.read())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def identity(pid: int) -> dict[str, Any]:
    """A process as a record: its pid, its start time and the boot in which these mean something."""
    return {"pid": pid, "start_time": syscalls.start_time(pid) or 0, "boot_id": syscalls.boot_id()}


def is_running(record: dict[str, Any] | None) -> bool:
    """Return whether the process of an :func:`identity` record is still there."""
    if record is None or record.get("boot_id") != syscalls.boot_id():
        return False
    return syscalls.is_alive(int(record["pid"]), int(record["start_time"]))


def signal(record: dict[str, Any] | None, number: int) -> bool:
    """Send a signal to the process of an :func:`identity` record; False when it is gone."""
    if record is None or not is_running(record):
        return False
    try:
        os.kill(int(record["pid"]), number)
    except ProcessLookupError:  # it ended in between, and was collected
        return False
    return True


ATTEMPT_MARK = "WINDLASS_ATTEMPT"
"""In the environment of every process of an attempt: how what is left of one can be recognised."""
