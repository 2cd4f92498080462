"""Cached objects of ``apps/v1``: the fields by which controllers find each other's objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from windlass.api import selectors
from windlass.api.resources import Resource
from windlass.api.selectors import Selector
from windlass.api.views.wire import OwnerReference, controller_of, metadata, moment, owners, split
from windlass.client.informers import Informer
from windlass.controllers.expectations import RecordIndex

Json = dict[str, Any]
_whole = msgspec.json.Decoder()


class _Spec(msgspec.Struct, gc=False):
    selector: dict[str, Any] | None = None


class _Wire(msgspec.Struct, gc=False):
    spec: _Spec = msgspec.field(default_factory=_Spec)


_wire = msgspec.json.Decoder(_Wire)


class Workload(msgspec.Struct, frozen=True, gc=False):
    """Object with a selector, kept as JSON and decoded on access.

    ``selector``: selector of its pods; ``None`` if it has none or an empty one.
    """

    key: str
    uid: str
    resource_version: str
    deleted: float
    raw: bytes
    selector: Selector | None
    labels: Mapping[str, str]
    owners: tuple[OwnerReference, ...]

    @property
    def object(self) -> Json:
        """Decode the object. The caller owns the result."""
        return _whole.decode(self.raw)

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]

    @property
    def controller(self) -> OwnerReference | None:
        return controller_of(self.owners)


def decode_workload(raw: msgspec.Raw) -> Workload:
    """Decode an object of ``apps/v1``. Raises ``msgspec.DecodeError``."""
    meta = metadata(split(raw).metadata, [])
    selector = selectors.from_object(_wire.decode(raw).spec.selector)
    return Workload(
        f"{meta.namespace}/{meta.name}",
        meta.uid,
        meta.resource_version,
        moment(meta.deletion_timestamp) or (1.0 if meta.deletion_timestamp else 0.0),
        bytes(raw),
        selector or None,
        meta.labels or {},
        owners(meta.owner_references),
    )


def is_owner(owner: OwnerReference | None, resource: Resource) -> bool:
    """Return whether the reference names an object of the kind, of any version."""
    if owner is None or owner.kind != resource.kind:
        return False
    return owner.api_version.partition("/")[0] == resource.group


def owner_or_loose(one: Workload) -> Iterable[str]:
    """Index objects by the uid of their controller; those without one by ``namespace/``."""
    owner = one.controller
    return (owner.uid if owner is not None else f"{one.namespace}/",)


class Selecting:
    """Objects of one kind that select others by labels, by namespace."""

    def __init__(self, resource: Resource, informer: Informer[Workload]) -> None:
        self._resource = resource
        self._by_namespace = RecordIndex(informer, lambda one: (one.namespace,), lambda one: one.key)

    def keys(
        self, namespace: str, labels: Mapping[str, str], controller: OwnerReference | None
    ) -> Iterable[str]:
        """Return the keys of the objects that control another, or that may adopt it."""
        if controller is not None:
            return (f"{namespace}/{controller.name}",) if is_owner(controller, self._resource) else ()
        return [
            one.key
            for one in self._by_namespace.get(namespace).values()
            if one.selector is not None and one.selector.matches(labels)
        ]
