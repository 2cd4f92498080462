"""When a group that waits could start, by what is known of how long others run.

The groups that wait are placed in their order on what is free, then on what is free once the next group
that runs has ended, and so on, with the code that places groups for real; nothing of it stays. What has
no known end never ends here. So a forecast is what happens if everybody keeps to his estimate, nobody
new comes first, and nobody behind is let pass.

A group that has outlived its estimate is taken to run on for as long as it was estimated, again and
again doubled (as predicted run times are corrected in backfilling schedulers: Tsafrir, Etsion, Feitelson,
"Backfilling Using System-Generated Predictions", IEEE TPDS 18(6), 2007).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from windlass.engine.allocate import Allocation
from windlass.engine.cards import Cuts
from windlass.engine.groups import OCCUPYING, GroupEntry, TaskEntry, run_time
from windlass.engine.keptcards import parts_by_row
from windlass.engine.statement import Statement
from windlass.engine.world import World
from windlass.spi.objects import TaskState

MOST_EVENTS = 4096
"""Ends looked at for one forecast; beyond them nothing is said."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """``start``: Unix seconds. ``after``: the groups whose end it waits for, in the order of their ends.

    ``placements``: where its tasks would go.
    """

    start: float
    after: tuple[str, ...]
    placements: tuple[tuple[TaskEntry, int], ...]
    parts: dict[int, Cuts] = field(default_factory=dict)
    """Row → what they would have of cards there."""


def end_of(entry: TaskEntry, now: float) -> float | None:
    """When a task that holds resources is expected to end, in Unix seconds; ``None`` if nothing is known."""
    if entry.state is TaskState.RELEASING:
        return now
    if entry.state is TaskState.STUCK:
        return None
    started = entry.task.started if entry.task.started is not None else now
    limit = entry.task.run_limit
    hard = max(started + limit, now) if limit is not None else None
    group = entry.group.group if entry.group is not None else None
    estimate = group.run_estimate if group is not None else None
    if not estimate or estimate <= 0:
        return hard
    end = started + estimate
    while end <= now:
        estimate *= 2
        end = started + estimate
    return end if hard is None else min(end, hard)


@dataclass(order=True, slots=True)
class _End:
    """``entries`` let go of what they hold at ``moment``."""

    moment: float
    number: int
    group: str = field(compare=False)
    entries: list[TaskEntry] = field(compare=False)


class Forecaster:
    """``allocation``: the code that places. A forecast leaves the statement as it was."""

    def __init__(self, world: World, allocation: Allocation) -> None:
        self._world = world
        self._allocation = allocation

    def plan(self, statement: Statement, groups: Sequence[GroupEntry], now: float) -> dict[str, Forecast]:
        """The starts of ``groups``, which wait, in the order given; up to the first of which nothing is known."""
        mark = statement.checkpoint()
        planning = _Planning(statement, self._ends(now), now)
        found: dict[str, Forecast] = {}
        for group in groups:
            forecast = self._next(planning, group)
            if forecast is None:
                break
            found[group.key] = forecast
        statement.rollback(mark)
        return found

    def _next(self, planning: _Planning, group: GroupEntry) -> Forecast | None:
        """Let time pass until the group fits: by doubled strides, then by bisection of the last."""
        step, statement = group.step, planning.statement
        if step is None:
            return None
        state, stride = planning.state(), 0
        while not self._fits(planning, group):
            state = planning.state()
            stride = 2 * stride or 1
            if not planning.let_go(stride):
                return None
        low, high = 0, stride
        while high - low > 1:
            middle = (low + high) // 2
            planning.restore(state)
            planning.let_go(middle)
            low, high = (low, middle) if self._fits(planning, group) else (middle, high)
        planning.restore(state)
        planning.let_go(high)
        before = statement.checkpoint()
        self._allocation.attempt(statement, group, step, future=True)
        placements = tuple(statement.placements(before))
        parts = parts_by_row(statement.seats(before))
        planning.note(group, placements)
        return Forecast(planning.now, tuple(dict.fromkeys(planning.gone)), placements, parts)

    def _fits(self, planning: _Planning, group: GroupEntry) -> bool:
        mark = planning.statement.checkpoint()
        step = group.step
        done = (
            step is not None and self._allocation.attempt(planning.statement, group, step, future=True).done
        )
        planning.statement.rollback(mark)
        return done

    def _ends(self, now: float) -> list[_End]:
        """The known ends of what runs, a heap. Tasks of one group that end together are one."""
        ends: dict[tuple[float, str], list[TaskEntry]] = {}
        for key, group in self._world.timed.items():
            for entry in group.tasks.values():
                if entry.state in OCCUPYING and entry.state is not TaskState.RELEASING:
                    moment = end_of(entry, now)
                    if moment is not None:
                        ends.setdefault((moment, key), []).append(entry)
        numbers = count()
        found = [_End(moment, next(numbers), key, entries) for (moment, key), entries in sorted(ends.items())]
        return found[:MOST_EVENTS]


class _Planning:
    """The moment up to which a plan has come, and what has ended by then."""

    def __init__(self, statement: Statement, ends: list[_End], now: float) -> None:
        self.statement = statement
        self.now = now
        self.gone: list[str] = []
        self._ends = ends
        self._numbers = count(len(ends))

    def let_go(self, n: int) -> bool:
        """Let the next ``n`` moments pass at which something ends; false if there is none left at all."""
        if n and not self._ends:
            return False
        for _ in range(n):
            if not self._ends:
                break
            self.now = self._ends[0].moment
            while self._ends and self._ends[0].moment == self.now:
                end = heapq.heappop(self._ends)
                self.gone.append(end.group)
                self._free(end.entries)
        return True

    def state(self) -> tuple[int, float, int, list[_End]]:
        return self.statement.checkpoint(), self.now, len(self.gone), list(self._ends)

    def restore(self, state: tuple[int, float, int, list[_End]]) -> None:
        mark, self.now, gone, ends = state
        self._ends = list(ends)
        self.statement.rollback(mark)
        del self.gone[gone:]

    def note(self, group: GroupEntry, placements: Iterable[tuple[TaskEntry, int]]) -> None:
        """A group has got its place; it ends in its turn if it is known how long it runs."""
        estimate = run_time(group)
        entries = [entry for entry, _ in placements]
        if estimate and entries:
            heapq.heappush(self._ends, _End(self.now + estimate, next(self._numbers), group.key, entries))

    def _free(self, entries: Iterable[TaskEntry]) -> None:
        for entry in entries:
            if entry.promised >= 0:
                self.statement.unpromise(entry)
            elif entry.state in OCCUPYING and entry.state is not TaskState.RELEASING:
                self.statement.evict(entry, "forecast")
