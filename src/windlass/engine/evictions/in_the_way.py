"""Clearing nodes for a claim by right, where others are in the way who have a right to stay, but agreed to be moved.

What a claim may take can lie in parts of many nodes, beside work that it may not take. Then those who may be taken on
a few nodes go, those who agreed are moved off these nodes, and more of the former go elsewhere where they leave too
little room for the latter. Nothing is done unless the claimer and all who are moved have their places.

The nodes are those on which least has to be moved, by amounts; a bounded number of choices is tried.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from windlass.engine.disruption.offers import Taking, Unit
from windlass.engine.evictions.search import Search
from windlass.engine.evictions.victims import Candidates
from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.groups.steps import Step
from windlass.engine.nodes.table import NodeTable
from windlass.engine.policies import Policies
from windlass.engine.waiting.room import Leftover
from windlass.spi.victims import Claim

CHOICES = 4
"""So many choices of nodes are tried for one claim."""


@dataclass(slots=True)
class _Site:
    """A node, and who has to be moved off it. ``weight``: how much that is of what the node lacks, in
    thousandths of one of the claimer's tasks. ``tasks``: how many of these it takes then."""

    row: int
    movers: list[Unit]
    weight: int
    tasks: int


class InTheWay:
    """One claim of tasks of one class."""

    def __init__(
        self, table: NodeTable, policies: Policies, leftover: Leftover, claim: Claim, step: Step, most: int
    ) -> None:
        """``most``: of so many groups work may be moved (0: of any number)."""
        self._table = table
        self._policies = policies
        self._leftover = leftover
        self._claim = claim
        self._step = step
        self._most = most
        self._cls = step.runs[0].cls
        self._cls.refresh()
        self._asked = [(at, int(self._cls.vector[at])) for at in self._cls.vector.nonzero()[0].tolist()]
        """Column and units of one task."""

    def cleared(
        self, search: Search, right: Candidates, agreed: Candidates, rows: Iterable[int]
    ) -> list[Unit] | None:
        """Who goes, everything standing in the statement; ``None`` if there is no way. ``right``: who may be taken;
        ``agreed``: who may be moved; ``rows``: of which nodes some may be cleared."""
        units = list(right.in_order(only_allowed=False))
        if not units or not self._enough(units):
            return None
        sites = self._sites(units, agreed, rows)
        for first in range(min(CHOICES, len(sites))):
            chosen = self._chosen(sites[first:])
            if chosen is None:
                return None
            found = self._tried(search, units, chosen)
            if found is not None:
                return found
        return None

    def _tried(self, search: Search, units: Sequence[Unit], sites: Sequence[_Site]) -> list[Unit] | None:
        """With these nodes cleared."""
        movers = [unit for site in sites for unit in site.movers]
        moved, rows = {unit.group.key for unit in movers}, {site.row for site in sites}
        here, elsewhere = list[Unit](), list[Unit]()
        for unit in units:
            if unit.group.key not in moved:
                (here if _touches(unit, rows) else elsewhere).append(unit)
        allowed = self._allowed([*here, *elsewhere])
        here = [unit for unit in allowed if _touches(unit, rows)]
        return search.making_way(here, movers, allowed[len(here) :])

    def _allowed(self, units: Iterable[Unit]) -> list[Unit]:
        """Those of the units that the rules let go, one after the other."""
        taking, found = Taking(), list[Unit]()
        stays: set[str] = set()
        """Groups of which something stays: their core does too."""
        for unit in units:
            if unit.group.key in stays or not all(
                [
                    rule.may_take(self._claim, unit.view, taking.by_queue)
                    for rule in self._policies.validations
                ]
            ):
                stays.add(unit.group.key)
            else:
                taking.add(unit)
                found.append(unit)
        return found

    # ------------------------------------------------------------------ the nodes

    def _enough(self, units: Sequence[Unit]) -> bool:
        """Whether all nodes together have enough once all have gone who may be taken."""
        left = self._leftover.sums().copy()
        for unit in units:
            for entry in unit.entries:
                self._give(left, entry)
        return all([left[column] >= self._step.members * units for column, units in self._asked])

    def _chosen(self, sites: Sequence[_Site]) -> list[_Site] | None:
        """The first of the nodes that together take the whole step, of no more groups than may be moved; ``None`` if
        none do, or nobody has to be moved for it."""
        found: list[_Site] = []
        missing, groups = self._step.members, set[str]()
        for site in sites:
            if missing <= 0:
                break
            more = groups | {unit.group.key for unit in site.movers}
            if self._most and len(more) > self._most:
                continue
            groups = more
            found.append(site)
            missing -= site.tasks
        return found if missing <= 0 and groups else None

    def _sites(self, units: Sequence[Unit], agreed: Candidates, rows: Iterable[int]) -> list[_Site]:
        """The nodes that can be cleared, those first on which least has to be moved."""
        by_row: defaultdict[int, list[Unit]] = defaultdict(list)
        for unit in units:
            for row in {entry.row for entry in unit.entries}:
                by_row[row].append(unit)
        cells, found = self._leftover.cells(), list[_Site]()
        for row in rows:
            if not self._cls.static[row]:
                continue
            left, right = cells[row].copy(), self._allowed(by_row.get(row, ()))
            for unit in right:
                for entry in unit.entries:
                    if entry.row == row:
                        self._give(left, entry)
            site = self._site(row, left, self._movable(row, {unit.group.key for unit in right}, agreed))
            if site is not None:
                found.append(site)
        found.sort(key=lambda site: (site.weight, site.row))
        return found

    def _site(self, row: int, left: list[int], movable: Sequence[Unit]) -> _Site | None:
        """How a node is cleared of which so much is left once those have gone who may be taken; ``None`` if it cannot
        be. Where nobody has to be moved it takes as many tasks as have room, else one."""
        tasks = min([max(left[column], 0) // units for column, units in self._asked])
        if tasks:
            return _Site(row, [], 0, tasks)
        missing = [(column, units) for column, units in self._asked if left[column] < units]
        movers: list[Unit] = []
        weight = 0
        for part, _, unit in sorted(_parts(movable, missing)):
            if all([left[column] >= units for column, units in missing]):
                break
            self._give(left, unit.entries[0])
            weight += part
            movers.append(unit)
        if any([left[column] < units for column, units in missing]):
            return None
        return _Site(row, movers, weight, 1)

    def _movable(self, row: int, taken: set[str], agreed: Candidates) -> list[Unit]:
        """What may be moved off a node and may not be taken."""
        groups: dict[str, GroupEntry] = {}
        for entry in self._table.tasks[row].values():
            if entry.group is not None and entry.group.key not in taken:
                groups[entry.group.key] = entry.group
        return [
            unit
            for group in groups.values()
            for unit in agreed.one_by_one(agreed.units_of(group))
            if unit.entries[0].row == row
        ]

    def _give(self, left: list[int], entry: TaskEntry) -> None:
        """Add what a task leaves, of what is asked for."""
        for column, _ in self._asked:
            left[column] += int(entry.cls.vector[column])


def _touches(unit: Unit, rows: Collection[int]) -> bool:
    """Whether a part of a unit is on one of the nodes."""
    return any([entry.row in rows for entry in unit.entries])


def _parts(units: Iterable[Unit], missing: Sequence[tuple[int, int]]) -> Iterator[tuple[int, str, Unit]]:
    """Those of the units, each a task, that hold some of what is missing, by column and amount: the largest part of it
    that they hold, in thousandths, and their key. Who holds least finds another place soonest."""
    for unit in units:
        entry = unit.entries[0]
        part = max([int(entry.cls.vector[column]) * 1000 // units for column, units in missing])
        if part:
            yield part, entry.key, unit
