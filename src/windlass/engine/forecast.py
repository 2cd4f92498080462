"""When a group that waits could start, by what is known of how long others run.

The groups that wait are placed in their order on what is free, then on what is free once the next group
that runs has ended, and so on, with the code that places groups for real; nothing of it stays. What has
no known end never ends here. So a forecast is what happens if everybody keeps to his estimate, nobody
new comes first, and nobody behind is let pass.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice

import numpy as np

from windlass.engine.allocate import Allocation
from windlass.engine.cards import Cuts
from windlass.engine.ends import End
from windlass.engine.groups import OCCUPYING, GroupEntry, TaskEntry, run_time
from windlass.engine.keptcards import parts_by_row
from windlass.engine.statement import Statement
from windlass.engine.world import World
from windlass.spi.objects import TaskState

MOST_EVENTS = 4096
"""Ends looked at for one forecast; beyond them nothing is said."""
_Own = tuple[float, int, str, list[TaskEntry]]
"""Moment, a number that no other has, group, and its tasks."""
_State = tuple[int, float, int, int, list[_Own]]


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


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept for a group of one class without parts of cards. ``rows``: row → for how many of its tasks;
    together as many as its step has."""

    start: float
    rows: Mapping[int, int]


class Forecaster:
    """``allocation``: the code that places. A forecast leaves the statement as it was."""

    def __init__(self, world: World, allocation: Allocation) -> None:
        self._world = world
        self._allocation = allocation

    def plan(self, statement: Statement, groups: Sequence[GroupEntry], now: float) -> dict[str, Forecast]:
        """The starts of ``groups``, which wait, in the order given; up to the first of which nothing is known."""
        return self.beside(statement, groups, now, {})[1]

    def beside(
        self, statement: Statement, groups: Sequence[GroupEntry], now: float, kept: Mapping[str, Kept]
    ) -> tuple[list[str], dict[str, Forecast]]:
        """The keys of those that come first and have what is ``kept`` for them as it is, as long as each can; and
        :meth:`plan` for the others beside them."""
        mark = statement.checkpoint()
        planning = _Planning(statement, self._world.ledger.ends.at(now), now)
        first: list[str] = []
        for group in groups:
            known = kept.get(group.key)
            if known is None or not self._keep(planning, group, known):
                break
            first.append(group.key)
        found: dict[str, Forecast] = {}
        for group in groups[len(first) :]:
            forecast = self._next(planning, group)
            if forecast is None:
                break
            found[group.key] = forecast
        statement.rollback(mark)
        return first, found

    def _keep(self, planning: _Planning, group: GroupEntry, kept: Kept) -> bool:
        """Give a group the room that is kept for it, when it is; if that is a moment at which something ends, and
        there is room then. Else the plan is as it was."""
        state, step = planning.state(), group.step
        if step is None or not planning.let_go_until(kept.start):
            planning.restore(state)
            return False
        (run,) = step.runs
        waiting = iter(run.entries)
        rows = np.fromiter(kept.rows, dtype=np.int64, count=len(kept.rows))
        if any(room < n for room, n in zip(run.cls.future_count(rows), kept.rows.values(), strict=True)):
            planning.restore(state)
            return False
        placements: list[tuple[TaskEntry, int]] = []
        for row, n in kept.rows.items():
            for entry in islice(waiting, n):
                planning.statement.pipeline(entry, row)
                placements.append((entry, row))
        planning.note(group, placements)
        return True

    def _next(self, planning: _Planning, group: GroupEntry) -> Forecast | None:
        """Let time pass until the group fits: by doubled strides, then by bisection of the last."""
        step, statement = group.step, planning.statement
        if step is None:
            return None
        state, stride = planning.state(), 0
        before = statement.checkpoint()
        while not self._allocation.attempt(statement, group, step, future=True).done:
            state = planning.state()
            stride = 2 * stride or 1
            if not planning.let_go(stride):
                return None
            before = statement.checkpoint()
        if stride > 1:
            self._nearest(planning, group, state, stride)
            before = statement.checkpoint()
            self._allocation.attempt(statement, group, step, future=True)
        placements = tuple(statement.placements(before))
        parts = parts_by_row(statement.seats(before))
        planning.note(group, placements)
        return Forecast(planning.now, tuple(dict.fromkeys(planning.gone)), placements, parts)

    def _nearest(self, planning: _Planning, group: GroupEntry, state: _State, stride: int) -> None:
        """Let as few moments pass since ``state`` as the group needs: it does not fit there, but after ``stride``."""
        low = passed = 0
        high = stride
        while high - low > 1:
            passed = (low + high) // 2
            planning.restore(state)
            planning.let_go(passed)
            low, high = (low, passed) if self._fits(planning, group) else (passed, high)
        if passed != high:
            planning.restore(state)
            planning.let_go(high)

    def _fits(self, planning: _Planning, group: GroupEntry) -> bool:
        mark = planning.statement.checkpoint()
        step = group.step
        done = (
            step is not None and self._allocation.attempt(planning.statement, group, step, future=True).done
        )
        planning.statement.rollback(mark)
        return done


class _Planning:
    """The moment up to which a plan has come, and what has ended by then: the first ``_past`` of ``_ends``, and
    what has left ``_own``, the ends of those who got their places in this plan."""

    def __init__(self, statement: Statement, ends: Sequence[End], now: float) -> None:
        self.statement = statement
        self.now = now
        self.gone: list[str] = []
        self._ends = ends
        self._last = min(len(ends), MOST_EVENTS)
        self._past = 0
        self._own: list[_Own] = []
        self._numbers = count()

    def let_go_until(self, start: float) -> bool:
        """Let time pass up to a moment; whether something ends at it, or did when the plan came to it."""
        while (moment := self._next()) is not None and moment <= start:
            self.let_go(1)
        return self.now == start

    def let_go(self, n: int) -> bool:
        """Let the next ``n`` moments pass at which something ends; false if there is none left at all."""
        if n and self._next() is None:
            return False
        for _ in range(n):
            moment = self._next()
            if moment is None:
                break
            self.now = moment
            while self._past < self._last and self._ends[self._past][0] == moment:
                _, key, entries = self._ends[self._past]
                self._past += 1
                self._free(key, entries)
            while self._own and self._own[0][0] == moment:
                _, _, key, entries = heapq.heappop(self._own)
                self._free(key, entries)
        return True

    def _next(self) -> float | None:
        """When something ends next."""
        first = self._ends[self._past][0] if self._past < self._last else None
        if self._own and (first is None or self._own[0][0] < first):
            return self._own[0][0]
        return first

    def state(self) -> _State:
        return self.statement.checkpoint(), self.now, len(self.gone), self._past, list(self._own)

    def restore(self, state: _State) -> None:
        mark, self.now, gone, self._past, own = state
        self._own = list(own)
        self.statement.rollback(mark)
        del self.gone[gone:]

    def note(self, group: GroupEntry, placements: Iterable[tuple[TaskEntry, int]]) -> None:
        """A group has got its place; it ends in its turn if it is known how long it runs."""
        estimate = run_time(group)
        entries = [entry for entry, _ in placements]
        if estimate and entries:
            heapq.heappush(self._own, (self.now + estimate, next(self._numbers), group.key, entries))

    def _free(self, key: str, entries: Iterable[TaskEntry]) -> None:
        self.gone.append(key)
        for entry in entries:
            if entry.promised >= 0:
                self.statement.unpromise(entry)
            elif entry.state in OCCUPYING and entry.state is not TaskState.RELEASING:
                self.statement.evict(entry, "forecast")
