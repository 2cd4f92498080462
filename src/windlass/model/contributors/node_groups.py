"""Node groups of queues: the nodes on which pods of a queue may run (Volcano's ``spec.affinity``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from windlass.api import views
from windlass.model.cluster.marks import DirtyMarks, Membership
from windlass.model.contributors.registry import Contributor, Contributors, Place
from windlass.model.queues import engine_queue


class QueueNodeGroups(Contributor):
    """Queues that name node groups. While there are any, every pod's needs depend on its queue.

    ``queue_named``: the queue of a group, by its key.
    """

    follows_queues = True

    def __init__(
        self,
        contributors: Contributors,
        marks: DirtyMarks,
        membership: Membership,
        pods: Mapping[str, views.Pod],
        queues: Mapping[str, views.QueueObject],
        queue_named: Callable[[str], str],
    ) -> None:
        self._contributors = contributors
        self._marks = marks
        self._membership = membership
        self._pods = pods
        self._queues = queues
        self._queue_named = queue_named
        self._affinities: dict[str, views.QueueAffinity] = {}

    def queue_shown(self, name: str, queue: views.QueueObject | None) -> None:
        """Record the node groups of a queue. Mark all pods if they have changed."""
        affinity = queue.node_groups if queue is not None else None
        if self._affinities.get(name) == affinity:
            return
        if affinity is None:
            del self._affinities[name]
        else:
            self._affinities[name] = affinity
        self._contributors.register_everywhere(self, active=bool(self._affinities))
        self._marks.mark_pods(self._pods)

    def group_translated(self, group: str) -> None:
        """Mark the pods of a group, as it may be in another queue now."""
        self._marks.pods.update(self._membership.pods.get(group, {}))

    def add_extras(self, pod: views.Pod, place: Place, extras: dict[str, Any]) -> None:
        """Add the node groups of the pod's queue."""
        if place.group:
            node_groups = engine_queue.node_groups_of(self._queue_named(place.group), self._queues)
            if node_groups is not None:
                extras["node_groups"] = node_groups
