"""Exchange of two pods with equal device shares, so that a device with free capacity becomes usable.

CPU or memory is missing next to that device. ``x``, a pod on the same node, moves to the place of ``y`` on another
node. ``y`` has an equal device share and uses less of the missing resource; it moves to the place of ``x``. Both are
moved; pods without devices cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windlass.engine.groups.entries import TaskEntry
from windlass.plugins.devices.device_arrays import WHOLE, request_of
from windlass.sim.defragmentation.free_capacity import FreeCapacity, asks, milli_of
from windlass.spi.devices import DeviceNeed
from windlass.spi.nodes import IntArray
from windlass.spi.objects import Needs

ROWS = 24
"""On so many nodes, those that lack least, it is tried."""
Shape = tuple[int, int, int]
"""Number of devices, and the share of each: milli, and MiB of memory."""


@dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """Request for an exchange. ``most``: maximum cost in milli. ``movable``: test for movable pods."""

    most: int
    movable: Callable[[TaskEntry], bool]


@dataclass(frozen=True, slots=True)
class _Alike:
    """Pods of one class. ``cpu``, ``memory``: what each asks for; ``rows``: where they are."""

    entries: Sequence[TaskEntry]
    cpu: int
    memory: int
    rows: IntArray

    def taking(self, entry: TaskEntry, row: int, free: FreeCapacity) -> TaskEntry | None:
        """Return a candidate such that its node, without it, fits the pod that is now on ``row``."""
        cpu, memory = asks(entry, "cpu") - self.cpu, asks(entry, "memory") - self.memory
        fits = (self.rows != row) & (free.cpu[self.rows] >= cpu) & (free.memory[self.rows] >= memory)
        fits &= free.possible(entry)[self.rows]
        if not free.possible(self.entries[0])[row]:
            return None
        at = int(fits.argmax())
        return self.entries[at] if fits[at] else None


def relief(
    needs: Needs,
    need: DeviceNeed,
    milli: IntArray,
    free: FreeCapacity,
    tasks: Sequence[Mapping[str, TaskEntry]],
    terms: ExchangeRequest,
) -> Sequence[TaskEntry]:
    """Return the cheapest pair of pods such that their exchange frees capacity for a pod; empty if none does.

    The first is on the node that the pod then fits on. ``milli``: share that the pod takes of each device, nodes ×
    slots. ``tasks``: by node.
    """
    amounts = dict(needs.request)
    short_cpu = np.maximum(amounts.get("cpu", 0) - free.cpu, 0)
    short_memory = np.maximum(amounts.get("memory", 0) - free.memory, 0)
    room = ((free.cards >= milli) & (milli <= WHOLE)).sum(axis=1) >= need.count
    rows = np.flatnonzero(room & ((short_cpu > 0) | (short_memory > 0)))
    if not len(rows):
        return ()
    order = np.lexsort((short_memory[rows], short_cpu[rows]))
    alike = _by_shape(tasks, terms)
    best: Sequence[TaskEntry] = ()
    most = terms.most
    for row in rows[order][:ROWS].tolist():
        lacks = int(short_cpu[row]), int(short_memory[row])
        for pair in _pairs(row, lacks, tasks[row], alike, free, terms):
            if (cost := sum(map(milli_of, pair))) <= most:
                best, most = pair, cost - 1
                break
        if most < 0:
            break
    return best


def _pairs(
    row: int,
    lacks: tuple[int, int],
    there: Mapping[str, TaskEntry],
    alike: Mapping[Shape, Sequence[_Alike]],
    free: FreeCapacity,
    terms: ExchangeRequest,
) -> Iterator[tuple[TaskEntry, TaskEntry]]:
    """Exchanges that give the node what it lacks, cheapest first."""
    seen: set[int] = set()
    for entry in sorted(there.values(), key=milli_of):
        if entry.cls.number in seen or 2 * milli_of(entry) > terms.most or not terms.movable(entry):
            continue
        seen.add(entry.cls.number)
        cpu, memory = asks(entry, "cpu") - lacks[0], asks(entry, "memory") - lacks[1]
        for others in alike.get(_shape(entry), ()):
            if others.cpu <= cpu and others.memory <= memory:
                found = others.taking(entry, row, free)
                if found is not None:
                    yield entry, found


def _by_shape(tasks: Sequence[Mapping[str, TaskEntry]], terms: ExchangeRequest) -> dict[Shape, list[_Alike]]:
    classes: dict[int, list[TaskEntry]] = {}
    for there in tasks:
        for entry in there.values():
            if 2 * milli_of(entry) <= terms.most and terms.movable(entry):
                classes.setdefault(entry.cls.number, []).append(entry)
    found: dict[Shape, list[_Alike]] = {}
    for entries in classes.values():
        one = entries[0]
        rows = np.array([entry.row for entry in entries], dtype=np.int64)
        found.setdefault(_shape(one), []).append(_Alike(entries, asks(one, "cpu"), asks(one, "memory"), rows))
    return found


def _shape(entry: TaskEntry) -> Shape:
    asked = request_of(entry.cls.needs)
    return (asked[0].count, max(asked[0].milli, 1), asked[0].memory_mib) if asked else (0, 0, 0)
