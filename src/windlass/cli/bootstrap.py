"""Starting the control plane of this box from the command line, and waiting until it is ready."""

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
"""What the supervisor's log ends with when it could not go on, before the reason."""
_ELSEWHERE = "windlass up --state DIR   (or set WINDLASS_STATE)"


def state_problem(error: StateError) -> WindlassError:
    """A folder that cannot be used, in words that name the remedy."""
    code, what, remedies = {
        StateProblem.READ_ONLY: ("WL-STATE-403", "is on a read-only file system", (_ELSEWHERE,)),
        StateProblem.DENIED: (
            "WL-STATE-403",
            "cannot be written by this user",
            (f"ls -ld {error.path}", _ELSEWHERE),
        ),
        StateProblem.FULL: ("WL-STATE-507", "is on a full disk", (f"df -h {error.path}", _ELSEWHERE)),
        StateProblem.NOT_A_FOLDER: ("WL-STATE-409", "is not a folder", (_ELSEWHERE,)),
        StateProblem.NETWORK: (
            "WL-STATE-422",
            "is on a network file system, where the database's locks cannot be relied upon",
            ("windlass up --state /var/tmp/windlass", "windlass up --allow-network-filesystem"),
        ),
        StateProblem.FOREIGN: ("WL-STATE-403", "belongs to another user", (_ELSEWHERE,)),
    }.get(error.problem, ("WL-STATE-500", "cannot be used", (_ELSEWHERE,)))
    return WindlassError(
        code, f"the state folder {error.path} {what}", evidence=error.detail, remedies=remedies
    )


def start(
    state: StateFolder,
    arguments: Sequence[str] = (),
    *,
    progress: Callable[[str], None] = lambda _text: None,
) -> dict[str, Any]:
    """Start a detached control plane and wait until it is ready; its record (``supervisor.json``).

    ``already`` in the record: it ran before. Raises :class:`WindlassError` with what the supervisor told.
    """
    from windlass.kits.processes import spawn_daemon

    try:
        state.prepare(allow_network="--allow-network-filesystem" in arguments)
        log = state.log("supervisor")
        child, reader = spawn_daemon("windlass.app", ["up", "--state", str(state.path), *arguments], log)
    except StateError as error:
        raise state_problem(error) from error
    except OSError as error:
        raise state_problem(StateError.of(state.path, error)) from error
    with os.fdopen(reader, "rb") as stream:
        for line in stream:
            told = msgspec.json.decode(line)
            if "phase" in told:
                progress(told["phase"])
            elif "ready" in told:
                return told["ready"]
            else:
                _collect(child)
                raise _error(told["error"])
    code = child.poll()
    raise WindlassError(
        "WL-UP-500",
        "the control plane ended before it was ready",
        evidence=f"exit status {code}; the end of {log}: {last_words(log)}",
        remedies=(f"tail -n 50 {log}", "windlass doctor"),
    )


def _collect(child: Child) -> None:
    """Wait for a supervisor that gave up: when the command returns, nothing of it is left."""
    from windlass.kits.clock import SystemClock

    clock = SystemClock()
    deadline = clock.monotonic() + _ENDING_SECONDS
    while child.poll() is None and clock.monotonic() < deadline:
        clock.pause(0.01)


def _error(told: dict[str, Any]) -> WindlassError:
    return WindlassError(
        told["code"], told["message"], evidence=told.get("evidence", ""), remedies=told.get("remedies", ())
    )


def last_words(log: Path, size: int = 4000) -> str:
    """The last line of a log file that says something."""
    try:
        with open(log, "rb") as stream:
            stream.seek(max(0, log.stat().st_size - size))
            lines = stream.read().decode(errors="replace").split("\n")
    except OSError:
        return "(no log)"
    return next((line.strip() for line in reversed(lines) if line.strip()), "(empty)")


def why_down(state: StateFolder) -> str:
    """Why no control plane runs there, as far as the folder tells: that its disk is full, what it said when it gave up,
    that it was killed. Empty where it ended in good order or was never there."""
    stamp, _, words = last_words(state.log("supervisor")).partition(" supervisor: ")
    found = f"it gave up at {stamp}: {words.removeprefix(GIVING_UP)}" if words.startswith(GIVING_UP) else ""
    if is_full(state.path):
        return f"{found}; it is full now" if found else f"the disk of {state.path} is full"
    record = state.read_supervisor() or {}
    if found or not record.get("pid") or is_alive(record["pid"], record.get("startTicks")):
        return found
    return f"its process, {record['pid']}, ended without a word: it was killed, or the machine went down"


def is_full(folder: Path) -> bool:
    """Whether nothing more can be written there, as far as it is known."""
    try:
        room = os.statvfs(folder)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < _FULL_BYTES


def is_running(state: StateFolder) -> bool:
    """Whether somebody listens on the API socket."""
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(state.socket))
        except OSError:
            return False
    return True


def last_choices(state: StateFolder) -> dict[str, Any]:
    """What the last ``windlass up`` of this folder chose, in the words of its record; empty where nothing tells it."""
    chosen = (state.read_supervisor() or {}).get("asked")
    return chosen if isinstance(chosen, dict) else {}


def is_ready(state: StateFolder) -> bool:
    """Whether the supervisor has told that everything is up; its socket listens from the first moment on."""
    return bool((state.read_supervisor() or {}).get("ready"))
