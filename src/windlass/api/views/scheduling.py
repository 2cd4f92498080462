"""PodGroup, Queue (Volcano) and PriorityClass as scheduler and controllers see them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.api.annotations import ADOPTED_SUFFIX, NODE_GROUP_LIMITS, PREEMPTABLE
from windlass.api.errors import FieldError
from windlass.api.preemptibility import statement
from windlass.api.views.podshape import LabelSelector
from windlass.api.views.topology import NetworkTopology, network_topology
from windlass.api.views.wire import (
    EMPTY,
    Amounts,
    OwnerReference,
    intern,
    interned,
    kept,
    metadata,
    moment,
    owners,
    part,
    split,
    texts,
    units,
)

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class Condition(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A PodGroup's condition, as Volcano writes it (``transitionID`` is kept as found)."""

    type: str = ""
    status: str = ""
    transition_id: str | None = msgspec.field(name="transitionID", default=None)
    last_transition_time: str | None = None
    reason: str | None = None
    message: str | None = None


class SubGroupPolicy(msgspec.Struct, frozen=True, gc=False):
    """Volcano's division of a gang into parts of ``size`` pods each. Without ``selector`` all pods are meant."""

    name: str
    selector: LabelSelector | None
    match_label_keys: tuple[str, ...]
    size: int
    min_subgroups: int
    topology: NetworkTopology | None = None


class PodGroup(msgspec.Struct, gc=False):
    """``min_resources`` in engine units. ``phase`` is ``""`` before anyone wrote it (it means Pending)."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owners: tuple[OwnerReference, ...]
    created: float
    deleted: float
    min_member: int
    min_task_member: Mapping[str, int]
    queue: str
    priority_class: str
    min_resources: Mapping[str, int]
    phase: str
    conditions: tuple[Condition, ...]
    running: int
    succeeded: int
    failed: int
    problems: tuple[FieldError, ...]
    subgroup_policies: tuple[SubGroupPolicy, ...] = ()
    topology: NetworkTopology | None = None
    adopted: bool = False
    """Handed over by Volcano, which still runs: ``queue`` is the one that the object means."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class _PolicyWire(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    sub_group_size: int | None = None
    min_sub_groups: int | None = None
    network_topology: msgspec.Raw = EMPTY


class _GroupSpecWire(msgspec.Struct, gc=False, rename="camel"):
    min_member: int | None = None
    min_task_member: dict[str, int] | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    min_resources: msgspec.Raw = EMPTY
    sub_group_policy: msgspec.Raw = EMPTY
    network_topology: msgspec.Raw = EMPTY


class _GroupStatusWire(msgspec.Struct, gc=False):
    phase: str | None = None
    conditions: list[Condition] | None = None
    running: int | None = None
    succeeded: int | None = None
    failed: int | None = None


_amounts_decoder = msgspec.json.Decoder(Amounts)
_policies_decoder = msgspec.json.Decoder(tuple[_PolicyWire, ...])
_group_spec_decoder = msgspec.json.Decoder(_GroupSpecWire)
_group_status_decoder = msgspec.json.Decoder(_GroupStatusWire)


def decode_pod_group(raw: bytes | msgspec.Raw) -> PodGroup:
    """A Volcano PodGroup. An absent ``minMember`` is 1. Raises ``msgspec.DecodeError`` without a name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_group_spec_decoder, whole.spec, "spec", _GroupSpecWire, problems)
    status = part(_group_status_decoder, whole.status, "status", _GroupStatusWire, problems)
    return PodGroup(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=interned(meta.labels),
        annotations=kept(meta.annotations),
        owners=owners(meta.owner_references),
        created=moment(meta.creation_timestamp),
        deleted=moment(meta.deletion_timestamp),
        min_member=1 if spec.min_member is None else spec.min_member,
        min_task_member={intern(role): least for role, least in (spec.min_task_member or {}).items()},
        queue=intern((spec.queue or "").removesuffix(ADOPTED_SUFFIX) or "default"),
        adopted=(spec.queue or "").endswith(ADOPTED_SUFFIX),
        priority_class=intern(spec.priority_class_name or ""),
        min_resources=_vector(spec.min_resources, "spec.minResources", problems),
        phase=intern(status.phase or ""),
        conditions=tuple(status.conditions or ()),
        running=status.running or 0,
        succeeded=status.succeeded or 0,
        failed=status.failed or 0,
        subgroup_policies=_policies(spec.sub_group_policy, problems),
        topology=network_topology(spec.network_topology, "spec.networkTopology", problems),
        problems=tuple(problems),
    )


def _policies(raw: msgspec.Raw, problems: list[FieldError]) -> tuple[SubGroupPolicy, ...]:
    found = []
    for at, wire in enumerate(part(_policies_decoder, raw, "spec.subGroupPolicy", tuple, problems)):
        place = f"spec.subGroupPolicy[{at}]"
        expressions = wire.label_selector.match_expressions if wire.label_selector else None
        wrong = [e.operator for e in expressions or () if e.operator not in _OPERATORS]
        if wrong:
            field = f"{place}.labelSelector.matchExpressions"
            problems.append(FieldError.not_supported(field, wrong[0], _OPERATORS))
            continue
        size = 1 if wire.sub_group_size is None else wire.sub_group_size
        least = wire.min_sub_groups or 0
        if size < 1 or least < 0:
            problems.append(FieldError.invalid(place, size, "sizes are at least 1, minima at least 0"))
            continue
        keys = wire.match_label_keys or ()
        topology = network_topology(wire.network_topology, f"{place}.networkTopology", problems)
        found.append(SubGroupPolicy(intern(wire.name), wire.label_selector, keys, size, least, topology))
    return tuple(found)


class QueueAffinity(msgspec.Struct, frozen=True, gc=False):
    """``spec.affinity`` of a queue: names of groups of nodes. ``limits``: annotation
    ``volcano.sh/nodegroup-resource-limits`` as written."""

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    anti_required: tuple[str, ...] = ()
    anti_preferred: tuple[str, ...] = ()
    limits: str = ""

    @property
    def named(self) -> bool:
        """True if any group is named."""
        return bool(self.required or self.preferred or self.anti_required or self.anti_preferred)


class QueueObject(msgspec.Struct, gc=False):
    """Amounts in engine units. ``parent`` and ``state`` as written, ``""`` when absent.

    ``allocated`` is what ``status.allocated`` says, as text.
    """

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    created: float
    deleted: float
    parent: str
    weight: int
    priority: int
    guarantee: Mapping[str, int]
    deserved: Mapping[str, int]
    capability: Mapping[str, int]
    reclaimable: bool
    state: str
    allocated: Mapping[str, str]
    counts: Mapping[str, int]
    problems: tuple[FieldError, ...]
    node_groups: QueueAffinity | None = None

    @property
    def key(self) -> str:
        return self.name


class _GuaranteeWire(msgspec.Struct, gc=False):
    resource: msgspec.Raw = EMPTY


class _GroupTerms(msgspec.Struct, gc=False):
    required: tuple[str, ...] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: tuple[str, ...] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class _QueueAffinity(msgspec.Struct, gc=False, rename="camel"):
    node_group_affinity: _GroupTerms | None = None
    node_group_anti_affinity: _GroupTerms | None = None


class _QueueSpecWire(msgspec.Struct, gc=False):
    parent: str | None = None
    weight: int | None = None
    priority: int | None = None
    guarantee: _GuaranteeWire | None = None
    deserved: msgspec.Raw = EMPTY
    capability: msgspec.Raw = EMPTY
    reclaimable: bool | None = None
    affinity: _QueueAffinity | None = None


class _QueueStatusWire(msgspec.Struct, gc=False):
    state: str | None = None
    allocated: Amounts | None = None
    unknown: int | None = None
    pending: int | None = None
    running: int | None = None
    inqueue: int | None = None
    completed: int | None = None


_queue_spec_decoder = msgspec.json.Decoder(_QueueSpecWire)
_queue_status_decoder = msgspec.json.Decoder(_QueueStatusWire)


def decode_queue(raw: bytes | msgspec.Raw) -> QueueObject:
    """A Volcano Queue. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_queue_spec_decoder, whole.spec, "spec", _QueueSpecWire, problems)
    status = part(_queue_status_decoder, whole.status, "status", _QueueStatusWire, problems)
    guarantee = spec.guarantee.resource if spec.guarantee else EMPTY
    return QueueObject(
        name=intern(meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=interned(meta.labels),
        annotations=kept(meta.annotations),
        created=moment(meta.creation_timestamp),
        deleted=moment(meta.deletion_timestamp),
        parent=intern(spec.parent or ""),
        weight=1 if spec.weight is None else spec.weight,
        priority=spec.priority or 0,
        guarantee=_vector(guarantee, "spec.guarantee.resource", problems),
        deserved=_vector(spec.deserved, "spec.deserved", problems),
        capability=_vector(spec.capability, "spec.capability", problems),
        reclaimable=spec.reclaimable is not False,
        state=intern(status.state or ""),
        allocated=texts(status.allocated),
        counts={
            "unknown": status.unknown or 0,
            "pending": status.pending or 0,
            "running": status.running or 0,
            "inqueue": status.inqueue or 0,
            "completed": status.completed or 0,
        },
        problems=tuple(problems),
        node_groups=_node_groups(spec.affinity, (meta.annotations or {}).get(NODE_GROUP_LIMITS, "")),
    )


def _node_groups(wire: _QueueAffinity | None, limits: str) -> QueueAffinity | None:
    if wire is None and not limits:
        return None
    wire = wire or _QueueAffinity()
    near, far = wire.node_group_affinity or _GroupTerms(), wire.node_group_anti_affinity or _GroupTerms()
    return QueueAffinity(
        near.required or (), near.preferred or (), far.required or (), far.preferred or (), limits
    )


def _vector(raw: msgspec.Raw, field: str, problems: list[FieldError]) -> Mapping[str, int]:
    return units(part(_amounts_decoder, raw, field, dict, problems), field, problems)


class PriorityClass(msgspec.Struct, gc=False, frozen=True):
    name: str
    value: int
    global_default: bool = False
    preemption_policy: str = ""
    protected: bool = False
    """It keeps its pods from being evicted (``volcano.sh/preemptable: "false"``)."""


class _ClassWire(msgspec.Struct, gc=False, rename="camel"):
    metadata: msgspec.Raw = EMPTY
    value: int | None = None
    global_default: bool | None = None
    preemption_policy: str | None = None


_class_decoder = msgspec.json.Decoder(_ClassWire)


def decode_priority_class(raw: bytes | msgspec.Raw) -> PriorityClass:
    """A PriorityClass; an unreadable one is worth 0. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    meta = metadata(split(raw).metadata, problems)
    wire = part(_class_decoder, msgspec.Raw(bytes(raw)), "", _ClassWire, problems)
    labels = {name: text for name, text in (meta.labels or {}).items() if name == PREEMPTABLE}
    stated = statement(labels, meta.annotations or {})  # KAI reads no label of a class
    return PriorityClass(
        intern(meta.name),
        wire.value or 0,
        bool(wire.global_default),
        intern(wire.preemption_policy or ""),
        stated is not None and not stated.preemptible,
    )
