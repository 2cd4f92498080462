"""A pod as scheduler and controllers see it: one flat, slim record of at most 2 KiB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from windlass.api.annotations import RESERVES, VISIBLE_DEVICES
from windlass.api.errors import FieldError
from windlass.api.views.podshape import (
    ClaimReference,
    ContainerWire,
    PodShape,
    PodSpecWire,
    ResizedContainer,
    claims_of,
    scheduling_group,
    served_otherwise,
    shape_of,
)
from windlass.api.views.wire import (
    EMPTY,
    MetaWire,
    OwnerReference,
    controller_of,
    intern,
    interned,
    kept,
    metadata,
    moment,
    owners,
    part,
    split,
)

DEFAULT_SCHEDULER = "default-scheduler"
_MESSAGE_CHARACTERS = 300
"""Maximum number of characters of a termination message that are kept."""
_VISIBLE_DEVICES = VISIBLE_DEVICES.encode()


class ContainerExit(msgspec.Struct, frozen=True, gc=False):
    """Last termination of a container. ``message``: last line of its message, if it failed."""

    container: str
    exit_code: int
    reason: str = ""
    message: str = ""


class DeviceReport(msgspec.Struct, frozen=True, gc=False):
    """Device reported by the first init container of a reservation pod.

    ``card``: value for ``NVIDIA_VISIBLE_DEVICES``; empty while there is none, and ``problem`` may give the reason.
    """

    card: str = ""
    problem: str = ""


class Pod(msgspec.Struct, gc=False):
    """``key`` is ``namespace/name``; times are Unix seconds, 0.0 when absent.

    ``annotations`` are only those that Windlass reads.

    ``waiting_message`` is the message of a ``PodScheduled=False`` condition, with ``waiting_reason``.
    ``exits`` tell of terminated containers, ``restarts`` is the sum over containers and init containers,
    ``ended`` the end of the last terminated container. ``started`` is ``status.startTime``, ``run_limit``
    ``spec.activeDeadlineSeconds``. ``scheduling_group`` names the pod's gang in Kubernetes' own API:
    ``spec.schedulingGroup.podGroupName``, or of ``spec.workloadRef`` ``WORKLOAD.PODGROUP`` and, after a
    colon, the replica's key.
    """

    key: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owners: tuple[OwnerReference, ...]
    created: float
    deleted: float
    shape: PodShape
    node_name: str
    scheduler_name: str
    priority: int | None
    priority_class: str
    preemption_policy: str
    grace_seconds: int
    phase: str
    reason: str
    ready: bool
    pod_ip: str
    waiting_reason: str
    waiting_message: str
    disrupted: bool
    exits: tuple[ContainerExit, ...]
    restarts: int
    ended: float
    finalizers: tuple[str, ...]
    problems: tuple[FieldError, ...]
    started: float = 0.0
    run_limit: int | None = None
    scheduling_group: str = ""
    claims: tuple[str, ...] = ()
    """The names of the PersistentVolumeClaims that it uses."""
    containers: tuple[str, ...] = ()
    """The names of its containers, init containers left out."""
    claim_names: tuple[tuple[str, str], ...] = ()
    """The pod's name of a claim for devices → the ResourceClaim that was made for it."""
    nominated_node: str = ""
    """``status.nominatedNodeName``: where room is being made for it."""
    images: tuple[str, ...] = ()
    """The images of its init containers and containers, as written."""
    told_cards: tuple[str, ...] = ()
    """Containers with an environment variable from the annotation ``windlass.dev/visible-devices``."""
    report: DeviceReport | None = None
    """Only of a pod that holds a device for others."""
    generation: int = 0
    """Counts the versions of its spec; 0 where the server does not."""
    most_restarts: int = 0
    """Restarts of the container that was restarted most often."""
    ready_since: float = 0.0
    """Last change of the condition ``Ready``, if it is true."""
    init_exits: tuple[ContainerExit, ...] = ()
    """Terminated init containers of a pod that failed."""
    failure_conditions: tuple[tuple[str, str], ...] = ()
    """Type and status of the conditions of a pod that failed."""
    unprepared: str = ""
    """Message of the first container that waits, of a pod that has not started."""

    @property
    def controller(self) -> OwnerReference | None:
        return controller_of(self.owners)

    @property
    def is_static(self) -> bool:
        """Return whether the pod is the mirror of a static pod, which belongs to its node."""
        owner = controller_of(self.owners) if self.owners else None
        return owner is not None and owner.kind == "Node"

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def deleting(self) -> bool:
        return self.deleted > 0.0


class _ConditionWire(msgspec.Struct, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class _TerminatedWire(msgspec.Struct, gc=False, rename="camel"):
    exit_code: int = 0
    reason: str | None = None
    finished_at: str | None = None
    message: str | None = None


class _WaitingWire(msgspec.Struct, gc=False):
    reason: str | None = None
    message: str | None = None


class _StateWire(msgspec.Struct, gc=False):
    terminated: _TerminatedWire | None = None
    waiting: _WaitingWire | None = None


class _ContainerStatusWire(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    restart_count: int = 0
    state: _StateWire | None = None
    last_state: _StateWire | None = None
    resources: msgspec.Raw = EMPTY
    allocated_resources: msgspec.Raw = EMPTY


class _ClaimStatusWire(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None


class _MappingWire(msgspec.Struct, gc=False, rename="camel"):
    resource_name: str = ""


class _ExtendedClaimWire(msgspec.Struct, gc=False, rename="camel"):
    resource_claim_name: str = ""
    request_mappings: list[_MappingWire] | None = None


class _StatusWire(msgspec.Struct, gc=False, rename="camel"):
    resource_claim_statuses: list[_ClaimStatusWire] | None = None
    extended_resource_claim_status: _ExtendedClaimWire | None = None
    phase: str | None = None
    reason: str | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    conditions: list[_ConditionWire] | None = None
    resources: msgspec.Raw = EMPTY
    allocated_resources: msgspec.Raw = EMPTY
    container_statuses: list[_ContainerStatusWire] | None = None
    init_container_statuses: list[_ContainerStatusWire] | None = None


class _EnvironmentWire(msgspec.Struct, gc=False):
    name: str = ""
    env: msgspec.Raw = EMPTY


class _EnvironmentsWire(msgspec.Struct, gc=False, rename="camel"):
    containers: list[_EnvironmentWire] | None = None
    init_containers: list[_EnvironmentWire] | None = None


class _PodWire(msgspec.Struct, gc=False):
    metadata: MetaWire
    spec: PodSpecWire = msgspec.field(default_factory=PodSpecWire)
    status: _StatusWire = msgspec.field(default_factory=_StatusWire)


_environments_decoder = msgspec.json.Decoder(_EnvironmentsWire)
_pod_decoder = msgspec.json.Decoder(_PodWire)
_spec_decoder = msgspec.json.Decoder(PodSpecWire)
_status_decoder = msgspec.json.Decoder(_StatusWire)


def decode_pod(raw: bytes | msgspec.Raw) -> Pod:
    """A pod of the wire. Fields of a wrong type end in ``problems``.

    Raises ``msgspec.DecodeError`` on what is not an object with a name.
    """
    problems: list[FieldError] = []
    meta, spec, status = _parts(raw, problems)
    containers = status.container_statuses or ()
    served = _served(spec, status) if containers else ()
    shape = shape_of(spec, served, _infeasible(status)) if served else shape_of(spec)
    shape = _by_claim(shape, status.extended_resource_claim_status)
    waiting_reason, waiting_message, ready_since, ready, disrupted = _conditions(status.conditions)
    notes = kept(meta.annotations)
    return Pod(
        key=f"{meta.namespace}/{meta.name}",
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=interned(meta.labels),
        annotations=notes,
        owners=owners(meta.owner_references),
        created=moment(meta.creation_timestamp),
        deleted=moment(meta.deletion_timestamp) or (1.0 if meta.deletion_timestamp else 0.0),
        shape=shape,
        node_name=intern(spec.node_name or ""),
        scheduler_name=intern(spec.scheduler_name or DEFAULT_SCHEDULER),
        priority=spec.priority,
        priority_class=intern(spec.priority_class_name or ""),
        preemption_policy=intern(spec.preemption_policy or ""),
        grace_seconds=30
        if spec.termination_grace_period_seconds is None
        else spec.termination_grace_period_seconds,
        phase=intern(status.phase or ""),
        reason=intern(status.reason or ""),
        ready=ready,
        pod_ip=status.pod_ip or "",
        waiting_reason=waiting_reason,
        waiting_message=waiting_message,
        disrupted=disrupted,
        exits=_exits(containers) if containers else (),
        restarts=_restarts(containers, status.init_container_statuses or ()),
        most_restarts=_most_restarts(containers, status.init_container_statuses or ()),
        ended=_ended(containers) if containers else 0.0,
        finalizers=tuple(intern(f) for f in meta.finalizers) if meta.finalizers else (),
        problems=(*problems, *shape.problems) if problems else shape.problems,
        started=moment(status.start_time),
        run_limit=spec.active_deadline_seconds,
        scheduling_group=scheduling_group(spec),
        claims=claims_of(spec, meta.name),
        containers=_shared_names(tuple([one.name for one in spec.containers or ()])),
        claim_names=_claim_names(status),
        nominated_node=intern(status.nominated_node_name or ""),
        images=_images(spec),
        told_cards=_told_cards(raw) if notes or shape.devices else (),
        report=_report(status.init_container_statuses or ()) if RESERVES in notes else None,
        generation=meta.generation,
        ready_since=ready_since,
        **_of_phase(status),
    )


def _unprepared(status: _StatusWire) -> str:
    for one in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        if one.state is not None and one.state.waiting is not None and one.state.waiting.message:
            return one.state.waiting.message
    return ""


def _claim_names(status: _StatusWire) -> tuple[tuple[str, str], ...]:
    return tuple((one.name, one.resource_claim_name or "") for one in status.resource_claim_statuses or ())


def _parts(raw: bytes | msgspec.Raw, problems: list[FieldError]) -> tuple[MetaWire, PodSpecWire, _StatusWire]:
    """All at once; where something is not of its type, one after the other, so that only one of them is lost."""
    try:
        found = _pod_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        whole = split(raw)
        meta = metadata(whole.metadata, problems)
        spec = part(_spec_decoder, whole.spec, "spec", PodSpecWire, problems)
        return meta, spec, part(_status_decoder, whole.status, "status", _StatusWire, problems)
    return found.metadata, found.spec, found.status


def _by_claim(shape: PodShape, status: _ExtendedClaimWire | None) -> PodShape:
    """Return the shape of a pod with extended resources that kube-scheduler allocated through a ResourceClaim.

    The claim was created for the ``extendedResourceName`` of a DeviceClass. The pod holds its devices, and none of the
    resource itself.
    """
    if status is None:
        return shape
    served = {mapping.resource_name for mapping in status.request_mappings or ()}
    left = [
        replace(one, amounts=tuple(amount for amount in one.amounts if amount[0] not in served))
        for one in shape.devices
    ]
    return msgspec.structs.replace(
        shape,
        request={name: units for name, units in shape.request.items() if name not in served},
        devices=tuple(one for one in left if one.amounts),
        claims=(*shape.claims, ClaimReference(status.resource_claim_name, status.resource_claim_name)),
    )


def _images(spec: PodSpecWire) -> tuple[str, ...]:
    everyone = (*(spec.init_containers or ()), *(spec.containers or ()))
    return _shared_names(tuple([one.image for one in everyone if one.image]))


def _told_cards(raw: bytes | msgspec.Raw) -> tuple[str, ...]:
    if _VISIBLE_DEVICES not in bytes(raw):
        return ()
    told = part(_environments_decoder, split(raw).spec, "spec", _EnvironmentsWire, [])
    everyone = (*(told.init_containers or ()), *(told.containers or ()))
    return _shared_names(tuple(one.name for one in everyone if _VISIBLE_DEVICES in bytes(one.env)))


def _report(statuses: Sequence[_ContainerStatusWire]) -> DeviceReport:
    """A device counts while the container that named it is over and has not been started again."""
    if not statuses:
        return DeviceReport()
    now, before = statuses[0].state, statuses[0].last_state
    ended = now.terminated if now is not None else None
    if ended is not None and ended.exit_code == 0:
        return DeviceReport((ended.message or "").strip(), "" if ended.message else "it reported no GPU")
    ended = ended or (before.terminated if before is not None else None)
    if ended is not None and ended.exit_code:
        return DeviceReport(problem=(ended.message or ended.reason or f"exit code {ended.exit_code}").strip())
    waits = now.waiting.reason if now is not None and now.waiting is not None else None
    return DeviceReport(problem=waits or "")


@lru_cache(maxsize=4096)
def _shared_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the shared tuple for pods with equal container names, or equal images."""
    return tuple(map(intern, names))


def _conditions(conditions: list[_ConditionWire] | None) -> tuple[str, str, float, bool, bool]:
    reason = message = ""
    ready = disrupted = False
    ready_since = 0.0
    for condition in conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            reason, message = intern(condition.reason or ""), intern(condition.message or "")
        elif condition.type == "Ready":
            ready = condition.status == "True"
            ready_since = moment(condition.last_transition_time) if ready else 0.0
        elif condition.type == "DisruptionTarget":
            disrupted = condition.status == "True"
    return reason, message, ready_since, ready, disrupted


def _of_phase(status: _StatusWire) -> dict[str, Any]:
    """Return the fields that only a pod that has not started has, or only one that failed."""
    if status.phase == "Pending":
        return {"unprepared": _unprepared(status)}
    if status.phase != "Failed":
        return {}
    return {
        "init_exits": _exits(status.init_container_statuses or ()),
        "failure_conditions": tuple(
            (intern(one.type), intern(one.status)) for one in status.conditions or ()
        ),
    }


def _served(spec: PodSpecWire, status: _StatusWire) -> tuple[ResizedContainer, ...]:
    """Return the resources in force of containers, or of the pod, that differ from their requests."""
    found = {
        one.name: one for one in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    }
    served = [
        said
        for container in (*(spec.containers or ()), *(spec.init_containers or ()))
        if (one := found.get(container.name)) is not None
        and (said := served_otherwise(container, one.resources, one.allocated_resources)) is not None
    ]
    if spec.resources is not EMPTY:
        whole = ContainerWire(resources=spec.resources)
        if (said := served_otherwise(whole, status.resources, status.allocated_resources)) is not None:
            served.append(said)
    return tuple(served)


def _infeasible(status: _StatusWire) -> bool:
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in status.conditions or ())


def _exits(statuses: Sequence[_ContainerStatusWire]) -> tuple[ContainerExit, ...]:
    if not statuses:
        return ()
    return tuple(
        ContainerExit(intern(s.name), ended.exit_code, intern(ended.reason or ""), intern(_last_line(ended)))
        for s in statuses
        if s.state is not None and (ended := s.state.terminated) is not None
    )


def _last_line(ended: _TerminatedWire) -> str:
    """Return the end of the message of a container that failed. Equal pods share it."""
    if not ended.exit_code or not ended.message:
        return ""
    return (ended.message.strip().splitlines() or [""])[-1][:_MESSAGE_CHARACTERS]


def _restarts(
    containers: Sequence[_ContainerStatusWire], init_containers: Sequence[_ContainerStatusWire]
) -> int:
    total = 0
    for status in containers:
        total += status.restart_count
    for status in init_containers:
        total += status.restart_count
    return total


def _most_restarts(
    containers: Sequence[_ContainerStatusWire], init_containers: Sequence[_ContainerStatusWire]
) -> int:
    most = 0
    for status in containers:
        most = max(most, status.restart_count)
    for status in init_containers:
        most = max(most, status.restart_count)
    return most


def _ended(statuses: Sequence[_ContainerStatusWire]) -> float:
    last = 0.0
    for status in statuses:
        if status.state is not None and status.state.terminated is not None:
            last = max(last, moment(status.state.terminated.finished_at))
    return last
