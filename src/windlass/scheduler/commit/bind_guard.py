"""The bind guard: bindings by others, judged before the API server takes them.

The API server takes any binding, so two schedulers that bind within the same moment can fill a node twice. Where
it asks first (a validating admission webhook, :mod:`windlass.scheduler.commit.bind_webhook`), every binding passes one
ledger: what the watch shows, what is decided here and not seen yet, and what was let through and not seen yet. Who
fits is booked in the same step in which he is let through; who does not is refused, and his scheduler looks elsewhere.

Invariants: what is let through stays booked until the pod is seen bound or gone, or no request of that time
can be under way any more; so the sums here are never less than what the API server has, whatever order its news
comes in. Everything happens on one event loop: the order of the judgements is the order of the bookings. Time
comes in as monotonic seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from windlass.api import views
from windlass.engine.decision import Bind
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.devices.usage import FreeOnNode, as_bound, resources_with_pod

KEPT_SECONDS = 70.0
"""An API server gives a request up after 60 seconds (``--request-timeout``)."""
BYPASSED_SECONDS = 10.0
"""So long after a binding that nobody asked about others are dealt with as if there were no guard."""
CRITICAL = 2_000_000_000
"""From this priority on a kubelet makes room for a pod itself (``system-cluster-critical``)."""


@dataclass(slots=True)
class _Hold:
    """Room of ``node`` that was promised to a pod of somebody else."""

    pod: views.Pod
    node: str
    until: float


class BindGuard:
    """``ledger`` holds what the watch has shown, ``model`` what is decided here; what is let through is told to the
    model as if it were bound, so that the engine counts it."""

    def __init__(self, model: ClusterModel, ledger: NodeUsage) -> None:
        self._model = model
        self._ledger = ledger
        self._holds: dict[str, dict[str, _Hold]] = {}
        """Uid → node → what is held for it there."""
        self._nodes: dict[str, dict[str, _Hold]] = {}
        """The same by node → uid."""
        self._bypassed = float("-inf")
        self.next_end = float("inf")
        """When something is to be forgotten next."""

    def effective(self, now: float) -> bool:
        """Whether others' bindings seem to be asked about, all of them."""
        return now - self._bypassed >= BYPASSED_SECONDS

    @property
    def held(self) -> int:
        """How many bookings are not seen yet."""
        return sum(map(len, self._nodes.values()))

    # ------------------------------------------------------------------ asked

    def judge(self, pod: views.Pod, node_name: str, now: float, *, rehearsal: bool = False) -> str:
        """Why ``pod`` may not be bound to a node; empty if it may, and is booked there (not in a ``rehearsal``)."""
        assumed = self._model.assumed.get(pod.key)
        if assumed is not None and assumed.uid == pod.uid and assumed.node == node_name:
            return ""
        self.forget(now)
        node = self._model.nodes.get(node_name)
        lacks = "" if node is None or _always_taken(pod) else self._lacks(node, pod)
        if not lacks and not rehearsal:
            self._hold(pod, node_name, now)
        return lacks

    def objection(self, bind: Bind, now: float) -> str:
        """Why a bind decided here is not to be sent: room that was promised to somebody whom the engine could not be
        told of."""
        self.forget(now)
        node = self._model.nodes.get(bind.node)
        pod = self._model.pods.get(bind.task)
        if bind.node not in self._nodes or node is None or pod is None or pod.uid != bind.uid:
            return ""
        free = self._room(node, "")
        over = [name for name in resources_with_pod(pod) if free.left.get(name, 0) < 0]
        assumed = self._model.assumed.get(bind.task)
        if assumed is not None and assumed.uid == bind.uid:
            over += free.crowded(as_bound(pod, assumed), taken=True)
        return f"another scheduler is binding to node {node.name} ({', '.join(over)})" if over else ""

    # ------------------------------------------------------------------ seen

    def seen(self, old: views.Pod | None, new: views.Pod | None, now: float, *, foreign: bool) -> None:
        """A pod has changed, as the API server shows it; ledger and model have it. ``foreign``: it is not on the node
        that was decided for it here."""
        pod = new or old
        if pod is None:
            return
        holds = self._holds.get(pod.uid)
        if new is not None and not new.node_name and not new.finished:
            if holds:
                self._remember(new, list(holds.values()))
            return
        arrives = new is not None and new.node_name and (old is None or not old.node_name)
        if arrives and foreign and new is not None and new.node_name not in (holds or {}):
            self._bypassed = now
        if holds:
            self._release(pod.uid)

    def _remember(self, pod: views.Pod, holds: list[_Hold]) -> None:
        """There is news of a pod that is on its way."""
        for hold in holds:
            hold.pod = pod
        self._tell(pod, holds[-1].node)

    # ------------------------------------------------------------------ sums

    def _lacks(self, node: views.NodeObject, pod: views.Pod) -> str:
        """What ``node`` has too little of for ``pod``, in words."""
        found = self._room(node, pod.uid, pod.key).lacks(_on(pod, node.name))
        return f"node {node.name} has no room for pod {pod.key}: {', '.join(found)}" if found else ""

    def _room(self, node: views.NodeObject, uid: str, key: str = "") -> FreeOnNode:
        """What of a node is neither held, nor decided here, nor promised, but for what ``uid`` and ``key`` have."""
        beside = []
        for task, assumed in self._model.assumed.items():
            if assumed.node != node.name or task == key:
                continue
            pod = self._model.pods.get(task)
            if pod is not None and pod.uid == assumed.uid and not pod.node_name:
                beside.append(as_bound(pod, assumed))
        held = self._nodes.get(node.name, {})
        beside += [_on(hold.pod, node.name) for other, hold in held.items() if other != uid]
        return self._ledger.free(node, beside)

    # ------------------------------------------------------------------ bookings

    def _hold(self, pod: views.Pod, node: str, now: float) -> None:
        hold = _Hold(pod, node, now + KEPT_SECONDS)
        mine = self._holds.setdefault(pod.uid, {})
        mine.pop(node, None)  # the newest is the last
        mine[node] = hold
        self._nodes.setdefault(node, {})[pod.uid] = hold
        self.next_end = min(self.next_end, hold.until)
        self._tell(pod, node)

    def _tell(self, pod: views.Pod, node: str) -> None:
        """The model, as if it were bound; where it knows the pod."""
        known = self._model.pods.get(pod.key)
        if known is not None and known.uid == pod.uid and known.node_name != node:
            self._model.upsert_pod(msgspec.structs.replace(pod, node_name=node))

    def forget(self, now: float) -> None:
        """What has not come by now does not come any more."""
        if now < self.next_end:
            return
        for uid in [uid for uid, mine in self._holds.items() if any(h.until <= now for h in mine.values())]:
            mine = self._holds[uid]
            pod = next(iter(mine.values())).pod
            left = [hold for hold in mine.values() if hold.until > now]
            self._release(uid)
            for hold in left:
                self._holds.setdefault(uid, {})[hold.node] = hold
                self._nodes.setdefault(hold.node, {})[uid] = hold
            known = self._model.pods.get(pod.key)
            if known is not None and known.uid == uid:
                self._model.upsert_pod(pod)
                if left:
                    self._tell(pod, left[-1].node)
        ends = [hold.until for mine in self._holds.values() for hold in mine.values()]
        self.next_end = min(ends, default=float("inf"))

    def _release(self, uid: str) -> None:
        for node in self._holds.pop(uid):
            on_node = self._nodes[node]
            del on_node[uid]
            if not on_node:
                del self._nodes[node]


def _always_taken(pod: views.Pod) -> bool:
    """Its kubelet has started it already (a mirror pod belongs to its node), or makes room for it."""
    return (pod.priority or 0) >= CRITICAL or any(owner.kind == "Node" for owner in pod.owners)


def _on(pod: views.Pod, node: str) -> views.Pod:
    return msgspec.structs.replace(pod, node_name=node)
