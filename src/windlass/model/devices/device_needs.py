"""What a pod asks of devices (:mod:`windlass.api.devices.request_parser`) → the engine's needs, and what its queue is
charged.

A queue is charged in thousandths of devices whatever the vocabulary: a part of a device counts as the larger of
its compute and its memory. What share of a device an amount of memory is depends on the device, which is not known
before the pod is placed: it is counted against the smallest device of the cluster that could hold it, so a
queue never holds more than it is charged for. (KAI takes the smallest device for order and fair share; where it
takes the largest, for limits, a pod may start there that waits here.)

A MIG slice is charged under its own resource; in KAI's queues, which know GPUs alone, as the compute part that
its profile's name tells (``2g`` of 7).
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

CONTAINER_WORDS = (names.FRACTION_CONTAINER_KAI, names.DEVICE_CONTAINER)
"""Annotations that name a container of the pod."""


@dataclass(frozen=True, slots=True)
class ClusterDeviceFacts:
    """What the translation has to know of the cluster.

    ``memories``: by device resource the different sizes of its devices in MiB, rising. ``carved``: some node makes
    MIG slices as they are asked for. ``queue_words``: resources of the vocabularies that a queue names.
    """

    memories: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    carved: bool = False
    queue_words: frozenset[str] = frozenset()
    registered: bool = False
    """Some node's devices are handed out by Volcano's vGPU device plug-in: its words then mean those devices."""

    def card_of(self, ask: ContainerDeviceRequest) -> str:
        """The resource of the devices that an ask is served on."""
        volcano = self.registered and any(word == VOLCANO_VGPU.number for word, _ in ask.words)
        return VOLCANO_VGPU.number if volcano else ask.resource

    def share_of(self, resource: str, mib: int) -> int:
        """Thousandths of the smallest device that has so much memory; of an unknown device all of it."""
        size = next((size for size in self.memories.get(resource, ()) if size >= mib), 0)
        return -(-mib * WHOLE // size) if size else WHOLE


@dataclass(frozen=True, slots=True)
class ClaimedDevices:
    """What resource claims ask for, beside the words of the pod. ``charges``: by resource, in engine units."""

    needs: tuple[DeviceNeed, ...] = ()
    charges: tuple[tuple[str, int], ...] = ()
    problems: tuple[FieldError, ...] = ()


NO_CLAIMS = ClaimedDevices()


@dataclass(frozen=True, slots=True)
class DeviceCharges:
    """``request``: what the queue is charged. ``by_card``: what of it nodes are not asked for as an amount."""

    request: Mapping[str, int]
    devices: tuple[DeviceNeed, ...] = ()
    by_card: tuple[str, ...] = ()
    problems: tuple[FieldError, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceRequestContext:
    """``words``: the pod's annotations about devices. ``kai``: its queue is one of KAI's. ``group``: its gang, for
    wishes about the devices of its mates."""

    words: tuple[tuple[str, str], ...] = ()
    kai: bool = False
    group: str = ""
    claims: ClaimedDevices = NO_CLAIMS
    containers: tuple[str, ...] = ()
    """The pod's containers, where an annotation names one."""
    pinned: str = ""
    """The node where a claim that it shares with others is."""
    carries: tuple[str, ...] = ()
    avoids: tuple[str, ...] = ()
    """Who it is to others on its devices, and with whom it shares none."""


def parts_of(shape: PodShape, context: DeviceRequestContext, facts: ClusterDeviceFacts) -> DeviceCharges:
    """What a pod asks for in all, its parts of devices among it."""
    if shape.claims and context.claims is NO_CLAIMS:
        problem = FieldError.forbidden("spec.resourceClaims", "its claims have not been looked up")
        return DeviceCharges(shape.request, problems=(problem,))
    if not shape.devices and not context.words and context.claims is NO_CLAIMS:
        return DeviceCharges(shape.request)
    asked = request_parser.read(shape.devices, context.words)
    problems = (*asked.problems, *context.claims.problems, *_strangers(context))
    request = _ordinary(shape.request, asked)
    if problems:
        return DeviceCharges(request, problems=problems)
    building = _Building(request, facts, context.kai)
    for ask in asked.asks:
        building.add(ask, asked.requirements)
    for need in context.claims.needs:
        building.needs.append(need)
    for resource, units in context.claims.charges:
        building.charges[resource] = building.charges.get(resource, 0) + units
        building.by_card.add(resource)
    building.whole_cards(asked.requirements)
    needs = building.needs
    if asked.spread and context.group:
        token = (f"group:{context.group}",)
        needs = [replace(need, carries=token, avoids=token) for need in needs]
    if context.carries or context.avoids:
        needs = [
            replace(need, carries=(*need.carries, *context.carries), avoids=(*need.avoids, *context.avoids))
            for need in needs
        ]
    return DeviceCharges(building.request(), tuple(needs), tuple(sorted(building.by_card)))


def _strangers(context: DeviceRequestContext) -> Iterable[FieldError]:
    """Containers that annotations name and the pod does not have."""
    if not context.containers:
        return
    for name, text in context.words:
        if name in CONTAINER_WORDS and text.strip() not in context.containers:
            known = ", ".join(context.containers)
            yield FieldError.invalid(
                f"metadata.annotations[{name}]", text, f"the pod has no such container; it has {known}"
            )


def plain_resources(shape: PodShape, words: tuple[tuple[str, str], ...]) -> Mapping[str, int]:
    """What a pod holds of a node's amounts: all but parts of devices."""
    if not shape.speaks_of_parts:
        return shape.request
    return _ordinary(shape.request, request_parser.read(shape.devices, words))


def _ordinary(request: Mapping[str, int], asked: PodDeviceRequest) -> dict[str, int]:
    """The plain amounts: without the vocabularies' words and what they took over, with the devices that they
    ask for whole."""
    found = {name: units for name, units in request.items() if not request_parser.is_word(name)}
    profiles = {request_parser.resource_of(ask.profile) for ask in asked.asks if ask.profile}
    for name, units in asked.taken:
        if name not in profiles:
            found[name] = found.get(name, 0) - units
    for name, units in asked.whole:
        found[name] = found.get(name, 0) + units
    return {name: units for name, units in found.items() if units > 0}


@dataclass(slots=True)
class _Building:
    plain: dict[str, int]
    facts: ClusterDeviceFacts
    kai: bool
    needs: list[DeviceNeed] = field(default_factory=list)
    charges: dict[str, int] = field(default_factory=dict)
    by_card: set[str] = field(default_factory=set)

    def add(self, ask: ContainerDeviceRequest, requirements: DeviceRequirements) -> None:
        if ask.profile:
            self._profile(ask, requirements)
            return
        card = self.facts.card_of(ask)
        self.needs.append(replace(_wished(ask, requirements), resource=card))
        self._charge(ask.resource, charge_of(ask, self.facts) * ask.count)
        if card != ask.resource:
            self.by_card.add(ask.resource)
        for word, units in ask.words:
            if word in self.facts.queue_words:
                self._charge(word, units)
                self.by_card.add(word)

    def _profile(self, ask: ContainerDeviceRequest, requirements: DeviceRequirements) -> None:
        """Slices: an amount of their own where nobody carves; else of a device, or listed by the node."""
        listed = request_parser.resource_of(ask.profile)
        asked = ask.count * WHOLE
        if not ask.taken:
            self.plain[listed] = self.plain.get(listed, 0) + asked
        wished = requirements != DeviceRequirements()
        if self.facts.carved or wished:
            need = _wished(ask, requirements)
            self.needs.append(need if wished else replace(need, listed=listed))
            self.by_card.add(listed)
        if self.kai:
            self._charge(GPU, compute_share(ask.profile) * ask.count)
            self.by_card.add(GPU)

    def _charge(self, resource: str, units: int) -> None:
        self.charges[resource] = self.charges.get(resource, 0) + units

    def whole_cards(self, requirements: DeviceRequirements) -> None:
        """Whole devices beside parts of the same kind, or of which something is wished, are counted one by one."""
        resources = {need.resource for need in self.needs}
        wished = requirements != DeviceRequirements()
        for resource, units in sorted(self.plain.items()):
            cards = is_device(resource) and not resource.startswith(MIG) and units % WHOLE == 0
            if cards and (resource in resources or (wished and not self.needs) or resource in self.by_card):
                ask = ContainerDeviceRequest("", resource, units // WHOLE, milli=WHOLE)
                self.needs.append(_wished(ask, requirements))

    def request(self) -> dict[str, int]:
        total = dict(self.plain)
        for resource, units in self.charges.items():
            total[resource] = total.get(resource, 0) + units
        return total


def charge_of(ask: ContainerDeviceRequest, facts: ClusterDeviceFacts) -> int:
    """What one device's part counts for, in thousandths of a device."""
    memory = facts.share_of(facts.card_of(ask), ask.memory_mib) if ask.memory_mib else ask.memory_milli
    return min(WHOLE, max(ask.milli, memory))


def _wished(ask: ContainerDeviceRequest, requirements: DeviceRequirements) -> DeviceNeed:
    sliced = ask.slices and not ask.profile
    return DeviceNeed(
        resource=ask.resource,
        count=ask.count,
        milli=ask.milli,
        memory_mib=ask.memory_mib,
        memory_milli=ask.memory_milli,
        profile=ask.profile,
        slices=sliced or bool(ask.profile),
        shares=ask.shares and not ask.profile,
        models=requirements.models,
        models_not=requirements.models_not,
        uuids=requirements.uuids,
        uuids_not=requirements.uuids_not,
        min_memory_mib=requirements.min_memory_mib,
        min_compute=requirements.min_compute,
        pack=requirements.pack,
    )


def queue_words(amounts: Iterable[Mapping[str, int]]) -> frozenset[str]:
    """The vocabularies' words among the resources that queues name."""
    return frozenset(name for each in amounts for name in each if request_parser.is_word(name))


def sizes(memories: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """By resource the different sizes of devices, rising; unknown ones (0) left out."""
    found: dict[str, set[int]] = {}
    for resource, mib in memories:
        if mib > 0:
            found.setdefault(resource, set()).add(mib)
    return {resource: tuple(sorted(known)) for resource, known in sorted(found.items())}
