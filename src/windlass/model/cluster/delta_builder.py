"""Translation of marked objects to the engine's deltas. Pure.

Each marked object is translated once, and sent only where it differs for the engine.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from msgspec.structs import replace as altered

from windlass.engine import deltas
from windlass.model.cluster import engine_node
from windlass.model.cluster.assumed_binds import AssumedBinds
from windlass.model.cluster.group_builder import GroupBuilder
from windlass.model.cluster.group_index import GroupIndex
from windlass.model.cluster.marks import IMPLIED, DirtyMarks, SentState
from windlass.model.cluster.object_cache import ObjectCache
from windlass.model.cluster.task_builder import TaskBuilder, as_assumed
from windlass.model.contributors.features import Features
from windlass.model.contributors.registry import NONE, Contributors
from windlass.model.devices import node_devices, reserved_devices
from windlass.model.devices.device_facts import DeviceIndex
from windlass.model.groups import member_counts, podgroups
from windlass.model.nodes import numa
from windlass.model.queues import engine_queue
from windlass.model.queues.resource_quota import quota_of
from windlass.spi.objects import Group, Queue, Task, TaskState

_PRUNE_AT_LEAST = 1024
"""Minimum number of cached needs at which those of deleted pods are dropped."""


class DeltaBuilder:
    """Translates what is marked, and remembers what it has sent to the engine."""

    def __init__(
        self,
        objects: ObjectCache,
        index: GroupIndex,
        groups: GroupBuilder,
        tasks: TaskBuilder,
        binds: AssumedBinds,
        marks: DirtyMarks,
        sent: SentState,
        contributors: Contributors,
        features: Features,
    ) -> None:
        self._objects = objects
        self._index = index
        self._groups = groups
        self._tasks = tasks
        self._binds = binds
        self._marks = marks
        self._sent = sent
        self._contributors = contributors
        self._features = features
        self._devices = DeviceIndex()
        self._prune_at = _PRUNE_AT_LEAST
        self._seen_vocabulary = 0
        self._reads_images = False

    # ------------------------------------------------------------------ deltas

    def take(self, now: float = 0.0, most: int | None = None) -> list[deltas.Delta]:
        """Return the deltas since the last call, in an order in which names mostly exist before they are named.

        ``now``: Unix seconds, for what time alone changes; 0.0: no termination is ever stuck. ``most``:
        maximum number of pods; the others come with the next calls.
        """
        marks, out = self._marks, list[deltas.Delta]()
        self._tasks.now = now
        self._mark_again(now)
        if marks.nodes:
            nodes, marks.nodes = marks.nodes, {}
            for name in nodes:
                self._translate_node(name, out)
        if marks.queues:
            queues, marks.queues = marks.queues, {}
            for name in queues:
                self._translate_queue(name, out)
        if self._devices.changed:
            self._learn_devices()
        if self._features.claims.stale_nodes and self._features.claims.pods:
            self._features.claims.learn_devices(self._objects.nodes)
        if marks.quotas:
            self._translate_quotas(out)
        groups, marks.groups = marks.groups, {}
        for key in groups:
            self._translate_group(key, out)
        for key in self._due_pods(most):
            self._tasks.translate(key, out)
        if self._features.budgets.index.dirty:
            out += self._features.budgets.take()
        if marks.members or marks.groups or marks.other_rules:
            self._translate_again(out)
        if len(self._objects.needs.table) > self._prune_at:
            self._prune()
        return out

    def _translate_again(self, out: list[deltas.Delta]) -> None:
        """Translate groups that depend on the pods that were translated, and pods that depend on those."""
        marks = self._marks
        groups, marks.members, marks.groups = marks.members | marks.groups, {}, {}
        for key in groups:
            self._translate_group(key, out)
        pods, marks.other_rules = marks.other_rules, {}
        for key in pods:
            self._tasks.translate(key, out)

    def _mark_again(self, now: float) -> None:
        """Mark what has to be translated again although none of its objects has changed."""
        objects, marks, ends = self._objects, self._marks, self._tasks.ends
        while ends and ends[0][0] <= now:
            marks.pods[heapq.heappop(ends)[1]] = None
        if self._seen_vocabulary != objects.vocabulary.version:
            self._seen_vocabulary = objects.vocabulary.version
            marks.mark_pods(objects.pods)
        if self._features.budgets.index.dirty:
            self._features.budgets.mark_reselected()
        if self._features.topology.index.stale:
            moved, retiered = self._features.topology.index.settle(objects.nodes)
            marks.mark_nodes(name for name in moved if name in objects.nodes)
            if retiered:
                self._features.topology.mark_all()

    def _due_pods(self, most: int | None) -> Iterable[str]:
        marks = self._marks
        if most is None or len(marks.pods) <= most:
            due, marks.pods = marks.pods, {}
            return due
        first = list(islice(marks.pods, most))
        for key in first:
            del marks.pods[key]
        return first

    def _prune(self) -> None:
        needs = self._objects.needs
        needs.retain({id(pod.shape) for pod in self._objects.pods.values()})
        self._prune_at = max(_PRUNE_AT_LEAST, 2 * len(needs.table))

    def resend(self) -> None:
        """Forget what was sent: the next :meth:`take` returns the whole state, for another engine."""
        objects, marks = self._objects, self._marks
        self._sent.clear()
        self._devices.clear()
        self._features.budgets.resend()
        objects.needs.reset()
        marks.nodes = dict.fromkeys(objects.nodes)
        marks.quotas = dict.fromkeys(objects.quotas)
        kai_queues = (engine_queue.KAI + name for name in objects.kai_queues)
        marks.queues = dict.fromkeys([*IMPLIED, *objects.queues, *kai_queues])
        marks.groups = dict.fromkeys(
            [*self._index.membership.pods, *objects.groups, *self._index.other_api_keys()]
        )
        marks.pods = dict.fromkeys(objects.pods)

    def read_labels(self, keys: Iterable[str], *, images: bool) -> None:
        """Include these pod labels (and container images) from the next :meth:`take` on."""
        objects = self._objects
        objects.vocabulary.read(keys)
        if images != self._reads_images:
            self._reads_images = objects.needs.images = images
            self._marks.mark_nodes(objects.nodes)
            self._marks.mark_pods(objects.pods)

    def sent_deltas(self) -> list[deltas.Delta]:
        """Return deltas of the state that the engine holds, without groups and pods."""
        sent = self._sent
        out: list[deltas.Delta] = [deltas.NodeUpserted(node) for node in sent.nodes.values()]
        out += [deltas.QueueUpserted(queue) for queue in sent.queues.values()]
        quotas = [quota for view in self._objects.quotas.values() if (quota := quota_of(view)) is not None]
        out += [deltas.NamespaceQuotaUpserted(quota) for quota in quotas]
        out += [deltas.BudgetUpserted(key, allowed) for key, allowed in self._features.budgets.allowed()]
        return out

    def sent_tasks(self) -> dict[str, Task]:
        """Return the tasks that the engine holds, by key, with decided binds as assumed."""
        tasks = dict(self._sent.tasks)
        for key, assumed in self._binds.assumed.items():
            task = tasks.get(key)
            if task is not None and task.state is TaskState.PENDING and assumed.uid == task.uid:
                tasks[key] = as_assumed(task, assumed, None)
        return tasks

    # ------------------------------------------------------------------ nodes, queues, quotas

    def _translate_node(self, name: str, out: list[deltas.Delta]) -> None:
        objects, features, sent = self._objects, self._features, self._sent
        claims, requests = features.claims, features.requests
        view = objects.nodes.get(name)
        if view is None:
            if sent.nodes.pop(name, None) is not None:
                if requests.reserved.note_node(name, plugin=False, devices=()):
                    requests.mark_all()
                self._devices.forget(name)
                claims.stale_nodes[name] = None
                out.append(deltas.NodeRemoved(name))
            return
        zones = numa.numa_zones_of(view, objects.numa.of(name))
        node = engine_node.node_of(
            view,
            features.volumes.index.limits.get(name),
            features.topology.index.labels_of(name),
            kai=bool(objects.kai_queues),
            zones=zones,
            listed=claims.index.listed_devices(name, claims.index.unowned(name, objects.pods)),
            images=self._reads_images,
        )
        plugin = node_devices.by_plugin(view)
        if requests.reserved.note_node(name, plugin=plugin, devices=node.devices):
            requests.mark_all()
        if plugin and requests.reserved.enabled:
            labels = {**node.labels, reserved_devices.BY_PLUGIN: ""}
            node = replace(
                node, labels=labels, devices=requests.reserved.allocatable_devices(name, node.devices)
            )
        if sent.nodes.get(name) != node:
            sent.nodes[name] = node
            self._devices.note(view, node)
            claims.stale_nodes[name] = None
            if zones is not None and not objects.needs.zoned:
                objects.needs.learn_zones()
                self._marks.mark_pods(objects.pods)
            out.append(deltas.NodeUpserted(node))

    def _learn_devices(self) -> None:
        """Charge device shares again if the cluster's devices, or what queues count, have changed."""
        facts, needs = self._devices.facts(self._sent.queues.values()), self._objects.needs
        if facts != needs.facts:
            needs.learn_devices(facts)
            self._features.requests.mark_all()

    def _translate_queue(self, name: str, out: list[deltas.Delta]) -> None:
        objects, sent = self._objects, self._sent
        queue: Queue | None = None
        if engine_queue.is_kai(name):
            kai = objects.kai_queues.get(engine_queue.plain(name))
            queue = None if kai is None else engine_queue.kai_queue_of(kai)
        elif (view := objects.queues.get(name)) is not None:
            queue = engine_queue.queue_of(view)
        elif self._is_implied(name):
            queue = engine_queue.implied(name)
        if queue is None:
            if sent.queues.pop(name, None) is not None:
                out.append(deltas.QueueRemoved(name))
        elif sent.queues.get(name) != queue:
            sent.queues[name] = queue
            self._devices.changed = True
            out.append(deltas.QueueUpserted(queue))
        if name not in IMPLIED:
            for implied in IMPLIED:
                self._translate_queue(implied, out)

    def _is_implied(self, name: str) -> bool:
        """Return whether ``root`` or ``default`` exists without an object.

        ``default`` exists while there is no other queue. Neither exists in a cluster
        that has only queues of KAI.
        """
        queues = self._objects.queues
        if self._objects.kai_queues and not queues:
            return False
        return name == engine_queue.ROOT or (
            name == engine_queue.DEFAULT and not any(known != engine_queue.ROOT for known in queues)
        )

    def _translate_quotas(self, out: list[deltas.Delta]) -> None:
        marked, self._marks.quotas = self._marks.quotas, {}
        views_ = self._objects.quotas
        for key in marked:
            quota = quota_of(views_[key]) if key in views_ else None
            out.append(deltas.NamespaceQuotaUpserted(quota) if quota else deltas.NamespaceQuotaRemoved(key))

    # ------------------------------------------------------------------ groups

    def _translate_group(self, key: str, out: list[deltas.Delta]) -> None:
        marks, sent, contributors = self._marks, self._sent, self._contributors
        marks.reported[key] = None
        for contributor in (*contributors.everywhere, *contributors.of_group.get(key, NONE)):
            contributor.group_translated(key)
        group = self._groups.group(key)
        if group is None:
            sent.retract_group(key, out)
            return
        if key in self._tasks.flawed and self._lacks_sound_pods(group):
            group = altered(group, held=True)
        if podgroups.kind_prefix(key) in podgroups.BY_PODS:
            before = sent.groups.get(key)
            if before is None or before.dialect is not group.dialect:
                marks.other_rules.update(self._index.membership.pods.get(key, {}))
        sent.send_group(group, out)

    def _lacks_sound_pods(self, group: Group) -> bool:
        """Return whether pods of the group contradict themselves, and too few others are left for its minimum."""
        pods, faults = list(self._index.pods_of(group.key)), self._tasks.faults
        sound = member_counts.count(pod for pod in pods if pod.key not in faults)
        active = sound.pending + sound.bound + sound.running + sound.succeeded
        return active < group.min_member and any(pod.key in faults for pod in pods)

    # ------------------------------------------------------------------ time, and changed groups

    def time_was_set(self) -> None:
        """Mark terminating pods: the next :meth:`take` may be of an earlier time than the last."""
        self._marks.mark_pods(key for key, pod in self._objects.pods.items() if pod.deleted)

    def next_change(self) -> float | None:
        """Return the Unix second at which time alone changes something (a termination counts as stuck)."""
        ends = self._tasks.ends
        return ends[0][0] if ends else None

    def take_changed(self) -> list[str]:
        """Return the groups with changed members, fields or own explanation since the last call."""
        changed = list(self._marks.reported)
        self._marks.reported.clear()
        return changed

    def show_all(self) -> None:
        """Mark all groups as changed. A scheduler that takes over checks the status of each."""
        for keys in (self._index.membership.pods, self._objects.groups, self._index.other_api_keys()):
            self._marks.reported.update(dict.fromkeys(keys))
