"""Marks for repeated translation, and the state that was last sent to the engine."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.engine import deltas
from windlass.model.queues import engine_queue
from windlass.spi.objects import Group, Node, Queue, Task

IMPLIED = (engine_queue.ROOT, engine_queue.DEFAULT)
"""Queues that exist without an object."""


class DirtyMarks:
    """Keys of the objects that have changed since the last translation, in order."""

    __slots__ = ("groups", "members", "nodes", "other_rules", "pods", "queues", "quotas", "reported")

    def __init__(self) -> None:
        self.pods: dict[str, None] = {}
        self.groups: dict[str, None] = {}
        self.nodes: dict[str, None] = {}
        self.queues: dict[str, None] = dict.fromkeys(IMPLIED)
        self.quotas: dict[str, None] = {}
        self.members: dict[str, None] = {}
        """Groups that depend on their pods, after a change of the pods."""
        self.other_rules: dict[str, None] = {}
        """Pods of groups that moved to a queue of another API."""
        self.reported: dict[str, None] = {}
        """Groups with changed members, fields or own explanation since they were last reported."""

    def mark_pods(self, keys: Iterable[str]) -> None:
        """Translate these pods again."""
        self.pods.update(dict.fromkeys(keys))

    def mark_nodes(self, names: Iterable[str]) -> None:
        """Translate these nodes again."""
        self.nodes.update(dict.fromkeys(names))

    def mark_groups(self, keys: Iterable[str]) -> None:
        """Translate these groups again."""
        self.groups.update(dict.fromkeys(keys))


class SentState:
    """Nodes, queues, groups and tasks as they were last sent to the engine, by key.

    A delta is created only for what differs from that.
    """

    __slots__ = ("groups", "nodes", "queues", "tasks")

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.groups: dict[str, Group] = {}
        self.nodes: dict[str, Node] = {}
        self.queues: dict[str, Queue] = {}

    def clear(self) -> None:
        """Forget everything, for another engine."""
        for sent in (self.tasks, self.groups, self.nodes, self.queues):
            sent.clear()

    def send_group(self, group: Group, out: list[deltas.Delta]) -> None:
        """Send a group that is new or has changed."""
        if self.groups.get(group.key) != group:
            self.groups[group.key] = group
            out.append(deltas.GroupUpserted(group))

    def retract_group(self, key: str, out: list[deltas.Delta]) -> None:
        """Send the removal of a group, if the engine knows it."""
        if self.groups.pop(key, None) is not None:
            out.append(deltas.GroupRemoved(key))

    def retract_task(self, key: str, out: list[deltas.Delta]) -> None:
        """Send the removal of a task, if the engine knows it."""
        task = self.tasks.pop(key, None)
        if task is not None:
            out.append(deltas.TaskRemoved(key, task.uid))


class Membership:
    """Pods by group, as of the last translation."""

    __slots__ = ("group_of", "pods")

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, None]] = {}
        """Group → keys of its pods."""
        self.group_of: dict[str, str] = {}
        """Pod → its group."""
