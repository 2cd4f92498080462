"""Overcommitted nodes: another scheduler's pod came first, and a pod has to be evicted."""

from __future__ import annotations

from windlass.api import views
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.devices.usage import resources_with_pod
from windlass.observe import logs
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.commit.evictor import OVERCOMMITTED, EvictionOrder, Evictor
from windlass.scheduler.commit.incomplete_gangs import IncompleteGangs

log = logs.get("scheduler")


class OvercommitCheck:
    """Evicts a pod from a node that has too little capacity for what was bound there."""

    def __init__(
        self,
        model: ClusterModel,
        node_usage: NodeUsage,
        metrics: SchedulerMetrics,
        evictor: Evictor,
        gangs: IncompleteGangs,
        *,
        clock: Clock,
    ) -> None:
        self._model = model
        self._node_usage = node_usage
        self._metrics = metrics
        self._evictor = evictor
        self._gangs = gangs
        self._clock = clock

    def check(self, pod: views.Pod) -> None:
        """Check the node of a pod that was bound by this scheduler."""
        overflow = self._node_usage.overflow(pod, self._model.objects.nodes.get(pod.node_name))
        if overflow is None:
            return
        log.warning("node overcommitted by another scheduler", pod=pod.key, node=pod.node_name, why=overflow)
        self._metrics.conflicts.labels("overcommitted").inc()
        message = f"{overflow}: another scheduler's pod was bound there first"
        victim = choose_victim(pod, self._model, self._node_usage)
        self._gangs.doubt(victim)
        self._evictor.submit(EvictionOrder(victim.key, victim.uid, OVERCOMMITTED, message))


def choose_victim(pod: views.Pod, model: ClusterModel, node_usage: NodeUsage) -> views.Pod:
    """Return the pod to evict where ``pod`` is one too many on its node.

    A pod without an owner would not be recreated. In its place another pod of this
    scheduler is evicted that has an owner, has no higher priority, and frees all the
    excess. Among several, the one with the lowest priority is chosen, then the
    youngest.
    """
    node = model.objects.nodes.get(pod.node_name)
    if pod.owners or node is None:
        return pod
    excess = node_usage.free(node).over()

    def may_replace(other: views.Pod) -> bool:
        here = other.node_name == pod.node_name and not other.finished and not other.deleted
        if not here or not other.owners or not model.manages(other) or _priority(other) > _priority(pod):
            return False
        frees = resources_with_pod(other)
        return all(frees.get(name, 0) >= units for name, units in excess.items())

    others = [other for other in model.objects.pods.values() if may_replace(other)] if excess else []
    return min(others, key=lambda other: (_priority(other), -other.created), default=pod)


def _priority(pod: views.Pod) -> int:
    return pod.priority or 0
