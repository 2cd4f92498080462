"""Deletion of objects by their owners, and finalizers that wait for dependents.

The rules are those of Kubernetes' garbage collector. If an owner exists, references to
owners that are gone (or deleted in the foreground) are removed. If none exists, the
object is deleted. An object deleted with ``foregroundDeletion`` waits for the
dependents that block it. With ``orphan`` its dependents lose their reference first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from windlass.api.views import OwnerReference
from windlass.controllers.effects import NOTHING, Delete, Effects, Patch
from windlass.controllers.garbage.graph import FOREGROUND, ORPHAN, Item


@dataclass(frozen=True, slots=True)
class OwnersSnapshot:
    """Owners of an object by state, and its dependents.

    ``solid``: owners that exist, or that cannot be checked.
    ``waiting``: owners that are deleted in the foreground.
    ``absent``: owners that are gone.
    ``dependents``: objects that name this object as an owner.
    """

    solid: tuple[OwnerReference, ...] = ()
    waiting: tuple[OwnerReference, ...] = ()
    absent: tuple[OwnerReference, ...] = ()
    dependents: tuple[Item, ...] = ()


def reconcile(item: Item, observed: OwnersSnapshot) -> Effects:
    """Reconcile one object. Pure."""
    if item.orphans_dependents:
        return _orphan(item, observed)
    if item.waits_for_dependents:
        return _finish_foreground(item, observed)
    if item.deleted or not item.owners:
        return NOTHING
    if observed.solid:
        if observed.absent or observed.waiting:
            return _single(_keep_owners(item, observed.solid))
        return NOTHING
    if observed.waiting and observed.dependents:
        return _single(_delete(item, "Foreground"))
    return _single(_delete(item, _own_policy(item)))


def _orphan(item: Item, observed: OwnersSnapshot) -> Effects:
    released = [
        _keep_owners(dependent, [owner for owner in dependent.owners if owner.uid != item.uid])
        for dependent in observed.dependents
    ]
    stages = [tuple(released)] if released else []
    return Effects(stages=(*stages, (_drop_finalizer(item, ORPHAN),)))


def _finish_foreground(item: Item, observed: OwnersSnapshot) -> Effects:
    blocking = any(
        owner.uid == item.uid and owner.blocks
        for dependent in observed.dependents
        for owner in dependent.owners
    )
    return NOTHING if blocking else _single(_drop_finalizer(item, FOREGROUND))


def _own_policy(item: Item) -> str:
    if ORPHAN in item.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in item.finalizers else "Background"


def _delete(item: Item, propagation: str) -> Delete:
    return Delete(item.resource, item.name, item.namespace or None, item.uid, propagation)


def _keep_owners(item: Item, owners: Iterable[OwnerReference]) -> Patch:
    return _patch(item, {"ownerReferences": [_reference(owner) for owner in owners]})


def _drop_finalizer(item: Item, finalizer: str) -> Patch:
    return _patch(item, {"finalizers": [name for name in item.finalizers if name != finalizer]})


def _patch(item: Item, change: dict[str, Any]) -> Patch:
    return Patch(
        item.resource,
        item.name,
        {"metadata": change},
        item.namespace or None,
        uid=item.uid,
        resource_version=item.resource_version,
    )


def _reference(owner: OwnerReference) -> dict[str, Any]:
    reference: dict[str, Any] = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
    }
    if owner.controller:
        reference["controller"] = True
    if owner.blocks:
        reference["blockOwnerDeletion"] = True
    return reference


def _single(action: Delete | Patch) -> Effects:
    return Effects(stages=((action,),))
