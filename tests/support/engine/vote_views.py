"""As much of queues, gangs and pods as Volcano's votes read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.spi.objects import Group, Needs, Node, Queue, Task
from windlass.spi.plugins import Rejection

GPU = "nvidia.com/gpu"
TOTAL = {"cpu": 100, GPU: 10, "pods": 100}


@dataclass(eq=False)
class FakeQueue:
    """As much of a queue as votes read."""

    spec: Queue
    parent: FakeQueue | None = None
    committed: Mapping[str, int] = field(default_factory=dict)
    fair_share: Mapping[str, int] = field(default_factory=dict)
    real_capability: Mapping[str, int] = field(default_factory=dict)
    cluster: Mapping[str, int] = field(default_factory=lambda: TOTAL)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def path(self) -> list[FakeQueue]:
        return [self, *(self.parent.path if self.parent else ())]


@dataclass(eq=False)
class FakeGang:
    spec: Group
    queue: FakeQueue
    held_members: int = 0
    nominated_members: int = 0
    members: int = 0
    size: int = 0
    running: int = 0
    finished: int = 0
    holding: Mapping[str, int] = field(default_factory=dict)

    @property
    def path(self) -> Sequence[Any]:
        return self.queue.path

    def ready(self) -> bool:
        return self.held_members >= self.spec.min_member


@dataclass(eq=False)
class FakeTask:
    task: Task
    gang: FakeGang
    request: Mapping[str, int]
    running_seconds: float | None = None
    node: Node | None = None


def queue(name: str = "q", parent: FakeQueue | None = None, **rest: Any) -> FakeQueue:
    views = {key: rest.pop(key) for key in ("committed", "fair_share", "real_capability") if key in rest}
    return FakeQueue(Queue(name, **rest), parent, **views)


def gang_of(name: str = "g", of: FakeQueue | None = None, **rest: Any) -> FakeGang:
    numbers = {
        key: rest.pop(key)
        for key in ("held_members", "nominated_members", "members", "size", "running", "finished", "holding")
        if key in rest
    }
    return FakeGang(Group(name, **rest), of or queue(), **numbers)


def pod(name: str, of: FakeGang, request: Mapping[str, int] | None = None, **rest: Any) -> FakeTask:
    running = rest.pop("running_seconds", None)
    needs = Needs(request=tuple(sorted((request or {GPU: 1}).items())))
    return FakeTask(Task(name, name, of.spec.key, needs, **rest), of, request or {GPU: 1}, running)


def names(found: Sequence[Any] | None) -> list[str] | None:
    return None if found is None else [task.task.key for task in found]


def refused(answer: object) -> bool:
    return isinstance(answer, Rejection)
