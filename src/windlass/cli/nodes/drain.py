"""Evicting the pods of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import PODS
from windlass.cli import resources
from windlass.cli.invocation import Invocation
from windlass.cli.text import key_of, plural
from windlass.client import verbs
from windlass.client.responses import is_another, is_missing, may_pass, refusal_by_budget
from windlass.model.cluster.delta_builder import OF_NODES

_PAUSE_SECONDS = 0.5


def drain(
    invocation: Invocation, node: str, *, grace_seconds: int | None, patience_seconds: float
) -> list[str]:
    """Evict the pods of ``node`` and wait until they are gone; their keys.

    Pods of DaemonSets and those that their kubelet makes by itself stay: they would be there again at once. Raises
    :class:`WindlassError` (``WL-NODE-504``) when a disruption budget or a pod holds out longer than
    ``patience_seconds``.
    """
    deadline = invocation.clock.monotonic() + patience_seconds
    evicted: list[str] = []
    refused: dict[str, str] = {}
    told: dict[str, str] = {}
    asked: set[str] = set()
    while True:
        left = to_go(invocation, node)
        if not left:
            return evicted
        refused = {}
        for pod in left:
            if pod["metadata"]["uid"] in asked:
                continue
            why = _evict(invocation, pod, grace_seconds)
            if why:
                refused[key_of(pod)] = why
                if told.get(key_of(pod)) != why and not invocation.structured:
                    invocation.out.line(f"pod {key_of(pod)} stays for now: {why}")
                told[key_of(pod)] = why
                continue
            asked.add(pod["metadata"]["uid"])
            evicted.append(key_of(pod))
            if not invocation.structured:
                invocation.out.line(f"evicting pod {key_of(pod)}")
        if invocation.clock.monotonic() >= deadline:
            raise _stuck(node, left, refused, patience_seconds)
        invocation.clock.pause(_PAUSE_SECONDS)


def to_go(invocation: Invocation, node: str) -> list[dict[str, Any]]:
    """The pods of ``node`` that a drain is about."""
    held = invocation.client.list(PODS, fields=f"spec.nodeName={node}").items
    return [pod for pod in held if resources.holds_resources(pod) and not belongs_to_node(pod)]


def belongs_to_node(pod: dict[str, Any]) -> bool:
    """Whether it is there because the node is."""
    return any(owner.get("controller") and owner.get("kind") in OF_NODES for owner in _owners(pod))


def what_is_lost(pods: Sequence[dict[str, Any]]) -> str:
    """In words, what the eviction of ``pods`` ends for good: those that no controller makes anew. Empty if nothing."""
    alone = [key_of(pod) for pod in pods if not any(o.get("controller") for o in _owners(pod))]
    if not alone:
        return ""
    named = ", ".join(alone[:5]) + (" …" if len(alone) > 5 else "")
    return f"no controller makes {named} anew: what {plural(len(alone), 'pod')} did would be lost"


def _owners(pod: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return pod["metadata"].get("ownerReferences") or ()


def _evict(invocation: Invocation, pod: dict[str, Any], grace_seconds: int | None) -> str:
    """Empty when it was accepted, or there is no such pod any more; otherwise why it is refused for now: by a
    disruption budget, or by a server or proxy that may answer otherwise later."""
    metadata = pod["metadata"]
    request = verbs.evict(
        metadata["namespace"], metadata["name"], uid=metadata["uid"], grace_seconds=grace_seconds
    )
    try:
        invocation.client.call(request)
    except StatusError as error:
        if is_missing(error) or is_another(error):
            return ""
        if error.code != 401 and may_pass(error):
            return refusal_by_budget(error) or error.message
        raise
    return ""


def _stuck(node: str, left: list[dict[str, Any]], refused: dict[str, str], seconds: float) -> WindlassError:
    names = ", ".join(key_of(pod) for pod in left[:5])
    return WindlassError(
        "WL-NODE-504",
        f"{plural(len(left), 'pod')} still on {node} after {seconds:.0f} s",
        evidence="; ".join(f"{key}: {why}" for key, why in refused.items()) or f"still there: {names}",
        remedies=(f"windlass node uncordon {node}", "windlass get poddisruptionbudgets -A"),
    )
