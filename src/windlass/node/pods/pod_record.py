"""Record of a pod in its directory (``pod.json``), from which the next agent resumes the pod."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from windlass.kits.files import write_atomic
from windlass.node.lifecycle.state_machine import PodMachine

_RECORD = "pod.json"


def write_pod_record(
    directory: Path, pod: Mapping[str, Any], machine: PodMachine, health: Mapping[str, Any]
) -> None:
    """Write the record. ``health``: probe results of the containers."""
    record = {
        "pod": pod,
        "started_at": machine.started_at,
        "address": machine.address,
        "failure": [machine.failure_reason, machine.failure_message],
        "health": health,
        "restarted": machine.together.ended,
        "reported": machine.together.reported,
    }
    write_atomic(directory / _RECORD, msgspec.json.encode(record), durable=False)


def read_pod_record(directory: Path) -> dict[str, Any] | None:
    """Return the record, or None if ``directory`` has no readable one."""
    try:
        record = json.loads((directory / _RECORD).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return record if isinstance(record, dict) and "pod" in record else None
