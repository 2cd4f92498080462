"""Domains for gangs with required pod affinity to themselves.

The first task of such a gang may go to any domain, and the others have to follow it. So
the domain is chosen for all of them, as for a topology constraint: the domain with the
least capacity that holds them comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from functools import lru_cache

import numpy as np

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import NextTasks, TaskEntry
from windlass.engine.nodes.table import NodeTable
from windlass.engine.pending.capacity_if_evicted import CapacityIfEvicted
from windlass.engine.placement.domain_selector import DomainDemand, DomainSelector
from windlass.engine.placement.topology_domains import DomainRows
from windlass.spi.plugins import Domain, GathersTasks
from windlass.spi.topology import Level, TopologyNeed

MAX_TRIED = 64
"""Maximum number of domains of one topology key that are tried."""


class GatheringDomains:
    """Finds the domains in which the next tasks of a group may be gathered."""

    def __init__(self, domain_selector: DomainSelector, plugins: Sequence[Domain]) -> None:
        self._domain_selector = domain_selector
        self._plugins = [plugin for plugin in plugins if isinstance(plugin, GathersTasks)]

    def candidates(
        self, step: NextTasks, outer: DomainRows | None, *, future: bool
    ) -> Iterator[tuple[Set[TaskClass], DomainRows]]:
        """Yield classes with a domain that holds their tasks by counts, the tightest first."""
        for key, classes in self.keys(step):
            demand = demand_of(step, classes)
            tree = self._domain_selector.trees.of(need_of(key))
            capacity = self._domain_selector.capacity(tree, 0, demand, outer, future=future)
            suffices = capacity >= demand.members
            suffices[0] = False
            codes = np.flatnonzero(suffices)
            for at in np.argsort(capacity[codes], kind="stable")[:MAX_TRIED].tolist():
                yield classes, tree.scope(0, int(codes[at])).inside(outer)

    def scopes_if_evicted(
        self, table: NodeTable, step: NextTasks, entries: Sequence[TaskEntry]
    ) -> list[DomainRows] | None:
        """Return the domains that could hold all tasks of a step if ``entries`` were evicted.

        Those with most capacity come first. ``None`` if the tasks need not share a domain.
        """
        classes = {batch.cls for batch in step.batches}
        key = next((key for key, gathered in self.keys(step) if gathered == classes), None)
        if key is None:
            return None
        tree = self._domain_selector.trees.of(need_of(key))
        demand = demand_of(step, classes)
        capacity = self._domain_selector.capacity(tree, 0, demand, future=True)
        order = np.argsort(-capacity[1:], kind="stable") + 1
        scopes = [tree.scope(0, code) for code in order.tolist()]
        return [scope for scope in scopes if len(classes) > 1 or _could_hold(table, demand, scope, entries)][
            :MAX_TRIED
        ]

    def constraint(self, step: NextTasks) -> tuple[TopologyNeed, DomainDemand] | None:
        """Return the constraint by which all tasks of a step share a domain, with their demand.

        ``None`` if some need not, or may go next to pods that are placed already.
        """
        classes = {batch.cls for batch in step.batches}
        key = next((key for key, gathered in self.keys(step, first=True) if gathered == classes), None)
        return None if key is None else (need_of(key), demand_of(step, classes))

    def keys(self, step: NextTasks, *, first: bool = False) -> Iterator[tuple[str, Set[TaskClass]]]:
        """Yield topology keys with the classes of the step that have to share a domain.

        ``first``: leave out classes that may already go next to a placed pod.
        """
        classes = {batch.cls.number: batch.cls for batch in step.batches if batch.cls.needs.affinity}
        if not classes:
            return
        classes |= {batch.cls.number: batch.cls for batch in step.batches}
        for plugin in self._plugins:
            for key, numbers in plugin.gathered(classes.keys(), first=first).items():
                yield key, {classes[number] for number in numbers}


def demand_of(step: NextTasks, classes: Collection[TaskClass]) -> DomainDemand:
    """Return the demand of these classes, which the other tasks cannot replace."""
    others = sum(len(batch.entries) for batch in step.batches if batch.cls not in classes)
    batches = [batch for batch in step.batches if batch.cls in classes]
    return DomainDemand.of(batches, max(step.members - others, 1))


def _could_hold(
    table: NodeTable, demand: DomainDemand, scope: DomainRows, entries: Sequence[TaskEntry]
) -> bool:
    """Return whether a domain holds tasks of one class, by counts, without these other tasks."""
    (cls,) = demand.classes
    local = [entry for entry in entries if scope.mask[entry.row]]
    inside = np.where(scope.mask, 1, 0).astype(np.int64)
    return CapacityIfEvicted(table, cls, domains=inside).total_if_evicted(local) >= demand.members


@lru_cache(maxsize=64)
def need_of(key: str) -> TopologyNeed:
    """Return the constraint to one domain of a topology key."""
    return TopologyNeed("pod affinity", (Level(key, key),), required=0)
