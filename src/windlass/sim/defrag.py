"""Moving a little work so that what fits nowhere fits: which moves make room for a pod, and at what cost.

A pod that fits nowhere lacks something on every node. Where that is CPU or memory beside a card that has room,
pods without cards can go elsewhere: that costs no running GPU. Where it is room on a card, the parts on the card
that is nearest to having it can go to other cards that have gaps of their size. The cheapest such set on the
nodes that lack least is proposed, as long as it costs no more GPU than the pod brings, and all moves together no
more than a part of what runs.

The proposal is no decision: the engine's action ``consolidation`` makes it one, or does not. It places the pod,
finds every mover another place at the same time, or does nothing (:mod:`windlass.engine.solver`). Who may be moved
is said by the group: only preemptible ones are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from windlass.api.reasons import Reason
from windlass.engine.engine import Engine
from windlass.engine.groups import BOUND, RUNNING, TaskEntry
from windlass.engine.view import TableView
from windlass.plugins.cards import WHOLE, asked_milli, asked_of, free_milli
from windlass.spi.devices import CardView, DeviceNeed
from windlass.spi.nodes import BoolArray, IntArray
from windlass.spi.objects import Needs
from windlass.spi.victims import Claim, Denied, Move, Scope, Terms

CONSOLIDATION = "consolidation"
NODES = 24
"""On so many nodes, those that lack least, moves are looked for."""
WAYS = 8
"""So many sets of parts are tried on each."""
LOTS = 1 << 60
MOVERS = 6
"""So many pods are moved for one, at most."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What makes room on one node. ``milli``: what the movers have of cards."""

    node: str
    groups: tuple[str, ...]
    tasks: tuple[str, ...]
    milli: int


@dataclass(slots=True)
class _Free:
    """What is free now, nodes (× slots)."""

    cpu: IntArray
    memory: IntArray
    cards: IntArray
    kinds: CardView
    asked: dict[int, IntArray] = field(default_factory=dict)
    """Number of a class → what it takes of each card."""
    open: dict[int, BoolArray] = field(default_factory=dict)
    """Number of a class → the nodes that would take one of it as they are."""

    def milli(self, entry: TaskEntry) -> IntArray | None:
        """What the pod takes of each card; ``None``: it asks for none."""
        asked = asked_of(entry.cls.needs)
        if not asked:
            return None
        number = entry.cls.number
        if number not in self.asked:
            self.asked[number] = asked_milli(asked[0], self.kinds)
        return self.asked[number]

    def fits(self, entry: TaskEntry) -> BoolArray:
        """The nodes that would take the pod."""
        found = (self.cpu >= _asks(entry, "cpu")) & (self.memory >= _asks(entry, "memory"))
        milli = self.milli(entry)
        if milli is not None:
            found &= (self.cards >= milli).sum(axis=1) >= asked_of(entry.cls.needs)[0].count
        return found

    def hopeful(self, entry: TaskEntry, row: int) -> bool:
        """Whether the pod, which is on that node, could find a place: elsewhere, or on another card."""
        number = entry.cls.number
        if number not in self.open:
            self.open[number] = self.fits(entry)
        found = self.open[number]
        if int(found.sum()) > int(found[row]):
            return True
        milli = self.milli(entry)
        held = {share.index for share in entry.devices}
        return milli is not None and any(
            free >= asked
            for slot, (free, asked) in enumerate(
                zip(self.cards[row].tolist(), milli[row].tolist(), strict=True)
            )
            if slot not in held
        )

    def without(self, row: int, movers: Sequence[TaskEntry]) -> _Free:
        """A copy in which some pods of a node have left it."""
        found = _Free(self.cpu.copy(), self.memory.copy(), self.cards.copy(), self.kinds, self.asked)
        found.cpu[row] += sum(_asks(entry, "cpu") for entry in movers)
        found.memory[row] += sum(_asks(entry, "memory") for entry in movers)
        for entry in movers:
            for share in entry.devices:
                found.cards[row, share.index] += share.milli
        return found


class Defrag:
    """Grants claims of ``consolidation``, on the terms of the cheapest moves. Serves one engine, which it is given
    by :meth:`serve` before the first cycle.

    ``part``: how much of the GPUs that run may be moved in all, as part of 1. ``price``: how much GPU a move may
    cost for each GPU that it brings.
    """

    name = "defrag"

    def __init__(self, part: float, price: float = 1.0, stays: Callable[[str], bool] | None = None) -> None:
        """``stays``: pods (by key) that are not to be moved; none by default."""
        self.part = part
        self.price = price
        self._stays = stays or (lambda _: False)
        self.moved = 0
        """Thousandths of cards that were moved; kept by whoever carries the moves out."""
        self.running = 0
        """Thousandths of cards that run; likewise."""
        self.claimer = ""
        """The group that may claim; empty: any."""
        self._engine: Engine | None = None

    def serve(self, engine: Engine) -> None:
        self._engine = engine

    def claims(self, claim: Claim) -> Terms | Denied | None:
        """See :class:`~windlass.spi.victims.Claims`."""
        if claim.action != CONSOLIDATION:
            return None
        if self._engine is None or (self.claimer and claim.group.key != self.claimer):
            return Denied(Reason.INSUFFICIENT_RESOURCES, personal=True)
        group = self._engine.world.groups[claim.group.key]
        waiting = [entry for entry in group.tasks.values() if entry.row < 0]
        found = self.moves_for(waiting[0].cls.needs) if len(waiting) == 1 else None
        if found is None:
            return Denied(Reason.INSUFFICIENT_RESOURCES, personal=True)
        return Terms(Scope.ALL_QUEUES, Move.MUST, only=found.groups)

    # ------------------------------------------------------------------ which moves

    def moves_for(self, needs: Needs) -> Moves | None:
        """The cheapest moves that make room for a pod with cards; ``None`` if there are none within the terms."""
        asked = asked_of(needs)
        if self._engine is None or len(asked) != 1:
            return None
        gain = asked[0].count * max(asked[0].milli, 1)
        most = min(int(self.price * gain), int(self.part * self.running) - self.moved)
        if most < 0:
            return None
        table = self._engine.world.table
        view = TableView(table)
        cards = view.cards()
        free = _Free(view.available("cpu"), view.available("memory"), free_milli(view, cards), cards)
        milli = asked_milli(asked[0], cards)
        best: Moves | None = None
        for row in _nearest(needs, asked[0], free, milli, most):
            found = self._on(row, needs, asked[0], free, milli, most)
            if found is not None and (best is None or _cost(found) < _cost(best)):
                best = found
                most = min(most, found.milli)
                if not best.milli and len(best.tasks) == 1:
                    break
        return best

    def _on(
        self, row: int, needs: Needs, need: DeviceNeed, free: _Free, milli: IntArray, most: int
    ) -> Moves | None:
        """The cheapest moves that make room on one node."""
        if self._engine is None:
            return None
        table = self._engine.world.table
        tasks = table.tasks[row].values()
        there = [entry for entry in tasks if _movable(entry) and not self._stays(entry.key)]
        amounts = dict(needs.request)
        asked = (amounts.get("cpu", 0), amounts.get("memory", 0))
        for slots, off in _ways(there, need, free.cards[row].tolist(), milli[row].tolist(), most):
            cpu = asked[0] - int(free.cpu[row]) - sum(_asks(e, "cpu") for e in off)
            memory = asked[1] - int(free.memory[row]) - sum(_asks(e, "memory") for e in off)
            movers = [*off, *_lightest([entry for entry in there if entry not in off], cpu, memory)]
            cost = sum(map(_milli_of, movers))
            if not movers or len(movers) > MOVERS or cost > most:
                continue
            if not all(free.hopeful(entry, row) for entry in movers):
                continue
            after = free.without(row, movers)
            after.cpu[row] -= asked[0]
            after.memory[row] -= asked[1]
            for slot in slots:
                after.cards[row, slot] -= milli[row, slot]
            if after.cpu[row] < 0 or after.memory[row] < 0 or not _placed(movers, after):
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


def _asks(entry: TaskEntry, resource: str) -> int:
    return entry.cls.request.get(resource, 0)


def _milli_of(entry: TaskEntry) -> int:
    return sum(need.count * max(need.milli, 1) for need in asked_of(entry.cls.needs))


def _movable(entry: TaskEntry) -> bool:
    group = entry.group
    if group is None or entry.state not in (BOUND, RUNNING):
        return False
    return group.group is not None and group.spec.preemptible and len(group.tasks) == 1


def _nearest(needs: Needs, need: DeviceNeed, free: _Free, milli: IntArray, most: int) -> list[int]:
    """The nodes on which least has to move, by what is lacking of cards, then of CPU."""
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
    """Which cards the pod could have, and the parts to be taken off them, cheapest first."""
    on: dict[int, list[TaskEntry]] = {}
    for entry in there:
        if len(entry.devices) == 1:
            on.setdefault(entry.devices[0].index, []).append(entry)
    ways: list[tuple[int, int, list[TaskEntry]]] = []
    for slot, (open_, wanted) in enumerate(zip(free, asked, strict=True)):
        if wanted <= WHOLE:
            some = [[]] if open_ >= wanted else _enough(on.get(slot, []), wanted - open_)
            ways += [(cost, slot, way) for way in some if (cost := sum(map(_milli_of, way))) <= most]
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


def _enough(entries: Sequence[TaskEntry], lacks: int) -> list[list[TaskEntry]]:
    """Sets of parts that together have at least so much, one for each amount that they come to."""
    sums: dict[int, list[TaskEntry]] = {0: []}
    for entry in entries:
        size = _milli_of(entry)
        for total, some in list(sums.items()):
            if total < lacks and (total + size not in sums or len(sums[total + size]) > len(some) + 1):
                sums[total + size] = [*some, entry]
    return [some for total, some in sums.items() if total >= lacks]


def _lightest(entries: Sequence[TaskEntry], cpu: int, memory: int) -> list[TaskEntry]:
    """Pods that have least of cards and make up for what is lacking of CPU and memory; as few as possible."""
    found: list[TaskEntry] = []
    left = sorted(entries, key=lambda e: (_milli_of(e), _asks(e, "cpu"), e.key))
    while (cpu > 0 or memory > 0) and left and len(found) < MOVERS:
        lightest = [entry for entry in left if _milli_of(entry) == _milli_of(left[0])]
        enough = [e for e in lightest if _asks(e, "cpu") >= cpu and _asks(e, "memory") >= memory]
        entry = enough[0] if enough else lightest[-1]
        left.remove(entry)
        if (cpu > 0 and _asks(entry, "cpu")) or (memory > 0 and _asks(entry, "memory")):
            found.append(entry)
            cpu -= _asks(entry, "cpu")
            memory -= _asks(entry, "memory")
    return found


def _placed(movers: Sequence[TaskEntry], free: _Free) -> bool:
    """Whether every mover fits somewhere, one after the other where the gap is smallest."""
    for entry in sorted(movers, key=_milli_of, reverse=True):
        fits = free.fits(entry)
        if not fits.any():
            return False
        milli = free.milli(entry)
        if milli is None:
            to = int(np.where(fits, free.cards.sum(axis=1), LOTS).argmin())
        else:
            gap = np.where(free.cards >= milli, free.cards - milli, LOTS).min(axis=1)
            to = int(np.where(fits, gap, LOTS).argmin())
            for slot in _tightest(free.cards[to], asked_of(entry.cls.needs)[0], milli[to]):
                free.cards[to, slot] -= milli[to, slot]
        free.cpu[to] -= _asks(entry, "cpu")
        free.memory[to] -= _asks(entry, "memory")
    return True


def _tightest(cards: IntArray, need: DeviceNeed, asked: IntArray) -> Iterator[int]:
    fits = [slot for slot in range(len(cards)) if cards[slot] >= asked[slot]]
    yield from sorted(fits, key=lambda slot: int(cards[slot]))[: need.count]
