"""Objects that the objects of one kind control."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from windlass.api.resources import Resource
from windlass.api.views import Pod
from windlass.client.informers import Route
from windlass.controllers.expectations import StoredObject, StoredOwner

UNOWNED = ""


def kind_of_owner(pod: Pod) -> str:
    """Return the kind that controls a pod; :data:`UNOWNED` if none does."""
    owner = pod.controller
    return owner.kind if owner is not None else UNOWNED


def pods_of(*resources: Resource, unowned: bool = False) -> Route[Pod]:
    """Return the route of pods that kinds with the name of one of these control.

    ``unowned``: and of pods without an owner, which a controller may adopt.
    """
    kinds = {resource.kind for resource in resources}
    return Route(kind_of_owner, frozenset({*kinds, UNOWNED} if unowned else kinds))


@dataclass(frozen=True, slots=True)
class ControlledBy:
    """Index functions of a reconciler: uids and keys (``namespace/name``) of owners of kind ``resource``."""

    resource: Resource

    def uids(self, stored: StoredObject) -> Iterable[str]:
        """Return the uid of the owner; nothing if another kind controls the object."""
        owner = self._owner(stored)
        return (owner.uid,) if owner is not None else ()

    def keys(self, stored: StoredObject) -> Iterable[str]:
        """Return the key of the owner; nothing if another kind controls the object."""
        owner = self._owner(stored)
        return (f"{stored.key.partition('/')[0]}/{owner.name}",) if owner is not None else ()

    def pod_uids(self, pod: Pod) -> Iterable[str]:
        """Return the uid of the owner of a pod; nothing if another kind controls the pod."""
        owner = pod.controller
        return (owner.uid,) if owner is not None and self._is_kind(owner.kind, owner.api_version) else ()

    def pod_keys(self, pod: Pod) -> Iterable[str]:
        """Return the key of the owner of a pod; nothing if another kind controls the pod."""
        owner = pod.controller
        if owner is None or not self._is_kind(owner.kind, owner.api_version):
            return ()
        return (f"{pod.namespace}/{owner.name}",)

    def _owner(self, stored: StoredObject) -> StoredOwner | None:
        owner = stored.controller
        if owner is None or not self._is_kind(owner.kind, owner.api_version):
            return None
        return owner

    def _is_kind(self, kind: str, api_version: str) -> bool:
        return kind == self.resource.kind and api_version == self.resource.api_version
