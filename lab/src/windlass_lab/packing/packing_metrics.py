"""Metrics of a packing run: allocated capacity, and the fragmented part of free capacity.

They are computed from the placements alone, in thousandths of devices. Unnamed whole devices are the first free ones;
the choice does not change any metric.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from statistics import fmean

from windlass.plugins.devices.fragmentation import WorkloadMix
from windlass.sim.jobs import WHOLE
from windlass.sim.traces.openb import OpenbNode, OpenbPod

Placed = tuple[int, tuple[int, ...]]
"""Number of the node, and the devices (none: the first free ones)."""
Moved = tuple[int, Placed]
"""Number of the pod, and its new place."""


class PackingMetrics:
    """``points``: percent arrived at which there are figures."""

    def __init__(self, nodes: Sequence[OpenbNode], mix: WorkloadMix, points: Collection[int]) -> None:
        self.capacity = WHOLE * sum(node.gpus for node in nodes)
        self._mix = mix
        self._points = sorted(points)
        self._groups = [mix.group(node.model) for node in nodes]
        self.cpu = [node.cpu_milli for node in nodes]
        self.free = [[WHOLE] * node.gpus for node in nodes]
        self.arrived = 0
        self.taken = 0
        self.moved = 0
        """Thousandths of devices that were moved."""
        self._entered = 0
        self._pods: list[OpenbPod] = []
        self._seats: dict[int, Placed] = {}
        self._fragments: list[int] | None = None
        self._sum = 0
        self._cells: dict[int, list[tuple[float, float, float]]] = {}
        """Percent arrived → what is allocated, fragmented and was moved, moment by moment."""

    def enter(self, pod: OpenbPod, placed: Placed | None, moved: Sequence[Moved] = ()) -> None:
        """Record an arriving pod with its placement (``None``: rejected) and the pods moved for it."""
        self._jump(self._percent(self.arrived), self._percent(self.arrived + pod.demand))
        self.arrived += pod.demand
        number = self._entered
        self._entered += 1
        self._pods.append(pod)
        for one, _ in moved:
            self._leave(one)
        if placed is not None:
            self._put(number, placed)
        for one, to in moved:
            self._put(one, to)
            self.moved += self._pods[one].demand
        percent = self._percent(self.arrived)
        if percent in self._points:
            self._note(percent)
        else:
            self._fragments = None  # counted again at the next read

    def close(self, goal: int) -> None:
        """No more pods come. Points up to ``goal``, the percent that were to come, have the last figures: the next pod
        would have been too large."""
        self._jump(self._percent(self.arrived), goal + 1)

    def _percent(self, arrived: int) -> int:
        return round(100 * arrived / self.capacity) if self.capacity else 0

    def _jump(self, before: int, after: int) -> None:
        """Points that no moment has get the figures of the last moment before them."""
        for point in self._points:
            if before < point < after:
                self._note(point)

    def _note(self, percent: int) -> None:
        self._cells.setdefault(percent, []).append(self._now())

    def allocated(self) -> dict[int, float]:
        """Percent arrived → percent of the capacity that is allocated. A point that was not reached is left out."""
        return self._means(0)

    def fragmented(self) -> dict[int, float]:
        """The same of what is fragmented."""
        return self._means(1)

    def migrated(self) -> dict[int, float]:
        """The same of what was moved by then, in percent of what runs."""
        return self._means(2)

    def _means(self, which: int) -> dict[int, float]:
        return {at: fmean(moment[which] for moment in cell) for at, cell in sorted(self._cells.items())}

    def _leave(self, number: int) -> None:
        pod, (node, cards) = self._pods[number], self._seats.pop(number)
        self.cpu[node] += pod.cpu_milli
        for card in cards:
            self.free[node][card] += pod.gpu_milli
        self.taken -= pod.demand
        self._renew(node)

    def _put(self, number: int, placed: Placed) -> None:
        pod, (node, named) = self._pods[number], placed
        cards = named or tuple(self.first_free(node, pod.gpus))
        self._seats[number] = (node, cards)
        self.cpu[node] -= pod.cpu_milli
        for card in cards:
            self.free[node][card] -= pod.gpu_milli
        self.taken += pod.demand
        self._renew(node)

    def first_free(self, node: int, count: int) -> list[int]:
        return [card for card, milli in enumerate(self.free[node]) if milli == WHOLE][:count]

    def _renew(self, node: int) -> None:
        if self._fragments is not None:
            found = self._fragment(node)
            self._sum += found - self._fragments[node]
            self._fragments[node] = found

    def _fragment(self, node: int) -> int:
        free = self.free[node]
        return self._mix.fragment(self._groups[node], self._mix.level(self.cpu[node]), free) if free else 0

    def _now(self) -> tuple[float, float, float]:
        if self._fragments is None:
            self._fragments = [self._fragment(node) for node in range(len(self.cpu))]
            self._sum = sum(self._fragments)
        part = 100.0 / self.capacity
        fragmented = part * self._sum / max(self._mix.total, 1)
        return part * self.taken, fragmented, 100.0 * self.moved / max(self.taken, 1)
