"""The model: typed views in, engine deltas out. Pure; remembers what it has told the engine.

Events only mark what they touch; :meth:`ClusterModel.take` translates what was touched, once, however
often it was. A delta is given only for what really changed for the engine: status updates of pods cost
nothing. A decided bind stays assumed here until the pod shows it (see ``assume``), so that a late
event about the still unbound pod does not undo it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.errors import FieldError
from windlass.api.reasons import Explanation
from windlass.engine import deltas
from windlass.model import faults, groups, members, nodes, queues, tasks
from windlass.model.needs import NeedsTable
from windlass.model.vocabulary import Vocabulary, selects_namespaces
from windlass.spi.objects import Group, Node, Queue, Task, TaskState

_IMPLIED = (queues.ROOT, queues.DEFAULT)
_PRUNE_AT_LEAST = 1024


@dataclass(frozen=True, slots=True)
class Assumed:
    """A bind that was decided and is not yet seen."""

    uid: str
    node: str
    devices: tuple[int, ...] = ()


class ClusterModel:
    """``scheduler_names``: whose pods are placed; all others only hold room where they are bound.

    ``wait_for_group``: scheduler names whose bare pods wait until a controller has given them a PodGroup.
    """

    def __init__(
        self, scheduler_names: Collection[str], *, wait_for_group: Collection[str] = frozenset()
    ) -> None:
        self.pods: dict[str, views.Pod] = {}
        self.nodes: dict[str, views.Node] = {}
        self.queues: dict[str, views.Queue] = {}
        self.groups: dict[str, views.PodGroup] = {}
        self.assumed: dict[str, Assumed] = {}
        self.classes = groups.Classes()
        self._scheduler_names = frozenset(scheduler_names)
        self._wait_for_group = frozenset(wait_for_group)
        self._namespaces: dict[str, views.Namespace] = {}
        self._namespace_labels: dict[str, dict[str, str]] = {}
        self._vocabulary = Vocabulary()
        self._needs = NeedsTable(self._vocabulary, self._namespace_labels)
        self._prune_at = _PRUNE_AT_LEAST
        self._seen_vocabulary = 0
        self._dirty_pods: dict[str, None] = {}
        self._dirty_groups: dict[str, None] = {}
        self._dirty_nodes: dict[str, None] = {}
        self._dirty_queues: dict[str, None] = dict.fromkeys(_IMPLIED)
        self._changed: dict[str, None] = {}
        self._members: dict[str, dict[str, None]] = {}
        self._group_of: dict[str, str] = {}
        self._faults: dict[str, tuple[FieldError, ...]] = {}
        self._sent_tasks: dict[str, Task] = {}
        self._sent_groups: dict[str, Group] = {}
        self._sent_nodes: dict[str, Node] = {}
        self._sent_queues: dict[str, Queue] = {}

    # ------------------------------------------------------------------ events

    def manages(self, pod: views.Pod) -> bool:
        """Whether this scheduler places the pod."""
        return pod.scheduler_name in self._scheduler_names

    def upsert_pod(self, pod: views.Pod) -> None:
        self.pods[pod.key] = pod
        self._dirty_pods[pod.key] = None
        self._vocabulary.learn(pod.shape)

    def remove_pod(self, key: str) -> None:
        if self.pods.pop(key, None) is not None:
            self._dirty_pods[key] = None

    def upsert_node(self, node: views.Node) -> None:
        self.nodes[node.name] = node
        self._dirty_nodes[node.name] = None

    def remove_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self._dirty_nodes[name] = None

    def upsert_queue(self, queue: views.Queue) -> None:
        self.queues[queue.name] = queue
        self._dirty_queues[queue.name] = None

    def remove_queue(self, name: str) -> None:
        if self.queues.pop(name, None) is not None:
            self._dirty_queues[name] = None

    def upsert_group(self, group: views.PodGroup) -> None:
        self.groups[group.key] = group
        self._dirty_groups[group.key] = None

    def remove_group(self, key: str) -> None:
        if self.groups.pop(key, None) is not None:
            self._dirty_groups[key] = None

    def upsert_class(self, priority_class: views.PriorityClass) -> None:
        if self.classes.upsert(priority_class):
            self._dirty_groups.update(dict.fromkeys(self.groups))
            self._touch_unresolved_pods()

    def remove_class(self, name: str) -> None:
        if self.classes.remove(name):
            self._dirty_groups.update(dict.fromkeys(self.groups))
            self._touch_unresolved_pods()

    def upsert_namespace(self, namespace: views.Namespace) -> None:
        old = self._namespaces.get(namespace.name)
        self._namespaces[namespace.name] = namespace
        labels = dict(namespace.labels)
        labels.setdefault("kubernetes.io/metadata.name", namespace.name)
        if self._namespace_labels.get(namespace.name) != labels:
            self._namespace_labels[namespace.name] = labels
            self._touch_namespace_selectors()
        if (old.annotations if old else {}) != namespace.annotations:
            prefix = f"{namespace.name}/"
            self._dirty_pods.update((key, None) for key in self.pods if key.startswith(prefix))

    def remove_namespace(self, name: str) -> None:
        if self._namespaces.pop(name, None) is not None:
            del self._namespace_labels[name]
            self._touch_namespace_selectors()

    def assume(self, key: str, uid: str, node: str, devices: tuple[int, ...] = ()) -> None:
        """A bind was decided. The engine knows it already."""
        self.assumed[key] = Assumed(uid, node, devices)

    def forget(self, key: str, uid: str) -> bool:
        """The bind has been seen, or will not come. Whether it was still assumed."""
        found = self.assumed.get(key)
        if found is None or found.uid != uid:
            return False
        del self.assumed[key]
        return True

    # ------------------------------------------------------------------ questions

    def pods_of(self, group: str) -> Iterator[views.Pod]:
        """The pods of a group, as of the last :meth:`take`."""
        for key in self._members.get(group, ()):
            pod = self.pods.get(key)
            if pod is not None:
                yield pod

    def members(self, group: str) -> members.Members:
        return members.count(self.pods_of(group))

    def blocked(self, group: str) -> bool:
        """Whether the group lacks its minimum, binds under way counted as done."""
        view = self.groups.get(group)
        if view is not None:
            return not members.holds_minimum(view, self.pods_of(group), self.assumed)
        return any(not pod.node_name and pod.key not in self.assumed for pod in self.pods_of(group))

    def group_of(self, key: str) -> str | None:
        """The group of a managed pod, as of the last :meth:`take`."""
        return self._group_of.get(key)

    def explanation(self, group: str) -> Explanation | None:
        """What the translation itself holds against a group; ``None`` if the engine has the word."""
        found: dict[str, tuple[FieldError, ...]] = {}
        view = self.groups.get(group)
        if view is not None:
            problems = groups.group_problems(view)
            if problems:
                found[f"PodGroup {group}"] = problems
        for key in self._members.get(group, ()):
            if key in self._faults:
                found[f"pod {key}"] = self._faults[key]
        if found:
            return faults.misconfigured(group, found)
        if view is None and self._members.get(group):
            pending = [pod for pod in self.pods_of(group) if not pod.node_name and not pod.finished]
            if pending and not groups.is_implicit(group):
                return faults.group_missing(group, len(pending))
            if pending and self._awaits_group(pending[0]):
                return faults.group_awaited(pending[0].key)
        return None

    def queue_of(self, group: str) -> str:
        """The queue of a group that the engine knows; ``""`` of another."""
        sent = self._sent_groups.get(group)
        return sent.queue if sent is not None else ""

    def known(self, group: str) -> bool:
        """Whether the group has an object or pods."""
        return group in self.groups or group in self._members

    def take_changed(self) -> list[str]:
        """Groups whose members, fields or own explanation changed since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    # ------------------------------------------------------------------ translation

    def take(self) -> list[deltas.Delta]:
        """The deltas since the last call, in an order in which names mostly exist before they are named."""
        if self._seen_vocabulary != self._vocabulary.version:
            self._seen_vocabulary = self._vocabulary.version
            self._dirty_pods.update(dict.fromkeys(self.pods))
        out: list[deltas.Delta] = []
        for name in self._swap("_dirty_nodes"):
            self._translate_node(name, out)
        for name in self._swap("_dirty_queues"):
            self._translate_queue(name, out)
        for key in self._swap("_dirty_groups"):
            self._translate_group(key, out)
        for key in self._swap("_dirty_pods"):
            self._translate_pod(key, out)
        if len(self._needs) > self._prune_at:
            self._needs.retain({id(pod.shape) for pod in self.pods.values()})
            self._prune_at = max(_PRUNE_AT_LEAST, 2 * len(self._needs))
        return out

    def _swap(self, attribute: str) -> dict[str, None]:
        dirty: dict[str, None] = getattr(self, attribute)
        if dirty:
            setattr(self, attribute, {})
        return dirty

    def _translate_node(self, name: str, out: list[deltas.Delta]) -> None:
        view = self.nodes.get(name)
        if view is None:
            if self._sent_nodes.pop(name, None) is not None:
                out.append(deltas.NodeRemoved(name))
            return
        node = nodes.node_of(view)
        if self._sent_nodes.get(name) != node:
            self._sent_nodes[name] = node
            out.append(deltas.NodeUpserted(node))

    def _translate_queue(self, name: str, out: list[deltas.Delta]) -> None:
        view = self.queues.get(name)
        queue: Queue | None = None
        if view is not None:
            queue = queues.queue_of(view)
        elif name == queues.ROOT or (name == queues.DEFAULT and not self._real_queues()):
            queue = queues.implied(name)
        if queue is None:
            if self._sent_queues.pop(name, None) is not None:
                out.append(deltas.QueueRemoved(name))
        elif self._sent_queues.get(name) != queue:
            self._sent_queues[name] = queue
            out.append(deltas.QueueUpserted(queue))
        if name not in _IMPLIED:
            self._translate_queue(queues.DEFAULT, out)

    def _real_queues(self) -> bool:
        return any(name != queues.ROOT for name in self.queues)

    def _translate_group(self, key: str, out: list[deltas.Delta]) -> None:
        self._changed[key] = None
        view = self.groups.get(key)
        if view is None:
            if self._sent_groups.pop(key, None) is not None:
                out.append(deltas.GroupRemoved(key))
            return
        self._send_group(groups.group_of(view, self.classes), out)

    def _send_group(self, group: Group, out: list[deltas.Delta]) -> None:
        if self._sent_groups.get(group.key) != group:
            self._sent_groups[group.key] = group
            out.append(deltas.GroupUpserted(group))

    def _translate_pod(self, key: str, out: list[deltas.Delta]) -> None:
        pod = self.pods.get(key)
        sent = self._sent_tasks.get(key)
        if sent is not None and (pod is None or pod.uid != sent.uid):
            self._retract(key, sent, out)
            sent = None
        if pod is None:
            self._leave_group(key, out)
            self._faults.pop(key, None)
            self.assumed.pop(key, None)
            return
        if not self.manages(pod):
            self._leave_group(key, out)
            task = self._foreign(pod)
        else:
            task = self._managed(pod, out)
        if task is None:
            if sent is not None:
                self._retract(key, sent, out)
            self._retract_group(groups.group_key(pod), out)
        elif task != sent:
            self._sent_tasks[key] = task
            out.append(deltas.TaskUpserted(task))

    def _foreign(self, pod: views.Pod) -> Task | None:
        if not pod.node_name or pod.finished:
            return None
        return tasks.task_of(pod, tasks.FOREIGN, self._needs.of(pod).needs, self.classes)

    def _managed(self, pod: views.Pod, out: list[deltas.Delta]) -> Task | None:
        """The task, or None where the engine must not see the pod (yet, or any more)."""
        key = groups.group_key(pod)
        if self._group_of.get(pod.key) != key:
            self._leave_group(pod.key, out)
            self._group_of[pod.key] = key
            self._members.setdefault(key, {})[pod.key] = None
        self._changed[key] = None
        translated = self._needs.of(pod)
        waiting = not pod.node_name and not pod.finished
        problems = (*pod.problems, *translated.problems)
        if problems and waiting:
            self._faults[pod.key] = problems
            return None
        self._faults.pop(pod.key, None)
        if waiting and (pod.deleted or self._awaits_group(pod)):
            return None
        if groups.is_implicit(key):
            namespace = self._namespaces.get(pod.namespace)
            fallback = namespace.annotations.get(names.QUEUE_NAME_VOLCANO, "") if namespace else ""
            self._send_group(groups.implicit_group(pod, self.classes, fallback), out)
        task = tasks.task_of(pod, key, translated.needs, self.classes)
        assumed = self.assumed.get(pod.key)
        if assumed is not None and waiting and assumed.uid == pod.uid:
            return _as_assumed(task, assumed, self._sent_tasks.get(pod.key))
        return task

    def _awaits_group(self, pod: views.Pod) -> bool:
        return pod.scheduler_name in self._wait_for_group and not groups.group_name(pod)

    def _retract(self, key: str, sent: Task, out: list[deltas.Delta]) -> None:
        del self._sent_tasks[key]
        out.append(deltas.TaskRemoved(key, sent.uid))

    def _leave_group(self, key: str, out: list[deltas.Delta]) -> None:
        group = self._group_of.pop(key, None)
        if group is None:
            return
        self._changed[group] = None
        mates = self._members[group]
        del mates[key]
        if not mates:
            del self._members[group]
            self._retract_group(group, out)

    def _retract_group(self, group: str, out: list[deltas.Delta]) -> None:
        """Take back the group of one of a pod that the engine sees no more."""
        if group not in self.groups and self._sent_groups.pop(group, None) is not None:
            out.append(deltas.GroupRemoved(group))

    def _touch_unresolved_pods(self) -> None:
        """Pods whose priority the server did not resolve."""
        self._dirty_pods.update((key, None) for key, pod in self.pods.items() if pod.priority is None)

    def _touch_namespace_selectors(self) -> None:
        self._needs.namespaces_changed()
        if self._vocabulary.active:
            self._dirty_pods.update(
                (key, None) for key, pod in self.pods.items() if selects_namespaces(pod.shape)
            )


def _as_assumed(task: Task, assumed: Assumed, sent: Task | None) -> Task:
    """The task as the engine holds it; what was sent before the decision, if nothing else changed."""
    if sent is not None and task == sent:
        return sent
    return Task(
        key=task.key,
        uid=task.uid,
        group=task.group,
        needs=task.needs,
        role=task.role,
        index=task.index,
        priority=task.priority,
        state=TaskState.ASSUMED,
        node=assumed.node,
        devices=assumed.devices,
        gated=task.gated,
        preemptible=task.preemptible,
        created=task.created,
    )
