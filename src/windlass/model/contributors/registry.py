"""Registry of contributors: optional features of the translation of pods and groups.

A contributor is called only for what concerns it:

* objects on which one of its traits is true, or that carry an annotation it reads,
* groups for which it is registered,
* everything while it is registered for all.

So a pod that uses no optional feature is translated without a call to any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from windlass.api import views
from windlass.spi.objects import Dialect, Group, Task

NONE: tuple[Contributor, ...] = ()


class Place(NamedTuple):
    """Group of a pod (``""``: none), and the API of the queue that the group is in."""

    group: str
    dialect: Dialect


class Contributor:
    """One feature. Each method does nothing unless the feature overrides it."""

    pod_traits: Sequence[str] = ()
    """Attributes of a pod; one that is true makes the pod concern the feature."""
    group_traits: Sequence[str] = ()
    """The same for PodGroups of any API; an attribute that an API lacks is false."""
    namespaces: Sequence[str] = ()
    """Namespaces in which every pod concerns the feature."""
    follows_queues: bool = False
    """True if queues of Volcano concern the feature."""
    follows_nodes: bool = False
    """True if the labels of nodes concern the feature."""

    def reads_pod(self, annotation: str) -> bool:
        """Return whether pods with this annotation concern the feature. Called once per annotation."""
        return False

    def reads_group(self, annotation: str) -> bool:
        """Return whether PodGroups with this annotation concern the feature.

        Called once per annotation.
        """
        return False

    def pod_shown(self, old: views.Pod | None, pod: views.Pod) -> None:
        """Mark what depends on a pod that is new or has changed."""

    def pod_removed(self, pod: views.Pod) -> None:
        """Mark what depended on a deleted pod."""

    def pod_joined(self, pod: views.Pod, group: str) -> None:
        """Record that a pod is translated as a member of a group."""

    def group_shown(self, group: str) -> None:
        """Mark what depends on the object of a group, which is new or has changed."""

    def group_translated(self, group: str) -> None:
        """Mark what depends on a group that is translated."""

    def queue_shown(self, name: str, queue: views.QueueObject | None) -> None:
        """Mark what depends on a queue that is new, has changed, or is deleted (``None``)."""

    def nodes_relabelled(self) -> None:
        """React to nodes that were added, deleted or relabelled."""

    def add_extras(self, pod: views.Pod, place: Place, extras: dict[str, Any]) -> None:
        """Add fields of :class:`~windlass.model.pods.task_needs.Extras`."""

    def add_task_fields(self, pod: views.Pod, fields: dict[str, Any]) -> None:
        """Add arguments of :func:`~windlass.model.pods.engine_task.task_of`."""

    def subgroup_of(self, pod: views.Pod, group: str) -> str:
        """Return the sub-group of a pod; ``""`` for none."""
        return ""

    def applied(self, group: Group) -> Group:
        """Return the group with what the feature adds to it."""
        return group

    def adjusted(self, pod: views.Pod, task: Task) -> Task:
        """Return the task with what the feature changes of it."""
        return task


class _Object(Protocol):
    @property
    def annotations(self) -> Mapping[str, str]: ...


class Contributors:
    """Contributors that each pod and each group concerns, in the order of their calls."""

    def __init__(self) -> None:
        self._all: Sequence[Contributor] = ()
        self._pod_traits: list[tuple[attrgetter[Any], Contributor]] = []
        self._group_traits: list[tuple[str, Contributor]] = []
        self._namespaces: dict[str, list[Contributor]] = {}
        self._pod_readers: dict[str, list[Contributor]] = {}
        self._group_readers: dict[str, list[Contributor]] = {}
        self._by_object: dict[str, dict[Contributor, None]] = {}
        self.by_pods: dict[str, dict[Contributor, None]] = {}
        """Group → contributors that its pods registered; only groups with any."""
        self.of_pod: dict[str, tuple[Contributor, ...]] = {}
        """Pod → contributors that it concerns by itself; only pods with any."""
        self.of_group: dict[str, tuple[Contributor, ...]] = {}
        """Group → contributors that it concerns by its object or its pods; only groups with any."""
        self.of_queues: list[Contributor] = []
        """Contributors that follow queues."""
        self.of_nodes: list[Contributor] = []
        """Contributors that follow the labels of nodes."""
        self.everywhere = NONE
        """Contributors that every pod and group concerns at present."""

    def register(self, contributors: Sequence[Contributor]) -> None:
        """Set the contributors, in the order of their calls."""
        self._all = contributors
        self._pod_traits = [(attrgetter(trait), item) for item in contributors for trait in item.pod_traits]
        self._group_traits = [(trait, item) for item in contributors for trait in item.group_traits]
        self.of_queues = [item for item in contributors if item.follows_queues]
        self.of_nodes = [item for item in contributors if item.follows_nodes]
        for contributor in contributors:
            for name in contributor.namespaces:
                self._namespaces.setdefault(name, []).append(contributor)

    def register_everywhere(self, contributor: Contributor, *, active: bool) -> None:
        """Register a contributor for every pod and group, or end that."""
        rest = [other for other in self.everywhere if other is not contributor]
        self.everywhere = self._sorted([*rest, contributor] if active else rest)

    def register_group(self, contributor: Contributor, group: str) -> None:
        """Register a contributor for a group for as long as the group has pods."""
        known = self.by_pods.setdefault(group, {})
        if contributor not in known:
            known[contributor] = None
            self._combine(group)

    # ------------------------------------------------------------------ objects

    def show_pod(self, old: views.Pod | None, pod: views.Pod) -> None:
        """Pass a new or changed pod to the contributors that it concerns or concerned."""
        concerned: dict[Contributor, None] = {}
        for read, contributor in self._pod_traits:
            if read(pod):
                concerned[contributor] = None
        for name in pod.annotations:
            readers = self._pod_readers.get(name)
            if readers is None:
                readers = self._pod_readers[name] = [reader for reader in self._all if reader.reads_pod(name)]
            if readers:
                concerned.update(dict.fromkeys(readers))
        if pod.namespace in self._namespaces:
            concerned.update(dict.fromkeys(self._namespaces[pod.namespace]))
        before = self.of_pod.pop(pod.key, NONE)
        if concerned:
            self.of_pod[pod.key] = self._sorted(concerned)
        if concerned or before:
            for contributor in self._sorted([*concerned, *before]):
                contributor.pod_shown(old, pod)

    def remove_pod(self, pod: views.Pod) -> None:
        """Pass a deleted pod to the contributors that it concerned."""
        for contributor in self.of_pod.pop(pod.key, NONE):
            contributor.pod_removed(pod)

    def show_group(self, key: str, group: _Object) -> None:
        """Pass a new or changed group object to the contributors that it concerns."""
        concerned: dict[Contributor, None] = {}
        for trait, contributor in self._group_traits:
            if getattr(group, trait, None):
                concerned[contributor] = None
        for name in group.annotations:
            readers = self._group_readers.get(name)
            if readers is None:
                readers = self._group_readers[name] = [
                    reader for reader in self._all if reader.reads_group(name)
                ]
            if readers:
                concerned.update(dict.fromkeys(readers))
        if concerned or key in self._by_object:
            self._by_object[key] = concerned
            self._combine(key)
        for contributor in self.of_group.get(key, NONE):
            contributor.group_shown(key)

    def remove_group(self, key: str) -> None:
        """Forget the deleted object of a group."""
        if self._by_object.pop(key, None) is not None:
            self._combine(key)

    def forget_pods(self, group: str) -> None:
        """Forget the pods of a group that has none any more."""
        if self.by_pods.pop(group, None) is not None:
            self._combine(group)

    def _combine(self, group: str) -> None:
        concerned = self._sorted([*self._by_object.get(group, ()), *self.by_pods.get(group, ())])
        if concerned:
            self.of_group[group] = concerned
        else:
            self.of_group.pop(group, None)

    # ------------------------------------------------------------------ contributors of a pod

    def of(self, pod: str, group: str) -> tuple[Contributor, ...]:
        """Return the contributors that a pod concerns by itself, by its group, or like every pod."""
        by_pod, by_group = self.of_pod.get(pod, NONE), self.of_group.get(group, NONE)
        return self._sorted([*by_pod, *by_group, *self.everywhere])

    def _sorted(self, contributors: Iterable[Contributor]) -> tuple[Contributor, ...]:
        selected = {*contributors}
        return tuple([contributor for contributor in self._all if contributor in selected])
