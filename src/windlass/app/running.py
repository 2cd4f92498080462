"""State of the directory at a start: a running supervisor, or the options of the last one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from windlass.api.errors import WindlassError
from windlass.app.options import UpOptions, check_gpus, check_kubelet, check_node_name
from windlass.cli.bootstrap import state_error
from windlass.kits.clock import SystemClock
from windlass.kits.files import FileLock
from windlass.kits.processes import is_alive
from windlass.kits.state import StateError, StateFolder
from windlass.node.options import parse_images

READY_SECONDS = 120.0
"""Timeout of a start in seconds, after which the supervisor gives up."""
_ENDING_SECONDS = 15.0
_WORDS = {
    "port": "--port",
    "gpus": "--gpus",
    "nodeName": "--node-name",
    "images": "--images",
    "kubelet": "--kubelet-flags",
    "allowNetwork": "--allow-network-filesystem",
}


def take_lock(state: StateFolder) -> FileLock | None:
    """Return the directory's lock; ``None`` if another supervisor holds it.

    :raises WindlassError: the lock cannot be used
    """
    lock = FileLock(state.lock)
    try:
        return lock if lock.acquire() else None
    except OSError as error:
        raise state_error(StateError.of(state.path, error)) from error


def missing_data(state: StateFolder) -> str:
    """Return a text about data of an earlier start that is missing; empty if nothing is.

    The store refuses a database that is missing next to its mark. Without the whole directory, it would
    start with an empty one. Without the write-ahead log, it starts with the objects of the last checkpoint.
    """
    record = state.read_supervisor()
    if record is None or not record.get("port"):
        return ""  # no start was ever ready
    database = state.database
    log = database.with_name(f"{database.name}-wal")
    if not database.exists() and not database.with_name(f"{database.name}.made").exists():
        return (
            f"{database} is missing: all objects of the last start are gone; to keep them, put "
            f"{database.parent} back while nothing runs"
        )
    if "stopped" not in record and database.exists() and not log.exists():
        return (
            f"{log} is missing after an end without shutdown: changes since the last checkpoint are lost; to keep "
            f"them, put it back while nothing runs"
        )
    return ""


def resumed(options: UpOptions) -> tuple[UpOptions, str]:
    """Return the options completed by those of the last start, and a text about them
    (``""``: none).

    After a crash, or after giving up because of a full disk, the last options apply,
    since running pods hold those devices. After an orderly end (``windlass down``) they
    apply to an implicit start only, which restores the former state. An explicit ``up``
    uses its own options. The port is not included: every start uses the last one again
    if it is free. A damaged record, or one with unknown options, is ignored as a whole;
    an implicit start reports that.
    """
    typed = {} if options.implicit else options.asked()
    try:
        chosen = _last_choices(options)
        images = parse_images(chosen["images"]) if "images" in chosen else None
    except (OSError, ValueError, WindlassError) as error:
        why = f"{error.message}: {error.evidence}" if isinstance(error, WindlassError) else str(error)
        message = (
            f"with the defaults: {options.state.supervisor} does not contain the options of the last windlass up"
            f" ({why})"
        )
        return options, message if options.implicit else ""
    taken = {key: value for key, value in chosen.items() if key not in typed and key != "port"}
    if not taken:
        return options, ""
    filled = replace(
        options,
        gpus=taken.get("gpus", options.gpus),
        node_name=taken.get("nodeName", options.node_name),
        images=images if "images" in taken else options.images,
        kubelet=tuple(taken.get("kubelet", options.kubelet)),
        allow_network=taken.get("allowNetwork", options.allow_network),
    )
    as_then = " (the image map as it was read then)" if "images" in taken else ""
    return filled, f"with the flags of the last windlass up: {_flags(taken)}{as_then}"


def _last_choices(options: UpOptions) -> dict[str, Any]:
    """Return the recorded options of the last start (``UpOptions.asked``), if they
    apply to this one.

    :raises OSError, ValueError, WindlassError: the record cannot be read or is invalid
    """
    try:
        record = json.loads(options.state.supervisor.read_bytes())
    except FileNotFoundError:
        return {}
    chosen = record.get("asked") if isinstance(record, dict) else None
    if not isinstance(chosen, dict):
        raise ValueError("it contains no options")
    if "stopped" in record and not options.implicit:
        return {}
    unknown = sorted(chosen.keys() - _WORDS.keys())
    if unknown:
        raise ValueError(f"unknown options: {', '.join(unknown)}")
    for key, kind in (
        ("gpus", str),
        ("nodeName", str),
        ("images", dict),
        ("kubelet", list),
        ("allowNetwork", bool),
    ):
        if not isinstance(chosen.get(key, kind()), kind):
            raise ValueError(f"{key} cannot be {chosen[key]!r}")
    if "gpus" in chosen:
        check_gpus(chosen["gpus"])
    if "nodeName" in chosen:
        check_node_name(chosen["nodeName"])
    check_kubelet(chosen.get("kubelet", ()))
    return chosen


def wait_for_record(state: StateFolder, clock: SystemClock) -> dict[str, Any] | None:
    """Return the record of the supervisor that holds the lock, once it is ready.

    ``None``: it released the lock meanwhile.

    :raises WindlassError: neither happened within the timeout of a start
    """
    deadline = clock.monotonic() + READY_SECONDS + _ENDING_SECONDS
    while True:
        record = state.read_supervisor()
        # A new supervisor after a crash may hold the lock before it has replaced the
        # old record.
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
    """Return a conflict if the running control plane was started with other options."""
    running = record.get("asked") or {}
    differences = []
    for key, wanted in options.asked().items():
        if key == "allowNetwork":  # the folder was taken already
            continue
        flag = _WORDS[key]
        current = running.get(key)
        if key == "port" and wanted == record.get("port"):
            continue
        if key == "nodeName" and wanted == record.get("node"):
            continue
        if key == "images":
            if current != wanted:
                differences.append("it runs with another image map (or --images FILE has been changed since)")
        elif key == "kubelet" and current != wanted:
            differences.append(f"it runs with other kubelet flags: {' '.join(current or ()) or 'none'}")
        elif current != wanted:
            differences.append(f"{flag} {wanted} was asked for, it runs with {_shown(flag, current)}")
    if not differences:
        return None
    return WindlassError(
        "WL-UP-409",
        f"already running with other options (pid {record.get('pid')}, {record.get('url')})",
        evidence="; ".join(differences),
        remedies=("windlass down && windlass up " + _flags(options.asked()), "windlass up --state OTHER-DIR"),
    )


def _shown(flag: str, value: object) -> str:
    return f"{flag} {value}" if value is not None else f"the default of {flag}"


def _flags(asked: dict[str, Any]) -> str:
    """Return the options as flags.

    The file of an image map is not named, because only its content is known.
    """
    words = {**asked, "images": "FILE", "allowNetwork": ""}
    return " ".join(
        " ".join(words[key]) if key == "kubelet" else f"{_WORDS[key]} {words[key]}".rstrip() for key in asked
    )
