"""Bind guard: bindings of other schedulers, checked before the API server accepts them.

The API server accepts any binding, so two schedulers that bind at the same moment can
fill a node twice. With a validating admission webhook
(:mod:`windlass.scheduler.commit.bind_webhook`) every binding is checked against one
account: what the informers show, what is decided here and not seen yet, and what was
allowed and not seen yet. A pod that fits is booked in the same step in which it is
allowed. Any other is rejected, and its scheduler looks elsewhere.

Invariants: an allowed binding stays booked until the pod is seen bound or gone, or no
request of that time can be in progress any more. So the sums are never less than what
the API server has, in whatever order its events arrive. Everything happens on one event
loop, so checks are booked in their order. Times are monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from windlass.api import views
from windlass.engine.decision import Bind
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.devices.usage import FreeOnNode, as_bound, resources_with_pod

BOOKED_SECONDS = 70.0
"""Maximum time in seconds until a booked binding is seen.

An API server abandons a request after 60 seconds (``--request-timeout``).
"""
BYPASSED_SECONDS = 10.0
"""Time in seconds without a guard's protection after a binding that was not asked about."""
CRITICAL = 2_000_000_000
"""Minimum priority for which a kubelet frees resources: ``system-cluster-critical``."""


@dataclass(slots=True)
class _Booking:
    """Capacity of a node booked for another scheduler's pod."""

    pod: views.Pod
    node: str
    until: float


class BindGuard:
    """Checks and books bindings.

    ``node_usage`` counts what the informers have shown, ``model`` what is decided here.
    An allowed binding is shown to the model as if the pod were bound, so that the
    engine counts it.
    """

    def __init__(self, model: ClusterModel, node_usage: NodeUsage) -> None:
        self._model = model
        self._node_usage = node_usage
        self._by_uid: dict[str, dict[str, _Booking]] = {}
        """Uid → node → booking. The newest is the last."""
        self._by_node: dict[str, dict[str, _Booking]] = {}
        """Node → uid → booking."""
        self._bypassed = float("-inf")
        self.next_end = float("inf")
        """Time at which the next booking ends."""

    def effective(self, now: float) -> bool:
        """Return whether the API server seems to ask about all bindings."""
        return now - self._bypassed >= BYPASSED_SECONDS

    @property
    def booked(self) -> int:
        """Number of bookings that are not seen yet."""
        return sum(map(len, self._by_node.values()))

    # ------------------------------------------------------------------ checks

    def check(self, pod: views.Pod, node_name: str, now: float, *, dry_run: bool = False) -> str:
        """Return why a pod must not be bound to a node, ``""`` if it may be.

        An allowed binding is booked unless it is a ``dry_run``.
        """
        assumed = self._model.binds.assumed.get(pod.key)
        if assumed is not None and assumed.uid == pod.uid and assumed.node == node_name:
            return ""
        self.expire(now)
        node = self._model.objects.nodes.get(node_name)
        lacks = "" if node is None or _is_always_accepted(pod) else self._lacks(node, pod)
        if not lacks and not dry_run:
            self._book(pod, node_name, now)
        return lacks

    def objection(self, bind: Bind, now: float) -> str:
        """Return why a bind decided here must not be sent, ``""`` if it may be.

        Its capacity may be booked for a pod that the engine does not know.
        """
        self.expire(now)
        node = self._model.objects.nodes.get(bind.node)
        pod = self._model.objects.pods.get(bind.task)
        if bind.node not in self._by_node or node is None or pod is None or pod.uid != bind.uid:
            return ""
        free = self._free(node, "")
        over = [name for name in resources_with_pod(pod) if free.left.get(name, 0) < 0]
        assumed = self._model.binds.assumed.get(bind.task)
        if assumed is not None and assumed.uid == bind.uid:
            over += free.crowded(as_bound(pod, assumed), taken=True)
        return f"another scheduler is binding to node {node.name} ({', '.join(over)})" if over else ""

    # ------------------------------------------------------------------ events

    def pod_changed(self, old: views.Pod | None, new: views.Pod | None, now: float, *, foreign: bool) -> None:
        """Take in a change of a pod. Node usage and model have it already.

        ``foreign``: the pod is not on the node that was decided for it here.
        """
        pod = new or old
        if pod is None:
            return
        bookings = self._by_uid.get(pod.uid)
        if new is not None and not new.node_name and not new.finished:
            if bookings:
                self._update(new, list(bookings.values()))
            return
        arrives = new is not None and new.node_name and (old is None or not old.node_name)
        if arrives and foreign and new is not None and new.node_name not in (bookings or {}):
            self._bypassed = now
        if bookings:
            self._release(pod.uid)

    def _update(self, pod: views.Pod, bookings: list[_Booking]) -> None:
        """Take in a change of a pod that is booked and not bound yet."""
        for booking in bookings:
            booking.pod = pod
        self._show(pod, bookings[-1].node)

    # ------------------------------------------------------------------ sums

    def _lacks(self, node: views.NodeObject, pod: views.Pod) -> str:
        """Return what the node has too little of for a pod, as a message."""
        lacks = self._free(node, pod.uid, pod.key).lacks(_on(pod, node.name))
        return (
            f"node {node.name} has too little capacity for pod {pod.key}: {', '.join(lacks)}" if lacks else ""
        )

    def _free(self, node: views.NodeObject, uid: str, key: str = "") -> FreeOnNode:
        """Return what is neither used, nor decided here, nor booked.

        What the pod ``uid`` or ``key`` has itself is not subtracted.
        """
        further = []
        for task, assumed in self._model.binds.assumed.items():
            if assumed.node != node.name or task == key:
                continue
            pod = self._model.objects.pods.get(task)
            if pod is not None and pod.uid == assumed.uid and not pod.node_name:
                further.append(as_bound(pod, assumed))
        bookings = self._by_node.get(node.name, {})
        further += [_on(booking.pod, node.name) for other, booking in bookings.items() if other != uid]
        return self._node_usage.free(node, further)

    # ------------------------------------------------------------------ bookings

    def _book(self, pod: views.Pod, node: str, now: float) -> None:
        booking = _Booking(pod, node, now + BOOKED_SECONDS)
        bookings = self._by_uid.setdefault(pod.uid, {})
        bookings.pop(node, None)  # the newest is the last
        bookings[node] = booking
        self._by_node.setdefault(node, {})[pod.uid] = booking
        self.next_end = min(self.next_end, booking.until)
        self._show(pod, node)

    def _show(self, pod: views.Pod, node: str) -> None:
        """Show a pod to the model as bound, if the model knows it."""
        known = self._model.objects.pods.get(pod.key)
        if known is not None and known.uid == pod.uid and known.node_name != node:
            self._model.objects.upsert_pod(msgspec.structs.replace(pod, node_name=node))

    def expire(self, now: float) -> None:
        """Remove bookings of bindings that have not been seen in time."""
        if now < self.next_end:
            return
        for uid in [
            uid
            for uid, bookings in self._by_uid.items()
            if any(booking.until <= now for booking in bookings.values())
        ]:
            bookings = self._by_uid[uid]
            pod = next(iter(bookings.values())).pod
            left = [booking for booking in bookings.values() if booking.until > now]
            self._release(uid)
            for booking in left:
                self._by_uid.setdefault(uid, {})[booking.node] = booking
                self._by_node.setdefault(booking.node, {})[uid] = booking
            known = self._model.objects.pods.get(pod.key)
            if known is not None and known.uid == uid:
                self._model.objects.upsert_pod(pod)
                if left:
                    self._show(pod, left[-1].node)
        ends = [booking.until for bookings in self._by_uid.values() for booking in bookings.values()]
        self.next_end = min(ends, default=float("inf"))

    def _release(self, uid: str) -> None:
        for node in self._by_uid.pop(uid):
            on_node = self._by_node[node]
            del on_node[uid]
            if not on_node:
                del self._by_node[node]


def _is_always_accepted(pod: views.Pod) -> bool:
    """Return whether a kubelet runs the pod whatever is free.

    It has started the pod already (a mirror pod belongs to its node), or frees
    resources for it.
    """
    return (pod.priority or 0) >= CRITICAL or any(owner.kind == "Node" for owner in pod.owners)


def _on(pod: views.Pod, node: str) -> views.Pod:
    return msgspec.structs.replace(pod, node_name=node)
