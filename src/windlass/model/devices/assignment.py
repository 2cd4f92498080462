"""Devices assigned to a pod, as Binding annotations and as plan entries.

The annotations are part of the Binding, so a pod never has a node without its devices.
Windlass' own annotations (:mod:`windlass.api.devices.assignment_annotations`) are
always written. The ones that the runtime of the pod's node reads are added:

* Volcano's vGPU device plugin reads ``volcano.sh/vgpu-ids-new`` and related
  annotations. Each device of a container is ``UUID,type,MiB,percent`` with a trailing
  ``:``; containers are separated by ``;``.
* HAMi's annotations are in :mod:`windlass.model.devices.hami_annotations`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.devices import assignment_annotations, request_parser
from windlass.api.devices.numa_annotations import PLACEMENT
from windlass.api.devices.request import WHOLE
from windlass.api.devices.resource_names import VOLCANO, VOLCANO_VGPU, compute_share, profile_of
from windlass.engine.decision import Bind, DeviceShare
from windlass.model.devices import hami_annotations, node_devices
from windlass.model.devices.consumable_capacity import share_of
from windlass.model.devices.uuid_annotations import uuid_shares
from windlass.model.nodes import numa
from windlass.spi.objects import Dialect, HeldSlice

_SLICE = re.compile(r"([0-9]{1,4}):([0-9a-z.+-]{1,40})@([0-9]{1,2})")
_POSITION = re.compile(r"spec\.containers\[([0-9]+)\]")
_VOLCANO_TYPE = "NVIDIA"
"""Device type that Volcano's scheduler writes for every device of this plugin."""
INDEX_VOLCANO = "volcano.sh/gpu-index"
"""Annotation of a bound pod: indices of its devices, in Volcano's older form."""
_INDEX_RESOURCES = (VOLCANO.memory, VOLCANO.number)
WRITTEN = frozenset(
    (
        INDEX_VOLCANO,
        names.VGPU_IDS_VOLCANO,
        names.ALLOCATED_HAMI,
        names.VISIBLE_DEVICES,
        assignment_annotations.DEVICES,
        assignment_annotations.SHARES,
        assignment_annotations.SLICES,
        PLACEMENT,
    )
)
"""Annotations that describe the devices of a pod. A recreated pod starts without them."""


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """Device in a plan.

    ``milli``: share of the device, in thousandths; ``WHOLE`` for a static slice.
    """

    index: int
    milli: int
    profile: str = ""


def allocated_devices(share: DeviceShare) -> AllocatedDevice:
    """Return the plan entry of a device share.

    Its share is the larger one of compute and memory; for a slice, its compute share.
    """
    static = profile_of(share.resource)
    if static:
        return AllocatedDevice(share.index, WHOLE, static)
    if share.profile:
        return AllocatedDevice(share.index, compute_share(share.profile), share.profile)
    if share.draws:
        return AllocatedDevice(share.index, share_of(share.draws))
    memory = -(-share.memory_mib * WHOLE // share.device_mib) if share.device_mib else 0
    return AllocatedDevice(share.index, min(WHOLE, max(share.milli, memory)))


def assignments_of(shares: Iterable[DeviceShare]) -> tuple[assignment_annotations.DeviceAssignment, ...]:
    """Return the shares as device assignments, one per device."""
    return tuple(
        assignment_annotations.DeviceAssignment(
            share.index, share.milli, share.memory_mib, share.profile, share.start
        )
        if share.start >= 0 or share.milli < WHOLE
        else assignment_annotations.DeviceAssignment(share.index)
        for share in shares
    )


def own_annotations(shares: Iterable[DeviceShare]) -> dict[str, str]:
    """Return Windlass' own annotations; none for a pod without devices."""
    return assignment_annotations.to_annotations(assignments_of(shares))


def annotations_of(
    bind: Bind, pod: views.Pod | None, node: views.NodeObject | None, dialect: Dialect, now: float
) -> dict[str, str]:
    """Return all annotations of the Binding of ``bind``. ``now``: Unix seconds."""
    written = own_annotations(bind.devices) | numa.annotations_of(bind.zones)
    if not bind.devices or pod is None:
        return written
    if dialect is Dialect.KAI:
        parts = any(share.milli < WHOLE and not share.profile for share in bind.devices)
        written[names.RECEIVED_KAI] = "Fraction" if parts else "Regular"
    if any(name in _INDEX_RESOURCES for request in pod.shape.devices for name, _ in request.amounts):
        written[INDEX_VOLCANO] = written[assignment_annotations.DEVICES]
    registered = node_devices.registered(node) if node is not None else ()
    if registered and any(share.resource == node_devices.REGISTERED for share in bind.devices):
        written |= _volcano(bind, pod, {device.index: device.uuid for device in registered}, now)
    if node is not None and names.REGISTER_HAMI in node.annotations:
        written |= hami_annotations.annotations_of(bind, pod, node, now)
    return written


def _volcano(bind: Bind, pod: views.Pod, uuids: Mapping[int, str], now: float) -> dict[str, str]:
    """Return the annotations from which Volcano's vGPU device plugin takes a pod's devices."""
    seconds = str(int(now))
    text = ";".join(_per_container(bind, pod, uuids))
    return {
        names.VGPU_IDS_VOLCANO: text,
        "volcano.sh/devices-to-allocate": text,
        "volcano.sh/vgpu-node": bind.node,
        "volcano.sh/vgpu-time": seconds,
        "volcano.sh/bind-time": seconds,
        "volcano.sh/bind-phase": "allocating",
    }


def _per_container(bind: Bind, pod: views.Pod, uuids: Mapping[int, str]) -> Sequence[str]:
    """Return one text per container, in their order; empty for a container without devices."""
    remaining = [share for share in bind.devices if share.resource == node_devices.REGISTERED]
    parsed = request_parser.read(pod.shape.devices, request_parser.annotation_words(pod.annotations))
    places = {device_request.name: _place(device_request.place) for device_request in pod.shape.devices}
    texts: dict[int, str] = {}
    for request in parsed.asks:
        if not any(resource == VOLCANO_VGPU.number for resource, _ in request.words):
            continue
        own, remaining = remaining[: request.count], remaining[request.count :]
        texts[places.get(request.container, 0)] = "".join(
            f"{uuids.get(share.index, '')},{_VOLCANO_TYPE},{share.memory_mib or share.device_mib},{share.milli // 10}:"
            for share in own
        )
    return [texts.get(place, "") for place in range(max(texts, default=-1) + 1)]


def _place(field: str) -> int:
    match = _POSITION.match(field)
    return int(match[1]) if match else 0


# ------------------------------------------------------------------ annotations of running pods


def names_devices(
    annotations: Mapping[str, str], devices: Iterable[int], slices: Sequence[HeldSlice]
) -> bool:
    """Return whether a bound pod has exactly these devices.

    Otherwise another scheduler bound the pod first.
    """
    reported = annotations.get(assignment_annotations.DEVICES, "")
    if reported != ",".join(str(index) for index in sorted(set(devices))):
        return False
    return slices_of(annotations.get(assignment_annotations.SLICES, "")) == tuple(slices)


@lru_cache(maxsize=4096)
def slices_of(text: str) -> tuple[HeldSlice, ...]:
    """Return the slices of a running pod: ``"0:1g.10gb@6"`` is slice ``1g.10gb`` of device 0.

    Unreadable entries are skipped. The engine then counts resources only.
    """
    matches = (_SLICE.fullmatch(entry.strip()) for entry in text.split(","))
    return tuple(HeldSlice(int(m[1]), m[2], int(m[3])) for m in matches if m)


def held_devices(annotations: Mapping[str, str], node: views.NodeObject | None) -> str:
    """Return the device indices that a running pod reports.

    For a pod that Volcano's own scheduler or HAMi's placed: the indices that it wrote,
    or the indices of the devices with the UUIDs that it wrote.
    """
    own = annotations.get(names.DEVICES, "") or annotations.get(INDEX_VOLCANO, "")
    foreign = annotations.get(names.VGPU_IDS_VOLCANO, "") or annotations.get(names.ALLOCATED_HAMI, "")
    if own or not foreign or node is None:
        return own
    places = {device.uuid: device.index for device in node_devices.devices_of(node) if device.uuid}
    return ",".join(str(places[share.uuid]) for share in uuid_shares(foreign) if share.uuid in places)
