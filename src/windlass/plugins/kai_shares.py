"""KAI's fair shares: deserved amounts first, then the surplus by priority and weight, level by level.

The same rule serves two more purposes: Volcano's queues where no policy of Volcano's is configured
(:class:`WindlassDivision`: ``guarantee`` and ``deserved`` are the deserved amount, ``capability`` is the
limit), and the split between the roots of both APIs. There the root of Volcano's tree takes part as if
it were a queue of KAI: it deserves what it states, else what its children deserve together; its weight
is its own; its priority is KAI's default plus its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from windlass.plugins.division import Claim, divide
from windlass.spi.objects import Dialect
from windlass.spi.plugins import FLAVOR, QueueView, plain_due
from windlass.spi.quantities import is_device, scale
from windlass.spi.shares import Cause, Part, Share

PODS = "pods"
DEFAULT_PRIORITY = 100
"""The priority of a queue of KAI's that states none."""


class KaiDivision:
    """``k_value``: how strongly past usage bends the surplus; without usage it changes nothing."""

    name = "kai-division"
    dialect = Dialect.KAI
    flat = False

    def __init__(self, k_value: float = 1.0) -> None:
        self.k_value = Fraction(str(k_value))

    def divide(
        self, parent: QueueView | None, queues: Sequence[QueueView], total: Mapping[str, int]
    ) -> Sequence[Share]:
        fair: list[dict[str, int]] = [{} for _ in queues]
        allocatable: list[dict[str, int]] = [{} for _ in queues]
        parts: list[dict[str, tuple[Part, ...]]] = [{} for _ in queues]
        dues = [entitled(queue) for queue in queues]
        demands = [queue.demand for queue in queues]
        for resource in self._divided(total, dues, demands):
            claims = []
            for queue, due, demand in zip(queues, dues, demands, strict=True):
                claims.append(_claim(queue, resource, due, demand))
            divide(total.get(resource, 0), _whole(resource), claims, self.k_value)
            for at, claim in enumerate(claims):
                share = fair[at][resource] = claim.given + claim.surplus + claim.rounding
                limit = queues[at].spec.capability.get(resource)
                if claim.deserved is None:
                    if limit is not None:
                        allocatable[at][resource] = limit
                else:
                    bound = max(claim.deserved, share)
                    allocatable[at][resource] = bound if limit is None else min(limit, bound)
                if share:
                    parts[at][resource] = _parts(claim)
        return [
            Share(fair[at], allocatable[at], queue.spec.capability, parts[at])
            for at, queue in enumerate(queues)
        ]

    def _divided(
        self,
        total: Mapping[str, int],
        dues: Iterable[Mapping[str, int]],
        demands: Iterable[Mapping[str, int]],
    ) -> list[str]:
        """CPU, memory and every kind of device: of nothing else KAI's queues have shares."""
        return sorted({name for amounts in (total, *dues, *demands) for name in amounts if counts(name)})


class WindlassDivision(KaiDivision):
    """The same for Volcano's queues where nothing else is configured, of every resource that anyone
    deserves or asks for, and of every device model of which some queue is due something."""

    name = "windlass-division"
    dialect = Dialect.VOLCANO

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


def counts(resource: str) -> bool:
    """Whether KAI divides a resource among queues: CPU, memory and devices. Of MIG slices it counts the
    compute part as GPUs."""
    if resource in ("cpu", "memory"):
        return True
    return is_device(resource) and FLAVOR not in resource and "/mig-" not in resource


def entitled(queue: QueueView) -> Mapping[str, int]:
    """The deserved amounts. A queue of Volcano's deserves at least its guarantee, and of a device at least
    what it deserves of its models; one that states nothing, as the root mostly does, deserves what its
    children do."""
    spec = queue.spec
    if spec.dialect is Dialect.KAI:
        return spec.deserved
    if not spec.guarantee and not queue.subqueues:
        return plain_due(spec.deserved)
    due = dict(spec.deserved)
    for resource, units in spec.guarantee.items():
        due[resource] = max(units, due.get(resource, 0))
    if due or not queue.mixed:
        return plain_due(due)
    for child in queue.subqueues:
        for resource, units in entitled(child).items():
            due[resource] = due.get(resource, 0) + units
    return due


def _whole(resource: str) -> int:
    """The unit in which a surplus is handed out: whole devices, else the smallest unit."""
    return scale(resource) if is_device(resource) else 1


def _claim(queue: QueueView, resource: str, due: Mapping[str, int], demand: Mapping[str, int]) -> Claim:
    spec = queue.spec
    asked = demand.get(resource, 0)
    limit = spec.capability.get(resource)
    outsider = queue.mixed and spec.dialect is not Dialect.KAI
    return Claim(
        queue.name,
        None if resource in spec.unlimited else due.get(resource, 0),
        asked if limit is None else min(asked, limit),
        _weight(spec.surplus_weights.get(resource, spec.weight)),
        spec.priority + DEFAULT_PRIORITY if outsider else spec.priority,
        spec.created,
        queue.usage.get(resource, 0),
    )


def _weight(weight: float) -> Fraction | int:
    if isinstance(weight, int):
        return weight
    return int(weight) if weight.is_integer() else Fraction(str(weight))


def _parts(claim: Claim) -> tuple[Part, ...]:
    parts = []
    if claim.given:
        parts.append(Part(Cause.DESERVED, claim.given))
    if claim.surplus:
        parts.append(Part(Cause.SURPLUS, claim.surplus, float(claim.weight), float(claim.weights)))
    if claim.rounding:
        parts.append(Part(Cause.ROUNDING, claim.rounding))
    return tuple(parts)
