"""What to say when another supervisor holds the state folder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from windlass.api.errors import WindlassError
from windlass.app.options import UpOptions
from windlass.cli.starting import state_problem
from windlass.kits.clock import SystemClock
from windlass.kits.files import FileLock
from windlass.kits.processes import is_alive
from windlass.kits.state import StateError, StateFolder
from windlass.node.options import parse_images

READY_SECONDS = 60.0
"""So long may a start take: then its supervisor gives up."""
_ENDING_SECONDS = 15.0
_WORDS = {"port": "--port", "gpus": "--gpus", "nodeName": "--node-name", "images": "--images"}


def take_lock(state: StateFolder) -> FileLock | None:
    """The folder's lock, or ``None`` if another supervisor holds it. Raises :class:`WindlassError`."""
    lock = FileLock(state.lock)
    try:
        return lock if lock.acquire() else None
    except OSError as error:
        raise state_problem(StateError.of(state.path, error)) from error


def resumed(options: UpOptions) -> UpOptions:
    """After a crash, what was chosen then holds unless it is chosen anew: running pods hold those devices.

    A control plane that was stopped in order (``windlass down``) leaves no choices behind.
    """
    record = options.state.read_supervisor() or {}
    before = record.get("asked") if "stopped" not in record else None
    if not isinstance(before, dict):
        return options
    images = before.get("images")
    return replace(
        options,
        gpus=options.gpus or before.get("gpus"),
        node_name=options.node_name or before.get("nodeName"),
        images=options.images if options.images is not None or not images else parse_images(images),
    )


def wait_for_record(state: StateFolder, clock: SystemClock) -> dict[str, Any] | None:
    """The record of the supervisor that holds the lock, once it is ready; ``None`` if it let go meanwhile.

    Raises :class:`WindlassError` for one that does neither within the time that a start may take.
    """
    deadline = clock.monotonic() + READY_SECONDS + _ENDING_SECONDS
    while True:
        record = state.read_supervisor()
        # Who has just taken the lock after a crash has not yet written over what the one before said of itself.
        if record is not None and record.get("ready") and is_alive(record["pid"], record.get("startTicks")):
            return record
        probe = FileLock(state.lock)
        if probe.acquire():
            probe.release()
            return None
        if clock.monotonic() >= deadline:
            raise WindlassError(
                "WL-UP-504",
                "a control plane that is being started here does not get ready",
                evidence=f"its supervisor, pid {(record or {}).get('pid')}, holds {state.lock}",
                remedies=(f"tail -n 50 {state.logs}/*.log", "windlass doctor"),
            )
        clock.pause(0.05)


def differs(options: UpOptions, record: dict[str, Any]) -> WindlassError | None:
    """A conflict, if the running control plane was started with other choices than those asked for now."""
    running = record.get("asked") or {}
    differences = []
    for key, wanted in options.asked().items():
        flag = _WORDS[key]
        found = running.get(key)
        if key == "port" and wanted == record.get("port"):
            continue
        if key == "nodeName" and wanted == record.get("node"):
            continue
        if key == "images":
            if found != wanted:
                differences.append("it runs with another image map (or --images FILE has been changed since)")
        elif found != wanted:
            differences.append(f"{flag} {wanted} was asked for, it runs with {_shown(flag, found)}")
    if not differences:
        return None
    return WindlassError(
        "WL-UP-409",
        f"already running with other options (pid {record.get('pid')}, {record.get('url')})",
        evidence="; ".join(differences),
        remedies=("windlass down && windlass up " + _flags(options), "windlass up --state OTHER-DIR"),
    )


def _shown(flag: str, value: object) -> str:
    return f"{flag} {value}" if value is not None else f"the default of {flag}"


def _flags(options: UpOptions) -> str:
    asked = {key: value if key != "images" else "FILE" for key, value in options.asked().items()}
    return " ".join(f"{_WORDS[key]} {value}" for key, value in asked.items())
