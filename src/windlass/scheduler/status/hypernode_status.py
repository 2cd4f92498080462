"""Status of HyperNodes, and the annotation that names a group's HyperNode.

Keys of the writes are ``hypernode NAME``.
"""

from __future__ import annotations

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.client.client import Client
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.write_queue import Enqueue


class HyperNodeStatuses:
    """Writes the number of nodes of each HyperNode, and reports contradictions among them."""

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        enqueue: Enqueue,
    ) -> None:
        self._client = client
        self._model = model
        self._recorder = recorder
        self._metrics = metrics
        self._enqueue = enqueue
        self._version = 0
        """Version of the topology that was checked last."""
        self._reported: frozenset[tuple[str, str]] = frozenset()

    def check(self) -> None:
        """Enqueue outdated HyperNodes and report contradictions after a change."""
        topology = self._model.features.topology.index
        if self._version == topology.version:
            return
        self._version = topology.version
        for name, view in topology.hypernodes.items():
            if view.node_count != len(topology.nodes_of(name)):
                self._enqueue(f"hypernode {name}")
        self._report_problems()

    def _report_problems(self) -> None:
        """Report each contradiction once, as an event on the HyperNode."""
        problems = self._model.features.topology.index.hypernode_problems
        for name, message in problems:
            view = self._model.features.topology.index.hypernodes.get(name)
            if view is not None and (name, message) not in self._reported:
                resource = resources.HYPERNODES
                ref = ObjectRef(resource.api_version, resource.kind, "", name, view.uid)
                self._recorder.event(ref, "Warning", "Contradiction", message)
        self._reported = frozenset(problems)

    def annotation(self, view: views.PodGroup) -> dict[str, str | None]:
        """Return the annotation with the group's HyperNode if it is outdated."""
        hypernode = self._model.hypernode_of(view.key) if view.topology is not None else ""
        if hypernode and view.annotations.get(names.ALLOCATED_HYPERNODE) != hypernode:
            return {names.ALLOCATED_HYPERNODE: hypernode}
        return {}

    async def write(self, name: str) -> None:
        """Write the number of nodes of one HyperNode."""
        topology = self._model.features.topology.index
        view = topology.hypernodes.get(name)
        wanted = len(topology.nodes_of(name))
        if view is None or view.node_count == wanted:
            return
        patch = {"status": {"nodeCount": wanted}}
        await self._client.patch(resources.HYPERNODES, name, patch, subresource="status")
        self._metrics.writes.labels("hypernode").inc()
