"""Task classes: tasks with equal needs, and what is known about every node for them.

Per class and node: the static mask, ``count`` (how many more tasks of the class the node takes) and
``key``, one integer that ranks the node: score in the high bits, name order in the low ones, -1 where
nothing fits. The best node is ``argmax(key)``. The arrays are brought up to date from the table's
change logs, so a bind costs one row. Answers for a row are remembered by the row's bytes: nodes in
equal states are evaluated once.

Not in these arrays: verdicts of ``Domain`` plugins, which depend on other rows; they are asked at
each placement (see ``placing``).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices import WHOLE
from windlass.engine.policies import Policies
from windlass.engine.table import PODS, NodeTable
from windlass.engine.view import TableView
from windlass.spi.objects import Needs
from windlass.spi.quantities import is_device

UNLIMITED = 1 << 40
SCORE_UNITS = 1_000_000
TIE_BITS = 32
_FEW = 48
_MEMO_LIMIT = 2_000


class TaskClass:
    """One class. Arrays are valid after :meth:`refresh` and before the next change of the table."""

    __slots__ = (
        "_built_epoch",
        "_memo",
        "_policies",
        "_scores",
        "_seen_amounts",
        "_seen_statics",
        "_static_score",
        "_table",
        "_tie_epoch",
        "asks_nothing",
        "built",
        "count",
        "countable",
        "device_requests",
        "items",
        "key",
        "needs",
        "number",
        "placed",
        "request",
        "static",
        "tasks",
        "total",
        "used_at",
        "vector",
    )

    def __init__(self, number: int, needs: Needs, table: NodeTable, policies: Policies) -> None:
        self.number = number
        self.needs = needs
        request = {name: units for name, units in needs.request if units > 0}
        self.asks_nothing = not any(name != PODS for name in request)
        """Whether its tasks ask for no amount of anything (best effort)."""
        request[PODS] = max(1, request.get(PODS, 0))
        self.request: Mapping[str, int] = request
        self.items = tuple(sorted(request.items()))
        self.device_requests = tuple(
            (name, units // WHOLE) for name, units in self.items if is_device(name) and units % WHOLE == 0
        )
        self.vector = table.request_vector(request)
        self.tasks = 0
        """Tasks of the class that exist."""
        self.placed: dict[int, int] = {}
        """Row → tasks of the class on it, or with room promised to them on it."""
        self.total = 0
        """The sum of ``count``: how many tasks of the class the cluster takes now, on its own."""
        self.used_at = 0
        self.countable = policies.countable and policies.rises(needs)
        """Whether filling the best node up equals placing one by one."""
        self._table = table
        self._policies = policies
        self._scores = policies.scores(needs.dialect)
        self.drop()

    def drop(self) -> None:
        """Forget the arrays; the next refresh builds them anew."""
        self.built = False
        self.static: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.count: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.key: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._static_score: NDArray[np.float64] = np.zeros(0)
        self._memo: dict[bytes, tuple[int, float]] = {}
        self.total = 0
        self._built_epoch = -1
        self._tie_epoch = -1
        self._seen_amounts = 0
        self._seen_statics = 0

    def fit_vector(self) -> None:
        """Widen ``vector`` after new resources have appeared."""
        if len(self.vector) != self._table.width:
            self.vector = self._table.request_vector(self.request)

    # ------------------------------------------------------------------ bringing up to date

    def refresh(self) -> None:
        """Take in what has changed since the last time."""
        table = self._table
        if not self.built or self._built_epoch != table.epoch:
            self._build()
            return
        log, statics = table.amounts, table.statics
        if (
            self._seen_statics != statics.base + len(statics.entries)
            or self._tie_epoch != table.ranking.epoch
        ):
            self._refresh_statics()
        entries = log.entries
        behind = log.base + len(entries) - self._seen_amounts
        if not behind:
            return
        if behind == 1:
            self._refresh_few((entries[-1],))
        else:
            changed = log.since(self._seen_amounts)
            if changed is None or len(changed) > 4 * table.height:
                self._refresh_rows(np.arange(table.height, dtype=np.int64), everything=True)
            else:
                rows = set(changed)
                if len(rows) <= _FEW:
                    self._refresh_few(rows)
                else:
                    self._refresh_rows(np.fromiter(rows, dtype=np.int64, count=len(rows)))
        self._seen_amounts = log.base + len(entries)

    def _build(self) -> None:
        table = self._table
        table.ranking.settle()
        self.fit_vector()
        old = self.count
        self.static = np.zeros(table.capacity, dtype=np.bool_)
        self.count = np.zeros(table.capacity, dtype=np.int64)
        self.count[: len(old)] = old
        self.key = np.full(table.capacity, -1, dtype=np.int64)
        self._static_score = np.zeros(table.capacity)
        self._memo = {}
        self.built = True
        self._built_epoch = table.epoch
        self._tie_epoch = table.ranking.epoch
        rows = np.arange(table.height, dtype=np.int64)
        self._judge_statics(rows)
        self._refresh_rows(rows, everything=True)
        self._seen_amounts = table.amounts.mark
        self._seen_statics = table.statics.mark

    def _refresh_statics(self) -> None:
        table = self._table
        table.ranking.settle()
        changed = table.statics.since(self._seen_statics)
        if changed is None or self._tie_epoch != table.ranking.epoch:
            rows = np.arange(table.height, dtype=np.int64)
        else:
            rows = np.array(sorted(set(changed)), dtype=np.int64)
        self._tie_epoch = table.ranking.epoch
        self._seen_statics = table.statics.mark
        if len(rows):
            self._judge_statics(rows)
            self._refresh_rows(rows)

    def _judge_statics(self, rows: NDArray[np.int64]) -> None:
        view = TableView(self._table, rows)
        mask = self._table.live[rows]
        for plugin in self._policies.static_filters:
            verdict = plugin.filter(self.needs, view)
            if verdict is not None:
                mask = mask & verdict
        self.static[rows] = mask
        score = np.zeros(len(rows))
        for plugin in self._scores.static:
            part = plugin.score(self.needs, view)
            if part is not None:
                score += plugin.weight * part
        self._static_score[rows] = score

    def _evaluate(self, view: TableView) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Count and weighted row score, the static mask left out."""
        count = np.full(view.size, UNLIMITED, dtype=np.int64)
        for plugin in self._policies.capacities:
            limit = plugin.capacity(self.needs, view)
            if limit is not None:
                np.minimum(count, limit, out=count)
        for plugin in self._policies.row_filters:
            verdict = plugin.filter(self.needs, view)
            if verdict is not None:
                count[~verdict] = 0
        np.maximum(count, 0, out=count)
        score = np.zeros(view.size)
        for plugin in self._scores.row:
            part = plugin.score(self.needs, view)
            if part is not None:
                score += plugin.weight * part
        return count, score

    def _refresh_rows(self, rows: NDArray[np.int64], *, everything: bool = False) -> None:
        if not len(rows):
            return
        count, score = self._evaluate(TableView(self._table, None if everything else rows))
        count[~self.static[rows]] = 0
        before = self.count[rows]
        self.total += int(count.sum()) - int(before.sum())
        self.count[rows] = count
        self.key[rows] = self._keys(rows, count, score)

    def _keys(
        self, rows: NDArray[np.int64], count: NDArray[np.int64], score: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        ranked = np.rint((self._static_score[rows] + score) / self._scores.weight * SCORE_UNITS)
        keys = (ranked.astype(np.int64) << TIE_BITS) | self._table.ranking.tie[rows]
        keys[count <= 0] = -1
        return keys

    def _refresh_few(self, rows: Collection[int]) -> None:
        """As :meth:`_refresh_rows`, by what is remembered about rows in the same state."""
        planes, static, memo = self._table.planes, self.static, self._memo
        shared = self._policies.shares_rows
        unknown: list[tuple[int, bytes]] = []
        for row in rows:
            if not static[row]:
                continue
            state = planes[row].tobytes()
            if not shared:
                state += row.to_bytes(4, "little")
            known = memo.get(state)
            if known is None:
                unknown.append((row, state))
            else:
                self._set_row(row, known[0], known[1])
        if unknown:
            if len(memo) > _MEMO_LIMIT:
                memo.clear()
            chosen = np.array([row for row, _ in unknown], dtype=np.int64)
            counts, scores = self._evaluate(TableView(self._table, chosen))
            for (row, state), count, score in zip(unknown, counts.tolist(), scores.tolist(), strict=True):
                memo[state] = (count, score)
                self._set_row(row, count, score)

    def _set_row(self, row: int, count: int, score: float) -> None:
        before = int(self.count[row])
        if count != before:
            self.total += count - before
            self.count[row] = count
        if count > 0:
            whole = float(self._static_score[row]) + score
            ranked = round(whole / self._scores.weight * SCORE_UNITS)
            self.key[row] = (ranked << TIE_BITS) | int(self._table.ranking.tie[row])
        else:
            self.key[row] = -1

    # ------------------------------------------------------------------ questions

    def future(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``count`` and ``key`` of some rows as they will be: what terminates gone, promises kept."""
        self.refresh()
        count, score = self._evaluate(TableView(self._table, rows, future=True))
        count[~self.static[rows]] = 0
        return count, self._keys(rows, count, score)

    def future_total(self) -> int:
        """``total`` as it will be once all that terminates is gone."""
        self.refresh()
        rows = self._table.vacating()
        if not len(rows):
            return self.total
        count, _ = self.future(rows)
        return self.total + int(np.maximum(count - self.count[rows], 0).sum())

    def best(self) -> int:
        """The best row that takes a task of the class now; -1 if none. Domains are not asked."""
        self.refresh()
        key = self.key
        if not len(key):
            return -1
        row = int(key.argmax())
        return row if key[row] >= 0 else -1

    def __repr__(self) -> str:
        return f"<TaskClass {self.number} {dict(self.items)}>"


class ClassIndex:
    """All classes by their needs. A class without tasks is kept for a while: its like may come back."""

    def __init__(self, table: NodeTable, policies: Policies, keep: int) -> None:
        self._table = table
        self._policies = policies
        self._keep = keep
        self._by_needs: dict[Needs, TaskClass] = {}
        self._by_identity: dict[int, tuple[Needs, TaskClass]] = {}
        self._next = 0
        self._clock = 0

    def __iter__(self) -> Iterator[TaskClass]:
        return iter(self._by_needs.values())

    def __len__(self) -> int:
        return len(self._by_needs)

    def get(self, needs: Needs) -> TaskClass:
        """The class of these needs, made now if new. Equal objects are looked up by identity first."""
        known = self._by_identity.get(id(needs))
        if known is not None:
            return known[1]
        found = self._by_needs.get(needs) or self.restore(self._next, needs)
        if len(self._by_identity) > 4 * self._keep:
            self._by_identity.clear()
        self._by_identity[id(needs)] = (needs, found)
        return found

    def restore(self, number: int, needs: Needs) -> TaskClass:
        """Make the class of these needs, which must be new, under a given number."""
        found = TaskClass(number, needs, self._table, self._policies)
        self._next = max(self._next, number + 1)
        for plugin in self._policies.domains:
            plugin.learn(number, needs, self.placed())
        self._by_needs[needs] = found
        return found

    def placed(self) -> Iterator[tuple[int, Mapping[int, int]]]:
        """Every class that is placed anywhere, with its tasks by row."""
        return ((cls.number, cls.placed) for cls in self._by_needs.values() if cls.placed)

    def touch(self, cls: TaskClass) -> None:
        """The class was used: it is kept longest."""
        self._clock += 1
        cls.used_at = self._clock

    def trim(self, watched: Container[TaskClass]) -> None:
        """Keep memory bounded: forget classes without tasks, and arrays, used longest ago."""
        if len(self._by_needs) <= self._keep:
            return
        idle = sorted((c for c in self._by_needs.values() if not c.tasks), key=lambda c: c.used_at)
        gone = idle[: len(self._by_needs) - self._keep]
        for cls in gone:
            for plugin in self._policies.domains:
                plugin.forget(cls.number)
            del self._by_needs[cls.needs]
        if gone:
            self._by_identity.clear()
        built = sorted(
            (c for c in self._by_needs.values() if c.built and c not in watched), key=lambda c: c.used_at
        )
        for cls in built[: max(0, len(built) - self._keep)]:
            cls.drop()
