"""Nodes that another scheduler binds to while binds decided here are on their way.

The engine knows of a foreign pod as soon as it is seen, but what was decided before then stands: of the binds
that have not been sent, those that the node cannot hold any more are recalled, by its amounts or by the cards that were
meant for them. In the order of their decisions the last ones go first. Pure.
"""

from __future__ import annotations

from windlass.api import views
from windlass.engine.decision import Bind
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.devices.usage import FreeOnNode, as_bound, resources_with_pod

LIVELY_SECONDS = 10.0
"""For so long after somebody else's pod came to a node more of them are expected. Binds are then sent a few at a
time: the sooner one arrives, the less can come between it and its decision."""


class BindConflicts:
    """Asked before each bind is sent and when it is seen; costs nothing unless somebody else binds. ``memory``: for
    how many seconds a bind may be under way."""

    def __init__(self, model: ClusterModel, ledger: NodeUsage, memory: float) -> None:
        self._memory = memory
        self._model = model
        self._ledger = ledger
        self._news: set[str] = set()
        self._too_many: dict[str, str] = {}
        """Uid of an assumed pod → what its node lacks. (Another one may come under its name.)"""
        self._disputed: dict[str, float] = {}
        """Node → when somebody else's pod was last seen to come to it."""
        self._alone_since = float("-inf")

    def seen(self, pod: views.Pod, now: float) -> None:
        """A pod that was not bound by a decision of here has come to its node."""
        self._disputed[pod.node_name] = now
        self._alone_since = now + LIVELY_SECONDS
        self.grown(pod)

    def grown(self, pod: views.Pod) -> None:
        """A pod holds more of its node than before: it is being resized, or was told which cards it has. What is on
        its way already is not disputed for that: a kubelet grants no growth for which there is no room."""
        if self._model.assumed:
            self._news.add(pod.node_name)

    def alone(self, now: float) -> bool:
        """Whether nobody else has bound anything for :data:`LIVELY_SECONDS`."""
        return now >= self._alone_since

    def disputed(self, node: str, now: float) -> bool:
        """Whether somebody else may have taken room on a node that was counted on here. (Who is seen after a pod
        of ours is the one too many himself, and not ours to evict.)"""
        moment = self._disputed.get(node)
        return moment is not None and now - moment <= self._memory

    def forget(self, now: float) -> None:
        """Forget what every bind under way was decided after."""
        if self._disputed:
            self._disputed = {n: at for n, at in self._disputed.items() if now - at <= self._memory}

    def objection(self, bind: Bind) -> str:
        """Why a bind is not to be sent any more; empty if it may be."""
        if self._news:
            self._judge()
        if not self._too_many:
            return ""
        return self._too_many.pop(bind.uid, "")

    def _judge(self) -> None:
        """Which assumed pods of the nodes in question are too many."""
        news, self._news = self._news, set()
        model = self._model
        awaited = {assumed.uid for assumed in model.assumed.values()} if self._too_many else ()
        self._too_many = {uid: why for uid, why in self._too_many.items() if uid in awaited}
        rooms: dict[str, FreeOnNode] = {}
        for task, assumed in model.assumed.items():
            pod = model.pods.get(task)
            if assumed.node not in news or pod is None or pod.uid != assumed.uid or pod.node_name:
                continue
            free = rooms.get(assumed.node)
            if free is None:
                node = model.nodes.get(assumed.node)
                if node is None:
                    continue
                free = rooms[assumed.node] = self._ledger.free(node)
            meant = as_bound(pod, assumed)
            if lacks := free.lacks(meant):
                self._too_many[assumed.uid] = (
                    f"another scheduler's pod took the room on {assumed.node} ({', '.join(lacks)})"
                )
            else:
                free.take(meant)


def instead(pod: views.Pod, model: ClusterModel, ledger: NodeUsage) -> views.Pod:
    """Who has to go where ``pod`` is one too many on its node. Nobody makes a pod without an owner anew: another one of
    ours goes for it that has an owner, is not more important, and gives back all that is too much; of those
    the least important and the youngest."""
    node = model.nodes.get(pod.node_name)
    if pod.owners or node is None:
        return pod
    excess = ledger.free(node).over()

    def may(one: views.Pod) -> bool:
        there = one.node_name == pod.node_name and not one.finished and not one.deleted
        if not there or not one.owners or not model.manages(one) or _rank(one) > _rank(pod):
            return False
        gives = resources_with_pod(one)
        return all(gives.get(name, 0) >= units for name, units in excess.items())

    others = [one for one in model.pods.values() if may(one)] if excess else []
    return min(others, key=lambda one: (_rank(one), -one.created), default=pod)


def _rank(pod: views.Pod) -> int:
    return pod.priority or 0
