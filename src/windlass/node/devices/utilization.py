"""Measured utilisation of the GPUs of each pod, for the scaling of jobs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from statistics import fmean

from windlass.api.devices.node_annotation import DeviceRecord
from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.node.devices.allocations import Held
from windlass.node.devices.nvml import Nvml

STEP_PERCENT = 5
"""Change in percentage points from which on a new value is published at once."""
PUBLISH_SECONDS = 45.0
"""Interval after which unchanged values are published again. A value counts for 120 s."""


def read_utilization(nvml: Nvml, devices: Mapping[str, DeviceRecord]) -> dict[str, int]:
    """Return the utilisation in percent by key of the device, of those that report it. Blocks."""
    found = {}
    for key, device in devices.items():
        try:
            value = nvml.optional(
                lambda device=device: int(
                    nvml.library.nvmlDeviceGetUtilizationRates(
                        nvml.library.nvmlDeviceGetHandleByUUID(device.uuid)
                    ).gpu
                ),
                -1,
            )
        except nvml.error:
            continue  # the device is lost, which its health reports
        if value >= 0:
            found[key] = value
    return found


def utilization_note(read: Mapping[str, int], held: Iterable[Held], now: float, before: str) -> str:
    """Return the node's annotation: the mean over the whole GPUs of each pod, and the time. Pure.

    ``before``: the last annotation. It is kept while it is recent and no value differs much,
    so that the node is not written at each check. Empty if no pod has a GPU that reports it.
    """
    by_pod: dict[str, dict[str, int]] = {}
    for each in held:
        value = read.get(each.hold.device)
        if value is not None and not each.hold.profile:
            by_pod.setdefault(each.pod, {})[each.hold.device] = value
    if not by_pod:
        return ""
    pods = {pod: round(fmean(values.values())) for pod, values in sorted(by_pod.items())}
    if _is_recent(before, pods, now):
        return before
    return json.dumps({"at": rfc3339(now), "pods": pods}, separators=(",", ":"))


def _is_recent(before: str, pods: Mapping[str, int], now: float) -> bool:
    try:
        record = json.loads(before) if before else {}
        known, at = record.get("pods") or {}, parse_rfc3339(record.get("at") or "")
    except (ValueError, AttributeError, TypeError):
        return False
    close = all(abs(value - known.get(pod, -100)) < STEP_PERCENT for pod, value in pods.items())
    return known.keys() == pods.keys() and close and now - at < PUBLISH_SECONDS
