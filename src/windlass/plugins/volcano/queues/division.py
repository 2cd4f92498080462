"""Volcano's fair shares: ``proportion`` (by weight, bounded by the demand) and ``capacity`` (as stated).

``QueueShare.fair`` is what Volcano calls deserved. The formulas are those of Volcano's plugins of the same
names; amounts are integers, scaled by 2^32 while ``proportion`` halves and thirds them, and a difference
below a tenth of a unit is none, as in Volcano.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windlass.spi.objects import Dialect, Queue, Resources
from windlass.spi.plugins import QueueView, include_flavors
from windlass.spi.shares import QueueShare, ShareCause, SharePart

SCALE = 32
"""Bits behind the point while shares are divided."""

CLOSE = (1 << SCALE) // 10
"""A tenth of a unit."""


# ---------------------------------------------------------------------- real capability


def flat_capabilities(queues: Sequence[QueueView], total: Resources) -> list[dict[str, int]]:
    """min(capability, total - what all queues are guaranteed + the own guarantee), per resource of the
    total or of a capability. A capability that is missing or not above 0 is none."""
    reserved: dict[str, int] = {}
    for queue in queues:
        for name, units in queue.spec.guarantee.items():
            reserved[name] = reserved.get(name, 0) + units
    found = []
    for queue in queues:
        spec = queue.spec
        bounds = {
            name: units - reserved.get(name, 0) + spec.guarantee.get(name, 0) for name, units in total.items()
        }
        found.append(_capped(bounds, spec.capability))
    return found


def child_capabilities(parent: QueueView | None, queues: Sequence[QueueView]) -> list[dict[str, int]]:
    """In a tree: min(own capability, the parent's real capability - what the siblings, the queue
    included, are guaranteed + the own guarantee). Without a bound above, only the own capability."""
    above = parent.real_capability if parent is not None else {}
    reserved: dict[str, int] = {}
    for queue in queues:
        for name, units in queue.spec.guarantee.items():
            reserved[name] = reserved.get(name, 0) + units
    found = []
    for queue in queues:
        guarantee = queue.spec.guarantee
        bounds = {
            name: units - reserved.get(name, 0) + guarantee.get(name, 0) for name, units in above.items()
        }
        found.append(_capped(bounds, queue.spec.capability))
    return found


def _capped(bounds: dict[str, int], capability: Resources) -> dict[str, int]:
    for name, units in capability.items():
        if units > 0:
            bounds[name] = min(units, bounds.get(name, units))
    return bounds


# ---------------------------------------------------------------------- capacity


class CapacityDivision:
    """``fair`` = max(min(deserved, real capability), guarantee), in a tree max(deserved, guarantee), of
    the resources for which either is stated."""

    name = "capacity-division"
    dialect = Dialect.VOLCANO

    def __init__(self, *, hierarchy: bool = False) -> None:
        self.flat = not hierarchy

    def demand_matters(self, queue: QueueView, before: Resources, after: Resources) -> bool:
        """What is stated does not follow the demand."""
        return False

    def divide(
        self, parent: QueueView | None, queues: Sequence[QueueView], total: Mapping[str, int]
    ) -> Sequence[QueueShare]:
        bounds = flat_capabilities(queues, total) if self.flat else child_capabilities(parent, queues)
        found = []
        for queue, bound in zip(queues, bounds, strict=True):
            fair = dict(include_flavors(queue.spec.deserved))
            if self.flat:
                fair = {name: min(units, bound.get(name, units)) for name, units in fair.items()}
            parts = {name: (SharePart(ShareCause.DESERVED, units),) for name, units in fair.items() if units}
            for name, units in queue.spec.guarantee.items():
                if units > fair.get(name, 0):
                    fair[name] = units
                    parts[name] = (SharePart(ShareCause.GUARANTEED, units),)
            found.append(QueueShare(fair, fair, bound, parts))
        return found


# ---------------------------------------------------------------------- proportion


@dataclass(slots=True)
class _Claim:
    weight: int
    request: dict[str, int]
    guarantee: dict[str, int]
    bounds: dict[str, int]
    given: dict[str, int] = field(default_factory=dict)
    met: bool = False


class ProportionDivision:
    """The cluster by weight, in rounds: what a queue cannot use goes to the others. Never more than its
    request or its real capability, never less than its guarantee. Queues without any work take no part."""

    name = "proportion-division"
    dialect = Dialect.VOLCANO
    flat = True

    def __init__(self) -> None:
        self._bounds: tuple[Queue, Mapping[str, int], dict[str, int]] | None = None
        """The real capability of a queue that was the only one, and the total of which it was made."""

    def demand_matters(self, queue: QueueView, before: Resources, after: Resources) -> bool:
        """See :class:`~windlass.spi.shares.Division`. A request beyond what the queue is given bounds it in no round,
        nor does it satisfy it in any."""
        fair = queue.fair_share
        if before.keys() != after.keys():
            return True
        for name, units in after.items():
            least = min(units, before[name])
            if units != before[name] and not 0 <= fair.get(name, -1) < least:
                return True
        return False

    def divide(
        self, parent: QueueView | None, queues: Sequence[QueueView], total: Mapping[str, int]
    ) -> Sequence[QueueShare]:
        if len(queues) == 1 and not queues[0].spec.guarantee and queues[0].spec.weight > 0:
            spec, known = queues[0].spec, self._bounds
            if known is None or known[0] is not spec or known[1] is not total:
                known = self._bounds = spec, total, flat_capabilities(queues, total)[0]
            return [_alone(queues[0], known[2], total)]
        bounds = flat_capabilities(queues, total)
        claims: dict[int, _Claim] = {}
        for at, queue in enumerate(queues):
            request = {name: units for name, units in queue.demand.items() if units > 0}
            if request:
                guarantee = {name: units << SCALE for name, units in queue.spec.guarantee.items()}
                scaled = {name: units << SCALE for name, units in request.items()}
                limit = {name: units << SCALE for name, units in bounds[at].items()}
                claims[at] = _Claim(queue.spec.weight, scaled, guarantee, limit)
        _rounds(list(claims.values()), {name: units << SCALE for name, units in total.items()})
        weights = sum(claim.weight for claim in claims.values())
        found = []
        for at, queue in enumerate(queues):
            claim = claims.get(at)
            if claim is None:
                found.append(QueueShare({}, {}, bounds[at]))
                continue
            fair = {name: (units + CLOSE) >> SCALE for name, units in claim.given.items()}
            parts = {name: _parts(queue, name, units, weights) for name, units in fair.items() if units}
            found.append(QueueShare(fair, fair, bounds[at], parts))
        return found


def _alone(queue: QueueView, bounds: Mapping[str, int], total: Mapping[str, int]) -> QueueShare:
    """What is left of the rounds for a queue that is the only one, and has no guarantee."""
    fair = {
        name: min(units, total.get(name, 0), bounds.get(name, units))
        for name, units in queue.demand.items()
        if units > 0
    }
    weight = queue.spec.weight
    parts = {name: _parts(queue, name, units, weight) for name, units in fair.items() if units}
    return QueueShare(fair, fair, bounds, parts)


def _rounds(claims: list[_Claim], total: dict[str, int]) -> None:
    remaining = total
    while True:
        weights = sum(claim.weight for claim in claims if not claim.met)
        if not weights:
            return
        left = dict(remaining)
        for claim in claims:
            if claim.met:
                continue
            before = claim.given
            claim.given = _grown(claim, remaining, weights)
            claim.met = _satisfied(claim) or _same(before, claim.given)
            for name in {*before, *claim.given}:
                left[name] = left.get(name, 0) - claim.given.get(name, 0) + before.get(name, 0)
        if all(units < CLOSE for units in left.values()) or _same(left, remaining):
            return
        remaining = left


def _grown(claim: _Claim, remaining: Mapping[str, int], weights: int) -> dict[str, int]:
    """What the claim has after a round: bounded by its request, which none but a guarantee passes."""
    grown = {}
    for name in {*claim.request, *claim.guarantee}:
        units = claim.given.get(name, 0) + remaining.get(name, 0) * claim.weight // weights
        bound = claim.bounds.get(name)
        if bound is not None:
            units = min(units, bound)
        units = min(units, claim.request.get(name, 0))
        grown[name] = max(units, claim.guarantee.get(name, 0))
    return grown


def _satisfied(claim: _Claim) -> bool:
    return all(units <= claim.given.get(name, 0) + CLOSE for name, units in claim.request.items())


def _same(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    return all(abs(one.get(name, 0) - other.get(name, 0)) < CLOSE for name in {*one, *other})


def _parts(queue: QueueView, name: str, units: int, weights: int) -> tuple[SharePart, ...]:
    if units <= queue.spec.guarantee.get(name, 0):
        return (SharePart(ShareCause.GUARANTEED, units),)
    return (SharePart(ShareCause.SURPLUS, units, float(queue.spec.weight), float(weights)),)
