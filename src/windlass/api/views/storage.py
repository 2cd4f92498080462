"""PersistentVolume, PersistentVolumeClaim, StorageClass, CSINode, CSIDriver and CSIStorageCapacity as the
scheduler sees them.

Kubernetes writes these; what of a wrong type stands in them counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.api.errors import FieldError
from windlass.api.quantities import QuantityError, to_units
from windlass.api.views.podshape import LabelSelector, NodeSelector
from windlass.api.views.wire import Amounts, intern, interned, metadata, moment, part, split

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
WAITS = "WaitForFirstConsumer"


SELECTED_NODE = "volume.kubernetes.io/selected-node"
"""On a claim that waits for its first consumer: where that is going to run; its volume is made there then."""
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
"""On a PersistentVolumeClaim: the volume binder has finished with it."""


class PersistentVolumeClaim(msgspec.Struct, gc=False):
    """``volume``: the one it is bound to. ``storage_class`` ``None``: it names none. ``request`` in bytes.
    ``selected_node``: node to provision its volume on. ``bound``: the volume binder has bound it."""

    namespace: str
    name: str
    uid: str
    volume: str
    storage_class: str | None
    access_modes: tuple[str, ...]
    volume_mode: str
    request: int
    selector: LabelSelector | None
    deleted: float
    selected_node: str = ""
    bound: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class PersistentVolume(msgspec.Struct, gc=False):
    """``claim``: ``namespace/name`` of the one it is bound to or kept for. ``nodes``: its node affinity.
    ``driver`` and ``handle``: of CSI."""

    name: str
    labels: Mapping[str, str]
    claim: str
    storage_class: str
    access_modes: tuple[str, ...]
    volume_mode: str
    capacity: int
    nodes: NodeSelector | None
    driver: str
    handle: str
    phase: str
    deleted: float

    @property
    def key(self) -> str:
        return self.name


class TopologyTerm(msgspec.Struct, frozen=True, gc=False):
    key: str = ""
    values: tuple[str, ...] = ()


class StorageClass(msgspec.Struct, gc=False):
    """``topologies``: where volumes of the class may be made; one of them holds, all of its terms."""

    name: str
    provisioner: str
    waits: bool
    default: bool
    topologies: tuple[tuple[TopologyTerm, ...], ...]


class CsiNode(msgspec.Struct, gc=False):
    """``limits``: CSI driver → how many of its volumes the node attaches."""

    name: str
    limits: Mapping[str, int]


class CsiDriver(msgspec.Struct, gc=False):
    """``counts``: it publishes what its storage pools hold, and a volume is made only where one suffices."""

    name: str
    counts: bool


class StorageCapacity(msgspec.Struct, gc=False):
    """A storage pool of a class. ``nodes``: those that reach it; ``None``: none does. ``limit``: the largest
    volume that can be made in it, in bytes; -1 where it does not say."""

    namespace: str
    name: str
    storage_class: str
    nodes: LabelSelector | None
    limit: int

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Reference(msgspec.Struct, gc=False):
    namespace: str = ""
    name: str = ""


class _ResourcesWire(msgspec.Struct, gc=False):
    requests: Amounts | None = None


class _ClaimSpec(msgspec.Struct, gc=False, rename="camel"):
    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None
    volume_mode: str | None = None
    resources: _ResourcesWire | None = None
    selector: LabelSelector | None = None


class _NodeAffinityWire(msgspec.Struct, gc=False):
    required: NodeSelector | None = None


class _CsiWire(msgspec.Struct, gc=False, rename="camel"):
    driver: str = ""
    volume_handle: str = ""


class _VolumeSpec(msgspec.Struct, gc=False, rename="camel"):
    claim_ref: _Reference | None = None
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None
    volume_mode: str | None = None
    capacity: Amounts | None = None
    node_affinity: _NodeAffinityWire | None = None
    csi: _CsiWire | None = None


class _PhaseWire(msgspec.Struct, gc=False):
    phase: str | None = None


class _TopologyWire(msgspec.Struct, gc=False, rename="camel"):
    match_label_expressions: tuple[TopologyTerm, ...] | None = None


class _ClassWire(msgspec.Struct, gc=False, rename="camel"):
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[_TopologyWire, ...] | None = None


class _Allocatable(msgspec.Struct, gc=False):
    count: int | None = None


class _Driver(msgspec.Struct, gc=False):
    name: str = ""
    allocatable: _Allocatable | None = None


class _CsiNodeSpec(msgspec.Struct, gc=False):
    drivers: list[_Driver] | None = None


class _CsiDriverSpec(msgspec.Struct, gc=False, rename="camel"):
    storage_capacity: bool | None = None


class _CapacityWire(msgspec.Struct, gc=False, rename="camel"):
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | int | None = None
    maximum_volume_size: str | int | None = None


_claim_decoder = msgspec.json.Decoder(_ClaimSpec)
_volume_decoder = msgspec.json.Decoder(_VolumeSpec)
_phase_decoder = msgspec.json.Decoder(_PhaseWire)
_class_decoder = msgspec.json.Decoder(_ClassWire)
_csi_node_decoder = msgspec.json.Decoder(_CsiNodeSpec)
_csi_driver_decoder = msgspec.json.Decoder(_CsiDriverSpec)
_capacity_decoder = msgspec.json.Decoder(_CapacityWire)


def decode_persistent_volume_claim(raw: bytes | msgspec.Raw) -> PersistentVolumeClaim:
    """A PersistentVolumeClaim. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_claim_decoder, whole.spec, "spec", _ClaimSpec, problems)
    return PersistentVolumeClaim(
        intern(meta.namespace),
        meta.name,
        meta.uid,
        spec.volume_name or "",
        None if spec.storage_class_name is None else intern(spec.storage_class_name),
        spec.access_modes or (),
        intern(spec.volume_mode or "Filesystem"),
        _bytes(spec.resources.requests if spec.resources else None),
        spec.selector,
        moment(meta.deletion_timestamp),
        intern((meta.annotations or {}).get(SELECTED_NODE, "")),
        bool(spec.volume_name) and BIND_COMPLETED in (meta.annotations or {}),
    )


def decode_volume(raw: bytes | msgspec.Raw) -> PersistentVolume:
    """A PersistentVolume. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_volume_decoder, whole.spec, "spec", _VolumeSpec, problems)
    status = part(_phase_decoder, whole.status, "status", _PhaseWire, problems)
    claim = spec.claim_ref
    return PersistentVolume(
        meta.name,
        interned(meta.labels),
        f"{claim.namespace}/{claim.name}" if claim is not None and claim.name else "",
        intern(spec.storage_class_name or ""),
        spec.access_modes or (),
        intern(spec.volume_mode or "Filesystem"),
        _bytes(spec.capacity),
        spec.node_affinity.required if spec.node_affinity else None,
        intern(spec.csi.driver if spec.csi else ""),
        spec.csi.volume_handle if spec.csi else "",
        intern(status.phase or ""),
        moment(meta.deletion_timestamp),
    )


def decode_storage_class(raw: bytes | msgspec.Raw) -> StorageClass:
    """A StorageClass. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    meta = metadata(split(raw).metadata, problems)
    wire = part(_class_decoder, msgspec.Raw(bytes(raw)), "", _ClassWire, problems)
    return StorageClass(
        intern(meta.name),
        intern(wire.provisioner),
        wire.volume_binding_mode == WAITS,
        (meta.annotations or {}).get(DEFAULT_CLASS) == "true",
        tuple(t.match_label_expressions or () for t in wire.allowed_topologies or ()),
    )


def decode_csi_node(raw: bytes | msgspec.Raw) -> CsiNode:
    """A CSINode. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_csi_node_decoder, whole.spec, "spec", _CsiNodeSpec, problems)
    limits = {
        intern(driver.name): driver.allocatable.count
        for driver in spec.drivers or ()
        if driver.allocatable is not None and driver.allocatable.count is not None
    }
    return CsiNode(meta.name, limits)


def decode_csi_driver(raw: bytes | msgspec.Raw) -> CsiDriver:
    """A CSIDriver. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_csi_driver_decoder, whole.spec, "spec", _CsiDriverSpec, problems)
    return CsiDriver(intern(meta.name), bool(spec.storage_capacity))


def decode_storage_capacity(raw: bytes | msgspec.Raw) -> StorageCapacity:
    """A CSIStorageCapacity. Raises ``msgspec.DecodeError`` on what has no name.

    As kube-scheduler's volume binder, it goes by ``maximumVolumeSize``, and by ``capacity`` where that is absent.
    """
    problems: list[FieldError] = []
    meta = metadata(split(raw).metadata, problems)
    wire = part(_capacity_decoder, msgspec.Raw(bytes(raw)), "", _CapacityWire, problems)
    limit = wire.capacity if wire.maximum_volume_size is None else wire.maximum_volume_size
    return StorageCapacity(
        intern(meta.namespace),
        meta.name,
        intern(wire.storage_class_name),
        wire.node_topology,
        -1 if limit is None else _bytes({"storage": limit}),
    )


def _bytes(amounts: Mapping[str, Any] | None) -> int:
    try:
        return to_units("storage", (amounts or {}).get("storage", 0))
    except (QuantityError, TypeError):
        return 0
