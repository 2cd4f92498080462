"""Pods in the agent's informer: whole objects for its own node, a few fields of all others.

One stream carries both, so the order of changes holds. When a pod bound to this node is seen,
all members of its gang that were created before it have been seen too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.api import annotations as annotation_names
from windlass.api import quantities
from windlass.api.fields import jobset
from windlass.kits.timestamps import parse_rfc3339


class _Metadata(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None


class _Resources(msgspec.Struct, gc=False):
    limits: dict[str, Any] | None = None


class _Container(msgspec.Struct, gc=False):
    name: str = ""
    resources: _Resources | None = None


class _AllocatedUnit(msgspec.Struct, gc=False):
    id: str = msgspec.field(name="resourceID", default="")


class _Allocated(msgspec.Struct, gc=False):
    name: str = ""
    resources: list[_AllocatedUnit] | None = None


class _ContainerState(msgspec.Struct, gc=False):
    waiting: dict[str, Any] | None = None


class _ContainerStatus(msgspec.Struct, gc=False, rename="camel"):
    name: str = ""
    allocated_resources_status: list[_Allocated] | None = None
    restart_count: int = 0
    state: _ContainerState = msgspec.field(default_factory=_ContainerState)


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    node_name: str | None = None
    hostname: str | None = None
    subdomain: str | None = None
    host_network: bool | None = None
    containers: list[_Container] | None = None


class _Status(msgspec.Struct, gc=False, rename="camel"):
    phase: str | None = None
    start_time: str | None = None
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    container_statuses: list[_ContainerStatus] | None = None


class _Wire(msgspec.Struct, gc=False):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


ContainerUnits = tuple[tuple[str, str, int], ...]
"""Container, resource and number of units."""
ContainerDevices = tuple[tuple[str, str, tuple[str, ...]], ...]
"""Container, resource and device ids."""


class InPlacePart(msgspec.Struct, gc=False):
    """State of a pod that restarts in place with the other pods of its JobSet.

    ``job_set``: ``namespace/name``. ``attempt``: as its node wrote it. ``waits``: its containers do not run.
    """

    job_set: str
    attempt: int | None
    restarts: int
    waits: bool


class PodRecord(msgspec.Struct, gc=False):
    """Pod as the agent needs it. ``raw``: the whole object for pods of this node, else None."""

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    group: str
    hostname: str
    subdomain: str
    deleted: bool
    grace_seconds: int | None
    run_seconds: tuple[float, ...]
    """Declared time of each run of its containers; the last one holds for later runs too."""
    exit_codes: tuple[int, ...]
    labels: dict[str, str] | None = None
    raw: dict[str, Any] | None = None
    containers: tuple[str, ...] = ()
    started_at: float = 0.0
    address: str = ""
    units: ContainerUnits = ()
    """Extended resources of each container that are not accelerators, with their amounts."""
    held: ContainerDevices = ()
    """Devices of such resources that the pod's status names."""
    is_mirror: bool = False
    """True if the pod shows a process of the node; the agent starts nothing for it."""
    in_place: InPlacePart | None = None
    """Only of pods of other nodes."""
    item_seconds: float | None = None
    """Model time of a row of a worker on a simulated node."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")


_decode_wire = msgspec.json.Decoder(_Wire).decode
_decode_raw = msgspec.json.Decoder(dict[str, Any]).decode


class PodDecoder:
    """Decoder of pods for the agent of ``node``."""

    def __init__(self, node: str) -> None:
        self._node = node

    def __call__(self, data: msgspec.Raw) -> PodRecord:
        wire = _decode_wire(data)
        metadata, spec = wire.metadata, wire.spec
        pod_annotations = metadata.annotations or {}
        node = spec.node_name or ""
        own_node = node == self._node
        return PodRecord(
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            node=node,
            phase=wire.status.phase or "Pending",
            group=pod_annotations.get(annotation_names.GROUP_NAME)
            or pod_annotations.get(annotation_names.GROUP_NAME_VOLCANO)
            or "",
            hostname=spec.hostname or "",
            subdomain=spec.subdomain or "",
            deleted=metadata.deletion_timestamp is not None,
            grace_seconds=metadata.deletion_grace_period_seconds,
            run_seconds=_seconds(pod_annotations.get(annotation_names.RUN_SECONDS)),
            exit_codes=_codes(pod_annotations.get(annotation_names.EXIT_CODE)),
            labels=metadata.labels if own_node or not node else None,
            raw=_decode_raw(data) if own_node else None,
            containers=() if own_node else _names(spec.containers),
            started_at=parse_rfc3339(wire.status.start_time) if wire.status.start_time else 0.0,
            address="" if own_node else wire.status.pod_ip or "",
            units=() if own_node else _units(spec.containers),
            held=() if own_node else _held(wire.status.container_statuses),
            is_mirror=annotation_names.MIRROR in pod_annotations,
            in_place=None if own_node else _in_place(metadata.namespace, pod_annotations, wire.status),
            item_seconds=next(iter(_seconds(pod_annotations.get(annotation_names.ITEM_SECONDS))), None),
        )


_interned: dict[tuple[str, ...], tuple[str, ...]] = {}


def _names(containers: list[_Container] | None) -> tuple[str, ...]:
    """Return the containers' names. Equal tuples are stored once."""
    names = tuple(container.name for container in containers or ())
    return _interned.setdefault(names, names) if len(_interned) < 4096 else names


def _units(containers: list[_Container] | None) -> ContainerUnits:
    """Return the extended resources that are not accelerators. Invalid amounts are left out."""
    found = []
    for container in containers or ():
        limits = container.resources.limits if container.resources else None
        for resource, amount in (limits or {}).items():
            if "/" in resource and not quantities.is_device(resource) and str(amount).isdecimal():
                found.append((container.name, resource, int(amount)))
    return tuple(found)


def _held(statuses: list[_ContainerStatus] | None) -> ContainerDevices:
    return tuple(
        (status.name, part.name, tuple(unit.id for unit in part.resources or ()))
        for status in statuses or ()
        for part in status.allocated_resources_status or ()
    )


def _in_place(namespace: str, notes: dict[str, str], status: _Status) -> InPlacePart | None:
    job_set = notes.get(annotation_names.RESTART_IN_PLACE)
    if not job_set:
        return None
    attempt = notes.get(jobset.IN_PLACE_ATTEMPT) or ""
    containers = status.container_statuses or ()
    return InPlacePart(
        f"{namespace}/{job_set}",
        int(attempt) if attempt.isdecimal() else None,
        max((one.restart_count for one in containers), default=0),
        any(one.state.waiting is not None for one in containers),
    )


def _seconds(text: str | None) -> tuple[float, ...]:
    """Return declared run times in seconds, separated by commas.

    Text that is not a number counts as absent: the pod then runs until it is deleted.
    """
    if text is None:
        return ()
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        return ()
    finite = all(seconds == seconds and seconds != float("inf") for seconds in found)
    return tuple(max(0.0, seconds) for seconds in found) if finite else ()


def _codes(text: str | None) -> tuple[int, ...]:
    """Return declared exit codes, separated by commas. Text that is not a number stands for 0."""
    parts = [part.strip() for part in (text or "").split(",")]
    return tuple(int(part) if part.isascii() and part.isdecimal() else 0 for part in parts)
