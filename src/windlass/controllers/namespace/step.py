"""One look at a namespace that is being deleted.

Everything in it is deleted; while something remains, five conditions say what and why, in Kubernetes'
words; when nothing is left, the finalizer ``kubernetes`` is taken off and the namespace goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.resources import NAMESPACES, Resource
from windlass.controllers.effects import NOTHING, Delete, EffectPlan, Effects, Patch, Update, reference
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
FINALIZER = "kubernetes"
SOON_SECONDS = 0.1
REMAINING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Content:
    """An object in the namespace."""

    name: str
    uid: str
    deleting: bool
    finalizers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NamespaceSnapshot:
    """``content``: what is there, by kind; of a crowded kind only the first part. ``now``: Unix seconds."""

    content: Mapping[Resource, Sequence[Content]]
    now: float


def step(namespace: Json, seen: NamespaceSnapshot) -> Effects:
    """Look at a namespace once. Pure."""
    metadata, spec = namespace["metadata"], namespace.get("spec") or {}
    if not metadata.get("deletionTimestamp") or FINALIZER not in (spec.get("finalizers") or ()):
        return NOTHING
    plan = EffectPlan(about=reference(NAMESPACES, namespace))
    name = metadata["name"]
    live = [
        Delete(resource, content.name, name, content.uid, propagation="Background")
        for resource, contents in seen.content.items()
        for content in contents
        if not content.deleting
    ]
    if live:
        plan.stage(*live)
        plan.look_again(SOON_SECONDS)
        return plan.done()
    conditions = _conditions(namespace, seen)
    if any(seen.content.values()):
        if conditions != (namespace.get("status") or {}).get("conditions"):
            change = {"status": {"conditions": conditions}}
            plan.stage(Patch(NAMESPACES, name, change, subresource="status"))
        plan.look_again(REMAINING_SECONDS)
        return plan.done()
    left = [finalizer for finalizer in spec["finalizers"] if finalizer != FINALIZER]
    plan.stage(Update(NAMESPACES, {**namespace, "spec": {**spec, "finalizers": left}}, "finalize"))
    return plan.done()


def _conditions(namespace: Json, seen: NamespaceSnapshot) -> list[Json]:
    """The conditions, with the time of the last change of each."""
    counts = {_word(resource): len(found) for resource, found in seen.content.items() if found}
    held: dict[str, int] = {}
    for contents in seen.content.values():
        for content in contents:
            for finalizer in content.finalizers:
                held[finalizer] = held.get(finalizer, 0) + 1
    remaining = ", ".join(f"{kind} has {n} resource instances" for kind, n in sorted(counts.items()))
    waiting = ", ".join(f"{finalizer} in {n} resource instances" for finalizer, n in sorted(held.items()))
    wanted = [
        (
            "NamespaceDeletionDiscoveryFailure",
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        _either(
            "NamespaceContentRemaining",
            "SomeResourcesRemain",
            f"Some resources are remaining: {remaining}" if remaining else "",
            ("ContentRemoved", "All content successfully removed"),
        ),
        _either(
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {waiting}" if waiting else "",
            ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
        ),
    ]
    present = {c.get("type"): c for c in (namespace.get("status") or {}).get("conditions") or ()}
    return [_dated(present.get(kind), (kind, *rest), seen.now) for kind, *rest in wanted]


def _either(kind: str, reason: str, message: str, otherwise: tuple[str, str]) -> tuple[str, str, str, str]:
    return (kind, "True", reason, message) if message else (kind, "False", *otherwise)


def _dated(present: Json | None, wanted: tuple[str, ...], now: float) -> Json:
    kind, status, reason, message = wanted
    condition = {"type": kind, "status": status, "reason": reason, "message": message}
    kept = present is not None and present.get("status") == status
    changed = present.get("lastTransitionTime") if kept and present is not None else None
    return {**condition, "lastTransitionTime": changed or rfc3339(now)}


def _word(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"
