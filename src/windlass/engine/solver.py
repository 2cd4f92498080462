"""Making room for a claim: which units go, proven by placing the claimer, within the rules.

What could help is asked first, by amounts; then the units are searched (:mod:`windlass.engine.search`).
Where rules forbid the cheapest units together, others are tried in their stead, a bounded number.

A statement that holds a solution has evicted, promised and moved everything; one without holds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from windlass.engine.allocate import Allocation
from windlass.engine.groups import GroupEntry
from windlass.engine.moves import Mover
from windlass.engine.offers import Unit
from windlass.engine.placing import Placer
from windlass.engine.policies import Policies
from windlass.engine.room import Leftover, Room, lacking, packs
from windlass.engine.search import Order, Search, Tools
from windlass.engine.statement import Statement
from windlass.engine.steps import Step, whole_step
from windlass.engine.victims import Candidates
from windlass.engine.world import World
from windlass.spi.victims import Claim, Move, Terms

NODES = 64
"""From how many nodes work may be moved away for one claim, beside one for each of its tasks."""
LONGER = 16
"""How many longer beginnings are tried where the shortest one that makes room breaks a rule."""


class Solver:
    def __init__(
        self, world: World, policies: Policies, placer: Placer, allocation: Allocation, statement: Statement
    ) -> None:
        self._world = world
        self._policies = policies
        self._placer = placer
        self._allocation = allocation
        self._statement = statement
        self._leftover = Leftover(world.table)
        self._tools = Tools(
            world, policies, allocation, statement, Mover(world, placer, statement, allocation.nearness)
        )

    def solve(
        self, claim: Claim, terms: Terms, candidates: Candidates, group: GroupEntry, step: Step
    ) -> list[Unit] | None:
        """The units that go, everything standing in the statement; ``None`` if there is no way. Empty
        where nobody needs to go: what was placed since the step was last tried may be what it lacked."""
        if terms.move is Move.MUST:
            if not self._enough(claim, step):
                return None
            if terms.only is not None:
                candidates.look_only_at(self._named(terms.only))
            elif self._world.table.height > NODES + step.members:
                candidates.look_only_at(self._nearby(step))
            if terms.groups and not self._packs(candidates, terms.groups, group, step):
                return None
        elif candidates.unsorted and not candidates.queues():
            return None  # as everybody's going would not help, nobody is asked anything
        bound = bool(self._allocation.refusals_of(group, replace(whole_step(group, step), future=True)))
        counted = not bound and self._countable(group, step)
        attempt = Search(self._tools, claim, terms, group, step, counted=counted, spares=not bound)
        possible = partial(self._possible, candidates, group, step)
        if (terms.move is Move.MUST or not counted or candidates.unsorted) and not possible():
            return None
        attempt.possible = possible
        if attempt.without_victims():
            return []
        if bound and terms.move is Move.MUST:
            return None
        found = self._searched(attempt, terms, candidates, bound=bound)
        if found is None and terms.move is not Move.MUST and self._budgeted:
            found = self._around_budgets(attempt, candidates, step)
        return found

    @property
    def _budgeted(self) -> bool:
        return self._policies.heeds_budgets and self._world.budgets.any

    def _searched(
        self, attempt: Search, terms: Terms, candidates: Candidates, *, bound: bool
    ) -> list[Unit] | None:
        """The cheapest units within the terms, as far as they may go together."""
        if bound or terms.move is Move.NEVER:
            return attempt.plain(Order(candidates.in_order(only_allowed=True)))
        everyone = Order(_of_groups(candidates.in_order(only_allowed=False), terms.groups))
        if terms.move is Move.MUST:
            singly = candidates.one_by_one(everyone.source)
            if terms.only is not None:
                turn = {key: at for at, key in enumerate(terms.only)}
                singly = iter(sorted(singly, key=lambda unit: turn.get(unit.group.key, len(turn))))
            return attempt.moving(Order(self._within_budgets(singly) if self._budgeted else singly), LONGER)
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

    def _around_budgets(self, attempt: Search, candidates: Candidates, step: Step) -> list[Unit] | None:
        """Where budgets do not let the cheapest units go together: those that they let, in their order; then
        those on one node alone, of the nodes that lack least."""
        free = self._leftover.free()
        rows: dict[int, None] = {}
        for cls in dict.fromkeys(run.cls for run in step.runs):
            lacks = lacking(self._world.table, free, cls)
            rows.update(dict.fromkeys(np.argsort(lacks, kind="stable")[:LONGER].tolist()))
        forbidden: set[str] = set()
        for row in (None, *rows):
            units = self._within_budgets(candidates.in_order(only_allowed=True), row, forbidden)
            found = attempt.plain(Order(units))
            if found is not None or not forbidden:
                return found
        return None

    def _within_budgets(
        self, units: Iterator[Unit], row: int | None = None, forbidden: set[str] | None = None
    ) -> Iterator[Unit]:
        """Without those that budgets do not let go after the ones before. ``row``: only what is there, if only
        in part. ``forbidden`` gathers the groups of those that budgets keep."""
        left: dict[str, int] = {}
        kept: set[str] = set()
        """Groups of which something stays: a core does not go before what serves nothing without it."""
        for unit in units:
            away = row is not None and all(entry.row != row for entry in unit.entries)
            if away or (unit.view.core and unit.group.key in kept):
                kept.add(unit.group.key)
                continue
            asked = Counter(key for entry in unit.entries for key in entry.task.budgets)
            for key in asked:
                if key not in left and (allowed := self._world.budgets.left(key)) is not None:
                    left[key] = allowed
            if all(n <= left.get(key, n) for key, n in asked.items()):
                for key in asked.keys() & left.keys():
                    left[key] -= asked[key]
                yield unit
            else:
                kept.add(unit.group.key)
                if forbidden is not None:
                    forbidden.add(unit.group.key)

    def _named(self, keys: Sequence[str]) -> list[GroupEntry]:
        groups = self._world.groups
        return [groups[key] for key in keys if key in groups]

    def _nearby(self, step: Step) -> list[GroupEntry]:
        """The groups on the nodes that lack least for a task of the step: work is moved from those only.
        All of them on a cluster of a few dozen nodes."""
        table = self._world.table
        found: dict[str, GroupEntry] = {}
        free = self._leftover.free()
        for cls in dict.fromkeys(run.cls for run in step.runs):
            lacks = lacking(table, free, cls)
            rows = np.argsort(lacks, kind="stable")[: NODES + step.members]
            for row in rows.tolist():
                groups = (entry.group for entry in table.tasks[row].values())
                found.update((group.key, group) for group in groups if group is not None)
        return list(found.values())

    # ------------------------------------------------------------------ necessary conditions

    def _countable(self, group: GroupEntry, step: Step) -> bool:
        """Whether counting room tells exactly if the step fits."""
        if len(step.runs) != 1 or group.near_parts:
            return False
        cls = step.runs[0].cls
        return self._policies.countable and not self._placer.constraints(cls)

    def _enough(self, claim: Claim, step: Step) -> bool:
        """Whether the nodes have enough left in sum, wherever it is: all that moving can put together. What is
        counted by card is left out: there, and of cards of which somebody has a part, moving puts parts on
        fewer cards."""
        table = self._world.table
        columns, left, by_card = table.resources.codes, self._leftover.sums(), self._by_card(step)
        asked = ((name, n) for name, n in claim.request.items() if name in columns and name not in by_card)
        return all(left[columns[name]] >= n for name, n in asked)

    def _by_card(self, step: Step) -> set[str]:
        """The resources of which sums by node do not tell what moving can put together."""
        cards, found = self._world.table.cards, set[str]()
        for run in step.runs:
            if run.cls.needs.devices:
                found |= set(run.cls.request) - {name for name, _ in run.cls.needs.node_request}
        if cards.parted:
            found |= set(cards.resources)
        return found

    def _packs(self, candidates: Candidates, limit: int, group: GroupEntry, step: Step) -> bool:
        """Whether the step, and those of the first groups that may be moved for it, could all have a place:
        by each resource alone, so that most searches in vain are not begun."""
        if len(step.runs) != 1 or group.promises:
            return True
        table, cls = self._world.table, step.runs[0].cls
        cls.fit_vector()
        free, uncounted = self._leftover.free(), self._by_card(step)
        wanted = 1 if step.extra else step.members
        movable = list(candidates.leading(limit))
        for name, units in cls.items:
            column = table.resources.codes.get(name)
            if units <= 0 or column is None or name in uncounted:
                continue
            if not packs(free, column, units, wanted, movable):
                return False
        return True

    def _possible(self, candidates: Candidates, group: GroupEntry, step: Step) -> bool:
        """Whether the step could fit if everybody who may be asked to go were gone."""
        table = self._world.table
        everyone = list(candidates.everyone())
        if not everyone:
            return False
        missing = {run.cls for run in step.runs}
        domains, free = self._domains(group), self._leftover.free()
        best = {cls: Room(table, cls, free, domains).at_best(everyone) for cls in missing}
        if len(missing) == 1 and not step.extra:
            return all(room >= step.members for room in best.values())
        return any(room > 0 for room in best.values())

    def _domains(self, group: GroupEntry) -> NDArray[np.int64] | None:
        return self._allocation.nearness.domains(group) if group.near else None


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
