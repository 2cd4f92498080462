"""Deletion of a namespace and its content.

All content is deleted. While some remains, five conditions report it in Kubernetes'
words. When none is left, the finalizer ``kubernetes`` is removed, which ends the
namespace.
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
    """Content of a namespace by kind. Of a kind with many objects it holds the first page.

    ``now``: Unix seconds.
    """

    content: Mapping[Resource, Sequence[Content]]
    now: float


def reconcile(namespace: Json, observed: NamespaceSnapshot) -> Effects:
    """Reconcile one namespace. Pure."""
    metadata, spec = namespace["metadata"], namespace.get("spec") or {}
    if not metadata.get("deletionTimestamp") or FINALIZER not in (spec.get("finalizers") or ()):
        return NOTHING
    plan = EffectPlan(about=reference(NAMESPACES, namespace))
    name = metadata["name"]
    live = [
        Delete(resource, content.name, name, content.uid, propagation="Background")
        for resource, contents in observed.content.items()
        for content in contents
        if not content.deleting
    ]
    if live:
        plan.stage(*live)
        plan.requeue(SOON_SECONDS)
        return plan.done()
    conditions = _conditions(namespace, observed)
    if any(observed.content.values()):
        if conditions != (namespace.get("status") or {}).get("conditions"):
            change = {"status": {"conditions": conditions}}
            plan.stage(Patch(NAMESPACES, name, change, subresource="status"))
        plan.requeue(REMAINING_SECONDS)
        return plan.done()
    left = [finalizer for finalizer in spec["finalizers"] if finalizer != FINALIZER]
    plan.stage(Update(NAMESPACES, {**namespace, "spec": {**spec, "finalizers": left}}, "finalize"))
    return plan.done()


def _conditions(namespace: Json, observed: NamespaceSnapshot) -> list[Json]:
    """The conditions, with the time of the last change of each."""
    counts = {_qualified(resource): len(found) for resource, found in observed.content.items() if found}
    finalizer_counts: dict[str, int] = {}
    for contents in observed.content.values():
        for content in contents:
            for finalizer in content.finalizers:
                finalizer_counts[finalizer] = finalizer_counts.get(finalizer, 0) + 1
    remaining = ", ".join(f"{kind} has {n} resource instances" for kind, n in sorted(counts.items()))
    waiting = ", ".join(
        f"{finalizer} in {n} resource instances" for finalizer, n in sorted(finalizer_counts.items())
    )
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
    return [_dated(present.get(kind), (kind, *rest), observed.now) for kind, *rest in wanted]


def _either(kind: str, reason: str, message: str, otherwise: tuple[str, str]) -> tuple[str, str, str, str]:
    return (kind, "True", reason, message) if message else (kind, "False", *otherwise)


def _dated(present: Json | None, wanted: tuple[str, ...], now: float) -> Json:
    kind, status, reason, message = wanted
    condition = {"type": kind, "status": status, "reason": reason, "message": message}
    unchanged = present is not None and present.get("status") == status
    changed = present.get("lastTransitionTime") if unchanged and present is not None else None
    return {**condition, "lastTransitionTime": changed or rfc3339(now)}


def _qualified(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"
