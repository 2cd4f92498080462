"""Taints for nodes that are not ready, and how long a pod bears a NoExecute taint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.views import TaintView
from windlass.api.views.podshape import TolerationWire
from windlass.api.views.wire import moment
from windlass.kits.timestamps import rfc3339

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
OWN_TAINTS = (NOT_READY, UNREACHABLE)
DEFAULT_TOLERATION_SECONDS = 300
"""Toleration of the two taints for pods that declare none.

Kubernetes' admission writes the same value into such pods.
"""


def wanted(ready: str, *, execute: bool) -> list[tuple[str, str]]:
    """(key, effect) of the taints that a node with this Ready status carries."""
    if ready == "True":
        return []
    key = NOT_READY if ready == "False" else UNREACHABLE
    return [(key, "NoSchedule"), (key, "NoExecute")] if execute else [(key, "NoSchedule")]


def adjust(
    present: Iterable[Mapping[str, Any]], keep: Iterable[tuple[str, str]], now: float
) -> list[dict[str, Any]]:
    """Return the taints of a node with Windlass' own corrected and the others unchanged."""
    needed = dict.fromkeys(keep)
    result = []
    for taint in present:
        identity = (taint.get("key", ""), taint.get("effect", ""))
        if identity[0] in OWN_TAINTS and identity[1] in ("NoSchedule", "NoExecute"):
            if identity not in needed:
                continue
            del needed[identity]
        result.append(dict(taint))
    for key, effect in needed:
        taint = {"key": key, "effect": effect}
        if effect == "NoExecute":
            taint["timeAdded"] = rfc3339(now)
        result.append(taint)
    return result


def are_current(present: Iterable[TaintView], ready: str, *, execute: bool) -> bool:
    """Return whether a node with this Ready status has exactly its expected own taints."""
    if not ready:
        return True  # no report yet
    found = {
        (t.key, t.effect) for t in present if t.key in OWN_TAINTS and t.effect in ("NoSchedule", "NoExecute")
    }
    return found == set(wanted(ready, execute=execute))


def eviction_due(
    tolerations: Iterable[TolerationWire], taints: Iterable[TaintView], now: float
) -> float | None:
    """Return when the pod is evicted (Unix seconds); ``None`` if it tolerates all
    NoExecute taints.
    """
    listed = tuple(tolerations)
    due: float | None = None
    for taint in taints:
        if taint.effect != "NoExecute":
            continue
        tolerated = _tolerated_seconds(listed, taint)
        if tolerated is None:
            continue
        taint_due = (moment(taint.time_added) or now) + tolerated
        due = taint_due if due is None else min(due, taint_due)
    return due


def unreachable_since(taints: Iterable[TaintView], now: float) -> float | None:
    """Return since when the node is known to be unreachable (Unix seconds); ``None`` if it is not."""
    found = [taint for taint in taints if taint.key == UNREACHABLE and taint.effect == "NoExecute"]
    return min((moment(taint.time_added) or now) for taint in found) if found else None


def bears_unreachable(tolerations: Iterable[TolerationWire]) -> bool:
    """Return whether the pod itself states how long it stays on an unreachable node.

    The default of Kubernetes' admission is no such statement.
    """
    taint = TaintView(key=UNREACHABLE, effect="NoExecute")
    return any(
        _tolerates(one, taint) and one.toleration_seconds != DEFAULT_TOLERATION_SECONDS for one in tolerations
    )


def _tolerated_seconds(tolerations: tuple[TolerationWire, ...], taint: TaintView) -> float | None:
    """Return the seconds that the pod tolerates the taint; ``None``: forever.

    The shortest matching toleration counts.
    """
    matching = [toleration for toleration in tolerations if _tolerates(toleration, taint)]
    if not matching:
        return float(DEFAULT_TOLERATION_SECONDS) if taint.key in OWN_TAINTS else 0.0
    limits = [t.toleration_seconds for t in matching if t.toleration_seconds is not None]
    return float(max(0, min(limits))) if limits else None


def _tolerates(toleration: TolerationWire, taint: TaintView) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and bool(toleration.key) and toleration.value == taint.value
