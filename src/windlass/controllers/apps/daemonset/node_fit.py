"""Nodes that run the pod of a DaemonSet: by name, labels, affinity and taints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windlass.api.selectors import Requirement
from windlass.api.views import NodeObject

Json = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NODE = "node.kubernetes.io"
_ALWAYS_TOLERATED = (
    (f"{_NODE}/not-ready", "NoExecute"),
    (f"{_NODE}/unreachable", "NoExecute"),
    (f"{_NODE}/disk-pressure", "NoSchedule"),
    (f"{_NODE}/memory-pressure", "NoSchedule"),
    (f"{_NODE}/pid-pressure", "NoSchedule"),
    (f"{_NODE}/unschedulable", "NoSchedule"),
)


def with_tolerations(spec: Mapping[str, Any]) -> list[Json]:
    """Return the tolerations of a pod spec, with those of every DaemonSet."""
    own: list[Json] = list(spec.get("tolerations") or ())
    added = list(_ALWAYS_TOLERATED)
    if spec.get("hostNetwork"):
        added.append((f"{_NODE}/network-unavailable", "NoSchedule"))
    for key, effect in added:
        toleration = {"key": key, "operator": "Exists", "effect": effect}
        own = [one for one in own if (one.get("key"), one.get("effect")) != (key, effect)]
        own.append(toleration)
    return own


def should_run(spec: Mapping[str, Any], node: NodeObject) -> tuple[bool, bool]:
    """Return whether a node starts the pod, and whether it keeps a pod that it runs."""
    if spec.get("nodeName") not in (None, "", node.name) or not fits_labels(spec, node):
        return False, False
    tolerations = with_tolerations(spec)
    effects = {taint.effect for taint in node.taints if not _is_tolerated(taint, tolerations)}
    if effects & {"NoSchedule", "NoExecute"}:
        return False, "NoExecute" not in effects
    return True, True


def fits_labels(spec: Mapping[str, Any], node: NodeObject) -> bool:
    """Return whether node selector and required node affinity allow the node."""
    wanted: Mapping[str, str] = spec.get("nodeSelector") or {}
    if any(node.labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if affinity is None:
        return True
    return any(_term_matches(term, node) for term in affinity.get("nodeSelectorTerms") or ())


def _term_matches(term: Mapping[str, Any], node: NodeObject) -> bool:
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not labels and not fields:
        return False
    return _all_match(labels, node.labels) and _all_match(fields, {"metadata.name": node.name})


def _all_match(expressions: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> bool:
    return all(
        Requirement(one.get("key", ""), one.get("operator", ""), tuple(one.get("values") or ())).matches(
            labels
        )
        for one in expressions
    )


def _is_tolerated(taint: Any, tolerations: Iterable[Mapping[str, Any]]) -> bool:
    for one in tolerations:
        if one.get("effect") and one["effect"] != taint.effect:
            continue
        if one.get("key") and one["key"] != taint.key:
            continue
        operator = one.get("operator") or "Equal"
        if operator == "Exists" or (one.get("key") and (one.get("value") or "") == taint.value):
            return True
    return False


def bound_to(spec: Json, node: str) -> Json:
    """Return a pod spec that only this node runs, with the tolerations of a DaemonSet."""
    affinity = {**(spec.get("affinity") or {})}
    inner = {**(affinity.get("nodeAffinity") or {})}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    inner[_REQUIRED] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity["nodeAffinity"] = inner
    return {**spec, "affinity": affinity, "tolerations": with_tolerations(spec)}
