"""KAI's fair shares: deserved amounts first, then the surplus by priority and weight,
level by level.

The rule has two more uses. Volcano's queues without a configured policy of Volcano use
it (:class:`WindlassDivision`); ``guarantee`` and ``deserved`` are the deserved amount
and ``capability`` is the limit. It also divides between the roots of both APIs. There
the root of Volcano's tree counts as a queue of KAI. It deserves what it states,
otherwise the sum of its children's deserved amounts. Its weight is its own, its
priority is KAI's default plus its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from windlass.plugins.kai.surplus_division import ShareClaim, divide, rest
from windlass.spi.objects import Dialect
from windlass.spi.plugins import FLAVOR, QueueView, include_flavors
from windlass.spi.quantities import is_device, scale
from windlass.spi.shares import QueueShare, ShareCause, SharePart

PODS = "pods"
DEFAULT_PRIORITY = 100
"""Priority of a queue of KAI without a stated priority."""


class KaiDivision:
    """Division by KAI's rule.

    :param k_value: influence of past usage on the surplus; without usage it has no
        effect
    """

    name = "kai-division"
    dialect = Dialect.KAI
    flat = False

    def __init__(self, k_value: float = 1.0) -> None:
        self.k_value = Fraction(str(k_value))

    def divide(
        self, parent: QueueView | None, queues: Sequence[QueueView], total: Mapping[str, int]
    ) -> Sequence[QueueShare]:
        if len(queues) == 1 and not (self.k_value and queues[0].usage):
            return [self._single_queue(queues[0], total)]
        fair: list[dict[str, int]] = [{} for _ in queues]
        allocatable: list[dict[str, int]] = [{} for _ in queues]
        parts: list[dict[str, tuple[SharePart, ...]]] = [{} for _ in queues]
        dues = [entitled(queue) for queue in queues]
        demands = [queue.demand for queue in queues]
        for resource in self._divided(total, dues, demands):
            claims = []
            for queue, due, demand in zip(queues, dues, demands, strict=True):
                claims.append(_claim(queue, resource, due, demand))
            divide(total.get(resource, 0), _whole(resource), claims, self.k_value)
            for index, claim in enumerate(claims):
                share = fair[index][resource] = claim.given + claim.surplus + claim.rounding
                bound = _bound(claim.deserved, queues[index].spec.capability.get(resource), share)
                if bound is not None:
                    allocatable[index][resource] = bound
                if share:
                    parts[index][resource] = _parts(
                        claim.given, claim.surplus, claim.rounding, claim.weight, claim.weights
                    )
        return [
            QueueShare(fair[index], allocatable[index], queue.spec.capability, parts[index])
            for index, queue in enumerate(queues)
        ]

    def demand_matters(self, queue: QueueView, before: Mapping[str, int], after: Mapping[str, int]) -> bool:
        """Return whether a change of demand changes the shares.

        See :class:`~windlass.spi.shares.Division`. If the demand exceeds the share by
        at least one whole unit, it bounds nothing and affects no round.
        """
        if before.keys() != after.keys():
            return True
        fair, limits = queue.fair_share, queue.spec.capability
        for resource, units in after.items():
            least = before[resource]
            if units == least:
                continue
            if units < least:
                least = units
            share, limit = fair.get(resource), limits.get(resource)
            if share is None:
                if self._divides(resource):
                    return True
            elif least < share + _whole(resource) and (limit is None or least < limit):
                return True
        return False

    def _single_queue(self, queue: QueueView, total: Mapping[str, int]) -> QueueShare:
        """Return the share of a queue without siblings and past usage."""
        spec, due, demand = queue.spec, entitled(queue), queue.demand
        fair: dict[str, int] = {}
        allocatable: dict[str, int] = {}
        parts: dict[str, tuple[SharePart, ...]] = {}
        for resource in self._divided(total, (due,), (demand,)):
            whole, limit = total.get(resource, 0), spec.capability.get(resource)
            requested = demand.get(resource, 0)
            requested = requested if limit is None else min(requested, limit)
            deserved = None if resource in spec.unlimited else due.get(resource, 0)
            given = max(0, min(whole if deserved is None else deserved, requested))
            weight = spec.surplus_weights.get(resource, spec.weight)
            surplus = rounding = 0
            if whole > given and requested > given and weight > 0:
                surplus = requested - given
                if surplus > whole - given:
                    surplus, rounding = rest(whole - given, _whole(resource), surplus)
            share = fair[resource] = given + surplus + rounding
            bound = _bound(deserved, limit, share)
            if bound is not None:
                allocatable[resource] = bound
            if share:
                parts[resource] = _parts(given, surplus, rounding, weight, weight)
        return QueueShare(fair, allocatable, spec.capability, parts)

    def _divides(self, resource: str) -> bool:
        """Return whether a requested resource is divided among queues."""
        return counts(resource)

    def _divided(
        self,
        total: Mapping[str, int],
        dues: Iterable[Mapping[str, int]],
        demands: Iterable[Mapping[str, int]],
    ) -> list[str]:
        """Return the resources to divide: CPU, memory and every kind of device."""
        return sorted({name for amounts in (total, *dues, *demands) for name in amounts if counts(name)})


class WindlassDivision(KaiDivision):
    """Division for Volcano's queues without a configured policy.

    It divides every resource that a queue deserves or requests, and every device model
    of which a queue deserves some.
    """

    name = "windlass-division"
    dialect = Dialect.VOLCANO

    def _divides(self, resource: str) -> bool:
        return resource != PODS and FLAVOR not in resource

    def _divided(
        self,
        total: Mapping[str, int],
        dues: Iterable[Mapping[str, int]],
        demands: Iterable[Mapping[str, int]],
    ) -> list[str]:
        names = {name for name in total if counts(name) or FLAVOR in name}
        for due in dues:
            names.update(name for name, units in due.items() if units)
        for demand in demands:
            names.update(name for name, units in demand.items() if units and FLAVOR not in name)
        return sorted(names - {PODS})


@lru_cache(maxsize=1024)
def counts(resource: str) -> bool:
    """Return whether KAI divides a resource among queues: CPU, memory and devices.

    The compute part of MIG slices counts as GPUs.
    """
    if resource in ("cpu", "memory"):
        return True
    return is_device(resource) and FLAVOR not in resource and "/mig-" not in resource


def entitled(queue: QueueView) -> Mapping[str, int]:
    """Return the deserved amounts of a queue.

    A queue of Volcano deserves at least its guarantee, and of a device at least the sum
    over its models. A queue that states nothing, such as most roots, deserves the sum
    of its children.
    """
    spec = queue.spec
    if spec.dialect is Dialect.KAI:
        return spec.deserved
    if not spec.guarantee and not queue.subqueues:
        return include_flavors(spec.deserved) if spec.deserved else spec.deserved
    due = dict(spec.deserved)
    for resource, units in spec.guarantee.items():
        due[resource] = max(units, due.get(resource, 0))
    if due or not queue.mixed:
        return include_flavors(due)
    for child in queue.subqueues:
        for resource, units in entitled(child).items():
            due[resource] = due.get(resource, 0) + units
    return due


@lru_cache(maxsize=1024)
def _whole(resource: str) -> int:
    """Return the unit of the surplus: a whole device, otherwise the smallest unit."""
    return scale(resource) if is_device(resource) else 1


def _claim(queue: QueueView, resource: str, due: Mapping[str, int], demand: Mapping[str, int]) -> ShareClaim:
    spec = queue.spec
    requested = demand.get(resource, 0)
    limit = spec.capability.get(resource)
    outsider = queue.mixed and spec.dialect is not Dialect.KAI
    return ShareClaim(
        queue.name,
        None if resource in spec.unlimited else due.get(resource, 0),
        requested if limit is None else min(requested, limit),
        _weight(spec.surplus_weights.get(resource, spec.weight)),
        spec.priority + DEFAULT_PRIORITY if outsider else spec.priority,
        spec.created,
        queue.usage.get(resource, 0),
    )


def _weight(weight: float) -> Fraction | int:
    if isinstance(weight, int):
        return weight
    return int(weight) if weight.is_integer() else Fraction(str(weight))


def _bound(deserved: int | None, limit: int | None, share: int) -> int | None:
    """Return the allocatable share; ``None`` for no bound."""
    if deserved is None:
        return limit
    bound = max(deserved, share)
    return bound if limit is None else min(limit, bound)


def _parts(
    given: int, surplus: int, rounding: int, weight: float | Fraction, weights: float | Fraction
) -> tuple[SharePart, ...]:
    parts = []
    if given:
        parts.append(SharePart(ShareCause.DESERVED, given))
    if surplus:
        parts.append(SharePart(ShareCause.SURPLUS, surplus, float(weight), float(weights)))
    if rounding:
        parts.append(SharePart(ShareCause.ROUNDING, rounding))
    return tuple(parts)
