"""Queues as policies see them, made by hand. Amounts in GPUs, cores and GiB are given in whole units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windlass.spi.objects import Dialect, Group, Queue, Resources, Task
from windlass.spi.plugins import QueueView
from windlass.spi.victims import Preemption, VictimSet

GPU = "nvidia.com/gpu"


@dataclass(eq=False)
class View:
    """A stand-in for :class:`~windlass.spi.plugins.QueueView`, as far as victim policies read it."""

    name: str
    spec: Queue
    parent: View | None = None
    committed: dict[str, int] = field(default_factory=dict)
    fair_share: dict[str, int] = field(default_factory=dict)
    allocated_nonpreemptible: dict[str, int] = field(default_factory=dict)
    cluster: dict[str, int] = field(default_factory=dict)

    @property
    def path(self) -> tuple[QueueView, ...]:
        found: list[View] = [self]
        while found[-1].parent is not None:
            found.append(found[-1].parent)
        return tuple(found)


def queue(
    name: str,
    *,
    held: int = 0,
    fair: int = 0,
    deserved: int | None = 0,
    limit: int | None = None,
    firm: int = 0,
    parent: View | None = None,
    dialect: Dialect = Dialect.KAI,
    **rest: object,
) -> View:
    """A queue of GPUs alone; CPU and memory are deserved without bound."""
    unlimited = ("cpu", "memory") if deserved is not None else ("cpu", "memory", GPU)
    spec = Queue(
        name,
        parent=parent.name if parent is not None else "",
        deserved={} if deserved is None else {GPU: deserved},
        capability={} if limit is None else {GPU: limit},
        unlimited=unlimited,
        dialect=dialect,
        **rest,
    )
    return View(
        name, spec, parent, {GPU: held}, {GPU: fair}, {GPU: firm}, {GPU: 100, "cpu": 100, "memory": 100}
    )


def claim(
    action: str,
    leaf: View,
    gpus: int = 1,
    *,
    now: float = 1000.0,
    request: Resources | None = None,
    **group: object,
) -> Preemption:
    kind = group.pop("dialect", leaf.spec.dialect)
    made = Group("ns/claimer", queue=leaf.name, dialect=kind, **group)
    return Preemption(action, made, request or {GPU: gpus}, 1, leaf.path, False, now)


def unit(
    leaf: View,
    gpus: int = 1,
    *,
    core: bool = True,
    spare: int = 0,
    ready: bool = True,
    request: Mapping[str, int] | None = None,
    tasks: tuple[Task, ...] = (),
    members: int = 1,
    size: int = 1,
    started: float | None = None,
    finished: int = 0,
    **group: object,
) -> VictimSet:
    made = Group("ns/victim", queue=leaf.name, dialect=leaf.spec.dialect, **group)
    return VictimSet(
        made, leaf.path, tasks, request or {GPU: gpus}, core, spare, ready, members, size, started, finished
    )
