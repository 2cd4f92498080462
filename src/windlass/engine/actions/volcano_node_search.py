"""Room for one gang, pod by pod, by evicting on one node after another: Volcano's preempt and reclaim.

For each pod the nodes that need nobody to go are tried first; then those on which all that may go would
be enough, best score first (``reclaim``: by name). On a node pods are evicted in victim order until the
claimer fits and its queue may hold it; whoever turns out not to be needed stays. What was evicted on a
node that does not do is undone.

Everything happens in the open statement: the caller keeps it or rolls it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from windlass.engine.actions.context import ActionContext
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.nodes.table import ALLOCATABLE, PROMISED, RELEASING, USED
from windlass.engine.nodes.view import TableView
from windlass.engine.pending.freed_devices import FreedDevices
from windlass.engine.queueing.tier_views import EngineGangView, EngineTaskView
from windlass.engine.queues.flavors import bound_of
from windlass.spi.objects import TaskState
from windlass.spi.plugins import Rejection, StepView
from windlass.spi.tiers import Purpose, Tiers

Rank = Callable[[Iterable[TaskEntry]], list[TaskEntry]]


@dataclass(frozen=True, slots=True)
class NodeSearchRequest:
    """On whose behalf: the claimer, why, under which name evictions are told, and by which order.

    ``scored``: nodes are tried by score. ``rank`` puts candidates into victim order. ``compared``: among so
    many nodes that could be cleared the cheapest is taken; 0: the first is.
    """

    group: GroupEntry
    purpose: Purpose
    action: str
    scored: bool
    rank: Rank
    now: float
    compared: int = 0


class NodeSearch:
    """One search for one claimer. ``candidates``: all pods that might go, any order."""

    def __init__(
        self,
        context: ActionContext,
        tiers: Tiers,
        request: NodeSearchRequest,
        candidates: Sequence[TaskEntry],
    ) -> None:
        self._context = context
        self._tiers = tiers
        self._hunt = request
        self._gang = EngineGangView(request.group)
        self._looks: dict[str, EngineGangView] = {request.group.key: self._gang}
        self._by_row: dict[int, list[TaskEntry]] = {}
        for entry in request.rank(candidates):
            self._by_row.setdefault(entry.row, []).append(entry)
        self._rows = np.fromiter(sorted(self._by_row), dtype=np.int64, count=len(self._by_row))
        self._at = {row: position for position, row in enumerate(self._rows.tolist())}
        self._room = self._ahead(self._rows)
        """What each of these rows would have free if all candidates on it went."""
        vacated, codes = FreedDevices(context.state.table), context.state.table.resources.codes
        for victim in candidates:
            self._room[self._at[victim.row]] += victim.cls.vector
            for name, units in vacated.change(victim, 1).items():
                self._room[self._at[victim.row], codes[name]] += units
        self._orders: dict[int, NDArray[np.int64]] = {}
        """Class → positions of rows in the order in which they are tried. What is only tried or promised
        does not move scores."""
        self._known: dict[int, TaskClass] = {}
        self._vacancies: dict[int, NDArray[np.int64]] = {}
        """Class → the key of every row as it will be; see :meth:`TaskClass.future`."""
        self._gone: list[TaskEntry] = []
        """Who went last."""
        self.gone: list[TaskEntry] = []
        """Who was evicted, in order."""
        self.bound = False
        """Whether queues refused anything before anybody went."""
        self.evictions = 0
        """How many pods go, over all that were placed."""
        self._hopeless: set[tuple[int, int]] = set()
        """(class, row) on which all who may go were not enough."""

    def place(self, entry: TaskEntry) -> bool:
        """Find room for one pod: it is promised there, whoever must go is evicted. False: nothing was done."""
        row = self._vacant(entry)
        if row >= 0:
            self._promise(entry, row)
            return True
        row = self._cheapest(entry) if self._hunt.compared else self._first(entry)
        if row < 0:
            return False
        self.gone += self._gone
        self._promise(entry, row)
        return True

    def spare_needless(self) -> None:
        """Once all pods have room: let everyone stay whose going turned out to free what nobody took. Where
        queues, or other pods, had a say, who goes is left as it is."""
        if self.bound or any(self._context.placer.constraints(cls) for cls in self._known.values()):
            return
        statement, planes = self._context.statement, self._context.state.table.planes
        for victim in reversed(self.gone):
            mark = statement.checkpoint()
            statement.withdraw_eviction(victim)
            allocatable, used, releasing, promised = planes[victim.row]
            over = (used - releasing + promised > allocatable).any()
            if over or not self._context.state.ledger.allocator.sound(victim.row):
                statement.rollback(mark)
            else:
                self.evictions -= 1

    def _first(self, entry: TaskEntry) -> int:
        """The first node that can be cleared, cleared; -1 if there is none."""
        for row in self._clearable(entry.cls):
            if self._clear(entry, row):
                return row
        return -1

    def _cheapest(self, entry: TaskEntry) -> int:
        """Of the first nodes that can be cleared, the one whose victims cost least, cleared: the lowest
        highest priority, the lowest sum of priorities, the fewest, those that began last (as
        kube-scheduler chooses); -1 if there is none."""
        statement = self._context.statement
        best: tuple[tuple[int, int, int, float], int] | None = None
        tried = 0
        for row in self._clearable(entry.cls):
            mark = statement.checkpoint()
            if not self._clear(entry, row):
                continue
            cost = self._cost(self._gone)
            statement.rollback(mark)
            self.evictions -= len(self._gone)
            if best is None or cost < best[0]:
                best = (cost, row)
            tried += 1
            if tried >= self._hunt.compared:
                break
        if best is None:
            return -1
        self._clear(entry, best[1])
        return best[1]

    def _clearable(self, cls: TaskClass) -> Iterator[int]:
        """Rows that may be worth clearing, in order, without those that were tried in vain."""
        for position in self._promising(cls).tolist():
            row = int(self._rows[position])
            if (cls.number, row) not in self._hopeless:
                yield row

    @staticmethod
    def _cost(victims: Sequence[TaskEntry]) -> tuple[int, int, int, float]:
        priorities = [victim.task.priority for victim in victims]
        began = min((victim.task.started or 0.0 for victim in victims), default=0.0)
        return max(priorities, default=0), sum(priorities), len(priorities), -began

    def _promise(self, entry: TaskEntry, row: int) -> None:
        self._context.statement.pipeline(entry, row)
        rows = np.array([row], dtype=np.int64)
        position = self._at.get(row)
        if position is not None:
            self._room[position] -= entry.cls.vector
        for cls in self._known.values():
            self._vacancies[cls.number][row] = cls.future(rows)[1][0]

    def could_hold(self, cls: TaskClass) -> int:
        """At most so many pods of the class find room, whoever goes."""
        table = self._context.state.table
        cls.refresh()
        free = self._ahead(np.arange(table.height, dtype=np.int64))
        free[self._rows] = self._room
        asked = cls.vector > 0
        each = np.maximum(free[:, asked], 0) // cls.vector[asked]
        open_ = cls.static[: table.height]
        if self._context.placer.scope is not None:
            open_ = open_ & self._context.placer.scope.mask
        return int(each.min(axis=1)[open_].sum()) if len(each) else 0

    # ------------------------------------------------------------------ nodes

    def _ahead(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """What will be free on the rows, by resource."""
        planes = self._context.state.table.planes[rows]
        return planes[:, ALLOCATABLE] - planes[:, USED] + planes[:, RELEASING] - planes[:, PROMISED]

    def _vacant(self, entry: TaskEntry) -> int:
        """The best node that takes the pod without anybody else going; -1 if there is none."""
        if self._refused(entry):
            self.bound = True
            return -1
        cls = entry.cls
        rows = np.arange(self._context.state.table.height, dtype=np.int64)
        if not len(rows):
            return -1
        if cls.number not in self._vacancies:
            self._vacancies[cls.number] = cls.future(rows)[1]
            self._known[cls.number] = cls
        key = self._masked(cls, self._vacancies[cls.number], rows)
        at = int(key.argmax())
        return at if key[at] >= 0 else -1

    def _masked(self, cls: TaskClass, key: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        placer = self._context.placer
        domains = placer.constraints(cls)
        bound = bound_of(self._hunt.group, cls, future=True)
        if bound is not None:
            domains.append(bound)
        if not domains:
            return key
        with placer.vacated(self._context.statement):
            mask = placer.domain_mask(cls, domains)
        return key if mask is None else np.where(mask[rows], key, -1)

    def _promising(self, cls: TaskClass) -> NDArray[np.int64]:
        """Positions of rows on which all candidates together would be enough, in the order in which they
        are tried."""
        rows = self._rows
        order = self._orders.get(cls.number)
        if order is None:
            tie = self._context.state.table.ranking.tie[rows]
            order = np.lexsort((-tie, -self._scores(cls, rows))) if self._hunt.scored else np.argsort(-tie)
            self._orders[cls.number] = order
        cls.refresh()
        asked = cls.vector > 0
        enough = (self._room[:, asked] >= cls.vector[asked]).all(axis=1) & cls.static[rows]
        return order[enough[order]]

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

    def _clear(self, entry: TaskEntry, row: int) -> bool:
        """Evict on the node until the pod fits there. False: nothing was done."""
        statement, request = self._context.statement, self._hunt
        offered = [
            EngineTaskView(victim, self._look(victim), request.now, self._context.state.table.nodes[row])
            for victim in self._by_row[row]
            if victim.state is not TaskState.RELEASING
        ]
        if not offered:
            return False
        claimer = EngineTaskView(entry, self._gang, request.now)
        named = {look.task.key for look in self._tiers.victims(request.purpose, claimer, offered)}
        chosen = [look.entry for look in offered if look.task.key in named]
        mark = statement.checkpoint()
        evicted: list[TaskEntry] = []
        for victim in chosen:
            statement.evict(victim, request.action, request.group.key)
            evicted.append(victim)
            if self._fits(entry, row):
                self._spare(entry, row, mark, evicted)
                return True
        statement.rollback(mark)
        self._hopeless.add((entry.cls.number, row))
        return False

    def _spare(self, entry: TaskEntry, row: int, mark: int, evicted: Sequence[TaskEntry]) -> None:
        """Let everyone stay who need not go, those who would go last first."""
        statement, request = self._context.statement, self._hunt
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
        self._gone = needed

    def _fits(self, entry: TaskEntry, row: int) -> bool:
        if self._refused(entry):
            return False
        rows = np.array([row], dtype=np.int64)
        count, key = entry.cls.future(rows)
        return bool(count[0] > 0) and bool(self._masked(entry.cls, key, rows)[0] >= 0)

    def _refused(self, entry: TaskEntry) -> Rejection | None:
        """What the queues say to holding the pod once everybody evicted is gone."""
        group = self._hunt.group
        path = self._gang.path
        if self._hunt.purpose is Purpose.PREEMPT:
            rejection = self._tiers.allots(path, entry.cls.request)
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

    def _look(self, victim: TaskEntry) -> EngineGangView:
        group = victim.group
        if group is None:
            raise RuntimeError(f"{victim.key} belongs to no group")
        look = self._looks.get(group.key)
        if look is None:
            look = self._looks[group.key] = EngineGangView(group)
        return look
