"""Decoded index of every object: uid, labels and selectable fields.

Selectors are matched on this record, so lists and watches never decode an object. Field
names are exactly those that kube-apiserver v1.36 accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from sys import intern
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, field

from windlass.store.errors import Unindexable

Fields = tuple[str, ...]


class FieldIndex(NamedTuple):
    """``fields`` are in the order of :data:`SELECTABLE` of the resource."""

    labels: dict[str, str]
    fields: Fields


SELECTABLE: Mapping[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.schedulerName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "type",
        "source",
        "reportingComponent",
    ),
}
"""Besides ``metadata.name`` and ``metadata.namespace``, which every kind has."""


class _Meta(Struct, gc=False):
    labels: dict[str, str] | None = None


class _Any(Struct, gc=False):
    metadata: _Meta


class _PodSpec(Struct, gc=False, rename="camel"):
    node_name: str | None = None
    scheduler_name: str | None = None
    restart_policy: str | None = None
    service_account_name: str | None = None
    host_network: bool | None = None


class _PodStatus(Struct, gc=False):
    phase: str | None = None
    pod_ip: str | None = field(default=None, name="podIP")
    nominated: str | None = field(default=None, name="nominatedNodeName")


class _Pod(Struct, gc=False):
    metadata: _Meta
    spec: _PodSpec | None = None
    status: _PodStatus | None = None


class _NodeSpec(Struct, gc=False):
    unschedulable: bool | None = None


class _Node(Struct, gc=False):
    metadata: _Meta
    spec: _NodeSpec | None = None


class _PhaseStatus(Struct, gc=False):
    phase: str | None = None


class _Namespace(Struct, gc=False):
    metadata: _Meta
    status: _PhaseStatus | None = None


class _Secret(Struct, gc=False):
    metadata: _Meta
    type: str | None = None


class _ServiceSpec(Struct, gc=False):
    cluster_ip: str | None = field(default=None, name="clusterIP")
    type: str | None = None


class _Service(Struct, gc=False):
    metadata: _Meta
    spec: _ServiceSpec | None = None


class _Reference(Struct, gc=False, rename="camel"):
    kind: str | None = None
    namespace: str | None = None
    name: str | None = None
    uid: str | None = None
    api_version: str | None = None
    resource_version: str | None = None
    field_path: str | None = None


class _Source(Struct, gc=False):
    component: str | None = None


class _Event(Struct, gc=False, rename="camel"):
    metadata: _Meta
    involved_object: _Reference | None = None
    reason: str | None = None
    type: str | None = None
    source: _Source | None = None
    reporting_component: str | None = None


_NO_POD_SPEC, _NO_POD_STATUS = _PodSpec(), _PodStatus()
_NO_LABELS: dict[str, str] = {}


def _pod(pod: _Pod) -> Fields:
    spec, status = pod.spec or _NO_POD_SPEC, pod.status or _NO_POD_STATUS
    return (
        intern(spec.node_name or ""),
        intern(spec.scheduler_name or ""),
        intern(spec.restart_policy or ""),
        intern(spec.service_account_name or ""),
        "true" if spec.host_network else "false",
        intern(status.phase or ""),
        status.pod_ip or "",
        intern(status.nominated or ""),
    )


def _node(node: _Node) -> Fields:
    return ("true" if node.spec and node.spec.unschedulable else "false",)


def _namespace(namespace: _Namespace) -> Fields:
    return (intern((namespace.status and namespace.status.phase) or ""),)


def _secret(secret: _Secret) -> Fields:
    return (intern(secret.type or ""),)


def _service(service: _Service) -> Fields:
    spec = service.spec or _ServiceSpec()
    return (spec.cluster_ip or "", intern(spec.type or ""))


def _event(event: _Event) -> Fields:
    about = event.involved_object or _Reference()
    component = (event.source and event.source.component) or ""
    return (
        intern(about.kind or ""),
        intern(about.namespace or ""),
        about.name or "",
        about.uid or "",
        intern(about.api_version or ""),
        about.resource_version or "",
        about.field_path or "",
        intern(event.reason or ""),
        intern(event.type or ""),
        intern(component or event.reporting_component or ""),
        intern(event.reporting_component or ""),
    )


def _none(_: _Any) -> Fields:
    return ()


_SHAPES: Mapping[str, tuple[type[Any], Callable[[Any], Fields]]] = {
    "pods": (_Pod, _pod),
    "nodes": (_Node, _node),
    "namespaces": (_Namespace, _namespace),
    "secrets": (_Secret, _secret),
    "services": (_Service, _service),
    "events": (_Event, _event),
}


def indexer(resource: str) -> Callable[[bytes], FieldIndex]:
    """Return the function that extracts the index from an encoded object of ``resource``.

    ``resource`` is the qualified name. The function raises :class:`Unindexable` if a
    label or a selectable field has the wrong type.
    """
    shape, extract = _SHAPES.get(resource, (_Any, _none))
    decode = msgspec.json.Decoder(shape).decode

    def index(data: bytes) -> FieldIndex:
        try:
            found = decode(data)
        except msgspec.ValidationError as error:
            raise Unindexable(str(error)) from error
        return FieldIndex(found.metadata.labels or _NO_LABELS, extract(found))

    return index


def field_position(resource: str, name: str) -> int | None:
    """Return the index of field ``name`` in :attr:`FieldIndex.fields`; ``None``: not selectable."""
    names: Sequence[str] = SELECTABLE.get(resource, ())
    return names.index(name) if name in names else None
