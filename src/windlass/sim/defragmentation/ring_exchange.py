"""Cyclic exchange of pods that merges unusable gaps on devices into one that another pod fits into.

``x`` holds a share of a device with a gap. It moves to the place of a smaller share ``y``, which has a gap for the
difference on its device. ``y`` moves to the place of a still smaller share, and so on. The last pod moves to the old
place of ``x``, or to a gap of its own. The gap on the first device grows by the difference of the first and the last
share. All pods of the ring are moved. The same can be repeated for a second share of that device.

Pods of one class are equal, so steps are searched between classes. A step goes to the host (a pod and its device) with
the smallest remaining gap. If a host would be used twice, the next best ring is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windlass.engine.groups.entries import TaskEntry
from windlass.plugins.devices.device_arrays import WHOLE
from windlass.sim.defragmentation.free_capacity import FreeCapacity, MoveStep, asks, milli_of
from windlass.spi.nodes import BoolArray, FloatArray, IntArray
from windlass.spi.objects import Needs

STEPS = 3
"""Maximum number of pods moved on other devices for one pod of the device."""
TRIES = 16
"""Maximum number of rings checked for a host that is used twice."""
PAIRS = 64
"""On so many devices two rings are tried, those where they would leave most."""
FAR = 1e18
NOWHERE = -1
"""Row of a pod without a decided place."""


@dataclass(frozen=True, slots=True)
class _Hosts:
    """Pods with a share of one device, by class.

    Arrays over them: ``number`` of the class among :attr:`firsts`, ``here``: share it takes of its device, ``gap``:
    free capacity of its device.
    """

    entries: Sequence[TaskEntry]
    firsts: Sequence[int]
    """Start index of each class, with one more entry at the end."""
    number: IntArray
    row: IntArray
    slot: IntArray
    here: IntArray
    gap: IntArray
    cpu: IntArray
    memory: IntArray

    @property
    def classes(self) -> list[TaskEntry]:
        return [self.entries[at] for at in self.firsts[:-1]]


class Rings:
    """The steps there are in one state of the nodes."""

    def __init__(
        self,
        free: FreeCapacity,
        tasks: Sequence[Mapping[str, TaskEntry]],
        movable: Callable[[TaskEntry], bool],
    ) -> None:
        self._free = free
        self._hosts = _hosts(free, tasks, movable)
        if self._hosts is not None:
            self._prepare(self._hosts)

    def _prepare(self, hosts: _Hosts) -> None:
        kinds = hosts.classes
        number = len(kinds)
        self._size = np.array([milli_of(e) for e in kinds] + [0], dtype=np.int64)
        self._cpu = np.array([asks(e, "cpu") for e in kinds] + [0], dtype=np.int64)
        self._memory = np.array([asks(e, "memory") for e in kinds] + [0], dtype=np.int64)
        self._taken = np.zeros((number + 1, len(hosts.entries)), dtype=np.int64)
        """Share that a pod of a class would take of a host's device; 0 in the last row, which stands for no pod."""
        self._step = np.full((number + 1, number + 1), FAR)
        """Cost of a step: device share of the displaced class."""
        self._at = np.full((number + 1, number + 1), -1, dtype=np.int64)
        """By which host."""
        free = self._free
        for kind, entry in enumerate(kinds):
            milli = free.milli(entry)
            if milli is None:
                continue
            self._taken[kind] = milli[hosts.row, hosts.slot]
            if bool(free.fits(entry).any()):
                self._step[kind, number] = 0.0
            beside = hosts.gap + hosts.here - self._taken[kind]
            good = (beside >= 0) & (hosts.here <= self._size[kind])
            good &= free.cpu[hosts.row] + hosts.cpu >= self._cpu[kind]
            good &= free.memory[hosts.row] + hosts.memory >= self._memory[kind]
            left = np.where(good, beside, np.iinfo(np.int64).max)
            least = np.minimum.reduceat(left, hosts.firsts[:-1])
            for other in np.flatnonzero(least <= WHOLE).tolist():
                if other != kind:
                    first, end = hosts.firsts[other], hosts.firsts[other + 1]
                    self._step[kind, other] = self._size[other]
                    self._at[kind, other] = first + int(left[first:end].argmin())
        self._cost, self._via = _chained(self._step)

    def best(self, needs: Needs, milli: IntArray, most: int) -> Sequence[MoveStep]:
        """The pods that move so that one with one device finds room, at most ``most`` milli of them; in the order in
        which they go, those of its device first. Empty if there are none. ``milli``: what the pod takes of each device,
        nodes × slots."""
        hosts = self._hosts
        if hosts is None:
            return ()
        asked = dict(needs.request)
        lack = milli[hosts.row, hosts.slot] - hosts.gap
        cpu = asked.get("cpu", 0) - self._free.cpu[hosts.row]
        memory = asked.get("memory", 0) - self._free.memory[hosts.row]
        usable = milli[hosts.row, hosts.slot] <= WHOLE
        cost = self._cost[hosts.number] + hosts.here[:, None]
        good = usable[:, None] & (self._taken.T <= WHOLE)
        good &= (hosts.here - lack)[:, None] >= self._taken.T
        good &= (hosts.cpu - cpu)[:, None] >= self._cpu
        good &= (hosts.memory - memory)[:, None] >= self._memory
        cost = np.where(good, cost, FAR)
        found = next(self._singles(cost, most), ())
        if found:
            most = sum(milli_of(step.entry) for step in found) - 1
        return next(self._doubles(hosts, (lack, cpu, memory), usable, most), found)

    def _singles(self, cost: FloatArray, most: int) -> Iterator[Sequence[MoveStep]]:
        for _ in range(TRIES):
            x, last = divmod(int(cost.argmin()), cost.shape[1])
            if cost[x, last] > most:
                return
            found = self._movers([(x, last)])
            if found:
                yield found
            cost[x, last] = FAR

    def _doubles(
        self, hosts: _Hosts, short: tuple[IntArray, IntArray, IntArray], usable: BoolArray, most: int
    ) -> Iterator[Sequence[MoveStep]]:
        """Two rings for two parts of one device."""
        lack, cpu, memory = short
        reach = np.where(self._cost < FAR, self._size[:-1, None] - self._size[None, :], 0).max(axis=1)
        on: dict[tuple[int, int], list[int]] = {}
        for at in np.flatnonzero(usable & (lack > 0)).tolist():
            on.setdefault((int(hosts.row[at]), int(hosts.slot[at])), []).append(at)
        alike: dict[tuple[int, ...], tuple[int, int, int]] = {}
        for there in on.values():
            for i, x in enumerate(there):
                for y in there[i + 1 :]:
                    spare = int(reach[hosts.number[x]] + reach[hosts.number[y]] - lack[x])
                    if spare < 0 or hosts.here[x] + hosts.here[y] > most:
                        continue
                    key = (int(hosts.number[x]), int(hosts.number[y]), int(lack[x]))
                    if key not in alike or cpu[x] < cpu[alike[key][1]]:
                        alike[key] = (spare, x, y)
        best: Sequence[MoveStep] = ()
        for _, x, y in sorted(alike.values(), reverse=True)[:PAIRS]:
            first, second = int(hosts.number[x]), int(hosts.number[y])
            both = (self._cost[first][:, None] + self._cost[second][None, :]) + hosts.here[x] + hosts.here[y]
            good = both <= most
            if not good.any():
                continue
            come = self._taken[:, x]
            good &= (hosts.here[x] + hosts.here[y] - lack[x]) >= come[:, None] + come[None, :]
            good &= hosts.cpu[x] + hosts.cpu[y] - cpu[x] >= self._cpu[:, None] + self._cpu[None, :]
            good &= (
                hosts.memory[x] + hosts.memory[y] - memory[x] >= self._memory[:, None] + self._memory[None, :]
            )
            both = np.where(good, both, FAR)
            for _ in range(TRIES):
                one, two = divmod(int(both.argmin()), both.shape[1])
                if both[one, two] > most:
                    break
                found = self._movers([(x, one), (y, two)])
                if found:
                    best, most = found, int(both[one, two]) - 1
                    break
                both[one, two] = FAR
        if best:
            yield best

    def _movers(self, ends: Sequence[tuple[int, int]]) -> Sequence[MoveStep]:
        """Return the moves of these rings; empty if a device is used twice, or a pod finds no gap."""
        hosts = self._hosts
        if hosts is None:
            return ()
        nobody = len(self._size) - 1
        firsts: list[MoveStep] = []
        later: list[MoveStep] = []
        served = [ends[0][0]]
        for x, last in ends:
            kind = int(hosts.number[x])
            if kind == last:
                return ()
            ring = [x]
            for step in self._path(kind, last):
                if step != nobody:
                    ring.append(int(self._at[kind, step]))
                kind = step
            to = [*ring[1:], x] if last != nobody else ring[1:]
            rows = [*(int(hosts.row[at]) for at in to), *([NOWHERE] if last == nobody else [])]
            steps = [MoveStep(hosts.entries[at], row) for at, row in zip(ring, rows, strict=True)]
            firsts += steps[:1]
            later += steps[1:]
            served += ring[1:]
        cards = {(int(hosts.row[at]), int(hosts.slot[at])) for at in served}
        return self._housed([*firsts, *later], cards) if len(cards) == len(served) else ()

    def _housed(self, steps: Sequence[MoveStep], served: set[tuple[int, int]]) -> Sequence[MoveStep]:
        """Return the moves with a node for each pod that goes to a gap of its own.

        The smallest gap on a device that is not used by the rings is taken. Returns an empty result if a pod finds
        none.
        """
        free, found = self._free, list(steps)
        cards, cpu, memory = free.cards.copy(), free.cpu.copy(), free.memory.copy()
        for row, slot in served:
            cards[row, slot] = 0
        for at, (entry, to) in enumerate(steps):
            milli = free.milli(entry)
            if to != NOWHERE or milli is None:
                continue
            left = np.where(cards >= milli, cards - milli, WHOLE)
            left[(cpu < asks(entry, "cpu")) | (memory < asks(entry, "memory"))] = WHOLE
            row, slot = divmod(int(left.argmin()), left.shape[1])
            if left[row, slot] >= WHOLE:
                return ()
            cards[row, slot] = 0
            cpu[row] -= asks(entry, "cpu")
            memory[row] -= asks(entry, "memory")
            found[at] = MoveStep(entry, row)
        return found

    def _path(self, kind: int, last: int) -> list[int]:
        found: list[int] = []
        for via in self._via:
            between = int(via[kind, last])
            if between < 0:
                continue
            found.insert(0, last)
            last = between
        return [last, *found]


def _chained(step: FloatArray) -> tuple[FloatArray, list[IntArray]]:
    """The cost of the cheapest chains of up to :data:`STEPS` steps, and what each of the last steps comes from, the
    longest first; -1: there is no such step."""
    cost = step[:-1].copy()
    vias: list[IntArray] = []
    for _ in range(STEPS - 1):
        through = np.full_like(cost, FAR)
        via = np.full(cost.shape, -1, dtype=np.int64)
        for middle in range(cost.shape[0]):
            longer = cost[:, middle, None] + step[middle][None, :]
            better = longer < through
            through[better] = longer[better]
            via[better] = middle
        worse = through >= cost
        via[worse] = -1
        vias.insert(0, via)
        cost = np.minimum(cost, through)
    return cost, vias


def _hosts(
    free: FreeCapacity, tasks: Sequence[Mapping[str, TaskEntry]], movable: Callable[[TaskEntry], bool]
) -> _Hosts | None:
    parted = (free.cards < WHOLE) & free.kinds.exists
    found: list[TaskEntry] = []
    for row in np.flatnonzero(parted.any(axis=1)).tolist():
        found += [
            entry
            for entry in tasks[row].values()
            if len(entry.devices) == 1 and milli_of(entry) < WHOLE and movable(entry)
        ]
    if len(found) < 2:
        return None
    found.sort(key=lambda entry: (entry.cls.number, entry.key))
    firsts = [at for at, e in enumerate(found) if not at or found[at - 1].cls.number != e.cls.number]
    number = np.repeat(np.arange(len(firsts)), np.diff([*firsts, len(found)]))

    def of(values: Sequence[int]) -> IntArray:
        return np.array(values, dtype=np.int64)

    row_, slot_ = of([e.row for e in found]), of([e.devices[0].index for e in found])
    return _Hosts(
        found,
        [*firsts, len(found)],
        number,
        row_,
        slot_,
        of([milli_of(e) for e in found]),
        free.cards[row_, slot_],
        of([asks(e, "cpu") for e in found]),
        of([asks(e, "memory") for e in found]),
    )
