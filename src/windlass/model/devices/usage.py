"""Resources and device shares that a pod holds of its node.

All components outside the engine use these functions: the node usage of what the API
server shows, the conflicts between binds in flight, the bind guard, and pods that wait
for the cycles of other schedulers. So the requests of init containers, sidecars or the
pod as a whole, overhead, a resize in progress, a device claim and device annotations of
other schedulers count alike everywhere.

Devices are named by

* Windlass (``windlass.dev/devices`` …),
* Volcano's and HAMi's schedulers: per container ``UUID,type,MiB,percent`` of each
  device, with ``:`` after each device and ``;`` between containers,
* the allocation of the pod's ResourceClaims, whichever scheduler wrote it.

These annotations are read together with their node, when they are needed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.devices import assignment_annotations
from windlass.api.devices.assignment_annotations import DeviceAssignment
from windlass.api.devices.request import GPU, MIG, WHOLE
from windlass.api.devices.request_parser import annotation_words
from windlass.api.quantities import from_units, is_device
from windlass.model.devices import node_devices
from windlass.model.devices.assignment import own_annotations
from windlass.model.devices.device_needs import plain_resources
from windlass.model.devices.dra_claims import DraAllocation, DraClaims
from windlass.model.devices.reserved_devices import reserved_index
from windlass.model.devices.uuid_annotations import uuid_shares
from windlass.spi.devices import ConsumedCounters
from windlass.spi.objects import Device

if TYPE_CHECKING:
    from windlass.model.cluster.assumed_binds import AssumedBind

PODS = "pods"
Slot = tuple[str, int]
"""Resource and index of a device."""
UUID_ANNOTATIONS = (names.VGPU_IDS_VOLCANO, names.ALLOCATED_HAMI)
"""Pod annotations of other schedulers that name devices by UUID."""


class DeviceUse(NamedTuple):
    """Use of one device by a pod.

    ``claim``: the ResourceClaim through which other pods may use it too, or "".
    ``slots``: number of containers that use it. Device plugins limit how many
        containers share a device.
    ``share``, ``draws``: ID and consumption of the share, for a device that claims
        share.
    """

    part: DeviceAssignment
    claim: str = ""
    slots: int = 1
    share: str = ""
    draws: ConsumedCounters = ()


class ClaimLookup(Protocol):
    """Lookup of device claims.

    Implemented by :class:`windlass.model.devices.dra_claims.DraClaims` and by snapshots
    of it.
    """

    def listed_devices(self, node: str) -> tuple[Device, ...]:
        """Return the devices that slices list for a node."""
        ...

    def allocations_of(self, pod: views.Pod) -> Iterable[DraAllocation]:
        """Return the devices that the pod's claims hold."""
        ...


def resources_held(pod: views.Pod) -> Mapping[str, int]:
    """Return the node resources that a pod holds, without shared or reserved devices.

    Those are counted device by device.
    """
    if reserved_index(pod) is not None:
        return {name: units for name, units in pod.shape.request.items() if name != GPU}
    if not pod.shape.speaks_of_parts:
        return pod.shape.request
    amounts = plain_resources(pod.shape, annotation_words(pod.annotations))
    if assignment_annotations.SLICES in pod.annotations:
        return {name: units for name, units in amounts.items() if not name.startswith(MIG)}
    return amounts


def resources_with_pod(pod: views.Pod) -> dict[str, int]:
    """Return the resources of :func:`resources_held` and one unit of ``pods``."""
    return {**resources_held(pod), PODS: 1}


def names_devices(pod: views.Pod) -> bool:
    """Return whether an annotation or a claim may name the pod's devices."""
    if pod.shape.claims:
        return True
    annotations = pod.annotations
    return bool(annotations) and any(
        name in annotations for name in (assignment_annotations.DEVICES, *UUID_ANNOTATIONS)
    )


def shares_held(
    pod: views.Pod, node: views.NodeObject, claims: ClaimLookup | None
) -> list[tuple[Slot, DeviceUse]]:
    """Return the devices of its ``node`` that a pod uses.

    The list is empty if they cannot be determined. Then only the amounts count.
    """
    if assignment_annotations.DEVICES not in pod.annotations:
        by_uuid = [*_by_uuid(pod, node)]
        return by_uuid if claims is None else [*by_uuid, *_claimed(pod, claims)]
    try:
        parts = assignment_annotations.from_annotations(pod.annotations)
    except assignment_annotations.AssignmentError:
        return []
    claimed = list(_claimed(pod, claims)) if claims is not None else []
    if claimed and not pod.shape.devices:
        return claimed
    # With devices of several kinds, an index refers to the first of them.
    resource = next((name for name in sorted(resources_held(pod)) if is_device(name)), GPU)
    if claims is not None and pod.shape.claims and not pod.shape.devices:  # its claims show no allocation yet
        listed = {slot_resource(device) for device in claims.listed_devices(node.name)}
        if len(listed) > 1:
            return []
        resource = next(iter(listed), resource)
    named = pod.shape.claims[0].claim if len(pod.shape.claims) == 1 and not pod.shape.devices else ""
    together = f"{pod.namespace}/{named}" if named else ""
    return [((resource, part.index), DeviceUse(part, together)) for part in parts]


def _by_uuid(pod: views.Pod, node: views.NodeObject) -> Iterator[tuple[Slot, DeviceUse]]:
    for name in UUID_ANNOTATIONS:
        text = pod.annotations.get(name)
        if not text:
            continue
        places = {device.uuid: device for device in node_devices.devices_of(node) if device.uuid}
        first = sum(request.place.startswith("spec.initContainers") for request in pod.shape.devices)
        for uuid, slots, milli, mib in uuid_shares(text, first):
            device = places.get(uuid)
            if device is not None:
                yield (
                    (slot_resource(device), device.index),
                    DeviceUse(DeviceAssignment(device.index, milli, mib), "", slots),
                )
        return


def _claimed(pod: views.Pod, claims: ClaimLookup) -> Iterator[tuple[Slot, DeviceUse]]:
    for claim, resource, index, share, draws in claims.allocations_of(pod):
        part = DeviceAssignment(index, 0) if share else DeviceAssignment(index)
        yield (resource, index), DeviceUse(part, claim, share=share, draws=draws)


def slot_resource(device: Device) -> str:
    """Return the resource under which :func:`shares_held` reports a device."""
    return GPU if device.resource == node_devices.REGISTERED else device.resource


def as_bound(pod: views.Pod, assumed: AssumedBind) -> views.Pod:
    """Return the pod as it will be once its decided bind is seen."""
    annotations = (
        {**pod.annotations, **own_annotations(assumed.shares)} if assumed.shares else pod.annotations
    )
    return msgspec.structs.replace(pod, node_name=assumed.node, annotations=annotations)


class FreeOnNode:
    """Free resources of one node, reduced pod by pod.

    ``held``: pods that have devices there.
    """

    def __init__(
        self,
        node: views.NodeObject,
        used: Mapping[str, int],
        held: Iterable[views.Pod],
        claims: DraClaims | None,
    ) -> None:
        self._node = node
        self._claims = claims
        amounts = node_devices.amounts_of(node)
        self.left = {name: units - used.get(name, 0) for name, units in amounts.items()}
        self._uses: dict[Slot, list[DeviceUse]] = {}
        self._opened: set[Slot] = set()
        """Devices that can no longer be allocated whole, although no pod's amounts say so."""
        self._devices: dict[Slot, Device] | None = None
        for pod in held:
            self._take_devices(pod)

    def take(self, pod: views.Pod) -> None:
        for name, units in resources_with_pod(pod).items():
            if name in self.left:
                self.left[name] -= units
        self._take_devices(pod)

    def lacks(self, pod: views.Pod) -> list[str]:
        """Return the resources that the node has too little of for the pod, as text.

        Resources that the node does not list are ignored.
        """
        missing = []
        for name, units in sorted(resources_with_pod(pod).items()):
            if units > 0 and units > self.left.get(name, units):
                left = from_units(name, max(0, self.left[name]))
                missing.append(f"{from_units(name, units)} {name} of {left} left")
        return [*missing, *self.crowded(pod)]

    def over(self) -> dict[str, int]:
        """Return the excess of used resources over the node's capacity."""
        return {name: -units for name, units in self.left.items() if units < 0}

    def crowded(self, pod: views.Pod, *, taken: bool = False) -> Iterator[str]:
        """Yield the problems of devices that the pod names if it uses them in addition to others.

        ``taken``: true if the pod is already counted.
        """
        if not names_devices(pod):
            return
        own = shares_held(pod, self._node, self._claims)
        for slot, use in own:
            uses = self._uses.get(slot, [])
            device = self._device(slot)
            problem = _too_much(uses if taken else [*uses, use], device)
            if problem:
                yield f"device {slot[1]} ({slot[0]}) {problem}"
        yield from self._overdrawn(own)

    def _overdrawn(self, own: Collection[tuple[Slot, DeviceUse]]) -> Iterator[str]:
        """Yield the counters and shared capacities that the devices of the pod overdraw."""
        slots = {slot for slot, _ in own}
        wanted = {name for slot in slots if (one := self._device(slot)) for name, _, _ in one.draws}
        wanted |= {name for _, use in own for name, _, _ in use.draws}
        if not wanted:
            return
        consumed = [
            device.draws for slot in {*slots, *self._uses} if (device := self._device(slot)) is not None
        ]
        others = (use for uses in self._uses.values() for use in uses)
        consumed += {
            (use.claim, use.share): use.draws for use in (*others, *(use for _, use in own))
        }.values()
        used: dict[str, int] = {}
        totals: dict[str, int] = {}
        for name, units, total in (one for draws in consumed for one in draws):
            used[name] = used.get(name, 0) + units
            totals[name] = total
        for name in sorted(wanted):
            if used[name] > totals[name]:
                kind = "capacity" if ":" in name else "counter"
                counter = re.split("[/:]", name)[-1]
                part = used[name] / totals[name] if totals[name] else inf
                yield f"{kind} {counter} of its devices is allocated to {part:.2f} of its total"

    def _take_devices(self, pod: views.Pod) -> None:
        if not names_devices(pod):
            return
        amounts = resources_held(pod)
        for slot, use in shares_held(pod, self._node, self._claims):
            self._uses.setdefault(slot, []).append(use)
            if slot[0] not in amounts and not use.part.profile and slot not in self._opened:
                self._opened.add(slot)
                if slot[0] in self.left:
                    self.left[slot[0]] -= WHOLE

    def _device(self, slot: Slot) -> Device | None:
        if self._devices is None:
            listed = self._claims.listed_devices(self._node.name) if self._claims is not None else ()
            every = (*node_devices.devices_of(self._node), *listed)
            self._devices = {(slot_resource(device), device.index): device for device in every}
        return self._devices.get(slot)


def _too_much(uses: list[DeviceUse], device: Device | None) -> str:
    """Return the problem with the uses of one device; "" if there is none.

    A reservation has no share of its device.
    """
    uses = [use for use in uses if use.part.profile or use.part.milli or use.part.memory_mib]
    claims = {use.claim: use.part for use in uses if use.claim}
    parts = [*claims.values(), *(use.part for use in uses if not use.claim)]
    slices = [(part.profile, part.start) for part in parts if part.profile]
    if len(slices) != len(set(slices)) or (slices and len(slices) < len(parts)):
        return "is allocated twice"
    milli = sum(part.milli for part in parts)
    if milli > WHOLE or (len(parts) > 1 and any(part.whole for part in parts)):
        return (
            "is allocated twice"
            if any(part.whole for part in parts)
            else f"is allocated to {milli / WHOLE:g} of 1"
        )
    if device is None:
        return ""
    mib = sum(part.memory_mib for part in parts)
    if 0 < device.memory_mib < mib:
        return f"is allocated to {mib} MiB of {device.memory_mib} MiB"
    slots = sum(use.slots for use in uses)
    return f"has {slots} users of at most {device.slots}" if 0 < device.slots < slots else ""
