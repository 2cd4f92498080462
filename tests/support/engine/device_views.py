"""Nodes with cards, and what stands on them, as policies see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windlass.engine.deltas import GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.engine.engine import Engine
from windlass.engine.nodes.view import TableView
from windlass.engine.state.capacity_totals import CapacityTotals
from windlass.plugins.nodes.resources import ResourcesFit
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Device, Group, Needs, Node, Queue, Task, TaskState

GPU = "nvidia.com/gpu"
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Box:
    """``zones`` and ``links``: the NUMA zone and the set of linked cards of each card, if known. ``slots``: how many
    may share a card."""

    name: str
    cards: int = 8
    model: str = "NVIDIA-A100-SXM4-80GB"
    memory_mib: int = 81920
    cpu: float = 64
    memory_gib: float = 256
    zones: Sequence[int] = ()
    links: Sequence[int] = ()
    slots: int = 0

    def node(self) -> Node:
        devices = tuple(
            Device(
                index,
                GPU,
                self.model,
                self.memory_mib,
                numa=self.zones[index] if self.zones else -1,
                link_group=self.links[index] if self.links else -1,
                slots=self.slots,
            )
            for index in range(self.cards)
        )
        amounts = {"cpu": round(self.cpu * 1000), "memory": round(self.memory_gib * GIB), "pods": 250}
        if self.cards:
            amounts[GPU] = self.cards * 1000
        return Node(self.name, amounts, {"kubernetes.io/hostname": self.name}, devices=devices)


def whole(count: int = 1, cpu: float = 1, **wishes: object) -> Needs:
    """A pod with whole cards; with ``wishes``, fields of :class:`DeviceNeed`, of a certain kind."""
    request = (("cpu", round(cpu * 1000)), (GPU, count * 1000))
    if not wishes:
        return Needs(request)
    return Needs(request, devices=(DeviceNeed(GPU, count, 1000, **wishes),))  # type: ignore[arg-type]


def part(milli: int = 0, cpu: float = 1, **more: object) -> Needs:
    """A pod with a part of one card: compute in milli, ``memory_mib=…``, fields of :class:`DeviceNeed`."""
    need = DeviceNeed(GPU, 1, milli, **more)  # type: ignore[arg-type]
    return Needs((("cpu", round(cpu * 1000)), (GPU, max(milli, 1))), devices=(need,))


def plain(cpu: float) -> Needs:
    return Needs((("cpu", round(cpu * 1000)),))


class Cards:
    """A cluster of boxes, on which pods run where they are put."""

    def __init__(self, *boxes: Box, policies: Sequence[object] = ()) -> None:
        self.engine = Engine(None, [ResourcesFit(), *policies])
        self.engine.apply([QueueUpserted(Queue("default")), *(NodeUpserted(box.node()) for box in boxes)])
        self._made = 0

    def put(self, node: str, needs: Needs, *indices: int, state: TaskState = TaskState.RUNNING) -> None:
        """A running pod, on the cards of these indices."""
        key = self._key()
        task = Task(f"{key}-0", key, key, needs, state=state, node=node, devices=indices)
        self.engine.apply([GroupUpserted(Group(key, uid=key, admitted=True)), TaskUpserted(task)])

    def ask(self, needs: Needs) -> str:
        """A pod that waits; returns its group's key."""
        key = self._key()
        self.engine.apply(
            [
                GroupUpserted(Group(key, uid=key, admitted=True, created=float(self._made))),
                TaskUpserted(Task(f"{key}-0", key, key, needs)),
            ]
        )
        return key

    def place(self, needs: Needs, now: float = 1.0) -> tuple[str, tuple[int, ...]]:
        """Where such a pod goes: node and cards; empty if nowhere."""
        key = self.ask(needs)
        for bind in self.engine.cycle(now).binds:
            if bind.group == key:
                return bind.node, tuple(share.index for share in bind.devices)
        return "", ()

    @property
    def view(self) -> TableView:
        return TableView(self.engine.state.table)

    @property
    def stock(self) -> CapacityTotals:
        return CapacityTotals(self.engine.state)

    def kinds(self) -> list[tuple[Needs, int]]:
        return [(cls.needs, cls.tasks) for cls in self.engine.state.classes if cls.tasks]

    def _key(self) -> str:
        self._made += 1
        return f"d/g{self._made}"
