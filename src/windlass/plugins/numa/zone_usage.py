"""The books of zones: what is free of each node's zones, and who would be served how.

One :class:`RowZones` per node that has zones. A pod's service depends on nothing but its needs, the node's
layout and what is free; so nodes in equal states are asked about once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from windlass.plugins.numa.kubelet_allocation import (
    WHOLE,
    KubeletAllocation,
    ZoneLayout,
    is_memory,
    layout_of,
    serve,
    unit_of,
)
from windlass.plugins.numa.topology_hints import sets_by_size
from windlass.spi.numa import (
    CPU,
    AlignmentPolicy,
    ContainerNeed,
    NumaHolding,
    NumaNeed,
    NumaTopology,
)

Card = tuple[str, int]
State = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class NumaService:
    """How a node serves pods of certain needs: by which policy, and what of the needs counts."""

    need: NumaNeed
    policy: AlignmentPolicy


def service(need: NumaNeed, node: NumaTopology) -> NumaService:
    """A node that ``obeys`` serves a pod by the policy that it names, of its zones' processors whole ones and
    of its memory all, whatever its quality of service; a pod that names none it gives devices alone."""
    if not node.obeys or node.policy is not AlignmentPolicy.NONE:
        return NumaService(need, node.policy)
    if need.policy is None or need.policy is AlignmentPolicy.NONE:
        return NumaService(replace(need, guaranteed=False), AlignmentPolicy.NONE)
    containers = tuple(
        replace(c, amounts=tuple((n, _rounded(n, amount)) for n, amount in c.amounts))
        for c in need.containers
    )
    return NumaService(NumaNeed(containers, guaranteed=True, policy=need.policy), need.policy)


def _rounded(name: str, amount: int) -> int:
    return -(-amount // WHOLE) * WHOLE if name == CPU else amount


class RowZones:
    """One node's zones. Amounts that are held may exceed what there is, where the world says so."""

    __slots__ = ("_cards", "_reported", "_state", "_zone_of", "layout", "spans", "used")

    def __init__(self, node: NumaTopology) -> None:
        self._reported = node.zones
        self.layout: ZoneLayout = layout_of(_lasting(node))
        self.used = {name: [0] * self.layout.size for name in self.layout.capacity}
        self.spans: Counter[tuple[int, ...]] = Counter()
        self._cards: dict[Card, int] = {}
        """Device → pods that hold it, or a part of it."""
        self._zone_of = {(resource, index): zone for resource, index, zone in node.cards}
        self._state: State | None = None

    def state(self) -> State:
        """Equal for nodes of one layout that serve every pod alike."""
        if self._state is None:
            spans = tuple(sorted(self.spans))
            self._state = (self.layout, spans, *(tuple(amounts) for amounts in self.used.values()))
        return self._state

    def allocation(self) -> KubeletAllocation:
        """What is left, for a pod to be served from."""
        size = self.layout.size
        free = {
            name: [has - used for has, used in zip(amounts, self.used[name], strict=True)]
            for name, amounts in self.layout.allocatable.items()
        }
        assignments, cells = [0] * size, [1 << place for place in range(size)]
        for span, count in self.spans.items():
            places = [self.layout.places[number] for number in span if number in self.layout.places]
            for place in places:
                assignments[place] += count
                cells[place] = sum(1 << other for other in places)
        return KubeletAllocation(free, assignments, cells)

    def change(self, holding: NumaHolding, sign: int) -> None:
        """Book a holding (1), or take it out (-1)."""
        self._state = None
        by_card = {resource for resource, index in holding.cards if (resource, index) in self._zone_of}
        for number, amounts in holding.zones:
            place = self.layout.places.get(number)
            if place is None:
                continue
            for name, amount in amounts:
                if name in self.used and name not in by_card:
                    self.used[name][place] += sign * amount
        for span in holding.spans:
            self.spans[span] += sign
            if not self.spans[span]:
                del self.spans[span]
        for card in holding.cards:
            self._count_card(card, sign)

    def _count_card(self, card: Card, sign: int) -> None:
        number = self._zone_of.get(card)
        place = None if number is None else self.layout.places.get(number)
        resource = card[0]
        if place is None or resource not in self.used:
            return
        before = self._cards.get(card, 0)
        after = before + sign
        if after:
            self._cards[card] = after
        else:
            self._cards.pop(card, None)
        self.used[resource][place] += unit_of(resource) * (bool(after) - bool(before))

    def with_cards(self, holding: NumaHolding, cards: Iterable[Card]) -> NumaHolding:
        """The holding with the devices that the pod really has, where it is known in which zone they are. A
        device of which it has a part is in use; amounts are told of whole ones only, as pods ask zones for."""
        known = [card for card in cards if card in self._zone_of]
        if not known:
            return holding
        requested = {name for _, amounts in holding.zones for name, _ in amounts}
        resources = {resource for resource, _ in known}
        zones: dict[int, dict[str, int]] = {
            number: {name: amount for name, amount in amounts if name not in resources}
            for number, amounts in holding.zones
        }
        for resource, index in known:
            if resource not in requested:
                continue
            amounts_there = zones.setdefault(self._zone_of[resource, index], {})
            amounts_there[resource] = amounts_there.get(resource, 0) + unit_of(resource)
        told = tuple((n, tuple(sorted(zones[n].items()))) for n in sorted(zones) if zones[n])
        return NumaHolding(told, holding.spans, tuple(sorted(known)))

    def guessed(self, requested: NumaService) -> NumaHolding:
        """What a pod that runs holds, if nobody says: of the zones that the node reports to be in use beyond
        what is booked, if they would account for it; else what it would get now, aligned if it can be."""
        reported = self._unexplained()
        if reported is not None:
            found = self._explained_by(requested.need, reported)
            if found is not None:
                return found
        for policy in dict.fromkeys((requested.policy, AlignmentPolicy.BEST_EFFORT, AlignmentPolicy.NONE)):
            found = serve(requested.need, self.layout, self.allocation(), policy)
            if found is not None:
                return found
        return NumaHolding()

    def _unexplained(self) -> dict[str, list[int]] | None:
        """What the node says is in use of each zone, less what is booked; ``None`` where it does not say."""
        zones = self._reported
        if any(zone.free is None for zone in zones):
            return None
        found: dict[str, list[int]] = {}
        for name, amounts in self.layout.allocatable.items():
            free = [dict(zone.free or ()).get(name, 0) for zone in zones]
            booked = self.used[name]
            found[name] = [has - left - mine for has, left, mine in zip(amounts, free, booked, strict=True)]
        return found

    def _explained_by(self, need: NumaNeed, unexplained: dict[str, list[int]]) -> NumaHolding | None:
        """The smallest set of zones whose use the pod would explain, and the pod served from that alone."""
        allocation = KubeletAllocation(
            {n: [max(0, a) for a in v] for n, v in unexplained.items()}, *_unpinned(self.layout.size)
        )
        for mask in sets_by_size(self.layout.size):
            only = allocation.copy()
            for amounts in only.free.values():
                for place in range(self.layout.size):
                    if not mask >> place & 1:
                        amounts[place] = 0
            found = serve(need, self.layout, only, AlignmentPolicy.NONE)
            if found is not None and found.zones:
                return found
        return None


def _lasting(node: NumaTopology) -> NumaTopology:
    """Without what changes from report to report: nodes of one make share the rest."""
    if all(zone.free is None for zone in node.zones):
        return node
    return replace(node, zones=tuple(replace(zone, free=None) for zone in node.zones))


def _unpinned(size: int) -> tuple[list[int], list[int]]:
    return [0] * size, [1 << place for place in range(size)]


def counted(need: NumaNeed, node: NumaTopology) -> dict[str, int]:
    """What of a pod's needs its zones are asked for, containers added up."""
    found: dict[str, int] = {}
    layout = layout_of(node)
    for container in need.containers:
        for name, amount in _of_container(need, container, layout).items():
            found[name] = found.get(name, 0) + amount
    return found


def _of_container(need: NumaNeed, container: ContainerNeed, layout: ZoneLayout) -> dict[str, int]:
    node = layout.node
    found = {}
    for name, amount in container.amounts:
        if name == CPU:
            counts = (
                need.guaranteed and node.exclusive_cpus and amount % WHOLE == 0 and name in layout.capacity
            )
        elif is_memory(name):
            counts = need.guaranteed and node.pinned_memory and name in layout.allocatable
        else:
            counts = name in layout.devices
        if counts and amount > 0:
            found[name] = amount
    return found
