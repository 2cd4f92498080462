"""Resource requests of a pod in engine units, over all its containers, and its QoS class.

The effective amount is that of ``resourcehelper.PodRequests``: the larger of the running containers
(with sidecars) and each init container together with the sidecars started before it; pod-level amounts
replace the sum for the resources that they name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from windlass.api import quantities
from windlass.api.quantities import to_vector

_QOS_RESOURCES = ("cpu", "memory")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_REMEMBERED_BYTES = 2_048


def pod_requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Engine units by resource. Raises :class:`windlass.api.quantities.QuantityError`."""
    running = quantities.add(*(_asked(container) for container in spec.get("containers") or ()))
    sidecars: dict[str, int] = {}
    peaks: list[dict[str, int]] = []
    for init in spec.get("initContainers") or ():
        amounts = _asked(init)
        if init.get("restartPolicy") == "Always":
            sidecars = quantities.add(sidecars, amounts)
            peaks.append(sidecars)
        else:
            peaks.append(quantities.add(sidecars, amounts))
    total = quantities.maximum([quantities.add(running, sidecars), *peaks])
    total.update(_asked(spec))
    if spec.get("overhead"):
        total = quantities.add(total, to_vector(spec["overhead"]))
    return total


def _asked(holder: Mapping[str, Any]) -> dict[str, int]:
    """The requests of a container, or of a whole pod."""
    return to_vector((holder.get("resources") or {}).get("requests"))


def qos_class(spec: Mapping[str, Any]) -> str:
    """Guaranteed, Burstable or BestEffort (``ComputePodQOS``): only cpu and memory count."""
    whole = spec.get("resources")
    holders = [whole] if whole and (whole.get("requests") or whole.get("limits")) else None
    if holders is None:
        containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        holders = [container.get("resources") or {} for container in containers]
    encoded = _encode(holders)
    return _qos_remembered(encoded) if len(encoded) <= _REMEMBERED_BYTES else _qos(holders)


@lru_cache(maxsize=1_024)
def _qos_remembered(encoded: bytes) -> str:
    """The pods of a gang ask for the same."""
    return _qos(_decode(encoded))


def _qos(holders: list[Any]) -> str:
    """``holders``: the ``resources`` of the containers, or of the pod."""
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    guaranteed = True
    for holder in holders:
        asked = _compute(holder.get("requests"))
        capped = _compute(holder.get("limits"))
        requests = quantities.add(requests, asked)
        limits = quantities.add(limits, capped)
        guaranteed = guaranteed and len(capped) == len(_QOS_RESOURCES)
    if not requests and not limits:
        return "BestEffort"
    if guaranteed and all(limits.get(name) == units for name, units in requests.items()):
        return "Guaranteed" if len(requests) == len(limits) else "Burstable"
    return "Burstable"


def _compute(amounts: Mapping[str, Any] | None) -> dict[str, int]:
    named = {name: text for name, text in (amounts or {}).items() if name in _QOS_RESOURCES}
    return {name: units for name, units in to_vector(named).items() if units > 0}
