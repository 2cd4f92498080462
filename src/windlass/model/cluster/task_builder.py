"""Translation of a pod to the engine's task, with its group."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

from msgspec.structs import replace as altered

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.errors import FieldError
from windlass.api.preemptibility import statement
from windlass.api.reasons import Explanation
from windlass.engine import deltas
from windlass.jobs.owners.pods import grouped_by_owner
from windlass.model.cluster.assumed_binds import AssumedBind, AssumedBinds
from windlass.model.cluster.group_builder import GroupBuilder, dialect_of
from windlass.model.cluster.group_index import GroupIndex
from windlass.model.cluster.marks import DirtyMarks, SentState
from windlass.model.cluster.object_cache import ObjectCache
from windlass.model.contributors.features import Features
from windlass.model.contributors.registry import NONE, Contributor, Contributors, Place
from windlass.model.devices import reserved_devices
from windlass.model.groups import podgroups
from windlass.model.pods import engine_task
from windlass.model.pods.task_needs import Extras
from windlass.spi.objects import Dialect, Needs, Task, TaskState

OF_NODES = ("DaemonSet", "Node")
"""Kinds of owners with pods that belong to their node.

Evicted ones would return there at once.
"""
_FINISHED = ("Succeeded", "Failed")


class TaskBuilder:
    """Translates pods, and stores errors in their fields.

    ``scheduler_names``: scheduler names of the pods that are placed. All other pods
        only occupy their nodes.
    ``wait_for_group``: scheduler names of bare pods that wait until a controller has
        given them a PodGroup.
    ``wait_for_owner``: the same for pods that another operator created.
    """

    def __init__(
        self,
        objects: ObjectCache,
        index: GroupIndex,
        groups: GroupBuilder,
        binds: AssumedBinds,
        marks: DirtyMarks,
        sent: SentState,
        contributors: Contributors,
        features: Features,
        *,
        scheduler_names: Collection[str],
        wait_for_group: Collection[str],
        wait_for_owner: Collection[str] = (),
    ) -> None:
        self._objects = objects
        self._index = index
        self._groups = groups
        self._binds = binds
        self._marks = marks
        self._sent = sent
        self._contributors = contributors
        self._features = features
        self._scheduler_names = frozenset(scheduler_names)
        self._wait_for_group = frozenset(wait_for_group)
        self._wait_for_owner = frozenset(wait_for_owner)
        self.tiers = False
        """True if a configuration states the policies of Volcano's queues, also for scheduler ``windlass``."""
        self.foreign_queue = ""
        """Queue of pods that other schedulers placed; ``""``: they only occupy their nodes."""
        self.withheld: Mapping[str, Explanation] = {}
        """In a dry run: pods that would not be created, with the reason.

        The engine sees none of them.
        """
        self.now = 0.0
        """Unix seconds."""
        self.ends: list[tuple[float, str]] = []
        """Heap of terminating pods, by the time at which each termination counts as stuck."""
        self.faults: dict[str, tuple[FieldError, ...]] = {}
        """Pods with contradictory fields."""
        self.flawed: dict[str, None] = {}
        """Groups that have, or had, a pod with contradictory fields."""
        self._protected: dict[str, float] = {}
        """Pod → end of its protection from eviction (Unix seconds)."""

    def manages(self, pod: views.Pod) -> bool:
        """Return whether this scheduler places the pod; static pods are placed by their node."""
        ownership = self._objects.ownership
        return (
            pod.scheduler_name in self._scheduler_names
            and not pod.is_static
            and (not ownership.active or ownership.owns(pod, self._index.defined))
        )

    def awaits_group(self, pod: views.Pod) -> bool:
        """Return whether the pod waits until a controller has given it a PodGroup."""
        return self._is_ungrouped(pod, podgroups.kind_prefix(podgroups.group_key(pod)))

    def _is_ungrouped(self, pod: views.Pod, kind: str) -> bool:
        if pod.scheduler_name in self._wait_for_group and kind in podgroups.WITHOUT_OBJECT:
            return True
        owned = kind == podgroups.IMPLICIT and pod.scheduler_name in self._wait_for_owner
        return owned and grouped_by_owner(pod)

    def protect(self, key: str, until: float) -> None:
        """Do not evict a pod before a time (Unix seconds), as its eviction was refused."""
        if key in self._objects.pods:
            self._protected[key] = until
            self._marks.pods[key] = None
            heapq.heappush(self.ends, (until, key))

    # ------------------------------------------------------------------ one pod

    def translate(self, key: str, out: list[deltas.Delta]) -> None:
        """Append what has changed of a pod."""
        pod, sent = self._objects.pods.get(key), self._sent.tasks.get(key)
        if sent is not None and (pod is None or pod.uid != sent.uid):
            self._sent.retract_task(key, out)
            sent = None
        index = self._index
        if pod is None:
            self._forget(key, out)
            return
        if self.manages(pod):
            if key in index.others_group:
                index.forget_other(key)
            task = self._managed(pod, out)
        else:
            task = self._of_other(pod, out)
        if task is None:
            self._sent.retract_task(key, out)
            self._retract_group(podgroups.group_key(pod), out)
            return
        if self._protected:
            if self._protected.get(key, inf) <= self.now:
                del self._protected[key]
            if key in self._protected:
                task = altered(task, preemptible=False)
        if task != sent:
            self._sent.tasks[key] = task
            out.append(deltas.TaskUpserted(task))

    def _forget(self, key: str, out: list[deltas.Delta]) -> None:
        """Forget a deleted pod."""
        self.leave_group(key, out)
        self._index.forget_other(key)
        self.faults.pop(key, None)
        self._protected.pop(key, None)
        self._binds.drop(key)

    def _managed(self, pod: views.Pod, out: list[deltas.Delta]) -> Task | None:
        """Return the task; ``None`` if the engine must not see the pod (yet, or any more)."""
        key, group = pod.key, podgroups.group_key(pod)
        if self._index.membership.group_of.get(key) != group:
            self._change_group(key, group, out)
        self._marks.reported[group] = None
        known = self._contributors
        for contributor in known.of_pod.get(key, NONE):
            contributor.pod_joined(pod, group)
        self.mark_dependent(group)
        if pod.deleted:
            self._watch_end(pod)
        kind, alone, dialect = podgroups.kind_prefix(group), None, Dialect.VOLCANO
        if kind == podgroups.IMPLICIT:
            alone = self._groups.implicit_group(pod, self._features.topology)
            dialect = dialect_of(alone.queue)
        elif kind:
            dialect = self._groups.dialect(pod, group, kind)
        plain = key not in known.of_pod and group not in known.of_group and not known.everywhere
        contributors = NONE if plain else known.of(key, group)
        waiting = not pod.node_name and pod.phase not in _FINISHED
        needs, problems = self._needs_of(pod, Place(group, dialect), contributors, waiting=waiting)
        if problems and waiting:
            self.faults[key] = problems
            if alone is None:
                self.flawed[group] = self._marks.members[group] = None
            return None
        if self.faults.pop(key, None) is not None:
            self.mark_dependent(group)
        if waiting and self._is_kept_back(pod, kind):
            return None
        if alone is not None:
            self._sent.send_group(alone, out)
        decided = self._binds.decided.get(key)
        task = engine_task.task_of(
            pod,
            group,
            needs,
            self._objects.classes,
            now=self.now,
            dialect=dialect,
            node=self._objects.nodes.get(pod.node_name),
            decided=decided[1] if decided is not None and decided[0] == pod.uid else 0.0,
            owners_known=self._objects.owners_known,
            **_fields(pod, group, contributors),
        )
        if not task.preemptible and self._is_stated_preemptible(pod, group):
            task = altered(task, preemptible=True)
        assumed = self._binds.assumed.get(key)
        if assumed is not None and waiting and assumed.uid == pod.uid:
            task = as_assumed(task, assumed, self._sent.tasks.get(key))
        for contributor in contributors:
            task = contributor.adjusted(pod, task)
        return task

    def _is_stated_preemptible(self, pod: views.Pod, group: str) -> bool:
        """Return whether the PodGroup of a pod that states nothing overrules its PriorityClass."""
        view = self._objects.groups.get(group)
        if view is None or statement(pod.labels, pod.annotations) is not None:
            return False
        stated = statement(view.labels, view.annotations)
        return stated is not None and stated.preemptible

    def _needs_of(
        self, pod: views.Pod, place: Place, contributors: Sequence[Contributor], *, waiting: bool
    ) -> tuple[Needs, tuple[FieldError, ...]]:
        """Return the needs of a managed pod, and what is wrong with its fields."""
        dialect = place.dialect
        if pod.scheduler_name == names.SCHEDULER_NAMES[0] and not (self.tiers and dialect is Dialect.VOLCANO):
            dialect = Dialect.WINDLASS
        extras = _extras(pod, place, contributors) if contributors else None
        translated = self._objects.needs.of(pod, dialect, extras)
        problems = (*pod.problems, *translated.problems)
        if not translated.needs.devices:
            return translated.needs, problems
        return self._features.requests.held_needs(pod, translated.needs, problems, waiting=waiting)

    def _is_kept_back(self, pod: views.Pod, kind: str) -> bool:
        """Return whether a pending pod is hidden from the engine.

        That is so if it is terminating, or not ready to be placed.
        """
        return bool(pod.deleted) or pod.key in self.withheld or self._is_ungrouped(pod, kind)

    # ------------------------------------------------------------------ pods of other schedulers

    def _of_other(self, pod: views.Pod, out: list[deltas.Delta]) -> Task | None:
        """Return the task of a pod that another scheduler places; ``None`` while it occupies no node."""
        self._index.add_other(pod)
        queue = self._guest_queue(pod)
        if not queue:
            self.leave_group(pod.key, out)
            return self._occupying(pod)
        task = self._occupying(pod)
        alone = podgroups.implicit_group(pod, self._objects.classes)
        key = podgroups.implicit_key(pod)
        group = altered(alone, key=key, queue=queue, guest=True, annotations={})
        if task is None:
            return None
        membership = self._index.membership
        membership.group_of[pod.key] = key
        membership.pods.setdefault(key, {})[pod.key] = None
        self._sent.send_group(group, out)
        return altered(task, group=key, budgets=self._features.budgets.of(pod))

    def _guest_queue(self, pod: views.Pod) -> str:
        """Return the queue that a pod of another scheduler counts in; ``""``: it is never evicted.

        In a queue it may be evicted for work of higher priority there.
        """
        owner = pod.controller
        bound_to_node = owner is not None and owner.kind in OF_NODES
        reserves = pod.namespace in (reserved_devices.NAMESPACE, reserved_devices.NAMESPACE_KAI)
        if not pod.node_name or pod.finished or bound_to_node or reserves or engine_task.is_critical(pod):
            return ""
        return self.foreign_queue

    def _occupying(self, pod: views.Pod) -> Task | None:
        """Return the task of a pod that only occupies its node."""
        if not pod.node_name and pod.shape.claims:
            # Its claims are allocated: its scheduler has decided, and binds it soon.
            pod = altered(pod, node_name=next(self._features.claims.index.nodes_of(pod), ""))
        if not pod.node_name or pod.finished:
            return None
        self._watch_end(pod)
        contributors = self._contributors.of(pod.key, "")
        extras = _extras(pod, Place("", Dialect.WINDLASS), contributors)
        needs = self._objects.needs.of(pod, extras=extras).needs
        reserved = self._features.requests.reserved
        if reserved_devices.reserved_index(pod) is not None:
            needs = reserved_devices.reservation_needs(needs)
        elif reserved.on_kai_reservation(pod):
            needs = reserved_devices.without_devices(needs)
        node = self._objects.nodes.get(pod.node_name)
        task = engine_task.task_of(
            pod, engine_task.FOREIGN, needs, self._objects.classes, now=self.now, node=node
        )
        for contributor in contributors:
            task = contributor.adjusted(pod, task)
        return task

    def _watch_end(self, pod: views.Pod) -> None:
        """Translate a terminating pod again when its termination counts as stuck."""
        time = engine_task.stuck_from(pod) if pod.node_name else None
        if time is not None and time > self.now:
            heapq.heappush(self.ends, (time, pod.key))

    # ------------------------------------------------------------------ groups of pods

    def mark_dependent(self, group: str) -> None:
        """Mark a group with a translation that depends on its pods, after a change of the pods."""
        view = self._objects.groups.get(group)
        if view is not None:
            class_deleted = view.priority_class and self._objects.classes.is_gone(view.priority_class)
            if (
                view.subgroup_policies
                or class_deleted
                or self._objects.classes.protects(view.priority_class)
                or group in self._contributors.by_pods
                or group in self.flawed
            ):
                self._marks.members[group] = None
        elif not podgroups.is_implicit(group):
            self._marks.members[group] = None

    def _change_group(self, pod: str, group: str, out: list[deltas.Delta]) -> None:
        if pod in self._index.membership.group_of:
            self.leave_group(pod, out)
        self._index.join(pod, group)

    def leave_group(self, pod: str, out: list[deltas.Delta]) -> None:
        """Take a pod out of its group, if it is in one."""
        group = self._index.leave(pod)
        if group is None:
            return
        self._marks.reported[group] = None
        self.mark_dependent(group)
        if group not in self._index.membership.pods:
            if group in self._index.others:  # the group belongs to another scheduler now
                self._marks.groups[group] = None
            self._contributors.forget_pods(group)
            self.flawed.pop(group, None)
            self._retract_group(group, out)

    def _retract_group(self, group: str, out: list[deltas.Delta]) -> None:
        """Send the removal of a single pod's group when the engine no longer sees the pod."""
        if not self._index.defined(group):
            self._sent.retract_group(group, out)


def _fields(pod: views.Pod, group: str, contributors: Sequence[Contributor]) -> dict[str, Any]:
    """Return the arguments of ``task_of`` that contributors add."""
    fields: dict[str, Any] = {}
    for contributor in contributors:
        contributor.add_task_fields(pod, fields)
        if subgroup := contributor.subgroup_of(pod, group):
            fields["subgroup"] = subgroup
    return fields


def _extras(pod: views.Pod, place: Place, contributors: Sequence[Contributor]) -> Extras | None:
    """Return a pod's needs in addition to its spec; ``None`` without any."""
    fields: dict[str, Any] = {}
    for contributor in contributors:
        contributor.add_extras(pod, place, fields)
    return Extras(**fields) if fields else None


def as_assumed(task: Task, assumed: AssumedBind, sent: Task | None) -> Task:
    """Return the task as the engine holds it: the object sent before if nothing else changed."""
    if sent is not None and task == sent:
        return sent
    return altered(
        task, state=TaskState.ASSUMED, node=assumed.node, devices=assumed.devices, slices=assumed.slices
    )
