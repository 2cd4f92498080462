"""Pods of an ``apps/v1`` object: which are its own, which are available, which go first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.resources import PODS, Resource
from windlass.api.selectors import Selector
from windlass.api.views import Pod
from windlass.api.views.wire import OwnerReference
from windlass.client.event_correlator import ObjectRef
from windlass.controllers.effects import Create, Delete, EmitEvent, Patch, controller_reference

Json = dict[str, Any]
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
BURST = 500
"""Maximum number of pods that one reconciliation creates or deletes."""
_NAME_BASE = 58
"""Maximum length of a pod's name without its random suffix."""
_PHASES = {"Pending": 0, "Running": 2}


def is_active(pod: Pod) -> bool:
    """Return whether the pod runs or will run: it has not ended and is not deleted."""
    return not pod.finished and not pod.deleting


def is_terminating(pod: Pod) -> bool:
    return pod.deleting and not pod.finished


def is_available(pod: Pod, settled_seconds: float, now: float) -> bool:
    """Return whether the pod is ready, and has been for ``settled_seconds``."""
    if not pod.ready:
        return False
    return settled_seconds <= 0 or (pod.ready_since > 0 and pod.ready_since + settled_seconds <= now)


def next_available(pods: Iterable[Pod], settled_seconds: float, now: float) -> float | None:
    """Return the seconds until the next ready pod becomes available; ``None`` if none will."""
    waits = [
        max(0.0, pod.ready_since + settled_seconds - now)
        for pod in pods
        if pod.ready and not is_available(pod, settled_seconds, now)
    ]
    return min(waits) if waits else None


@dataclass(frozen=True, slots=True)
class ClaimedPods:
    """Pods by what their owner does with them."""

    own: tuple[Pod, ...]
    adopted: tuple[Pod, ...]
    released: tuple[Pod, ...]

    @property
    def all(self) -> tuple[Pod, ...]:
        return (*self.own, *self.adopted)


def claim_pods(
    owned: Iterable[Pod], orphans: Iterable[Pod], selector: Selector, *, adopting: bool
) -> ClaimedPods:
    """Divide active pods. ``orphans``: pods without a controller."""
    own, released = [], []
    for pod in owned:
        if is_active(pod):
            (own if selector.matches(pod.labels) else released).append(pod)
    adopted = [pod for pod in orphans if adopting and is_active(pod) and selector.matches(pod.labels)]
    return ClaimedPods(tuple(own), tuple(adopted), tuple(released))


def adopt(resource: Resource, owner: Json, child: Resource, obj: Any) -> Patch:
    """Make ``owner`` the controller of an object without one."""
    references = [_reference(one) for one in obj.owners]
    return _owners(child, obj, [*references, controller_reference(resource, owner)])


def release(owner: Json, child: Resource, obj: Any) -> Patch:
    """Remove the reference to ``owner``."""
    uid = owner["metadata"]["uid"]
    return _owners(child, obj, [_reference(one) for one in obj.owners if one.uid != uid])


def _owners(child: Resource, obj: Any, references: list[Json]) -> Patch:
    namespace, _, name = obj.key.partition("/")
    return Patch(child, name, {"metadata": {"ownerReferences": references}}, namespace, uid=obj.uid)


def _reference(owner: OwnerReference) -> Json:
    found: Json = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
    }
    if owner.controller:
        found["controller"] = True
    if owner.blocks:
        found["blockOwnerDeletion"] = True
    return found


def pod_of_template(template: Mapping[str, Any], resource: Resource, owner: Json) -> Json:
    """Return a pod of the template without a name."""
    metadata = template.get("metadata") or {}
    found: Json = {"namespace": owner["metadata"]["namespace"]}
    for field in ("labels", "annotations"):
        if metadata.get(field):
            found[field] = dict(metadata[field])
    if metadata.get("finalizers"):
        found["finalizers"] = list(metadata["finalizers"])
    found["ownerReferences"] = [controller_reference(resource, owner)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": found, "spec": dict(template.get("spec") or {})}


def with_random_name(pod: Json, owner: str, suffix: Callable[[], str]) -> Json:
    """Name a pod after its owner, with a random suffix."""
    base = f"{owner}-"
    pod["metadata"] |= {"generateName": base, "name": base[:_NAME_BASE] + suffix()}
    return pod


def create_pod(pod: Json, about: ObjectRef) -> Create:
    """Create a pod, and report it."""
    name = pod["metadata"]["name"]
    return Create(PODS, pod, EmitEvent(about, "Normal", "SuccessfulCreate", f"Created pod: {name}"))


def delete_pod(pod: Pod, about: ObjectRef) -> Delete:
    """Delete a pod, and report it."""
    event = EmitEvent(about, "Normal", "SuccessfulDelete", f"Deleted pod: {pod.name}")
    return Delete(PODS, pod.name, pod.namespace, pod.uid, event=event)


def slow_start(actions: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Divide creations into stages of 1, 2, 4 and so on.

    A creation that fails is often the first of many that would fail alike.
    """
    stages, start, size = [], 0, 1
    while start < len(actions):
        stages.append(tuple(actions[start : start + size]))
        start, size = start + size, size * 2
    return stages


def deletion_order(pods: Iterable[Pod], related: Iterable[Pod], now: float) -> list[Pod]:
    """Return the pods in the order in which fewer replicas delete them.

    Pods that are not assigned, not running or not ready are first. Then count the
    deletion cost, pods of the same owner on the same node, and a shorter time ready.
    """
    neighbours = Counter(pod.node_name for pod in related if is_active(pod))

    def order(pod: Pod) -> tuple[Any, ...]:
        return (
            bool(pod.node_name),
            _PHASES.get(pod.phase, 1),
            pod.ready,
            _cost(pod),
            -neighbours[pod.node_name] if pod.node_name else 0,
            _magnitude(now - pod.ready_since) if pod.ready else 0,
            -pod.restarts,
            _magnitude(now - pod.created),
            pod.uid,
        )

    return sorted(pods, key=order)


def _cost(pod: Pod) -> int:
    text = pod.annotations.get(DELETION_COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def _magnitude(seconds: float) -> int:
    """Return the binary logarithm of an age, so that ages of the same order count as equal."""
    return int(math.log2(seconds)) if seconds >= 1 else 0
