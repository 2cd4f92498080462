"""Requirements of a pod on a node, shared by all pods with equal requirements.

The pods of a gang differ in name, environment and node, but not in what they need. Their specs are
reduced to the fields that scheduling reads, and equal ones become one :class:`PodShape`, found again
by the bytes of those fields. It is dropped when its last pod is.

Effective request, as Kubernetes computes it (KEP-753): the larger of (sum of containers + sidecar
init containers) and the peak of the init phase (each init container + the sidecars started before
it), plus ``overhead``; pod-level ``spec.resources`` replace what they name.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from windlass.api.devices.request import MIG, ContainerResources
from windlass.api.devices.resource_names import is_word
from windlass.api.errors import FieldError
from windlass.api.quantities import MAX_REQUEST, QuantityError, add, is_device, maximum, to_whole_units
from windlass.api.views.container_claims import class_claims, unknown_claims
from windlass.api.views.wire import EMPTY, NO_LABELS, field_error, intern, interned, part


class RequirementWire(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class LabelSelector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[RequirementWire, ...] | None = None


class NodeSelectorTerm(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    match_expressions: tuple[RequirementWire, ...] | None = None
    match_fields: tuple[RequirementWire, ...] | None = None


class NodeSelector(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class PreferredNode(msgspec.Struct, frozen=True, gc=False):
    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinityWire(msgspec.Struct, frozen=True, gc=False):
    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: tuple[PreferredNode, ...] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class PodAffinityTerm(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    label_selector: LabelSelector | None = None
    topology_key: str = ""
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class WeightedTerm(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinityWire(msgspec.Struct, frozen=True, gc=False):
    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: tuple[WeightedTerm, ...] | None = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    node_affinity: NodeAffinityWire | None = None
    pod_affinity: PodAffinityWire | None = None
    pod_anti_affinity: PodAffinityWire | None = None


class TolerationWire(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``toleration_seconds``: how long a NoExecute taint is borne; None is for ever."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SpreadConstraint(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """As in Kubernetes; the policies are ``Honor`` or ``Ignore``."""

    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    max_skew: int = 1
    min_domains: int | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class _Gate(msgspec.Struct, gc=False):
    name: str = ""


CLASS_TEMPLATE = "windlass-class."
"""Prefix of the name of an implied claim template for one device of a class; no such object exists."""


class ClaimReference(msgspec.Struct, frozen=True, gc=False):
    """A claim for devices that a pod names: ``claim`` by its name, or of ``template``, or (as generated from a
    container's word) of ``device_class`` alone."""

    name: str
    claim: str = ""
    template: str = ""
    device_class: str = ""


class _Claim(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _Port(msgspec.Struct, gc=False, rename="camel"):
    container_port: int = 0
    host_port: int | None = None
    host_ip: str | None = msgspec.field(name="hostIP", default=None)
    protocol: str | None = None


class _ClaimVolume(msgspec.Struct, gc=False, rename="camel"):
    claim_name: str = ""


class _Volume(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    persistent_volume_claim: _ClaimVolume | None = None
    ephemeral: dict[str, Any] | None = None


class _Resources(msgspec.Struct, gc=False):
    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class ContainerWire(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    image: str | None = None
    resources: msgspec.Raw = EMPTY
    ports: msgspec.Raw = EMPTY
    restart_policy: str | None = None


class _SchedulingGroup(msgspec.Struct, gc=False, rename="camel"):
    pod_group_name: str | None = None


class _WorkloadRef(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str | None = None


class PodSpecWire(msgspec.Struct, gc=False, rename="camel"):
    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    scheduling_group: _SchedulingGroup | None = None
    workload_ref: _WorkloadRef | None = None
    containers: list[ContainerWire] | None = None
    init_containers: list[ContainerWire] | None = None
    overhead: msgspec.Raw = EMPTY
    resources: msgspec.Raw = EMPTY
    node_selector: msgspec.Raw = EMPTY
    affinity: msgspec.Raw = EMPTY
    tolerations: msgspec.Raw = EMPTY
    scheduling_gates: msgspec.Raw = EMPTY
    resource_claims: msgspec.Raw = EMPTY
    topology_spread_constraints: msgspec.Raw = EMPTY
    volumes: msgspec.Raw = EMPTY
    host_network: bool | None = None


class ContainerShape(msgspec.Struct, frozen=True, gc=False):
    """``amounts`` in engine units; ``kind``: ``init``, ``sidecar``, or empty for one that runs with the others."""

    amounts: tuple[tuple[str, int], ...]
    kind: str = ""


class PodShape(msgspec.Struct, weakref=True, eq=False):
    """``request`` in engine units (``api.quantities``). ``problems`` name the unreadable fields."""

    request: Mapping[str, int]
    node_selector: Mapping[str, str]
    affinity: Affinity | None
    tolerations: tuple[TolerationWire, ...]
    host_ports: tuple[tuple[str, int, str], ...]
    """(protocol, number, address); an empty address stands for all of the node's."""
    gates: tuple[str, ...]
    claims: tuple[ClaimReference, ...]
    unknown_claims: tuple[FieldError, ...] = ()
    """Errors of claims that containers name and the pod does not have."""
    spread: tuple[SpreadConstraint, ...] = ()
    problems: tuple[FieldError, ...] = ()
    devices: tuple[ContainerResources, ...] = ()
    """The containers that name a device, or a word for a part of one, with these amounts as written."""
    speaks_of_parts: bool = False
    """True if a container names a word for a part of a device, or a MIG profile."""
    guaranteed: bool = False
    """Its quality of service: every container's limits of CPU and memory are what it requests."""
    containers: tuple[ContainerShape, ...] = ()
    """In the order in which a kubelet serves them, with what each requests."""


_QOS = ("cpu", "memory")

_selector_decoder = msgspec.json.Decoder(dict[str, str])
_affinity_decoder = msgspec.json.Decoder(Affinity)
_tolerations_decoder = msgspec.json.Decoder(tuple[TolerationWire, ...])
_gates_decoder = msgspec.json.Decoder(tuple[_Gate, ...])
_claims_decoder = msgspec.json.Decoder(tuple[_Claim, ...])
_spread_decoder = msgspec.json.Decoder(tuple[SpreadConstraint, ...])
_volumes_decoder = msgspec.json.Decoder(tuple[_Volume, ...])
_ports_decoder = msgspec.json.Decoder(tuple[_Port, ...])
_resources_decoder = msgspec.json.Decoder(_Resources)
_list_decoder = msgspec.json.Decoder(dict[str, str | int | float])

_shapes: weakref.WeakValueDictionary[tuple[bytes | str | bool | None, ...], PodShape] = (
    weakref.WeakValueDictionary()
)


class ResizedContainer(msgspec.Struct, frozen=True, gc=False):
    """Container of a running pod that is being resized in place.

    ``resources`` are in force, ``allocated`` were granted by the kubelet; both as on the wire. An empty ``container``
    stands for the pod as a whole.
    """

    container: str
    resources: bytes
    allocated: bytes


def shape_of(
    spec: PodSpecWire, served: tuple[ResizedContainer, ...] = (), infeasible: bool = False
) -> PodShape:
    """The shared shape of a spec. Never raises on what stands in it.

    ``served``: what a pod that is being resized holds; it counts with the larger of that and its spec, as for
    kube-scheduler, but without its spec where its kubelet has called the resize ``infeasible``.
    """
    key = _key(spec)
    if served:
        key = (
            *key,
            *(part for one in served for part in (one.container, one.resources, one.allocated)),
            infeasible,
        )
    shape = _shapes.get(key)
    if shape is None:
        shape = _build(spec, served, infeasible)
        _shapes[key] = shape
    return shape


def served_otherwise(
    container: ContainerWire, resources: msgspec.Raw, allocated: msgspec.Raw
) -> ResizedContainer | None:
    """Return the resources in a container's status if they differ from its spec."""
    if resources is EMPTY or bytes(resources) == b"null":
        return None
    asked, given = bytes(container.resources), bytes(allocated)
    if bytes(resources) == asked and (not given or given in asked):
        return None
    return ResizedContainer(container.name, bytes(resources), given)


def claims_of(spec: PodSpecWire, pod: str) -> tuple[str, ...]:
    """The claims that a pod of this name uses; one that comes and goes with it is named after both."""
    if spec.volumes is EMPTY:
        return ()
    found = []
    for volume in part(_volumes_decoder, spec.volumes, "spec.volumes", tuple, []):
        if volume.persistent_volume_claim is not None:
            found.append(volume.persistent_volume_claim.claim_name)
        elif volume.ephemeral is not None:
            found.append(f"{pod}-{volume.name}")
    return tuple(found)


def scheduling_group(spec: PodSpecWire) -> str:
    """The gang that a spec names in Kubernetes' own API (see ``views.Pod.scheduling_group``)."""
    if spec.scheduling_group is not None:
        return intern(spec.scheduling_group.pod_group_name or "")
    reference = spec.workload_ref
    if reference is None or not reference.name:
        return ""
    key = reference.pod_group_replica_key
    return intern(f"{reference.name}.{reference.pod_group}" + (f":{key}" if key else ""))


def shapes_alive() -> int:
    """Return the number of distinct shapes of existing pods."""
    return len(_shapes)


def _key(spec: PodSpecWire) -> tuple[bytes | str | bool | None, ...]:
    parts: list[bytes | str | bool | None] = [
        bytes(spec.node_selector),
        bytes(spec.affinity),
        bytes(spec.tolerations),
        bytes(spec.overhead),
        bytes(spec.resources),
        bytes(spec.scheduling_gates),
        bytes(spec.resource_claims),
        bytes(spec.topology_spread_constraints),
        spec.host_network,
    ]
    for containers in (spec.containers, spec.init_containers):
        parts.append("|")
        for container in containers or ():
            resources = bytes(container.resources)
            parts.append(resources)
            if b"/" in resources:  # devices are handed to containers by name
                parts.append(container.name)
            parts.append(bytes(container.ports))
            parts.append(container.restart_policy)
    return tuple(parts)


def _build(
    spec: PodSpecWire, served: tuple[ResizedContainer, ...] = (), infeasible: bool = False
) -> PodShape:
    problems: list[FieldError] = []
    request = _request(spec, problems, {one.container: one for one in served}, infeasible)
    gates = part(_gates_decoder, spec.scheduling_gates, "spec.schedulingGates", tuple, problems)
    claims, unknown = _pod_claims(spec, problems)
    constraints = spec.topology_spread_constraints
    spread = part(_spread_decoder, constraints, "spec.topologySpreadConstraints", tuple, problems)
    devices = tuple(_devices(spec))
    return PodShape(
        request=request,
        node_selector=interned(
            part(_selector_decoder, spec.node_selector, "spec.nodeSelector", dict, problems)
        )
        or NO_LABELS,
        affinity=_affinity(spec.affinity, problems),
        tolerations=part(_tolerations_decoder, spec.tolerations, "spec.tolerations", tuple, problems),
        host_ports=_host_ports(spec, problems),
        gates=tuple(gate.name for gate in gates),
        claims=claims,
        unknown_claims=unknown,
        spread=spread,
        problems=tuple(problems),
        devices=devices,
        guaranteed=_guaranteed(spec),
        containers=tuple(_containers(spec)),
        speaks_of_parts=any(is_word(n) or n.startswith(MIG) for one in devices for n, _ in one.amounts),
    )


def _containers(spec: PodSpecWire) -> Iterator[ContainerShape]:
    for containers, kind in ((spec.init_containers, "init"), (spec.containers, "")):
        for container in containers or ():
            amounts = tuple(sorted(_container(container, "", []).items()))
            yield ContainerShape(
                amounts, "sidecar" if kind and container.restart_policy == "Always" else kind
            )


def _guaranteed(spec: PodSpecWire) -> bool:
    """As Kubernetes tells the class by containers; pods with resources of their own are not told so."""
    if bytes(spec.resources) not in (b"", b"null"):
        return False
    everyone = [*(spec.init_containers or ()), *(spec.containers or ())]
    return bool(everyone) and all(_has_all_limits(container) for container in everyone)


def _has_all_limits(container: ContainerWire) -> bool:
    resources = part(_resources_decoder, container.resources, "", _Resources, [])
    limits = _units({n: v for n, v in (resources.limits or {}).items() if n in _QOS}, "", [])
    requests = _units({n: v for n, v in _requests(resources).items() if n in _QOS}, "", [])
    return all(limits.get(name, 0) > 0 and requests.get(name) == limits[name] for name in _QOS)


def _reference(claim: _Claim) -> ClaimReference:
    template = claim.resource_claim_template_name or ""
    if template.startswith(CLASS_TEMPLATE):
        return ClaimReference(claim.name, device_class=template.removeprefix(CLASS_TEMPLATE))
    return ClaimReference(claim.name, claim.resource_claim_name or "", template)


def _pod_claims(
    spec: PodSpecWire, problems: list[FieldError]
) -> tuple[tuple[ClaimReference, ...], tuple[FieldError, ...]]:
    """Return the claims of a pod, and the errors of what its containers name besides."""
    claims = part(_claims_decoder, spec.resource_claims, "spec.resourceClaims", tuple, problems)
    names = {claim.name for claim in claims}
    found = [
        *map(_reference, claims),
        *(ClaimReference(name, device_class=cls) for name, cls in class_claims(spec.containers or (), names)),
    ]
    unknown = (
        *unknown_claims("spec.containers", spec.containers or (), names),
        *unknown_claims("spec.initContainers", spec.init_containers or (), names),
    )
    return tuple(found), unknown


def _devices(spec: PodSpecWire) -> Iterator[ContainerResources]:
    for key, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for position, container in enumerate(containers or ()):
            place = f"spec.{key}[{position}].resources"
            resources = part(_resources_decoder, container.resources, place, _Resources, [])
            amounts = _requests(resources)
            spoken = tuple(sorted((n, str(v)) for n, v in amounts.items() if is_device(n) or is_word(n)))
            if spoken:
                init = key == "initContainers" and container.restart_policy != "Always"
                yield ContainerResources(container.name, spoken, init, f"{place}.limits")


def _affinity(raw: msgspec.Raw, problems: list[FieldError]) -> Affinity | None:
    text = bytes(raw)
    if not text or text == b"null":
        return None
    try:
        return _affinity_decoder.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        problems.append(field_error("spec.affinity", error))
        return None


def _host_ports(spec: PodSpecWire, problems: list[FieldError]) -> tuple[tuple[str, int, str], ...]:
    """Return the host ports of the containers and sidecars of a pod."""
    found: set[tuple[str, int, str]] = set()
    for key, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for position, container in enumerate(containers or ()):
            if key == "initContainers" and container.restart_policy != "Always":
                continue
            field = f"spec.{key}[{position}].ports"
            for port in part(_ports_decoder, container.ports, field, tuple, problems):
                number = port.host_port or (port.container_port if spec.host_network else 0)
                if number > 0:
                    address = "" if port.host_ip in (None, "0.0.0.0", "::") else intern(port.host_ip)
                    found.add((intern(port.protocol or "TCP"), number, address))
    return tuple(sorted(found))


def _request(
    spec: PodSpecWire, problems: list[FieldError], served: Mapping[str, ResizedContainer], infeasible: bool
) -> Mapping[str, int]:
    running: list[Mapping[str, int]] = []
    for position, container in enumerate(spec.containers or ()):
        asked = _container(container, f"spec.containers[{position}]", problems)
        running.append(_effective(asked, served.get(container.name), infeasible))
    sidecars: Mapping[str, int] = {}
    peaks: list[Mapping[str, int]] = []
    for position, container in enumerate(spec.init_containers or ()):
        needs = _container(container, f"spec.initContainers[{position}]", problems)
        if container.restart_policy == "Always":
            sidecars = add(sidecars, _effective(needs, served.get(container.name), infeasible))
            peaks.append(sidecars)
        else:
            peaks.append(add(sidecars, needs))
    total = maximum([add(*running, sidecars), *peaks])
    whole = part(_resources_decoder, spec.resources, "spec.resources", _Resources, problems)
    asked = _amounts(whole, "spec.resources", problems)
    total.update((name, _effective(asked, served.get(""), infeasible).get(name, 0)) for name in asked)
    overhead = part(_list_decoder, spec.overhead, "spec.overhead", dict, problems)
    total = add(total, _units(overhead, "spec.overhead", problems))
    return {intern(name): min(units, MAX_REQUEST) for name, units in total.items() if units > 0}


def _effective(
    asked: Mapping[str, int], served: ResizedContainer | None, infeasible: bool
) -> Mapping[str, int]:
    """Return the effective requests of a container, by kube-scheduler's ``determineEffectiveRequests``."""
    if served is None:
        return asked
    ignored: list[FieldError] = []
    raw, granted = msgspec.Raw(served.resources), msgspec.Raw(served.allocated)
    actual = _units(part(_resources_decoder, raw, "", _Resources, ignored).requests or {}, "", ignored)
    allocated = _units(part(_list_decoder, granted, "", dict, ignored), "", ignored)
    return maximum([actual, allocated, *(() if infeasible else (asked,))])


def _container(container: ContainerWire, field: str, problems: list[FieldError]) -> dict[str, int]:
    resources = part(_resources_decoder, container.resources, f"{field}.resources", _Resources, problems)
    return _amounts(resources, f"{field}.resources", problems)


def _amounts(resources: _Resources, field: str, problems: list[FieldError]) -> dict[str, int]:
    """Requests in units, with limits where a request is absent. Both are checked."""
    limits = _units(resources.limits or {}, f"{field}.limits", problems)
    return {**limits, **_units(resources.requests or {}, f"{field}.requests", problems)}


def _requests(resources: _Resources) -> dict[str, str | int | float]:
    """Requests, with limits where a request is absent: the API server's own default."""
    return {**(resources.limits or {}), **(resources.requests or {})}


def _units(
    amounts: Mapping[str, str | int | float], field: str, problems: list[FieldError]
) -> dict[str, int]:
    units: dict[str, int] = {}
    for name, amount in amounts.items():
        try:
            value = to_whole_units(name, amount)
        except QuantityError as error:
            problems.append(FieldError(f"{field}[{name}]", str(error)))
            continue
        if value < 0:
            problems.append(FieldError.invalid(f"{field}[{name}]", amount, "must be at least 0"))
            continue
        units[name] = value
    return units
