"""Eviction of the pods of a node."""

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
from windlass.model.cluster.task_builder import OF_NODES

_PAUSE_SECONDS = 0.5


def drain(
    invocation: Invocation, node: str, *, grace_seconds: int | None, timeout_seconds: float
) -> list[str]:
    """Evict the pods of ``node``, wait until they are gone, and return their keys.

    Pods of DaemonSets and static pods stay, as they would be recreated at once. Raises
    :class:`WindlassError` (``WL-NODE-504``) if a disruption budget or a pod takes
    longer than ``timeout_seconds``.
    """
    deadline = invocation.clock.monotonic() + timeout_seconds
    evicted: list[str] = []
    rejected: dict[str, str] = {}
    reported: dict[str, str] = {}
    requested: set[str] = set()
    while True:
        left = pods_to_evict(invocation, node)
        if not left:
            return evicted
        rejected = {}
        for pod in left:
            if pod["metadata"]["uid"] in requested:
                continue
            why = _evict(invocation, pod, grace_seconds)
            if why:
                rejected[key_of(pod)] = why
                if reported.get(key_of(pod)) != why and not invocation.structured:
                    invocation.out.line(f"pod {key_of(pod)} is not evicted yet: {why}")
                reported[key_of(pod)] = why
                continue
            requested.add(pod["metadata"]["uid"])
            evicted.append(key_of(pod))
            if not invocation.structured:
                invocation.out.line(f"evicting pod {key_of(pod)}")
        if invocation.clock.monotonic() >= deadline:
            raise _stuck(node, left, rejected, timeout_seconds)
        invocation.clock.pause(_PAUSE_SECONDS)


def pods_to_evict(invocation: Invocation, node: str) -> list[dict[str, Any]]:
    """Return the pods of ``node`` that a drain evicts."""
    held = invocation.client.list(PODS, fields=f"spec.nodeName={node}").items
    return [pod for pod in held if resources.holds_resources(pod) and not belongs_to_node(pod)]


def belongs_to_node(pod: dict[str, Any]) -> bool:
    """Return whether the pod belongs to its node: a pod of a DaemonSet, or a static pod."""
    return any(owner.get("controller") and owner.get("kind") in OF_NODES for owner in _owners(pod))


def lost_pods_text(pods: Sequence[dict[str, Any]]) -> str:
    """Return a text about pods that no controller recreates; empty if there are none."""
    alone = [key_of(pod) for pod in pods if not any(o.get("controller") for o in _owners(pod))]
    if not alone:
        return ""
    named = ", ".join(alone[:5]) + (" …" if len(alone) > 5 else "")
    return f"no controller recreates {named}: the work of {plural(len(alone), 'pod')} would be lost"


def _owners(pod: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return pod["metadata"].get("ownerReferences") or ()


def _evict(invocation: Invocation, pod: dict[str, Any], grace_seconds: int | None) -> str:
    """Request an eviction, and return why it is rejected for now; empty if it was accepted.

    Also empty if the pod no longer exists. Reasons for a temporary rejection are
    disruption budgets, and a server or proxy that may answer otherwise later.
    """
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


def _stuck(node: str, left: list[dict[str, Any]], rejected: dict[str, str], seconds: float) -> WindlassError:
    names = ", ".join(key_of(pod) for pod in left[:5])
    return WindlassError(
        "WL-NODE-504",
        f"{plural(len(left), 'pod')} still on node {node} after {seconds:.0f} s",
        evidence="; ".join(f"{key}: {why}" for key, why in rejected.items()) or f"still there: {names}",
        remedies=(f"windlass node uncordon {node}", "windlass get poddisruptionbudgets -A"),
    )
