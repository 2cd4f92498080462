"""Start of the control plane of this machine from the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.api.errors import WindlassError
from windlass.kits.processes import is_alive
from windlass.kits.state import StateError, StateFolder, StateProblem

if TYPE_CHECKING:
    from windlass.kits.processes import Child

_ENDING_SECONDS = 5.0
_FULL_BYTES = 64 << 10
GIVING_UP = "giving up: "
"""Prefix of the last line of the supervisor's log when it gave up. The reason follows.
"""
_ELSEWHERE = "windlass up --state DIR   (or set WINDLASS_STATE)"


def state_error(error: StateError) -> WindlassError:
    """Return the error for a state directory that cannot be used."""
    code, what, remedies = {
        StateProblem.READ_ONLY: ("WL-STATE-403", "is on a read-only file system", (_ELSEWHERE,)),
        StateProblem.DENIED: (
            "WL-STATE-403",
            "cannot be written by this user",
            (f"ls -ld {error.path}", _ELSEWHERE),
        ),
        StateProblem.FULL: ("WL-STATE-507", "is on a full disk", (f"df -h {error.path}", _ELSEWHERE)),
        StateProblem.NOT_A_FOLDER: ("WL-STATE-409", "is not a directory", (_ELSEWHERE,)),
        StateProblem.NETWORK: (
            "WL-STATE-422",
            "is on a network file system, where the database's locks are not reliable",
            ("windlass up --state /var/tmp/windlass", "windlass up --allow-network-filesystem"),
        ),
        StateProblem.FOREIGN: ("WL-STATE-403", "belongs to another user", (_ELSEWHERE,)),
    }.get(error.problem, ("WL-STATE-500", "cannot be used", (_ELSEWHERE,)))
    return WindlassError(
        code, f"the state directory {error.path} {what}", evidence=error.detail, remedies=remedies
    )


def start(
    state: StateFolder,
    arguments: Sequence[str] = (),
    *,
    progress: Callable[[str], None] = lambda _text: None,
) -> dict[str, Any]:
    """Start a detached control plane, wait until it is ready, and return its record.

    The record is ``supervisor.json``. It has the key ``already`` if the control plane
    ran before.

    Raises :class:`WindlassError` with the supervisor's error.
    """
    from windlass.kits.processes import spawn_daemon

    try:
        state.prepare(allow_network="--allow-network-filesystem" in arguments)
        log = state.log("supervisor")
        child, reader = spawn_daemon("windlass.app", ["up", "--state", str(state.path), *arguments], log)
    except StateError as error:
        raise state_error(error) from error
    except OSError as error:
        raise state_error(StateError.of(state.path, error)) from error
    with os.fdopen(reader, "rb") as stream:
        for line in stream:
            message = msgspec.json.decode(line)
            if "phase" in message:
                progress(message["phase"])
            elif "ready" in message:
                return message["ready"]
            else:
                _collect(child)
                raise _error(message["error"])
    code = child.poll()
    raise WindlassError(
        "WL-UP-500",
        "the control plane ended before it was ready",
        evidence=f"exit status {code}; the end of {log}: {last_line(log)}",
        remedies=(f"tail -n 50 {log}", "windlass doctor"),
    )


def _collect(child: Child) -> None:
    """Wait for the end of a supervisor that gave up.

    So no process is left when the command returns.
    """
    from windlass.kits.clock import SystemClock

    clock = SystemClock()
    deadline = clock.monotonic() + _ENDING_SECONDS
    while child.poll() is None and clock.monotonic() < deadline:
        clock.pause(0.01)


def _error(error: dict[str, Any]) -> WindlassError:
    return WindlassError(
        error["code"],
        error["message"],
        evidence=error.get("evidence", ""),
        remedies=error.get("remedies", ()),
    )


def last_line(log: Path, size: int = 4000) -> str:
    """Return the last line of a log file that is not blank."""
    try:
        with open(log, "rb") as stream:
            stream.seek(max(0, log.stat().st_size - size))
            lines = stream.read().decode(errors="replace").split("\n")
    except OSError:
        return "(no log)"
    return next((line.strip() for line in reversed(lines) if line.strip()), "(empty)")


def down_reason(state: StateFolder) -> str:
    """Return why no control plane runs there, as far as the directory tells.

    Known causes are a full disk, the supervisor's last message, and a killed process.
    Empty after a regular stop, and if none ever ran.
    """
    stamp, _, message = last_line(state.log("supervisor")).partition(" supervisor: ")
    reason = (
        f"it gave up at {stamp}: {message.removeprefix(GIVING_UP)}" if message.startswith(GIVING_UP) else ""
    )
    if is_full(state.path):
        return f"{reason}; the disk is full now" if reason else f"the disk of {state.path} is full"
    record = state.read_supervisor() or {}
    if reason or not record.get("pid") or is_alive(record["pid"], record.get("startTicks")):
        return reason
    return f"its process {record['pid']} ended without a message: it was killed, or the machine went down"


def is_full(directory: Path) -> bool:
    """Return whether the file system of ``directory`` is known to be full."""
    try:
        statistics = os.statvfs(directory)
    except OSError:
        return False
    return statistics.f_bavail * statistics.f_frsize < _FULL_BYTES


def is_running(state: StateFolder) -> bool:
    """Return whether a process listens on the API socket."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(state.socket))
        except OSError:
            return False
    return True


def last_options(state: StateFolder) -> dict[str, Any]:
    """Return the options of the last ``windlass up`` of this directory.

    The keys are those of its record. Empty if no record exists.
    """
    options = (state.read_supervisor() or {}).get("asked")
    return options if isinstance(options, dict) else {}


def is_ready(state: StateFolder) -> bool:
    """Return whether the supervisor has reported that all parts are up.

    Its socket listens earlier than that.
    """
    return bool((state.read_supervisor() or {}).get("ready"))
