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
"""Of a pod that says nothing about the two: what Kubernetes' admission would have written into it."""


def wanted(ready: str, *, execute: bool) -> list[tuple[str, str]]:
    """(key, effect) of the taints that a node with this Ready status carries."""
    if ready == "True":
        return []
    key = NOT_READY if ready == "False" else UNREACHABLE
    return [(key, "NoSchedule"), (key, "NoExecute")] if execute else [(key, "NoSchedule")]


def adjust(
    present: Iterable[Mapping[str, Any]], keep: Iterable[tuple[str, str]], now: float
) -> list[dict[str, Any]]:
    """The taints with ours as they should be; those of others stay as they are."""
    needed = dict.fromkeys(keep)
    result = []
    for taint in present:
        place = (taint.get("key", ""), taint.get("effect", ""))
        if place[0] in OWN_TAINTS and place[1] in ("NoSchedule", "NoExecute"):
            if place not in needed:
                continue
            del needed[place]
        result.append(dict(taint))
    for key, effect in needed:
        taint = {"key": key, "effect": effect}
        if effect == "NoExecute":
            taint["timeAdded"] = rfc3339(now)
        result.append(taint)
    return result


def in_order(present: Iterable[TaintView], ready: str, *, execute: bool) -> bool:
    """Whether a node with this Ready status has exactly those of our taints that it should have."""
    if not ready:
        return True  # nobody has reported yet
    found = {
        (t.key, t.effect) for t in present if t.key in OWN_TAINTS and t.effect in ("NoSchedule", "NoExecute")
    }
    return found == set(wanted(ready, execute=execute))


def eviction_due(
    tolerations: Iterable[TolerationWire], taints: Iterable[TaintView], now: float
) -> float | None:
    """When the pod has to go (Unix seconds); None: it bears all NoExecute taints for ever."""
    listed = tuple(tolerations)
    due: float | None = None
    for taint in taints:
        if taint.effect != "NoExecute":
            continue
        borne = _borne_seconds(listed, taint)
        if borne is None:
            continue
        moment_due = (moment(taint.time_added) or now) + borne
        due = moment_due if due is None else min(due, moment_due)
    return due


def _borne_seconds(tolerations: tuple[TolerationWire, ...], taint: TaintView) -> float | None:
    """Seconds that the pod bears the taint; None: for ever. The shortest matching toleration decides."""
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
