"""Translation of a group's object and pods to the engine's group, for every API."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace as altered

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.errors import FieldError
from windlass.api.preemptibility import statement
from windlass.model.cluster.group_index import GroupIndex
from windlass.model.cluster.marks import SentState
from windlass.model.cluster.object_cache import ObjectCache
from windlass.model.contributors.registry import NONE, Contributors
from windlass.model.contributors.topology_constraints import TopologyConstraints
from windlass.model.groups import foreign_groups, member_counts, podgroups, topology_constraint
from windlass.model.queues import engine_queue
from windlass.spi.objects import Dialect, Group


class GroupBuilder:
    """``sent``: the groups that the engine knows."""

    def __init__(
        self, objects: ObjectCache, index: GroupIndex, sent: SentState, contributors: Contributors
    ) -> None:
        self._objects = objects
        self._index = index
        self._sent = sent
        self._contributors = contributors

    def group(self, key: str) -> Group | None:
        """Return the group of an object; ``None`` without one, or if it is another scheduler's."""
        index = self._index
        if index.is_elsewhere(key):
            return None
        view = self._objects.groups.get(key)
        if view is not None:
            classes = self._objects.classes
            urgency = classes.urgency(view.priority_class, lambda: index.pods_of(key))
            if urgency.protected and _all_preemptible(index.pods_of(key)):
                urgency = urgency._replace(protected=False)
            group: Group | None = podgroups.group_of(view, urgency)
        else:
            group = self._of_other_api(key)
        if group is not None:
            for contributor in self._contributors.of_group.get(key, NONE):
                group = contributor.applied(group)
        return group

    def _of_other_api(self, key: str) -> Group | None:
        """Return the group of an object of another API than Volcano's."""
        kind, index, classes = podgroups.kind_prefix(key), self._index, self._objects.classes
        if kind == podgroups.KAI:
            kai = self._objects.kai_groups.get(podgroups.shown_key(key))
            if kai is None:
                return None
            queue = engine_queue.KAI + kai.queue
            group = foreign_groups.kai_group(kai, key, queue, classes, index.pods_of(key))
            return group if group.started is not None else altered(group, started=self._reached(group))
        if kind == podgroups.NATIVE:
            native = index.native_of(key)
            if native is None:
                return None
            pods = list(index.pods_of(key))
            queue = self._queue_of(native, pods)
            return foreign_groups.native_group(native, key, queue, dialect_of(queue), classes, pods)
        if kind == podgroups.COSCHEDULING:
            coscheduling = index.coscheduling_of(key)
            if coscheduling is None:
                return None
            pods = list(index.pods_of(key))
            queue = self._queue_of(coscheduling, pods)
            dialect = dialect_of(queue)
            return foreign_groups.coscheduling_group(coscheduling, key, queue, dialect, classes, pods)
        oldest = member_counts.oldest_of(index.pods_of(key))
        if oldest is None or kind not in (podgroups.KUEUE, podgroups.OWNER):
            return None
        queue = self.implicit_queue(oldest)
        if kind == podgroups.OWNER:
            return foreign_groups.kai_batch_group(oldest, key, queue, classes)
        pods = list(index.pods_of(key))
        return foreign_groups.kueue_group(oldest, pods, key, queue, dialect_of(queue), classes)

    def _reached(self, group: Group) -> float | None:
        """Return the time at which the group reached its minimum, by the start of its running pods."""
        pods = self._index.pods_of(group.key)
        starts = sorted(pod.started for pod in pods if pod.phase == "Running" and pod.started)
        least = max(1, group.min_member)
        return starts[least - 1] if len(starts) >= least else None

    def implicit_group(self, pod: views.Pod, topology: TopologyConstraints) -> Group:
        """Return the group of a pod that has no PodGroup."""
        queue, classes = self.implicit_queue(pod), self._objects.classes
        if engine_queue.is_kai(queue):
            group = foreign_groups.kai_pod_group(pod, queue, classes)
        else:
            group = podgroups.implicit_group(pod, classes, queue)
        if not topology_constraint.states_topology(pod.annotations):
            return group
        return topology_constraint.applied(group, topology_constraint.of_pods([pod], topology.index), [pod])

    # ------------------------------------------------------------------ queues

    def queue_named(self, group: str) -> str:
        """Return the queue that a group names, whether the engine knows the group or not."""
        known = self._sent.groups.get(group) or self.group(group)
        if known is not None:
            return known.queue
        pod = next(self._index.pods_of(group), None)
        return "" if pod is None else self.implicit_queue(pod)

    def dialect(self, pod: views.Pod, group: str, kind: str) -> Dialect:
        """Return the API of the queue that the group of a pod is in. ``kind``: prefix of the group's key."""
        if kind == podgroups.KAI:
            return Dialect.KAI
        if kind in podgroups.BY_PODS:
            sent = self._sent.groups.get(group)
            return sent.dialect if sent is not None else dialect_of(self.implicit_queue(pod))
        return Dialect.VOLCANO

    def implicit_queue(self, pod: views.Pod) -> str:
        """Return the queue of a pod without a PodGroup.

        That is the queue of its own label or annotation, else its namespace's, else
        ``default``.
        """
        annotated = pod.annotations.get(names.QUEUE_NAME_VOLCANO)
        labelled = pod.labels.get(names.QUEUE_NAME_KAI)
        if labelled and (not annotated or pod.scheduler_name == podgroups.KAI_SCHEDULER):
            return self._kai_or_plain(labelled)
        return podgroups.queue_named(pod) or self._queue_of_namespace(pod.namespace)

    def _queue_of(self, view: views.NativeGroup | views.CoschedulingGroup, pods: Iterable[views.Pod]) -> str:
        """Return the queue that the object names by label or annotation, else the queue of its oldest pod."""
        name = foreign_groups.named_queue(view.labels, view.annotations)
        if name:
            return self._kai_or_plain(name)
        pod = member_counts.oldest_of(pods)
        return self.implicit_queue(pod) if pod is not None else self._queue_of_namespace(view.namespace)

    def _queue_of_namespace(self, name: str) -> str:
        namespace = self._objects.namespaces.get(name)
        named = namespace.annotations.get(names.QUEUE_NAME_VOLCANO, "") if namespace else ""
        return named or engine_queue.DEFAULT

    def _kai_or_plain(self, name: str) -> str:
        """Return the queue that KAI's label names: one of KAI where the cluster has any, else of that name."""
        kai_queues = self._objects.kai_queues
        is_kai = name in kai_queues or (kai_queues and name not in self._objects.queues)
        return engine_queue.KAI + name if is_kai else name

    # ------------------------------------------------------------------ errors

    def problems(self, key: str) -> tuple[FieldError, ...]:
        """Return what is wrong with the fields of a group's object."""
        kind = podgroups.kind_prefix(key)
        if kind == podgroups.KAI:
            kai = self._objects.kai_groups.get(podgroups.shown_key(key))
            return () if kai is None else foreign_groups.kai_problems(kai)
        if kind == podgroups.NATIVE:
            native = self._index.native_of(key)
            return () if native is None else native.problems
        if kind == podgroups.COSCHEDULING:
            coscheduling = self._index.coscheduling_of(key)
            return () if coscheduling is None else foreign_groups.coscheduling_problems(coscheduling)
        if kind == podgroups.KUEUE:
            return foreign_groups.kueue_problems(self._index.pods_of(key))
        view = self._objects.groups.get(key)
        return () if view is None else podgroups.group_problems(view)


def _all_preemptible(pods: Iterable[views.Pod]) -> bool:
    """Return whether there are pods, and all state that they are preemptible."""
    stated = [statement(pod.labels, pod.annotations) for pod in pods]
    return bool(stated) and all(one is not None and one.preemptible for one in stated)


def dialect_of(queue: str) -> Dialect:
    """Return the API of a queue, by its name in the engine."""
    return Dialect.KAI if engine_queue.is_kai(queue) else Dialect.VOLCANO
