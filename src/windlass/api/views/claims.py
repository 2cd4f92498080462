"""Dynamic resource allocation (``resource.k8s.io/v1``) as the scheduler sees it: claims, classes, slices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.api.errors import FieldError
from windlass.api.views.wire import intern, metadata, moment, part, split

EXACT, ALL = "ExactCount", "All"
Quantity = str | int | float
"""As it may be written."""


class DeviceToleration(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Device taints that a request tolerates; copied into the allocation for the taint eviction controller."""

    operator: str
    key: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        """As ``ToleratesTaint`` of Kubernetes."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (self.operator == "Equal" and self.value == taint.value)


class DeviceTaint(msgspec.Struct, frozen=True, gc=False):
    """``effect`` None, NoSchedule or NoExecute; others are none."""

    key: str
    value: str = ""
    effect: str = ""


class DeviceRequest(msgspec.Struct, frozen=True, gc=False):
    """One way to serve a request. ``selectors`` are CEL expressions that all hold. ``mode`` ExactCount or All."""

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    mode: str = EXACT
    count: int = 1
    tolerations: tuple[DeviceToleration, ...] = ()
    admin: bool = False
    """True for admin access: it observes devices in use, and the allocation holds none of them."""
    capacity: tuple[tuple[str, str], ...] = ()
    """Name, quantity as text: so much each of its devices is to have, or to give of what it has."""


class ClaimRequest(msgspec.Struct, frozen=True, gc=False):
    """``options``: one, or the list of ``firstAvailable`` in order of preference."""

    name: str
    options: tuple[DeviceRequest, ...]


class DeviceConstraint(msgspec.Struct, frozen=True, gc=False):
    """The devices of ``requests`` (empty: of all; a request, or ``request/alternative``) have the same value of an
    attribute or, ``distinct``, different ones."""

    attribute: str
    distinct: bool = False
    requests: tuple[str, ...] = ()


class DeviceConfig(msgspec.Struct, frozen=True, gc=False):
    """Configuration of a class or a claim for the driver of ``requests`` (empty: all requests).

    ``body``: the configuration as written, without that list.
    """

    body: Mapping[str, Any]
    requests: tuple[str, ...] = ()


class DeviceResult(msgspec.Struct, frozen=True, gc=False):
    """Allocated device. ``share``: ID of the allocated share; empty: the device is exclusive.

    ``consumed``: consumed capacity by name, quantities as text.
    """

    request: str
    driver: str
    pool: str
    device: str
    share: str = ""
    consumed: tuple[tuple[str, str], ...] = ()


class AwaitedDevice(msgspec.Struct, frozen=True, gc=False):
    """A device that was allocated and has to be made ready. ``missing``: conditions that are not true yet; ``failure``:
    why it never will be, in its driver's words."""

    name: str
    missing: tuple[str, ...] = ()
    failure: str = ""


FINALIZER = "resource.kubernetes.io/delete-protection"
"""On an allocated ResourceClaim: keeps it until no pod uses its devices."""


class DeviceClaim(msgspec.Struct, gc=False):
    """A ResourceClaim, or what a template says. ``nodes``: names of the nodes on which its allocation is;
    ``reserved``: UIDs of the pods that may use it."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    created: float
    deleted: float
    owner: str
    requests: tuple[ClaimRequest, ...]
    constraints: tuple[DeviceConstraint, ...] = ()
    allocated: bool = False
    nodes: tuple[str, ...] = ()
    results: tuple[DeviceResult, ...] = ()
    reserved: tuple[str, ...] = ()
    consumers: tuple[dict[str, Any], ...] = ()
    """``status.reservedFor`` as it is written."""
    problems: tuple[FieldError, ...] = ()
    finalizers: tuple[str, ...] = ()
    config: tuple[DeviceConfig, ...] = ()
    allocated_at: float = 0.0
    """Allocation time in Unix seconds; 0.0 if unknown."""
    awaited: tuple[AwaitedDevice, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class ClaimTemplate(msgspec.Struct, gc=False):
    """A ResourceClaimTemplate."""

    namespace: str
    name: str
    requests: tuple[ClaimRequest, ...]
    constraints: tuple[DeviceConstraint, ...]
    problems: tuple[FieldError, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class DeviceClass(msgspec.Struct, gc=False):
    name: str
    selectors: tuple[str, ...]
    problems: tuple[FieldError, ...]
    config: tuple[DeviceConfig, ...] = ()

    @property
    def key(self) -> str:
        return self.name


class DeviceCapacity(msgspec.Struct, frozen=True, gc=False):
    """Capacity of a device, quantities as text, with its ``requestPolicy``.

    A share takes one of ``values`` (ascending), or an amount from ``least`` to ``most`` (empty: all of it) in steps of
    ``step`` (empty: any). ``default`` applies to requests without an amount (empty: all of it).
    """

    name: str
    value: str
    default: str = ""
    values: tuple[str, ...] = ()
    least: str = ""
    most: str = ""
    step: str = ""


class SliceDevice(msgspec.Struct, frozen=True, gc=False):
    """``attributes``: name (without its domain where that is the driver's) → string, int, bool or version text;
    ``shared``: it may be allocated more than once. ``draws``: counter set, counter, quantity as text: what it takes of
    counters of its pool while it is allocated."""

    name: str
    attributes: tuple[tuple[str, str | int | bool], ...] = ()
    versions: tuple[str, ...] = ()
    """Names of the attributes that are semantic versions."""
    capacity: tuple[DeviceCapacity, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    draws: tuple[tuple[str, str, str], ...] = ()
    shared: bool = False
    ready: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """Conditions (``bindingConditions``, ``bindingFailureConditions``) that its driver sets once it is allocated: all
    of ``ready`` before a pod may be bound, any of ``failed`` if it cannot be."""


class ResourceSlice(msgspec.Struct, gc=False):
    """The devices that a driver has on one node; ``node`` is empty for devices that many nodes reach."""

    name: str
    driver: str
    pool: str
    generation: int
    slices: int
    node: str
    devices: tuple[SliceDevice, ...]
    problems: tuple[FieldError, ...]
    counters: tuple[tuple[str, str, str], ...] = ()
    """Counter set, counter, quantity as text: what the devices of its pool share."""

    @property
    def key(self) -> str:
        return self.name


class _CelWire(msgspec.Struct, gc=False):
    expression: str = ""


class _SelectorWire(msgspec.Struct, gc=False):
    cel: _CelWire | None = None


class _TolerationWire(msgspec.Struct, gc=False, rename="camel"):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class _ConstraintWire(msgspec.Struct, gc=False, rename="camel"):
    requests: tuple[str, ...] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class _AskedWire(msgspec.Struct, gc=False):
    requests: dict[str, Quantity] | None = None


class _RequestWire(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    device_class_name: str = ""
    selectors: tuple[_SelectorWire, ...] | None = None
    allocation_mode: str | None = None
    count: int | None = None
    admin_access: bool | None = None
    capacity: _AskedWire | None = None
    tolerations: tuple[_TolerationWire, ...] | None = None


class _WholeRequestWire(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    exactly: _RequestWire | None = None
    first_available: tuple[_RequestWire, ...] | None = None


class _DevicesWire(msgspec.Struct, gc=False):
    requests: tuple[_WholeRequestWire, ...] | None = None
    constraints: tuple[_ConstraintWire, ...] | None = None
    config: tuple[dict[str, Any], ...] | None = None


class _ClaimSpecWire(msgspec.Struct, gc=False):
    devices: _DevicesWire | None = None


class _ResultWire(msgspec.Struct, gc=False, rename="camel"):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    share: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, Quantity] | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None


class _ConditionWire(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _DeviceStateWire(msgspec.Struct, gc=False):
    driver: str = ""
    pool: str = ""
    device: str = ""
    conditions: tuple[_ConditionWire, ...] | None = None


class _ResultsWire(msgspec.Struct, gc=False):
    results: tuple[_ResultWire, ...] | None = None


class _FieldWire(msgspec.Struct, gc=False):
    key: str = ""
    values: tuple[str, ...] | None = None


class _TermWire(msgspec.Struct, gc=False, rename="camel"):
    match_fields: tuple[_FieldWire, ...] | None = None


class _NodesWire(msgspec.Struct, gc=False, rename="camel"):
    node_selector_terms: tuple[_TermWire, ...] | None = None


class _AllocationWire(msgspec.Struct, gc=False, rename="camel"):
    devices: _ResultsWire | None = None
    node_selector: _NodesWire | None = None
    allocation_timestamp: str | None = None


class _ClaimStatusWire(msgspec.Struct, gc=False, rename="camel"):
    allocation: _AllocationWire | None = None
    devices: tuple[_DeviceStateWire, ...] | None = None
    reserved_for: tuple[dict[str, Any], ...] | None = None


class _TemplateSpecWire(msgspec.Struct, gc=False):
    spec: _ClaimSpecWire | None = None


class _ClassSpecWire(msgspec.Struct, gc=False, rename="camel"):
    selectors: tuple[_SelectorWire, ...] | None = None
    config: tuple[dict[str, Any], ...] | None = None


class _AttributeWire(msgspec.Struct, gc=False):
    text: str | None = msgspec.field(name="string", default=None)
    number: int | None = msgspec.field(name="int", default=None)
    flag: bool | None = msgspec.field(name="bool", default=None)
    version: str | None = None


class _RangeWire(msgspec.Struct, gc=False):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class _PolicyWire(msgspec.Struct, gc=False, rename="camel"):
    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] | None = None
    valid_range: _RangeWire | None = None


class _CapacityWire(msgspec.Struct, gc=False, rename="camel"):
    value: Quantity = "0"
    request_policy: _PolicyWire | None = None


class _TaintWire(msgspec.Struct, gc=False):
    key: str = ""
    value: str | None = None
    effect: str = ""


class _DrawsWire(msgspec.Struct, gc=False, rename="camel"):
    counter_set: str = ""
    counters: dict[str, _CapacityWire] | None = None


class _CountersWire(msgspec.Struct, gc=False):
    name: str = ""
    counters: dict[str, _CapacityWire] | None = None


class _DeviceWire(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    attributes: dict[str, _AttributeWire] | None = None
    capacity: dict[str, _CapacityWire] | None = None
    taints: tuple[_TaintWire, ...] | None = None
    consumes_counters: tuple[_DrawsWire, ...] | None = None
    allow_multiple_allocations: bool | None = None
    binding_conditions: tuple[str, ...] | None = None
    binding_failure_conditions: tuple[str, ...] | None = None


class _PoolWire(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class _SliceSpecWire(msgspec.Struct, gc=False, rename="camel"):
    driver: str = ""
    pool: _PoolWire = msgspec.field(default_factory=_PoolWire)
    node_name: str | None = None
    devices: tuple[_DeviceWire, ...] | None = None
    shared_counters: tuple[_CountersWire, ...] | None = None


_claim_spec = msgspec.json.Decoder(_ClaimSpecWire)
_claim_status = msgspec.json.Decoder(_ClaimStatusWire)
_template_spec = msgspec.json.Decoder(_TemplateSpecWire)
_class_spec = msgspec.json.Decoder(_ClassSpecWire)
_slice_spec = msgspec.json.Decoder(_SliceSpecWire)


def decode_device_claim(raw: bytes | msgspec.Raw) -> DeviceClaim:
    """A ResourceClaim. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_claim_spec, whole.spec, "spec", _ClaimSpecWire, problems)
    status = part(_claim_status, whole.status, "status", _ClaimStatusWire, problems)
    owner = next((one.uid for one in meta.owner_references or () if one.controller), "")
    requests, constraints = _requests(spec)
    allocation = status.allocation
    results = (allocation.devices.results or ()) if allocation is not None and allocation.devices else ()
    return DeviceClaim(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        created=moment(meta.creation_timestamp),
        deleted=moment(meta.deletion_timestamp),
        owner=owner,
        requests=requests,
        constraints=constraints,
        allocated=allocation is not None,
        nodes=_node_names(allocation),
        results=tuple(_result(one) for one in results if not one.admin_access),
        reserved=tuple(str(consumer.get("uid", "")) for consumer in status.reserved_for or ()),
        consumers=status.reserved_for or (),
        problems=tuple(problems),
        finalizers=tuple(meta.finalizers or ()),
        config=_config(spec.devices.config if spec.devices is not None else None),
        allocated_at=moment(allocation.allocation_timestamp) if allocation is not None else 0.0,
        awaited=tuple(_awaited(one, status.devices or ()) for one in results if one.binding_conditions),
    )


def _awaited(result: _ResultWire, states: tuple[_DeviceStateWire, ...]) -> AwaitedDevice:
    place = (result.driver, result.pool, result.device)
    state = next((one for one in states if (one.driver, one.pool, one.device) == place), _DeviceStateWire())
    true = {one.type: one for one in state.conditions or () if one.status == "True"}
    failures = [true[name] for name in result.binding_failure_conditions or () if name in true]
    failure = f"{failures[0].type}: {failures[0].message or failures[0].reason}" if failures else ""
    missing = tuple(name for name in result.binding_conditions or () if name not in true)
    return AwaitedDevice("/".join(place), missing, failure)


def _result(wire: _ResultWire) -> DeviceResult:
    consumed = _quantities(wire.consumed_capacity)
    return DeviceResult(wire.request, wire.driver, wire.pool, wire.device, wire.share or "", consumed)


def _quantities(wire: Mapping[str, Quantity] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in (wire or {}).items()))


def _node_names(allocation: _AllocationWire | None) -> tuple[str, ...]:
    """The nodes that the allocation's selector names; it is written by name."""
    selector = allocation.node_selector if allocation is not None else None
    terms = (selector.node_selector_terms or ()) if selector is not None else ()
    return tuple(
        intern(name)
        for term in terms
        for field in term.match_fields or ()
        if field.key == "metadata.name"
        for name in field.values or ()
    )


def decode_claim_template(raw: bytes | msgspec.Raw) -> ClaimTemplate:
    """A ResourceClaimTemplate. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_template_spec, whole.spec, "spec", _TemplateSpecWire, problems)
    requests, constraints = _requests(spec.spec or _ClaimSpecWire())
    return ClaimTemplate(intern(meta.namespace), meta.name, requests, constraints, tuple(problems))


def decode_device_class(raw: bytes | msgspec.Raw) -> DeviceClass:
    """A DeviceClass. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_class_spec, whole.spec, "spec", _ClassSpecWire, problems)
    return DeviceClass(meta.name, _selectors(spec.selectors), tuple(problems), _config(spec.config))


def decode_resource_slice(raw: bytes | msgspec.Raw) -> ResourceSlice:
    """A ResourceSlice. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_slice_spec, whole.spec, "spec", _SliceSpecWire, problems)
    return ResourceSlice(
        name=meta.name,
        driver=intern(spec.driver),
        pool=intern(spec.pool.name),
        generation=spec.pool.generation,
        slices=spec.pool.resource_slice_count,
        node=intern(spec.node_name or ""),
        devices=tuple(_device(device, spec.driver) for device in spec.devices or ()),
        problems=tuple(problems),
        counters=tuple(
            (one.name, name, str(counter.value))
            for one in spec.shared_counters or ()
            for name, counter in (one.counters or {}).items()
        ),
    )


def _requests(spec: _ClaimSpecWire) -> tuple[tuple[ClaimRequest, ...], tuple[DeviceConstraint, ...]]:
    devices = spec.devices or _DevicesWire()
    found = []
    for request in devices.requests or ():
        if request.exactly is not None:
            options = (_request(request.name, request.exactly),)
        else:
            options = tuple(_request(f"{request.name}/{o.name}", o) for o in request.first_available or ())
        found.append(ClaimRequest(request.name, options))
    constraints = tuple(
        DeviceConstraint(
            c.match_attribute or c.distinct_attribute or "", not c.match_attribute, c.requests or ()
        )
        for c in devices.constraints or ()
    )
    return tuple(found), constraints


def _request(name: str, wire: _RequestWire) -> DeviceRequest:
    return DeviceRequest(
        name=name,
        device_class=wire.device_class_name,
        selectors=_selectors(wire.selectors),
        mode=wire.allocation_mode or EXACT,
        count=1 if wire.count is None else wire.count,
        tolerations=tuple(
            DeviceToleration(
                t.operator or "Equal", t.key or "", t.value or "", t.effect or "", t.toleration_seconds
            )
            for t in wire.tolerations or ()
        ),
        admin=bool(wire.admin_access),
        capacity=_quantities(wire.capacity.requests if wire.capacity is not None else None),
    )


def _config(wires: tuple[dict[str, Any], ...] | None) -> tuple[DeviceConfig, ...]:
    found = []
    for wire in wires or ():
        body = {name: value for name, value in wire.items() if name != "requests"}
        found.append(DeviceConfig(body, tuple(wire.get("requests") or ())))
    return tuple(found)


def _selectors(wires: tuple[_SelectorWire, ...] | None) -> tuple[str, ...]:
    return tuple(wire.cel.expression for wire in wires or () if wire.cel is not None)


def _device(wire: _DeviceWire, driver: str) -> SliceDevice:
    attributes: dict[str, str | int | bool] = {}
    versions = []
    for name, value in (wire.attributes or {}).items():
        plain = name.removeprefix(f"{driver}/")
        if value.version is not None:
            versions.append(plain)
            attributes[plain] = value.version
            continue
        for given in (value.text, value.flag, value.number):
            if given is not None:
                attributes[plain] = given
                break
    return SliceDevice(
        name=wire.name,
        attributes=tuple(sorted(attributes.items())),
        versions=tuple(sorted(versions)),
        capacity=tuple(_capacity(name, told) for name, told in sorted((wire.capacity or {}).items())),
        taints=tuple(
            DeviceTaint(taint.key, taint.value or "", taint.effect)
            for taint in wire.taints or ()
            if taint.effect in ("NoSchedule", "NoExecute")
        ),
        draws=tuple(
            (one.counter_set, name, str(counter.value))
            for one in wire.consumes_counters or ()
            for name, counter in (one.counters or {}).items()
        ),
        shared=bool(wire.allow_multiple_allocations),
        ready=wire.binding_conditions or (),
        failed=wire.binding_failure_conditions or (),
    )


def _capacity(name: str, wire: _CapacityWire) -> DeviceCapacity:
    policy = wire.request_policy or _PolicyWire()
    span = policy.valid_range or _RangeWire()
    told = (policy.default, span.min, span.max, span.step)
    default, least, most, step = ("" if one is None else str(one) for one in told)
    values = tuple(str(one) for one in policy.valid_values or ())
    return DeviceCapacity(name, str(wire.value), default, values, least, most, step)
