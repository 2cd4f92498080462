"""Eviction node by node for the pods of one gang: Volcano's preempt and reclaim.

For each pod, nodes that need no eviction are tried first. Then follow the nodes on
which all candidates together would be enough, best score first (``reclaim``: by name).
On a node, pods are evicted in victim order until the pod fits and its queue may hold
it. Victims that turn out to be unnecessary stay. Evictions on an unsuitable node are
undone.

Everything happens in the open statement: the caller keeps it or rolls it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windlass.engine.actions.context import ActionContext
from windlass.engine.device_allocation.freed_devices import FreedDevices
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.nodes.table import ALLOCATABLE, NOMINATED, RELEASING, USED
from windlass.engine.nodes.view import TableView
from windlass.engine.queueing.tier_views import EngineGangView, EngineTaskView
from windlass.engine.queues.flavors import flavor_bound_of
from windlass.spi.objects import TaskState
from windlass.spi.plugins import Rejection, StepView
from windlass.spi.tiers import Purpose, Tiers

Rank = Callable[[Iterable[TaskEntry]], list[TaskEntry]]


@dataclass(frozen=True, slots=True)
class NodeSearchRequest:
    """Request of a search: preemptor, purpose, action named in evictions, and victim order.

    ``scored``: nodes are tried by score.
    ``rank``: function that sorts candidates into victim order.
    ``compared``: the cheapest of so many suitable nodes is used; 0: the first one.
    """

    group: GroupEntry
    purpose: Purpose
    action: str
    scored: bool
    rank: Rank
    now: float
    compared: int = 0


class NodeSearch:
    """One search for one preemptor. ``candidates``: all possible victims, in any order."""

    def __init__(
        self,
        context: ActionContext,
        tiers: Tiers,
        request: NodeSearchRequest,
        candidates: Sequence[TaskEntry],
    ) -> None:
        self._context = context
        self._tiers = tiers
        self._request = request
        self._gang = EngineGangView(request.group)
        self._views: dict[str, EngineGangView] = {request.group.key: self._gang}
        self._by_row: dict[int, list[TaskEntry]] = {}
        for entry in request.rank(candidates):
            self._by_row.setdefault(entry.row, []).append(entry)
        self._rows = np.fromiter(sorted(self._by_row), dtype=np.int64, count=len(self._by_row))
        self._positions = {row: position for position, row in enumerate(self._rows.tolist())}
        self._capacity = self._future_free(self._rows)
        """Free amounts of each of these rows if all candidates on it were evicted."""
        freed, codes = FreedDevices(context.state.table), context.state.table.resources.codes
        for victim in candidates:
            self._capacity[self._positions[victim.row]] += victim.cls.vector
            for name, units in freed.set_evicted(victim, 1).items():
                self._capacity[self._positions[victim.row], codes[name]] += units
        self._orders: dict[int, NDArray[np.int64]] = {}
        """Class → positions of rows in the order of their trial.

        Tentative evictions and nominations do not change scores.
        """
        self._known: dict[int, TaskClass] = {}
        self._future_keys: dict[int, NDArray[np.int64]] = {}
        """Class → key of every row after all releases; see :meth:`TaskClass.future`."""
        self._last_victims: list[TaskEntry] = []
        """Victims of the last node."""
        self.victims: list[TaskEntry] = []
        """Victims in order."""
        self.bound = False
        """True if queues rejected a pod before any eviction."""
        self.evictions = 0
        """Number of victims of all placed pods."""
        self._insufficient: set[tuple[int, int]] = set()
        """(Class, row) pairs for which all candidates were not enough."""

    def place(self, entry: TaskEntry) -> bool:
        """Nominate one pod to a node, and evict what is necessary. False: nothing was done."""
        row = self._without_evictions(entry)
        if row >= 0:
            self._nominate(entry, row)
            return True
        row = self._cheapest(entry) if self._request.compared else self._first_suitable(entry)
        if row < 0:
            return False
        self.victims += self._last_victims
        self._nominate(entry, row)
        return True

    def protect_unnecessary(self) -> None:
        """Keep victims that free capacity which no pod uses, after all pods are placed.

        If queues or other pods affected the search, the victims stay as they are.
        """
        if self.bound or any(self._context.placer.constraints(cls) for cls in self._known.values()):
            return
        statement, planes = self._context.statement, self._context.state.table.planes
        for victim in reversed(self.victims):
            mark = statement.checkpoint()
            statement.withdraw_eviction(victim)
            allocatable, used, releasing, promised = planes[victim.row]
            over = (used - releasing + promised > allocatable).any()
            if over or not self._context.state.ledger.allocator.is_consistent(victim.row):
                statement.rollback(mark)
            else:
                self.evictions -= 1

    def _first_suitable(self, entry: TaskEntry) -> int:
        """Evict on the first suitable node and return it; -1 if there is none."""
        for row in self._promising_rows(entry.cls):
            if self._evict_on(entry, row):
                return row
        return -1

    def _cheapest(self, entry: TaskEntry) -> int:
        """Evict on the cheapest of the first suitable nodes and return it; -1 if there is none.

        Cost is, as in kube-scheduler: highest priority, sum of priorities, number of
        victims, latest start.
        """
        statement = self._context.statement
        best: tuple[tuple[int, int, int, float], int] | None = None
        tried = 0
        for row in self._promising_rows(entry.cls):
            mark = statement.checkpoint()
            if not self._evict_on(entry, row):
                continue
            cost = self._cost(self._last_victims)
            statement.rollback(mark)
            self.evictions -= len(self._last_victims)
            if best is None or cost < best[0]:
                best = (cost, row)
            tried += 1
            if tried >= self._request.compared:
                break
        if best is None:
            return -1
        self._evict_on(entry, best[1])
        return best[1]

    def _promising_rows(self, cls: TaskClass) -> Iterator[int]:
        """Yield rows that may become suitable, in order, without those that failed."""
        for position in self._promising_positions(cls).tolist():
            row = int(self._rows[position])
            if (cls.number, row) not in self._insufficient:
                yield row

    @staticmethod
    def _cost(victims: Sequence[TaskEntry]) -> tuple[int, int, int, float]:
        priorities = [victim.task.priority for victim in victims]
        started = min((victim.task.started or 0.0 for victim in victims), default=0.0)
        return max(priorities, default=0), sum(priorities), len(priorities), -started

    def _nominate(self, entry: TaskEntry, row: int) -> None:
        self._context.statement.pipeline(entry, row)
        rows = np.array([row], dtype=np.int64)
        position = self._positions.get(row)
        if position is not None:
            self._capacity[position] -= entry.cls.vector
        for cls in self._known.values():
            self._future_keys[cls.number][row] = cls.future(rows)[1][0]

    def could_hold(self, cls: TaskClass) -> int:
        """Return an upper bound of the pods of the class that could be placed, whatever is evicted."""
        table = self._context.state.table
        cls.refresh()
        free = self._future_free(np.arange(table.height, dtype=np.int64))
        free[self._rows] = self._capacity
        requested = cls.vector > 0
        each = np.maximum(free[:, requested], 0) // cls.vector[requested]
        accepting = cls.static[: table.height]
        if self._context.placer.scope is not None:
            accepting = accepting & self._context.placer.scope.mask
        return int(each.min(axis=1)[accepting].sum()) if len(each) else 0

    # ------------------------------------------------------------------ nodes

    def _future_free(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what will be free on the rows, by resource."""
        planes = self._context.state.table.planes[rows]
        return planes[:, ALLOCATABLE] - planes[:, USED] + planes[:, RELEASING] - planes[:, NOMINATED]

    def _without_evictions(self, entry: TaskEntry) -> int:
        """Return the best node that takes the pod without further evictions; -1 if there is none."""
        if self._rejection(entry):
            self.bound = True
            return -1
        cls = entry.cls
        rows = np.arange(self._context.state.table.height, dtype=np.int64)
        if not len(rows):
            return -1
        if cls.number not in self._future_keys:
            self._future_keys[cls.number] = cls.future(rows)[1]
            self._known[cls.number] = cls
        key = self._masked(cls, self._future_keys[cls.number], rows)
        index = int(key.argmax())
        return index if key[index] >= 0 else -1

    def _masked(self, cls: TaskClass, key: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        placer = self._context.placer
        domains = placer.constraints(cls)
        bound = flavor_bound_of(self._request.group, cls, future=True)
        if bound is not None:
            domains.append(bound)
        if not domains:
            return key
        with placer.vacated(self._context.statement):
            mask = placer.domain_mask(cls, domains)
        return key if mask is None else np.where(mask[rows], key, -1)

    def _promising_positions(self, cls: TaskClass) -> NDArray[np.int64]:
        """Return positions of rows where all candidates would be enough, in order of trial."""
        rows = self._rows
        order = self._orders.get(cls.number)
        if order is None:
            tie = self._context.state.table.ranking.tie[rows]
            order = np.lexsort((-tie, -self._scores(cls, rows))) if self._request.scored else np.argsort(-tie)
            self._orders[cls.number] = order
        cls.refresh()
        requested = cls.vector > 0
        is_enough = (self._capacity[:, requested] >= cls.vector[requested]).all(axis=1) & cls.static[rows]
        return order[is_enough[order]]

    def _scores(self, cls: TaskClass, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        plugins, view = self._context.plugins, TableView(self._context.state.table, rows)
        scores = plugins.scores(cls.needs.dialect)
        score = np.zeros(len(rows))
        for plugin in (*scores.static, *scores.row):
            part = plugin.score(cls.needs, view)
            if part is not None:
                score += plugin.weight * part
        return score

    # ------------------------------------------------------------------ one node

    def _evict_on(self, entry: TaskEntry, row: int) -> bool:
        """Evict on the node until the pod fits there. False: nothing was done."""
        statement, request = self._context.statement, self._request
        candidates = [
            EngineTaskView(victim, self._view_of(victim), request.now, self._context.state.table.nodes[row])
            for victim in self._by_row[row]
            if victim.state is not TaskState.RELEASING
        ]
        if not candidates:
            return False
        preemptor = EngineTaskView(entry, self._gang, request.now)
        victim_keys = {view.task.key for view in self._tiers.victims(request.purpose, preemptor, candidates)}
        chosen = [view.entry for view in candidates if view.task.key in victim_keys]
        mark = statement.checkpoint()
        evicted: list[TaskEntry] = []
        for victim in chosen:
            statement.evict(victim, request.action, request.group.key)
            evicted.append(victim)
            if self._fits(entry, row):
                self._protect(entry, row, mark, evicted)
                return True
        statement.rollback(mark)
        self._insufficient.add((entry.cls.number, row))
        return False

    def _protect(self, entry: TaskEntry, row: int, mark: int, evicted: Sequence[TaskEntry]) -> None:
        """Keep unnecessary victims, those that were evicted last first."""
        statement, request = self._context.statement, self._request
        needed = list(evicted)
        for victim in reversed(evicted[:-1]):
            rest = [other for other in needed if other is not victim]
            statement.rollback(mark)
            for other in rest:
                statement.evict(other, request.action, request.group.key)
            if self._fits(entry, row):
                needed = rest
        statement.rollback(mark)
        for other in needed:
            statement.evict(other, request.action, request.group.key)
        self.evictions += len(needed)
        self._last_victims = needed

    def _fits(self, entry: TaskEntry, row: int) -> bool:
        if self._rejection(entry):
            return False
        rows = np.array([row], dtype=np.int64)
        count, key = entry.cls.future(rows)
        return bool(count[0] > 0) and bool(self._masked(entry.cls, key, rows)[0] >= 0)

    def _rejection(self, entry: TaskEntry) -> Rejection | None:
        """Return the rejection of the pod by the queues after all evictions."""
        group = self._request.group
        path = self._gang.path
        if self._request.purpose is Purpose.PREEMPT:
            rejection = self._tiers.may_allocate(path, entry.cls.request)
            if rejection is not None:
                return rejection
        step = StepView(group.spec, entry.cls.request, 1, future=True, needs=(entry.cls.needs,))
        nodes = TableView(self._context.state.table)
        for plugin in self._context.plugins.admissions:
            if not getattr(plugin, "turns_only", False):
                rejection = plugin.admits(step, path, nodes)
                if rejection is not None:
                    return rejection
        return None

    def _view_of(self, victim: TaskEntry) -> EngineGangView:
        group = victim.group
        if group is None:
            raise RuntimeError(f"{victim.key} belongs to no group")
        view = self._views.get(group.key)
        if view is None:
            view = self._views[group.key] = EngineGangView(group)
        return view
