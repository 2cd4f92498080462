"""Views of groups and pods for the plugins of a tiered configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.engine.groups.entries import RUNNING, GroupEntry, TaskEntry
from windlass.engine.nodes.table import PODS
from windlass.engine.queues.flavors import held_flavors, required_flavors
from windlass.engine.queues.tree import QueueEntry
from windlass.spi import renamed
from windlass.spi.objects import Group, Node, Task


@renamed.attributes_of("GangView")
class EngineGangView:
    """View of a group. It always shows the present state, tentative evictions included."""

    __slots__ = ("entry",)

    def __init__(self, entry: GroupEntry) -> None:
        self.entry = entry

    @property
    def spec(self) -> Group:
        return self.entry.spec

    @property
    def held_members(self) -> int:
        return self.entry.held_members

    @property
    def nominated_members(self) -> int:
        return self.entry.nominations

    @property
    def members(self) -> int:
        return self.entry.held_members + len(self.entry.pending)

    @property
    def size(self) -> int:
        return len(self.entry.tasks)

    @property
    def running(self) -> int:
        return sum(entry.state is RUNNING for entry in self.entry.tasks.values())

    @property
    def finished(self) -> int:
        return self.entry.finished

    def ready(self) -> bool:
        return self.entry.ready()

    @property
    def path(self) -> Sequence[QueueEntry]:
        queue = self.entry.queue
        if queue is None:
            raise ValueError(f"group {self.entry.key} has no queue")
        return queue.path

    @property
    def holding(self) -> Mapping[str, int]:
        return self.entry.holding

    @property
    def requested(self) -> Mapping[str, int]:
        return self.entry.requested

    @property
    def queue(self) -> QueueEntry | None:
        return self.entry.queue

    def surplus(self) -> bool:
        return self.entry.surplus()


class EngineTaskView:
    """View of a pod."""

    __slots__ = ("entry", "gang", "node", "now")

    def __init__(self, entry: TaskEntry, gang: EngineGangView, now: float, node: Node | None = None) -> None:
        self.entry = entry
        self.gang = gang
        self.now = now
        self.node = node

    @property
    def task(self) -> Task:
        return self.entry.task

    @property
    def request(self) -> Mapping[str, int]:
        """Return the request, with the device models that it holds or that its selector names."""
        entry, queue = self.entry, self.gang.queue
        names = queue.tree.flavors if queue is not None else ()
        if not names:
            return entry.cls.request
        models = (
            held_flavors(entry.cls, self.node.labels, names)
            if self.node
            else required_flavors(entry.cls, names)
        )
        return {**entry.cls.request, **models}

    @property
    def running_seconds(self) -> float | None:
        started = self.entry.task.started
        return None if started is None else max(0.0, self.now - started)


def best_effort(entry: TaskEntry) -> bool:
    """Return whether a pod requests nothing."""
    return not any(units for name, units in entry.cls.items if name != PODS)
