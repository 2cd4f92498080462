"""Removal of the objects of a deleted CustomResourceDefinition, and acceptance of names.

The rules and conditions are those of ``apiextensions-apiserver``: a definition goes when
its objects are gone. A name that another definition held is accepted once it is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from windlass.api.structural import names
from windlass.controllers.effects import NOTHING, Delete, EffectPlan, Effects, Patch, reference

Json = dict[str, Any]
REMAINING_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Instance:
    """Object of a kind that is being removed."""

    name: str
    namespace: str
    uid: str
    deleting: bool


@dataclass(frozen=True, slots=True)
class DefinitionSnapshot:
    """Surroundings of a definition.

    ``kind``: its kind; ``None`` if nothing of it is to be removed.
    ``instances``: objects of the kind, at least the first page.
    ``others``: the other definitions of its group.
    ``now``: Unix seconds.
    """

    kind: Resource | None
    instances: Sequence[Instance]
    others: Sequence[Json]
    now: float
    built_in: bool = False


def reconcile(crd: Json, observed: DefinitionSnapshot) -> Effects:
    """Reconcile one definition. Pure."""
    plan = EffectPlan(about=reference(CUSTOM_RESOURCE_DEFINITIONS, crd))
    if not crd["metadata"].get("deletionTimestamp"):
        status = names.settle(crd, observed.others, observed.now)
        if status == (crd.get("status") or {}):
            return NOTHING
        plan.stage(_status(crd, status))
        return plan.done()
    if names.CLEANUP not in (crd["metadata"].get("finalizers") or ()):
        return NOTHING
    if observed.kind is not None and observed.instances:
        plan.stage(*_terminating(crd, "True", "InstanceDeletionInProgress", _IN_PROGRESS, observed.now))
        plan.stage(
            *(
                Delete(observed.kind, found.name, found.namespace or None, found.uid, "Background")
                for found in observed.instances
                if not found.deleting
            )
        )
        plan.requeue(REMAINING_SECONDS)
        return plan.done()
    left = [name for name in crd["metadata"]["finalizers"] if name != names.CLEANUP]
    if left:  # the definition stays for another finalizer, so its status says how far it is
        plan.stage(*_terminating(crd, "False", *_outcome(observed), observed.now))
    plan.stage(
        Patch(
            CUSTOM_RESOURCE_DEFINITIONS,
            crd["metadata"]["name"],
            {"metadata": {"finalizers": left}},
            uid=crd["metadata"]["uid"],
        )
    )
    return plan.done()


_IN_PROGRESS = "CustomResource deletion is in progress"


def _outcome(observed: DefinitionSnapshot) -> tuple[str, str]:
    if observed.built_in:
        return "OverlappingBuiltInResource", "instances overlap with built-in resources in storage"
    if observed.kind is None:
        return "NeverEstablished", "resource was never established"
    return "InstanceDeletionCompleted", "removed all instances"


def _terminating(crd: Json, status: str, reason: str, message: str, now: float) -> list[Patch]:
    """Return the write of the condition ``Terminating``, if it differs."""
    present = (crd.get("status") or {}).get("conditions") or []
    conditions = names.set_condition(present, "Terminating", status == "True", reason, message, now)
    return [] if conditions == present else [_status(crd, {"conditions": conditions})]


def _status(crd: Json, status: Json) -> Patch:
    metadata = crd["metadata"]
    return Patch(
        CUSTOM_RESOURCE_DEFINITIONS,
        metadata["name"],
        {"status": status},
        subresource="status",
        uid=metadata["uid"],
    )
