"""KAI Scheduler's Queue (``scheduling.run.ai/v2``) and PodGroup (``scheduling.run.ai/v2alpha2``).

Units on the wire: GPUs in devices (parts of one allowed), CPU in millicores, memory in MB of 10^6 bytes;
-1 is no bound. Here all amounts are in engine units.

An absent quota is 0, as in KAI. Two defaults differ from KAI, where an absent limit and an absent weight
are zero (a queue without ``cpu`` then runs no pod that asks for CPU): here an absent limit is no limit and
an absent ``overQuotaWeight`` is 1. A zero that is written stays a zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from windlass.api.annotations import ADOPTED_POOL, NODE_POOL_KAI
from windlass.api.errors import FieldError
from windlass.api.quantities import LIMIT
from windlass.api.views.topology import TopologyConstraint, topology_constraint
from windlass.api.views.wire import EMPTY, intern, interned, kept, metadata, moment, part, split
from windlass.kits import durations

DEFAULT_QUEUE_PRIORITY = 100
_UNLIMITED = -1
_RESOURCES: Mapping[str, tuple[str, int]] = {
    "gpu": ("nvidia.com/gpu", 1000),
    "cpu": ("cpu", 1),
    "memory": ("memory", 10**6),
}
"""Field of ``spec.resources`` → resource, and engine units per unit of the field."""


class KaiQueue(msgspec.Struct, gc=False):
    """``unlimited``: resources with quota -1. Amounts in engine units; run times in seconds or ``None``."""

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    created: float
    deleted: float
    parent: str
    priority: int
    quota: Mapping[str, int]
    unlimited: tuple[str, ...]
    limit: Mapping[str, int]
    weights: Mapping[str, float]
    preempt_min_runtime: float | None
    reclaim_min_runtime: float | None
    problems: tuple[FieldError, ...]

    @property
    def key(self) -> str:
        return self.name


class KaiSubGroup(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``parent`` ``""``: directly below the group."""

    name: str
    parent: str = ""
    min_member: int | None = None
    min_sub_group: int | None = None
    topology_constraint: TopologyConstraint | None = None


class KaiPodGroup(msgspec.Struct, gc=False):
    """Durations in seconds, ``None`` where the object says nothing."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    created: float
    deleted: float
    min_member: int | None
    min_sub_group: int | None
    queue: str
    priority_class: str
    preemptibility: str
    subgroups: tuple[KaiSubGroup, ...]
    preemption_delay: float | None
    staleness_grace: float | None
    problems: tuple[FieldError, ...]
    topology: TopologyConstraint | None = None
    conditions: tuple[dict[str, Any], ...] = ()
    """``status.schedulingConditions``, as written."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def pool(self) -> str:
        """The shard of KAI that serves the group, ``""`` for the one that serves all without a label."""
        return self.labels.get(NODE_POOL_KAI, "")

    @property
    def adopted(self) -> bool:
        """True if the group was handed over to Windlass."""
        return self.pool == ADOPTED_POOL


class _AmountWire(msgspec.Struct, gc=False, rename="camel"):
    quota: float | None = None
    limit: float | None = None
    over_quota_weight: float | None = None


class _ResourcesWire(msgspec.Struct, gc=False):
    gpu: _AmountWire | None = None
    cpu: _AmountWire | None = None
    memory: _AmountWire | None = None


class _QueueSpecWire(msgspec.Struct, gc=False, rename="camel"):
    parent_queue: str | None = None
    priority: int | None = None
    resources: msgspec.Raw = EMPTY
    preempt_min_runtime: str | None = None
    reclaim_min_runtime: str | None = None


class _GroupSpecWire(msgspec.Struct, gc=False, rename="camel"):
    min_member: int | None = None
    min_sub_group: int | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    preemptibility: str | None = None
    sub_groups: msgspec.Raw = EMPTY
    preemption_delay: str | None = None
    staleness_grace_period: str | None = None
    topology_constraint: msgspec.Raw = EMPTY


class _GroupStatusWire(msgspec.Struct, gc=False, rename="camel"):
    scheduling_conditions: tuple[dict[str, Any], ...] | None = None


_queue_spec_decoder = msgspec.json.Decoder(_QueueSpecWire)
_resources_decoder = msgspec.json.Decoder(_ResourcesWire)
_group_spec_decoder = msgspec.json.Decoder(_GroupSpecWire)
_group_status_decoder = msgspec.json.Decoder(_GroupStatusWire)
_subgroups_decoder = msgspec.json.Decoder(tuple[KaiSubGroup, ...])


def decode_kai_queue(raw: bytes | msgspec.Raw) -> KaiQueue:
    """A KAI Queue. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_queue_spec_decoder, whole.spec, "spec", _QueueSpecWire, problems)
    amounts = part(_resources_decoder, spec.resources, "spec.resources", _ResourcesWire, problems)
    quota: dict[str, int] = {}
    unlimited: list[str] = []
    limit: dict[str, int] = {}
    weights: dict[str, float] = {}
    for field, (resource, per) in _RESOURCES.items():
        wire: _AmountWire = getattr(amounts, field) or _AmountWire()
        place = f"spec.resources.{field}"
        if _is_unlimited(wire.quota, per):
            unlimited.append(resource)
        elif wire.quota is not None:
            quota[resource] = _amount(wire.quota, per, f"{place}.quota", problems)
        if wire.limit is not None and not _is_unlimited(wire.limit, per):
            limit[resource] = _amount(wire.limit, per, f"{place}.limit", problems)
        weight = 1.0 if wire.over_quota_weight is None else wire.over_quota_weight
        if weight < 0:
            problems.append(
                FieldError.invalid(f"{place}.overQuotaWeight", wire.over_quota_weight, "must be at least 0")
            )
            weight = 0.0
        weights[resource] = weight
    return KaiQueue(
        name=intern(meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=interned(meta.labels),
        annotations=kept(meta.annotations),
        created=moment(meta.creation_timestamp),
        deleted=moment(meta.deletion_timestamp),
        parent=intern(spec.parent_queue or ""),
        priority=DEFAULT_QUEUE_PRIORITY if spec.priority is None else spec.priority,
        quota=quota,
        unlimited=tuple(unlimited),
        limit=limit,
        weights=weights,
        preempt_min_runtime=_seconds(spec.preempt_min_runtime, "spec.preemptMinRuntime", problems),
        reclaim_min_runtime=_seconds(spec.reclaim_min_runtime, "spec.reclaimMinRuntime", problems),
        problems=tuple(problems),
    )


def decode_kai_pod_group(raw: bytes | msgspec.Raw) -> KaiPodGroup:
    """A KAI PodGroup. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_group_spec_decoder, whole.spec, "spec", _GroupSpecWire, problems)
    subgroups = part(_subgroups_decoder, spec.sub_groups, "spec.subGroups", tuple, problems)
    status = part(
        _group_status_decoder, whole.status, "status", _GroupStatusWire, []
    )  # no fault of its owner's
    return KaiPodGroup(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=interned(meta.labels),
        annotations=kept(meta.annotations),
        created=moment(meta.creation_timestamp),
        deleted=moment(meta.deletion_timestamp),
        min_member=spec.min_member,
        min_sub_group=spec.min_sub_group,
        queue=intern(spec.queue or ""),
        priority_class=intern(spec.priority_class_name or ""),
        preemptibility=intern(spec.preemptibility or ""),
        subgroups=subgroups,
        preemption_delay=_seconds(spec.preemption_delay, "spec.preemptionDelay", problems),
        staleness_grace=_seconds(spec.staleness_grace_period, "spec.stalenessGracePeriod", problems),
        topology=topology_constraint(spec.topology_constraint, "spec.topologyConstraint", problems),
        problems=tuple(problems),
        conditions=status.scheduling_conditions or (),
    )


def _is_unlimited(value: float | None, per: int) -> bool:
    """Return whether an amount is -1, or so large that it is no limit."""
    return value is not None and (value == _UNLIMITED or value * per >= LIMIT)


def _amount(value: float, per: int, field: str, problems: list[FieldError]) -> int:
    """Rounded up, as everywhere. A wrong amount counts as 0 and is told."""
    exact = Fraction(repr(value)) * per
    if exact < 0:
        problems.append(FieldError.invalid(field, value, "must be -1 (no bound), or at least 0"))
        return 0
    return -((-exact.numerator) // exact.denominator)


def _seconds(text: str | None, field: str, problems: list[FieldError]) -> float | None:
    if not text:
        return None
    try:
        return durations.parse(text)
    except ValueError as error:
        problems.append(FieldError(field, str(error)))
        return None
