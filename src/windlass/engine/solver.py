"""Making room for a claim: which units go, proven by placing the claimer, within the rules.

The search looks for the shortest beginning of the units' order that makes room, then spares what it
can, dearest first. As more victims never make less room, the set found spares the dearest unit that can be
spared, then the next dearest, and so on: no other set within the rules is cheaper by that measure.

* **Counting**: a step of one class that no policy ties to other pods is searched on amounts alone
  (:mod:`windlass.engine.room`); only the result is placed.
* **Trying**: any other step is placed for each trial, a bounded number of times.

Where rules forbid the cheapest units together, others are tried in their stead, a bounded number.
A step that queues refuse, not nodes, is searched by trying, and nobody is spared for having room.

A statement that holds a solution has evicted, promised and moved everything; one without holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from windlass.engine.allocate import Allocation
from windlass.engine.groups import GroupEntry
from windlass.engine.moves import Mover
from windlass.engine.placing import Placer
from windlass.engine.policies import Policies
from windlass.engine.room import Room, future_free, lacking
from windlass.engine.statement import Statement
from windlass.engine.steps import Step, whole_step
from windlass.engine.victims import Candidates, Taking, Unit
from windlass.engine.world import World
from windlass.spi.victims import Claim, Loot, Move, Terms

TRIALS = 48
"""How many times a step that has to be placed to be judged is placed for one claim."""
EAGER = 64
"""After so many units that did not do it is asked whether all of them would."""
NODES = 64
"""From how many nodes work may be moved away for one claim, beside one for each of its tasks."""
LONGER = 16
"""How many longer beginnings are tried where the shortest one that makes room breaks a rule."""


@dataclass(slots=True)
class Order:
    """The units in order, drawn as far as they were needed."""

    source: Iterator[Unit]
    units: list[Unit] = field(default_factory=list)

    def reach(self, n: int) -> bool:
        """Draw until there are ``n``; whether there are."""
        while len(self.units) < n:
            unit = next(self.source, None)
            if unit is None:
                return False
            self.units.append(unit)
        return True


class Solver:
    def __init__(
        self, world: World, policies: Policies, placer: Placer, allocation: Allocation, statement: Statement
    ) -> None:
        self._world = world
        self._policies = policies
        self._placer = placer
        self._allocation = allocation
        self._statement = statement
        self._mover = Mover(world, placer, statement)

    def solve(
        self, claim: Claim, terms: Terms, candidates: Candidates, group: GroupEntry, step: Step
    ) -> list[Unit] | None:
        """The units that go, everything standing in the statement; ``None`` if there is no way. Empty
        where nobody needs to go: what was placed since the step was last tried may be what it lacked."""
        if terms.move is Move.MUST:
            candidates.look_only_at(self._nearby(step))
        bound = bool(self._allocation.refusals_of(group, replace(whole_step(group, step), future=True)))
        counted = not bound and self._countable(step)
        attempt = _Search(self, claim, terms, group, step, counted=counted, spares=not bound)
        possible = partial(self._possible, claim, terms, candidates, step)
        if (terms.move is Move.MUST or not counted) and not possible():
            return None
        attempt.possible = possible
        if attempt.without_victims():
            return []
        if bound and terms.move is Move.MUST:
            return None
        if bound or terms.move is Move.NEVER:
            return attempt.plain(Order(candidates.in_order(only_allowed=True)))
        everyone = Order(_of_groups(candidates.in_order(only_allowed=False), terms.groups))
        if terms.move is Move.MUST:
            return attempt.moving(Order(candidates.one_by_one(everyone.source)), LONGER)
        found = attempt.moving(everyone, 1)
        if found is None:
            found = attempt.plain(Order(candidates.in_order(only_allowed=True)))
        if found is None:
            found = attempt.moving(everyone, LONGER)
        for without in _omissions(everyone.units) if found is None else ():
            found = attempt.plain(Order(candidates.in_order(only_allowed=True, without=without)))
            if found is not None:
                return found
        return found

    def _nearby(self, step: Step) -> list[GroupEntry]:
        """The groups on the nodes that lack least for a task of the step: work is moved from those only.
        All of them on a cluster of a few dozen nodes."""
        table = self._world.table
        found: dict[str, GroupEntry] = {}
        free = future_free(table)
        for cls in dict.fromkeys(run.cls for run in step.runs):
            lacks = lacking(table, free, cls)
            rows = np.argsort(lacks, kind="stable")[: NODES + step.members]
            for row in rows.tolist():
                if lacks[row] < np.inf:
                    groups = (entry.group for entry in table.tasks[row].values())
                    found.update((group.key, group) for group in groups if group is not None)
        return list(found.values())

    # ------------------------------------------------------------------ necessary conditions

    def _countable(self, step: Step) -> bool:
        """Whether counting room tells exactly if the step fits."""
        if len(step.runs) != 1:
            return False
        cls = step.runs[0].cls
        return cls.countable and not self._placer.constraints(cls)

    def _possible(self, claim: Claim, terms: Terms, candidates: Candidates, step: Step) -> bool:
        """Whether the step could fit if everybody who may be asked to go were gone."""
        table = self._world.table
        if terms.move is Move.MUST:
            free = future_free(table)[table.live[: table.height]].sum(axis=0)
            if any(
                int(free[table.resources.codes[name]]) < units
                for name, units in claim.request.items()
                if name in table.resources.codes
            ):
                return False
        everyone = list(candidates.everyone())
        if not everyone:
            return False
        missing = {run.cls for run in step.runs}
        best = {cls: Room(table, cls).at_best(everyone) for cls in missing}
        if len(missing) == 1 and not step.extra:
            return all(room >= step.members for room in best.values())
        return any(room > 0 for room in best.values())


class _Search:
    """The search for one claim."""

    def __init__(
        self,
        solver: Solver,
        claim: Claim,
        terms: Terms,
        group: GroupEntry,
        step: Step,
        *,
        counted: bool,
        spares: bool,
    ) -> None:
        self._world = solver._world
        self._policies = solver._policies
        self._allocation = solver._allocation
        self._statement = solver._statement
        self._mover = solver._mover
        self._claim = claim
        self._terms = terms
        self._group = group
        self._step = step
        self._counted = counted
        self._spares = spares
        """Whether room alone is missing: then whoever has room again may stay."""
        self._trials = TRIALS
        self.possible: Callable[[], bool] = lambda: True
        """Whether the step could fit if everybody who may be asked to go were gone."""

    def without_victims(self) -> bool:
        """Place the step with nobody going; nothing stands if that does not do."""
        return self._carry_out(())

    # ------------------------------------------------------------------ without moving anybody

    def plain(self, order: Order) -> list[Unit] | None:
        """The cheapest set of units of which each is allowed to go."""
        if self._counted:
            chosen = self._by_counting(order)
            if chosen is None:
                return None
            if chosen and self._carry_out(chosen):
                return self._judged(chosen)
        chosen = self._by_trying(order)
        return self._judged(chosen) if chosen is not None else None

    def _judged(self, units: list[Unit]) -> list[Unit] | None:
        """The units that are left once those that need not go are spared, if the rules let them go."""
        stay: set[Unit] = set()
        moved: set[Unit] = set()
        if self._spares:
            stay, moved = self._mover.spare(units, move=self._terms.move is not Move.NEVER)
        going = [unit for unit in units if unit not in stay]
        if going and self._valid([unit for unit in going if unit not in moved]):
            return going
        self._statement.rollback()
        return None

    def _by_counting(self, order: Order) -> list[Unit] | None:
        """The cheapest set that makes room, by amounts."""
        wanted = self._step.members
        room = Room(self._world.table, self._step.runs[0].cls)
        n = self._fill(room, order)
        if n is None:
            return None
        chosen = order.units[:n]
        cores = _cores(chosen)
        for at in range(n - 2, -1, -1):
            unit = chosen[at]
            if unit.group.key in cores and not unit.view.core:
                continue
            room.change(unit.entries, -1)
            if room.total >= wanted:
                chosen[at : at + 1] = []
                cores.discard(unit.group.key)
            else:
                room.change(unit.entries, 1)
        return chosen

    def _by_trying(self, order: Order) -> list[Unit] | None:
        """The cheapest set that makes room, found by placing the step; it stands in the statement."""
        shortest = self._shortest(order)
        if shortest is None:
            return None
        chosen = order.units[:shortest]
        for at in range(shortest - 2, -1, -1):
            if self._trials <= 0:
                break
            if not chosen[at].view.core and chosen[at].group.key in _cores(chosen):
                continue
            fewer = chosen[:at] + chosen[at + 1 :]
            if self._carry_out(fewer):
                chosen = fewer
            self._statement.rollback()
        return chosen if self._carry_out(chosen) else None

    def _shortest(self, order: Order) -> int | None:
        """The length of the shortest beginning with which the step can be placed."""
        failed, works, n = 0, 0, 1
        while True:
            reached = order.reach(n)
            n = min(n, len(order.units))
            if n == failed:
                return None
            if self._trial(order.units[:n]):
                works = n
                break
            failed = n
            if not reached or self._trials <= 0:
                return None
            n *= 2
        while works - failed > 1 and self._trials > 0:
            middle = (works + failed) // 2
            if self._trial(order.units[:middle]):
                works = middle
            else:
                failed = middle
        return works

    def _trial(self, units: Sequence[Unit]) -> bool:
        done = self._carry_out(units)
        self._statement.rollback()
        return done

    # ------------------------------------------------------------------ with moving

    def moving(self, order: Order, tries: int) -> list[Unit] | None:
        """The shortest beginning that makes room and, with those that can be moved left out, is within
        the rules."""
        first = self._first_that_fits(order)
        if first is None:
            return None
        for n in range(first, first + tries):
            if not order.reach(n) or self._trials <= 0:
                return None
            units = order.units[:n]
            for strategy in self._mover.strategies:
                if not self._carry_out(units):
                    break
                stay, moved = self._mover.spare(units, move=True, strategy=strategy)
                going = [unit for unit in units if unit not in stay]
                charged = [unit for unit in going if unit not in moved]
                if going and not (charged and self._terms.move is Move.MUST) and self._valid(charged):
                    return going
                self._statement.rollback()
        return None

    def _first_that_fits(self, order: Order) -> int | None:
        if not self._counted:
            return self._shortest(order)
        return self._fill(Room(self._world.table, self._step.runs[0].cls), order) or None

    def _fill(self, room: Room, order: Order) -> int | None:
        """Let units go until there is room; how many it takes. Whether it can ever do is asked once it has
        taken a while."""
        n = 0
        while room.total < self._step.members:
            if (n == EAGER and not self.possible()) or not order.reach(n + 1):
                return None
            room.change(order.units[n].entries, 1)
            n += 1
        return n

    # ------------------------------------------------------------------ parts

    def _carry_out(self, units: Sequence[Unit]) -> bool:
        """Evict the units and place the step. On failure the statement is empty."""
        self._trials -= 1
        statement = self._statement
        for unit in units:
            for entry in unit.entries:
                statement.evict(entry, self._claim.action, self._group.key)
        if self._allocation.attempt(statement, self._group, self._step, future=True).done:
            return True
        statement.rollback()
        return False

    def _valid(self, charged: Sequence[Unit]) -> bool:
        """Whether the rules let these go, in this order, for good."""
        taking = Taking()
        rules = self._policies.validations
        for unit in charged:
            if not all(rule.may_take(self._claim, unit.view, taking.by_queue) for rule in rules):
                return False
            taking.add(unit)
        loot = Loot([unit.view for unit in charged], taking.by_queue)
        return all(rule.validates(self._claim, loot) for rule in rules)


def _cores(units: Sequence[Unit]) -> set[str]:
    """The groups whose core goes. Their extras would serve nothing alone, so they go too."""
    return {unit.group.key for unit in units if unit.view.core}


def _omissions(units: Sequence[Unit]) -> Iterator[set[str]]:
    """Groups to leave out: where the rules let no further unit go after the first ones, others may go
    instead of these. The first ones together, then each one alone; none if there are many."""
    groups = list(dict.fromkeys(unit.group.key for unit in units))
    if len(groups) > LONGER:
        return
    for n in range(1, len(groups)):
        yield set(groups[:n])
    for key in groups[1:]:
        yield {key}


def _of_groups(units: Iterator[Unit], limit: int) -> Iterator[Unit]:
    """The units of the first ``limit`` groups (0: of all)."""
    seen: set[str] = set()
    for unit in units:
        seen.add(unit.group.key)
        if limit and len(seen) > limit:
            return
        yield unit
