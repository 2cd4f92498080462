"""Volcano's fair shares: ``proportion`` (by weight, bounded by the demand) and
``capacity`` (as stated).

``QueueShare.fair`` is Volcano's deserved amount. The formulas are those of Volcano's
plugins of the same names. Amounts are integers; ``proportion`` scales them by 2^32
while dividing. As in Volcano, a difference below a tenth of a unit is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windlass.spi.objects import Dialect, Queue, Resources
from windlass.spi.plugins import QueueView, include_flavors
from windlass.spi.shares import QueueShare, ShareCause, SharePart

SCALE = 32
"""Fractional bits of amounts while shares are divided."""

CLOSE = (1 << SCALE) // 10
"""Tolerance: a tenth of a unit."""


# ---------------------------------------------------------------------- real capability


def flat_capabilities(queues: Sequence[QueueView], total: Resources) -> list[dict[str, int]]:
    """Return min(capability, total - all guarantees + own guarantee) for each queue.

    The result has the resources of the total and of the capability. A capability that
    is missing or not above 0 does not count.
    """
    reserved: dict[str, int] = {}
    for queue in queues:
        for name, units in queue.spec.guarantee.items():
            reserved[name] = reserved.get(name, 0) + units
    capabilities = []
    for queue in queues:
        spec = queue.spec
        bounds = {
            name: units - reserved.get(name, 0) + spec.guarantee.get(name, 0) for name, units in total.items()
        }
        capabilities.append(_capped(bounds, spec.capability))
    return capabilities


def child_capabilities(parent: QueueView | None, queues: Sequence[QueueView]) -> list[dict[str, int]]:
    """Return min(own capability, parent's real capability - guarantees of all children
    + own guarantee).

    This is the rule for trees. Without a bound above only the own capability counts.
    """
    above = parent.real_capability if parent is not None else {}
    reserved: dict[str, int] = {}
    for queue in queues:
        for name, units in queue.spec.guarantee.items():
            reserved[name] = reserved.get(name, 0) + units
    capabilities = []
    for queue in queues:
        guarantee = queue.spec.guarantee
        bounds = {
            name: units - reserved.get(name, 0) + guarantee.get(name, 0) for name, units in above.items()
        }
        capabilities.append(_capped(bounds, queue.spec.capability))
    return capabilities


def _capped(bounds: dict[str, int], capability: Resources) -> dict[str, int]:
    for name, units in capability.items():
        if units > 0:
            bounds[name] = min(units, bounds.get(name, units))
    return bounds


# ---------------------------------------------------------------------- capacity


class CapacityDivision:
    """Division by stated amounts.

    ``fair`` = max(min(deserved, real capability), guarantee), in a tree max(deserved,
    guarantee), of the resources for which either is stated.
    """

    name = "capacity-division"
    dialect = Dialect.VOLCANO

    def __init__(self, *, hierarchy: bool = False) -> None:
        self.flat = not hierarchy

    def demand_matters(self, queue: QueueView, before: Resources, after: Resources) -> bool:
        """Return False: stated amounts do not depend on the demand."""
        return False

    def divide(
        self, parent: QueueView | None, queues: Sequence[QueueView], total: Mapping[str, int]
    ) -> Sequence[QueueShare]:
        bounds = flat_capabilities(queues, total) if self.flat else child_capabilities(parent, queues)
        shares = []
        for queue, bound in zip(queues, bounds, strict=True):
            fair = dict(include_flavors(queue.spec.deserved))
            if self.flat:
                fair = {name: min(units, bound.get(name, units)) for name, units in fair.items()}
            parts = {name: (SharePart(ShareCause.DESERVED, units),) for name, units in fair.items() if units}
            for name, units in queue.spec.guarantee.items():
                if units > fair.get(name, 0):
                    fair[name] = units
                    parts[name] = (SharePart(ShareCause.GUARANTEED, units),)
            shares.append(QueueShare(fair, fair, bound, parts))
        return shares


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
    """Division by weight, in rounds: the unused part of one queue goes to the others.

    A queue gets at most its request and its real capability, and at least its
    guarantee. Queues without any work take no part.
    """

    name = "proportion-division"
    dialect = Dialect.VOLCANO
    flat = True

    def __init__(self) -> None:
        self._bounds: tuple[Queue, Mapping[str, int], dict[str, int]] | None = None
        """Rules of a single queue, the total, and the real capability computed from both."""

    def demand_matters(self, queue: QueueView, before: Resources, after: Resources) -> bool:
        """Return whether a change of demand changes the shares
        (:class:`~windlass.spi.shares.Division`).

        A request above the share bounds it in no round, and satisfies it in none.
        """
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
            return [_single_queue(queues[0], known[2], total)]
        bounds = flat_capabilities(queues, total)
        claims: dict[int, _Claim] = {}
        for index, queue in enumerate(queues):
            request = {name: units for name, units in queue.demand.items() if units > 0}
            if request:
                guarantee = {name: units << SCALE for name, units in queue.spec.guarantee.items()}
                scaled = {name: units << SCALE for name, units in request.items()}
                limit = {name: units << SCALE for name, units in bounds[index].items()}
                claims[index] = _Claim(queue.spec.weight, scaled, guarantee, limit)
        _rounds(list(claims.values()), {name: units << SCALE for name, units in total.items()})
        weights = sum(claim.weight for claim in claims.values())
        shares = []
        for index, queue in enumerate(queues):
            claim = claims.get(index)
            if claim is None:
                shares.append(QueueShare({}, {}, bounds[index]))
                continue
            fair = {name: (units + CLOSE) >> SCALE for name, units in claim.given.items()}
            parts = {name: _parts(queue, name, units, weights) for name, units in fair.items() if units}
            shares.append(QueueShare(fair, fair, bounds[index], parts))
        return shares


def _single_queue(queue: QueueView, bounds: Mapping[str, int], total: Mapping[str, int]) -> QueueShare:
    """Return the share of a single queue without a guarantee."""
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
    """Return the amounts of a claim after a round.

    They are bounded by the request; only a guarantee may exceed it.
    """
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
