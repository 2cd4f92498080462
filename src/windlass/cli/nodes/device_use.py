"""Measured memory of the pods on each device."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windlass.api import quantities
from windlass.api.annotations import DEVICE_USE, SIMULATED, SIMULATED_USE
from windlass.node.devices.labels import DRIVER_VERSION, SIMULATED_DRIVER

Object = Mapping[str, Any]
_MIB = 2**20


def used_mib(node: Object, pod: Object, index: int) -> int | None:
    """Return the memory that a pod uses on a device of its node; ``None`` if nothing measures it.

    The node agent measures the processes on its GPUs. A simulated GPU runs nothing: a pod
    there uses what it declares, by default nothing.
    """
    metadata = node["metadata"]
    labels = metadata.get("labels") or {}
    if labels.get(SIMULATED) == "true" or labels.get(DRIVER_VERSION) == SIMULATED_DRIVER:
        return _declared((pod["metadata"].get("annotations") or {}).get(SIMULATED_USE, ""))
    text = (metadata.get("annotations") or {}).get(DEVICE_USE, "")
    try:
        measured = json.loads(text) if text else None
    except ValueError:
        return None  # written by another program
    if not isinstance(measured, dict):
        return None
    by_pod = measured.get(str(index)) or {}
    used = by_pod.get(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", 0)
    return used if isinstance(used, int) else None


def _declared(text: str) -> int:
    try:
        return max(0, quantities.to_units("memory", text)) // _MIB if text else 0
    except quantities.QuantityError:
        return 0
