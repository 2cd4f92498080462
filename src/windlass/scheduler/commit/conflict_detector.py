"""Detection of binds that no longer fit, because another scheduler has bound pods meanwhile.

The engine learns of a foreign pod as soon as it is seen, but earlier decisions stand.
Of the binds that have not been sent, those that no longer fit on their node are
recalled: by its resources, or by the devices meant for them. Earlier decisions come
first. Pure; times are monotonic seconds.
"""

from __future__ import annotations

from windlass.api import views
from windlass.engine.decision import Bind
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.devices.usage import FreeOnNode, as_bound

ACTIVE_SECONDS = 10.0
"""Time in seconds for which more foreign pods are expected after one came to a node.

Binds are then sent a few at a time: the earlier each arrives, the less can come in
between.
"""


class BindConflicts:
    """Conflicts of binds in progress with pods of other schedulers.

    Asked before each bind is sent and when it is seen. It costs nothing while no other
    scheduler binds. ``memory_seconds``: how long a bind may be in progress.
    """

    def __init__(self, model: ClusterModel, node_usage: NodeUsage, memory_seconds: float) -> None:
        self._model = model
        self._node_usage = node_usage
        self._memory_seconds = memory_seconds
        self._changed: set[str] = set()
        """Nodes to evaluate before the next bind is sent."""
        self._excess: dict[str, str] = {}
        """Uid of an assumed pod that no longer fits → reason."""
        self._disputed: dict[str, float] = {}
        """Node → when a foreign pod was last seen to come to it."""
        self._quiet_from = float("-inf")

    def foreign_pod_bound(self, pod: views.Pod, now: float) -> None:
        """Take in a pod on a node for which this scheduler did not decide."""
        self._disputed[pod.node_name] = now
        self._quiet_from = now + ACTIVE_SECONDS
        self.usage_grew(pod)

    def usage_grew(self, pod: views.Pod) -> None:
        """Take in a pod that uses more of its node: it was resized, or its devices are known now.

        Such a node is not disputed. A kubelet grants no growth for which there is no
        capacity.
        """
        if self._model.binds.assumed:
            self._changed.add(pod.node_name)

    def is_quiet(self, now: float) -> bool:
        """Return whether no other scheduler has bound a pod for :data:`ACTIVE_SECONDS`."""
        return now >= self._quiet_from

    def is_disputed(self, node: str, now: float) -> bool:
        """Return whether another scheduler may have taken capacity that was decided on here.

        A foreign pod seen after one of Windlass' pods is itself the one too many, and
        not for Windlass to evict.
        """
        seen = self._disputed.get(node)
        return seen is not None and now - seen <= self._memory_seconds

    def expire(self, now: float) -> None:
        """Forget foreign pods that were seen before any bind in progress was decided."""
        if self._disputed:
            self._disputed = {n: at for n, at in self._disputed.items() if now - at <= self._memory_seconds}

    def objection(self, bind: Bind) -> str:
        """Return why a bind must not be sent any more, ``""`` if it may be."""
        if self._changed:
            self._evaluate()
        if not self._excess:
            return ""
        return self._excess.pop(bind.uid, "")

    def _evaluate(self) -> None:
        """Find the assumed pods that no longer fit on the changed nodes."""
        changed, self._changed = self._changed, set()
        model = self._model
        awaited = {assumed.uid for assumed in model.binds.assumed.values()} if self._excess else ()
        self._excess = {uid: why for uid, why in self._excess.items() if uid in awaited}
        free_by_node: dict[str, FreeOnNode] = {}
        for task, assumed in model.binds.assumed.items():
            pod = model.objects.pods.get(task)
            if assumed.node not in changed or pod is None or pod.uid != assumed.uid or pod.node_name:
                continue
            free = free_by_node.get(assumed.node)
            if free is None:
                node = model.objects.nodes.get(assumed.node)
                if node is None:
                    continue
                free = free_by_node[assumed.node] = self._node_usage.free(node)
            bound = as_bound(pod, assumed)
            if lacks := free.lacks(bound):
                self._excess[assumed.uid] = (
                    f"another scheduler's pod took the capacity of {assumed.node} ({', '.join(lacks)})"
                )
            else:
                free.take(bound)
