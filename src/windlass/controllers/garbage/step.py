"""One look at an object: whether it has to go, and what its own deletion waits for.

The rules are those of Kubernetes' garbage collector. With an owner that lives, references to owners that are
gone (or go in the foreground) are taken out; with none, the object is deleted. An object that is being
deleted with ``foregroundDeletion`` waits for the dependents that block it; with ``orphan``, its dependents
lose their reference first.
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
    """``solid``: owners that live (or cannot be judged); ``waiting``: those deleted in the foreground;
    ``absent``: those that are gone. ``dependents`` name this object as an owner.
    """

    solid: tuple[OwnerReference, ...] = ()
    waiting: tuple[OwnerReference, ...] = ()
    absent: tuple[OwnerReference, ...] = ()
    dependents: tuple[Item, ...] = ()


def step(item: Item, seen: OwnersSnapshot) -> Effects:
    """Look at an object once. Pure."""
    if item.orphans_dependents:
        return _orphan(item, seen)
    if item.waits_for_dependents:
        return _finish_foreground(item, seen)
    if item.deleted or not item.owners:
        return NOTHING
    if seen.solid:
        if seen.absent or seen.waiting:
            return _do(_keep_owners(item, seen.solid))
        return NOTHING
    if seen.waiting and seen.dependents:
        return _do(_delete(item, "Foreground"))
    return _do(_delete(item, _own_policy(item)))


def _orphan(item: Item, seen: OwnersSnapshot) -> Effects:
    released = [
        _keep_owners(dependent, [owner for owner in dependent.owners if owner.uid != item.uid])
        for dependent in seen.dependents
    ]
    stages = [tuple(released)] if released else []
    return Effects(stages=(*stages, (_drop_finalizer(item, ORPHAN),)))


def _finish_foreground(item: Item, seen: OwnersSnapshot) -> Effects:
    blocking = any(
        owner.uid == item.uid and owner.blocks for dependent in seen.dependents for owner in dependent.owners
    )
    return NOTHING if blocking else _do(_drop_finalizer(item, FOREGROUND))


def _own_policy(item: Item) -> str:
    if ORPHAN in item.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in item.finalizers else "Background"


def _delete(item: Item, propagation: str) -> Delete:
    return Delete(item.resource, item.name, item.namespace or None, item.uid, propagation)


def _keep_owners(item: Item, kept: Iterable[OwnerReference]) -> Patch:
    return _patch(item, {"ownerReferences": [_reference(owner) for owner in kept]})


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


def _do(action: Delete | Patch) -> Effects:
    return Effects(stages=((action,),))
