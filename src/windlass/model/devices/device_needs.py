"""Device requests of a pod, translated to the engine's needs and to the charge of its queue.

Requests are read by :mod:`windlass.api.devices.request_parser`. A queue is charged in
thousandths of devices, whatever the vocabulary: a device share counts as the larger one
of its compute and its memory. The share that an amount of memory is depends on the
device, which is not known before placement. It is computed for the smallest device of
the cluster that could hold the memory, so a queue never holds more than its charge.
(KAI takes the smallest device for order and fair share. For limits it takes the
largest, so that a pod may start under KAI that waits here.)

A MIG slice is charged under its own resource. In KAI's queues, which count GPUs only,
it is charged as the compute share in its profile's name (``2g`` of 7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from windlass.api import annotations as names
from windlass.api.devices import request_parser
from windlass.api.devices.request import MIG
from windlass.api.devices.request_parser import (
    GPU,
    WHOLE,
    ContainerDeviceRequest,
    DeviceRequirements,
    PodDeviceRequest,
)
from windlass.api.devices.resource_names import VOLCANO_VGPU, compute_share
from windlass.api.errors import FieldError
from windlass.api.quantities import is_device
from windlass.api.views import PodShape
from windlass.spi.devices import DeviceNeed

CONTAINER_ANNOTATIONS = (names.FRACTION_CONTAINER_KAI, names.DEVICE_CONTAINER)
"""Annotations that name a container of the pod."""


@dataclass(frozen=True, slots=True)
class ClusterDeviceFacts:
    """Facts about the cluster that the translation needs.

    ``memories``: per device resource the distinct device sizes in MiB, ascending.
    ``carved``: true if a node creates MIG slices on request.
    ``queue_vocabulary``: resources of the vocabularies that a queue names.
    """

    memories: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    carved: bool = False
    queue_vocabulary: frozenset[str] = frozenset()
    registered: bool = False
    """True if Volcano's vGPU device plugin allocates the devices of some node.

    The plugin's resources then mean those devices.
    """

    def device_resource(self, request: ContainerDeviceRequest) -> str:
        """Return the resource of the devices that serve a request."""
        volcano = self.registered and any(resource == VOLCANO_VGPU.number for resource, _ in request.words)
        return VOLCANO_VGPU.number if volcano else request.resource

    def share_of(self, resource: str, mib: int) -> int:
        """Return the share, in thousandths, of the smallest device that has ``mib`` of memory.

        ``WHOLE`` if no known device is that large.
        """
        size = next((size for size in self.memories.get(resource, ()) if size >= mib), 0)
        return -(-mib * WHOLE // size) if size else WHOLE


@dataclass(frozen=True, slots=True)
class ClaimedDevices:
    """Device needs of resource claims, in addition to the pod's own requests.

    ``charges``: by resource, in engine units.
    """

    needs: tuple[DeviceNeed, ...] = ()
    charges: tuple[tuple[str, int], ...] = ()
    problems: tuple[FieldError, ...] = ()


NO_CLAIMS = ClaimedDevices()


@dataclass(frozen=True, slots=True)
class DeviceCharges:
    """Charge of a pod's queue, and the pod's device needs.

    ``request``: resources charged to the queue.
    ``by_card``: resources of ``request`` that nodes do not have to offer as an amount.
    """

    request: Mapping[str, int]
    devices: tuple[DeviceNeed, ...] = ()
    by_card: tuple[str, ...] = ()
    problems: tuple[FieldError, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceRequestContext:
    """Context in which a pod's device requests are read.

    ``words``: the pod's annotations about devices.
    ``kai``: true if its queue is one of KAI's.
    ``group``: its gang, for preferences about the devices of the other members.
    """

    words: tuple[tuple[str, str], ...] = ()
    kai: bool = False
    group: str = ""
    claims: ClaimedDevices = NO_CLAIMS
    containers: tuple[str, ...] = ()
    """The pod's containers, if an annotation names one."""
    pinned: str = ""
    """Node of a claim that the pod shares with other pods; "" without one."""
    carries: tuple[str, ...] = ()
    avoids: tuple[str, ...] = ()
    """Sharing labels of the pod on its devices, and the labels that it shares no device with."""


def charges_of(shape: PodShape, context: DeviceRequestContext, facts: ClusterDeviceFacts) -> DeviceCharges:
    """Return all that a pod requests, including its device shares."""
    if shape.claims and context.claims is NO_CLAIMS:
        problem = FieldError.forbidden("spec.resourceClaims", "its claims have not been looked up")
        return DeviceCharges(shape.request, problems=(problem,))
    if not shape.devices and not context.words and context.claims is NO_CLAIMS:
        return DeviceCharges(shape.request)
    requested = request_parser.read(shape.devices, context.words)
    problems = (*requested.problems, *context.claims.problems, *_unknown_containers(context))
    request = _ordinary(shape.request, requested)
    if problems:
        return DeviceCharges(request, problems=problems)
    building = _Building(request, facts, context.kai)
    for ask in requested.asks:
        building.add(ask, requested.requirements)
    for need in context.claims.needs:
        building.needs.append(need)
    for resource, units in context.claims.charges:
        building.charges[resource] = building.charges.get(resource, 0) + units
        building.by_card.add(resource)
    building.add_whole_devices(requested.requirements)
    needs = building.needs
    if requested.spread and context.group:
        token = (f"group:{context.group}",)
        needs = [replace(need, carries=token, avoids=token) for need in needs]
    if context.carries or context.avoids:
        needs = [
            replace(need, carries=(*need.carries, *context.carries), avoids=(*need.avoids, *context.avoids))
            for need in needs
        ]
    return DeviceCharges(building.request(), tuple(needs), tuple(sorted(building.by_card)))


def _unknown_containers(context: DeviceRequestContext) -> Iterable[FieldError]:
    """Yield an error for each container that an annotation names and the pod lacks."""
    if not context.containers:
        return
    for name, text in context.words:
        if name in CONTAINER_ANNOTATIONS and text.strip() not in context.containers:
            known = ", ".join(context.containers)
            yield FieldError.invalid(
                f"metadata.annotations[{name}]", text, f"the pod has no such container; it has {known}"
            )


def plain_resources(shape: PodShape, annotations: tuple[tuple[str, str], ...]) -> Mapping[str, int]:
    """Return the node resources that a pod holds: its request without device shares."""
    if not shape.speaks_of_parts:
        return shape.request
    return _ordinary(shape.request, request_parser.read(shape.devices, annotations))


def _ordinary(request: Mapping[str, int], requested: PodDeviceRequest) -> dict[str, int]:
    """Return the plain resources of a request.

    The vocabularies' resources and what they replace are left out. Devices that they
    request whole are included.
    """
    plain = {name: units for name, units in request.items() if not request_parser.is_word(name)}
    profiles = {request_parser.resource_of(ask.profile) for ask in requested.asks if ask.profile}
    for name, units in requested.taken:
        if name not in profiles:
            plain[name] = plain.get(name, 0) - units
    for name, units in requested.whole:
        plain[name] = plain.get(name, 0) + units
    return {name: units for name, units in plain.items() if units > 0}


@dataclass(slots=True)
class _Building:
    plain: dict[str, int]
    facts: ClusterDeviceFacts
    kai: bool
    needs: list[DeviceNeed] = field(default_factory=list)
    charges: dict[str, int] = field(default_factory=dict)
    by_card: set[str] = field(default_factory=set)

    def add(self, request: ContainerDeviceRequest, requirements: DeviceRequirements) -> None:
        if request.profile:
            self._profile(request, requirements)
            return
        resource = self.facts.device_resource(request)
        self.needs.append(replace(_need_of(request, requirements), resource=resource))
        self._charge(request.resource, charge_of(request, self.facts) * request.count)
        if resource != request.resource:
            self.by_card.add(request.resource)
        for name, units in request.words:
            if name in self.facts.queue_vocabulary:
                self._charge(name, units)
                self.by_card.add(name)

    def _profile(self, request: ContainerDeviceRequest, requirements: DeviceRequirements) -> None:
        """Add slices of a profile.

        They are an amount of their own unless a node creates slices on request or the
        pod selects devices. In those cases they are a device need that a device, or a
        slice listed by the node, can serve.
        """
        listed = request_parser.resource_of(request.profile)
        amount = request.count * WHOLE
        if not request.taken:
            self.plain[listed] = self.plain.get(listed, 0) + amount
        selective = requirements != DeviceRequirements()
        if self.facts.carved or selective:
            need = _need_of(request, requirements)
            self.needs.append(need if selective else replace(need, listed=listed))
            self.by_card.add(listed)
        if self.kai:
            self._charge(GPU, compute_share(request.profile) * request.count)
            self.by_card.add(GPU)

    def _charge(self, resource: str, units: int) -> None:
        self.charges[resource] = self.charges.get(resource, 0) + units

    def add_whole_devices(self, requirements: DeviceRequirements) -> None:
        """Count whole devices one by one if shares of the same kind or device preferences exist."""
        resources = {need.resource for need in self.needs}
        selective = requirements != DeviceRequirements()
        for resource, units in sorted(self.plain.items()):
            countable = is_device(resource) and not resource.startswith(MIG) and units % WHOLE == 0
            if countable and (
                resource in resources or (selective and not self.needs) or resource in self.by_card
            ):
                request = ContainerDeviceRequest("", resource, units // WHOLE, milli=WHOLE)
                self.needs.append(_need_of(request, requirements))

    def request(self) -> dict[str, int]:
        total = dict(self.plain)
        for resource, units in self.charges.items():
            total[resource] = total.get(resource, 0) + units
        return total


def charge_of(request: ContainerDeviceRequest, facts: ClusterDeviceFacts) -> int:
    """Return the charge of one device's share, in thousandths of a device."""
    memory = (
        facts.share_of(facts.device_resource(request), request.memory_mib)
        if request.memory_mib
        else request.memory_milli
    )
    return min(WHOLE, max(request.milli, memory))


def _need_of(request: ContainerDeviceRequest, requirements: DeviceRequirements) -> DeviceNeed:
    sliced = request.slices and not request.profile
    return DeviceNeed(
        resource=request.resource,
        count=request.count,
        milli=request.milli,
        memory_mib=request.memory_mib,
        memory_milli=request.memory_milli,
        profile=request.profile,
        slices=sliced or bool(request.profile),
        shares=request.shares and not request.profile,
        models=requirements.models,
        models_not=requirements.models_not,
        uuids=requirements.uuids,
        uuids_not=requirements.uuids_not,
        min_memory_mib=requirements.min_memory_mib,
        min_compute=requirements.min_compute,
        pack=requirements.pack,
    )


def queue_vocabulary(amounts: Iterable[Mapping[str, int]]) -> frozenset[str]:
    """Return the vocabularies' resources among those that queues name."""
    return frozenset(name for each in amounts for name in each if request_parser.is_word(name))


def sizes(memories: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """Return the distinct device sizes per resource, ascending; unknown sizes (0) are left out."""
    by_resource: dict[str, set[int]] = {}
    for resource, mib in memories:
        if mib > 0:
            by_resource.setdefault(resource, set()).add(mib)
    return {resource: tuple(sorted(known)) for resource, known in sorted(by_resource.items())}
