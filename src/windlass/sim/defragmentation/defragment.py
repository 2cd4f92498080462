"""Search for moves of running pods that free capacity for a pod that fits on no node, and their cost.

Such a pod lacks a resource on every node. If CPU or memory is missing next to a device with free capacity, pods
without devices can move: that costs no running GPU. If device capacity is missing, the shares on the device closest to
it can move into gaps of their size on other devices. The cheapest set on the nodes with the smallest shortage is
proposed. It may cost no more GPU than the pod brings, and all moves together no more than a part of the running GPUs.

The proposal is not a decision. The engine's action ``consolidation`` places the pod and finds another place for every
moved pod at the same time, or does nothing (:mod:`windlass.engine.preemption.solver`). Only preemptible groups move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from windlass.api.reasons import Reason
from windlass.engine.engine import Engine
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import BOUND, RUNNING, TaskEntry, tasks_by_row, tasks_on
from windlass.engine.nodes.view import TableView
from windlass.plugins.devices.device_arrays import BARRED, WHOLE, free_milli, request_of, requested_milli
from windlass.plugins.queues.protection import STAYS
from windlass.sim.defragmentation.free_capacity import FreeCapacity, MoveStep, asked_on, asks, milli_of
from windlass.sim.defragmentation.pair_exchange import ExchangeRequest, relief
from windlass.sim.defragmentation.ring_exchange import Rings
from windlass.spi.devices import DeviceNeed
from windlass.spi.inputs import Budgets
from windlass.spi.nodes import BoolArray, IntArray
from windlass.spi.objects import Needs
from windlass.spi.victims import Preemption, PreemptionDenied, PreemptionTerms, RelocationMode, VictimScope

CONSOLIDATION = "consolidation"
NODES = 24
"""On so many nodes, those that lack least, moves are looked for."""
WAYS = 8
"""Maximum number of sets of shares tried per device."""
LOTS = 1 << 60
MOVERS = 6
"""Maximum number of pods moved for one pod."""
FOREIGN, UNSETTLED, FIRM = "foreign", "unsettled", "firm"
PINNED, GANG, BUDGET = "pinned", "gang", "budget"
"""Reasons against moving a pod: it is in no group, starting or terminating, not preemptible, or marked unsafe to evict;
it belongs to a gang; or a PodDisruptionBudget allows no disruption."""
PRICE = 8.0
"""Default maximum of moved GPU capacity per GPU gained."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Moves that free capacity on one node.

    ``milli``: device capacity of the moved pods. ``places``: target nodes, if they are decided.
    """

    node: str
    groups: tuple[str, ...]
    tasks: tuple[str, ...]
    milli: int
    places: tuple[str, ...] = ()


class Defrag:
    """Grants claims of ``consolidation``, on the terms of the cheapest moves. Serves one engine, which it is given
    by :meth:`serve` before the first cycle.

    ``part``: how much of the GPUs that run may be moved in all, as part of 1. ``price``: how much GPU a move may
    cost for each GPU that it brings.
    """

    name = "defrag"

    def __init__(self, part: float, price: float = PRICE, stays: Callable[[str], bool] | None = None) -> None:
        """``stays``: pods (by key) that are not to be moved; none by default."""
        self.part = part
        self.price = price
        self._stays = stays or (lambda _: False)
        self.moved = 0
        """Thousandths of devices that were moved; updated by the caller that performs the moves."""
        self.running = 0
        """Thousandths of devices that run; likewise."""
        self.claimer = ""
        """The group that may claim; empty: any."""
        self.latest: Moves | None = None
        """Proposal for the last request."""
        self.refused: set[str] = set()
        """Nodes on which no moves are proposed."""
        self._engine: Engine | None = None
        self._rings: tuple[int, Rings] | None = None
        """The state of the nodes, and the steps there are in it."""
        self._futile: dict[Needs, tuple[int, int]] = {}
        """Needs without a solution → version of the nodes, and the budget that was tried."""
        self._takers: tuple[int, dict[TaskClass, BoolArray]] = (-1, {})
        """Version of the nodes, and the nodes that would fit a class if they were empty."""

    def serve(self, engine: Engine) -> None:
        self._engine = engine

    def preemption_terms(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied | None:
        """See :class:`~windlass.spi.victims.PreemptionPolicy`."""
        if preemption.action != CONSOLIDATION:
            return None
        if self._engine is None or (self.claimer and preemption.group.key != self.claimer):
            return PreemptionDenied(Reason.INSUFFICIENT_RESOURCES, personal=True)
        group = self._engine.state.groups[preemption.group.key]
        waiting = [entry for entry in group.tasks.values() if entry.row < 0]
        self.latest = found = self.moves_for(waiting[0].cls) if len(waiting) == 1 else None
        if found is None:
            return PreemptionDenied(Reason.INSUFFICIENT_RESOURCES, personal=True)
        return PreemptionTerms(
            VictimScope.ALL_QUEUES, RelocationMode.MUST, only=found.groups, places=found.places
        )

    # ------------------------------------------------------------------ which moves

    def moves_for(self, cls: TaskClass) -> Moves | None:
        """The cheapest moves that make room for a pod with devices; ``None`` if there are none within the terms."""
        needs = cls.needs
        asked = request_of(needs)
        if self._engine is None or len(asked) != 1:
            return None
        table = self._engine.state.table
        view = TableView(table)
        most = self._allowed(asked_on(needs, view))
        if most < 0:
            return None
        version, offered = self._futile.get(needs, (-1, 0))
        if version == table.version and most <= offered:
            return None
        cards = view.devices()
        free = FreeCapacity(
            view.available("cpu"),
            view.available("memory"),
            free_milli(view, cards),
            cards,
            lambda entry: self._taking(entry.cls),
        )
        milli = requested_milli(asked[0], cards)
        milli[~self._open_to(cls)] = BARRED
        best: Moves | None = None
        limit = most
        for row in _nearest(needs, asked[0], free, milli, limit):
            found = self._on(row, needs, asked[0], free, milli, limit)
            if found is not None and (best is None or _cost(found) < _cost(best)):
                best = found
                limit = min(limit, found.milli)
                if not best.milli and len(best.tasks) == 1:
                    return best
        for way in (self._exchange, self._relief):
            found = way(needs, asked[0], free, milli, limit if best is None else limit - 1)
            if found is not None:
                best, limit = found, found.milli
        if best is None:
            self._futile[needs] = (table.version, most)
        return best

    def _allowed(self, gain: int) -> int:
        """Return the maximum cost (milli) of moves for a gain; negative if not even free moves are allowed."""
        return min(int(self.price * gain), int(self.part * self.running) - self.moved)

    def _taking(self, cls: TaskClass) -> BoolArray:
        """The nodes that would take a pod of a class, were they empty: not cordoned, without taints that it minds, …"""
        if self._engine is None:
            return np.zeros(0, dtype=np.bool_)
        table = self._engine.state.table
        if self._takers[0] != table.static_log.mark:
            self._takers = (table.static_log.mark, {})
        found = self._takers[1]
        if cls not in found:
            cls.refresh()
            found[cls] = cls.static[: table.height].copy()
        return found[cls]

    def _open_to(self, cls: TaskClass) -> BoolArray:
        """Return the nodes of :meth:`_taking` for which moves may be proposed."""
        found = self._taking(cls)
        if not self.refused or self._engine is None:
            return found
        return found & np.array(
            [name not in self.refused for name in self._engine.state.table.names[: len(found)]]
        )

    def _may_go(self, entry: TaskEntry) -> bool:
        return (
            self._engine is not None
            and not hindrance(entry, self._engine.state.budgets)
            and not self._stays(entry.key)
        )

    def _exchange(
        self, needs: Needs, need: DeviceNeed, free: FreeCapacity, milli: IntArray, most: int
    ) -> Moves | None:
        """The cheapest pods that make room by changing places."""
        if self._engine is None or need.count != 1 or most <= 0:
            return None
        table = self._engine.state.table
        if self._rings is None or self._rings[0] != table.version:
            self._rings = (table.version, Rings(free, tasks_by_row(table), self._may_go))
        return self._named(self._rings[1].best(needs, milli, most))

    def _relief(
        self, needs: Needs, need: DeviceNeed, free: FreeCapacity, milli: IntArray, most: int
    ) -> Moves | None:
        """Return the cheapest exchange of two pods that frees the missing CPU or memory of a node."""
        if self._engine is None or most < 0:
            return None
        tasks = tasks_by_row(self._engine.state.table)
        pair = relief(needs, need, milli, free, tasks, ExchangeRequest(most, self._may_go))
        return self._named(
            [MoveStep(one, other.row) for one, other in zip(pair, reversed(pair), strict=True)]
        )

    def _named(self, steps: Sequence[MoveStep]) -> Moves | None:
        if self._engine is None or not steps:
            return None
        names = self._engine.state.table.names
        return Moves(
            names[steps[0].entry.row],
            tuple(step.entry.group.key for step in steps if step.entry.group is not None),
            tuple(step.entry.key for step in steps),
            sum(milli_of(step.entry) for step in steps),
            tuple(names[step.to] for step in steps),
        )

    def _on(
        self, row: int, needs: Needs, need: DeviceNeed, free: FreeCapacity, milli: IntArray, most: int
    ) -> Moves | None:
        """The cheapest moves that make room on one node."""
        if self._engine is None:
            return None
        table = self._engine.state.table
        tasks = tasks_on(table, row).values()
        there = [entry for entry in tasks if self._may_go(entry)]
        amounts = dict(needs.request)
        asked = (amounts.get("cpu", 0), amounts.get("memory", 0))
        open_, wanted = free.cards[row].tolist(), milli[row].tolist()
        for slots, off in chain(
            _ways(there, need, open_, wanted, most), _several(there, need, open_, wanted, most)
        ):
            cpu = asked[0] - int(free.cpu[row]) - sum(asks(e, "cpu") for e in off)
            memory = asked[1] - int(free.memory[row]) - sum(asks(e, "memory") for e in off)
            movers = [*off, *_lightest([entry for entry in there if entry not in off], cpu, memory)]
            cost = sum(map(milli_of, movers))
            if not movers or len(movers) > MOVERS or cost > most:
                continue
            if not all(free.hopeful(entry, row) for entry in movers):
                continue
            after = free.without(row, movers)
            after.cpu[row] -= asked[0]
            after.memory[row] -= asked[1]
            slots = slots or list(_tightest(after.cards[row], need, milli[row]))
            for slot in slots:
                after.cards[row, slot] -= milli[row, slot]
            if (
                len(slots) < need.count
                or after.cpu[row] < 0
                or after.memory[row] < 0
                or not _placed(movers, after)
            ):
                continue
            return Moves(
                table.names[row],
                tuple(entry.group.key for entry in movers if entry.group is not None),
                tuple(entry.key for entry in movers),
                cost,
            )
        return None


def _cost(moves: Moves) -> tuple[int, int]:
    return moves.milli, len(moves.tasks)


def hindrance(entry: TaskEntry, budgets: Budgets) -> str:
    """Return the reason against moving a running pod, consent aside; empty if it can move."""
    group = entry.group
    if group is None or group.group is None:
        return FOREIGN
    if entry.state not in (BOUND, RUNNING):
        return UNSETTLED
    if not (group.spec.preemptible and entry.task.preemptible) or entry.task.critical:
        return FIRM
    if STAYS in entry.task.annotations:
        return PINNED
    if len(group.tasks) > 1:
        return GANG
    held = entry.task.budgets
    return (
        BUDGET if held and any((left := budgets.left(key)) is not None and left < 1 for key in held) else ""
    )


def _nearest(needs: Needs, need: DeviceNeed, free: FreeCapacity, milli: IntArray, most: int) -> list[int]:
    """The nodes on which least has to move, by what is lacking of devices, then of CPU."""
    amounts = dict(needs.request)
    usable: BoolArray = milli <= WHOLE
    short = np.where(usable, np.maximum(milli - free.cards, 0), np.iinfo(np.int32).max)
    slots = short.shape[1]
    if slots < need.count:
        return []
    lacking = np.sort(short, axis=1)[:, : need.count].sum(axis=1)
    cpu = np.maximum(amounts.get("cpu", 0) - free.cpu, 0)
    memory = np.maximum(amounts.get("memory", 0) - free.memory, 0)
    order = np.lexsort((memory, cpu, lacking))
    return [row for row in order[: 4 * NODES].tolist() if lacking[row] <= most][:NODES]


def _ways(
    there: Sequence[TaskEntry], need: DeviceNeed, free: list[int], asked: list[int], most: int
) -> Iterator[tuple[list[int], list[TaskEntry]]]:
    """Yield the devices that the pod could get, with the shares to move off them, cheapest first."""
    on: dict[int, list[TaskEntry]] = {}
    for entry in there:
        if len(entry.devices) == 1:
            on.setdefault(entry.devices[0].index, []).append(entry)
    ways: list[tuple[int, int, list[TaskEntry]]] = []
    for slot, (open_, wanted) in enumerate(zip(free, asked, strict=True)):
        if wanted <= WHOLE:
            some = [[]] if open_ >= wanted else _enough(on.get(slot, []), wanted - open_)
            ways += [(cost, slot, way) for way in some if (cost := sum(map(milli_of, way))) <= most]
    ways.sort(key=lambda way: (way[0], len(way[2]), way[1]))
    if need.count == 1:
        yield from (([slot], way) for _, slot, way in ways[:WAYS])
        return
    first: dict[int, list[TaskEntry]] = {}
    for _, slot, way in ways:
        first.setdefault(slot, way)
    if len(first) >= need.count:
        slots = list(first)[: need.count]
        yield slots, [entry for slot in slots for entry in first[slot]]


def _several(
    there: Sequence[TaskEntry], need: DeviceNeed, free: list[int], asked: list[int], most: int
) -> Iterator[tuple[list[int], list[TaskEntry]]]:
    """Pods with whole devices, each with fewer than are wanted, that together have what lacks; which devices that gives
    is seen once they are gone."""
    if need.count < 2 or need.milli != WHOLE:
        return
    lacks = need.count - sum(1 for open_, wanted in zip(free, asked, strict=True) if open_ >= wanted)
    holders = [e for e in there if WHOLE <= milli_of(e) < need.count * WHOLE and not milli_of(e) % WHOLE]
    if lacks > 0 and len(holders) <= 2 * MOVERS:
        ways = sorted(_enough(holders, lacks * WHOLE), key=lambda way: (sum(map(milli_of, way)), len(way)))
        yield from (([], way) for way in ways[:WAYS] if sum(map(milli_of, way)) <= most)


def _enough(entries: Sequence[TaskEntry], lacks: int) -> list[list[TaskEntry]]:
    """Sets of parts that together have at least so much, one for each amount that they come to."""
    sums: dict[int, list[TaskEntry]] = {0: []}
    for entry in entries:
        size = milli_of(entry)
        for total, some in list(sums.items()):
            if total < lacks and (total + size not in sums or len(sums[total + size]) > len(some) + 1):
                sums[total + size] = [*some, entry]
    return [some for total, some in sums.items() if total >= lacks]


def _lightest(entries: Sequence[TaskEntry], cpu: int, memory: int) -> list[TaskEntry]:
    """Pods that have least of devices and make up for what is lacking of CPU and memory; as few as possible."""
    found: list[TaskEntry] = []
    left = sorted(entries, key=lambda e: (milli_of(e), asks(e, "cpu"), e.key))
    while (cpu > 0 or memory > 0) and left and len(found) < MOVERS:
        lightest = [entry for entry in left if milli_of(entry) == milli_of(left[0])]
        enough = [e for e in lightest if asks(e, "cpu") >= cpu and asks(e, "memory") >= memory]
        entry = enough[0] if enough else lightest[-1]
        left.remove(entry)
        if (cpu > 0 and asks(entry, "cpu")) or (memory > 0 and asks(entry, "memory")):
            found.append(entry)
            cpu -= asks(entry, "cpu")
            memory -= asks(entry, "memory")
    return found


def _placed(movers: Sequence[TaskEntry], free: FreeCapacity) -> bool:
    """Return whether every mover fits somewhere, one after the other where the gap is smallest."""
    for entry in sorted(movers, key=milli_of, reverse=True):
        fits = free.fits(entry)
        if not fits.any():
            return False
        milli = free.milli(entry)
        if milli is None:
            to = int(np.where(fits, free.cards.sum(axis=1), LOTS).argmin())
        else:
            gap = np.where(free.cards >= milli, free.cards - milli, LOTS).min(axis=1)
            to = int(np.where(fits, gap, LOTS).argmin())
            for slot in _tightest(free.cards[to], request_of(entry.cls.needs)[0], milli[to]):
                free.cards[to, slot] -= milli[to, slot]
        free.cpu[to] -= asks(entry, "cpu")
        free.memory[to] -= asks(entry, "memory")
    return True


def _tightest(cards: IntArray, need: DeviceNeed, asked: IntArray) -> Iterator[int]:
    fits = [slot for slot in range(len(cards)) if cards[slot] >= asked[slot]]
    yield from sorted(fits, key=lambda slot: int(cards[slot]))[: need.count]
