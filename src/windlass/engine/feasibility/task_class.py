"""Task classes: tasks with equal needs, and where they are.

What is known about every node for a class stands in its :class:`~windlass.engine.feasibility.node_fit.NodeFit`, which
it shares with the classes that differ from it only in how their pods relate to other pods. Not in those
arrays: verdicts of ``Domain`` plugins, which depend on other rows; they are asked at each placement (see
``placement``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from windlass.engine.device_allocation.allocator import DeviceAllocator
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.feasibility.evaluate import SCORE_UNITS, TIE_BITS, UNLIMITED
from windlass.engine.feasibility.node_fit import FitContext, NodeFit
from windlass.engine.nodes.table import PODS, NodeTable
from windlass.engine.plugin_set import PluginSet, counts_terminating
from windlass.spi.objects import Needs
from windlass.spi.plugins import Domain, RelativeScore
from windlass.spi.quantities import is_device

__all__ = ["SCORE_UNITS", "TIE_BITS", "UNLIMITED", "ClassIndex", "NodeFit", "TaskClass", "request_of"]


def request_of(amounts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """A request in full: every task takes one of ``pods``."""
    request = {name: units for name, units in amounts if units > 0}
    request[PODS] = max(1, request.get(PODS, 0))
    return request


def _countable(needs: Needs, plugins: PluginSet) -> bool:
    return plugins.countable and plugins.rises(needs) and not _ranked(needs, plugins)


def _ranked(needs: Needs, plugins: PluginSet) -> bool:
    """Whether policies that look at a whole node choose among its cards, and their choice may bear on how
    many tasks the cards hold."""
    several = len(needs.devices) > 1 or any(need.count > 1 for need in needs.devices)
    return bool(plugins.card_ranks) and several


class TaskClass:
    """One class. What it says about nodes is valid after :meth:`refresh` and before the next change of
    the table."""

    __slots__ = (
        "_domains",
        "_plugins",
        "_rankers",
        "_staying_domains",
        "_told",
        "accelerators",
        "asks_nothing",
        "countable",
        "device_requests",
        "ending",
        "fit",
        "items",
        "needs",
        "node_items",
        "number",
        "placed",
        "request",
        "tasks",
        "used_at",
    )

    def __init__(
        self, number: int, needs: Needs, table: NodeTable, plugins: PluginSet, fit: NodeFit | None = None
    ) -> None:
        """``fit``: one to share, of the same :meth:`~windlass.spi.objects.Needs.node_part`."""
        self.number = number
        self.needs = needs
        self.request: Mapping[str, int] = request_of(needs.request)
        """What its queue is charged for a task."""
        self.fit = fit or NodeFit(
            needs.node_part(),
            request_of(needs.node_request),
            table,
            plugins,
            FitContext(table, plugins),
        )
        self.asks_nothing = not any(name != PODS for name, units in needs.request if units > 0)
        """Whether its tasks ask for no amount of anything (best effort)."""
        self.items = tuple(sorted(self.request.items()))
        self.accelerators = sum(units for name, units in self.items if is_device(name))
        """How much of accelerators of any kind its queue is charged for a task, in milli."""
        self.node_items = tuple(sorted(request_of(needs.node_request).items()))
        """What a task takes of its node, but for what is counted by card."""
        self.device_requests = tuple(
            (name, units // WHOLE)
            for name, units in self.node_items
            if is_device(name) and units % WHOLE == 0
        )
        self.tasks = 0
        """Tasks of the class that exist."""
        self.placed: dict[int, int] = {}
        """Row → tasks of the class on it, or with room promised to them on it."""
        self.ending: dict[int, int] = {}
        """Row → those of them on it that terminate."""
        self.used_at = 0
        self._plugins = plugins
        self._told = -1
        self._domains: tuple[Domain, ...] = ()
        self._staying_domains: tuple[Domain, ...] = ()
        self._rankers: tuple[RelativeScore, ...] = ()
        self.countable = _countable(needs, plugins)
        """Whether filling the best node up equals placing one by one."""

    # ------------------------------------------------------------------ in relation to others

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The policies about pods in relation to one another that mind the class: to be told of its tasks."""
        if self._told != self._plugins.told:
            self._hear()
        return self._domains

    @property
    def staying_domains(self) -> tuple[Domain, ...]:
        """Those of :attr:`domains` to whom a task that terminates is gone."""
        if self._told != self._plugins.told:
            self._hear()
        return self._staying_domains

    @property
    def rankers(self) -> tuple[RelativeScore, ...]:
        """The scores by other nodes or pods that may have an opinion on the class."""
        if self._told != self._plugins.told:
            self._hear()
        return self._rankers

    def staying(self) -> Mapping[int, int]:
        """:attr:`placed` without the tasks that terminate."""
        left = {row: n - self.ending.get(row, 0) for row, n in self.placed.items()}
        return {row: n for row, n in left.items() if n}

    def _hear(self) -> None:
        plugins = self._plugins
        self._told = plugins.told
        self._domains = plugins.minding(self.number)
        self._staying_domains = tuple([p for p in self._domains if not counts_terminating(p)])
        self._rankers = plugins.rankers(self.number, self.needs.dialect)

    # ------------------------------------------------------------------ of its fit

    @property
    def vector(self) -> NDArray[np.int64]:
        """The request as a row of the table."""
        return self.fit.evaluator.vector

    @property
    def built(self) -> bool:
        return self.fit.built

    @property
    def static(self) -> NDArray[np.bool_]:
        return self.fit.static

    @property
    def count(self) -> NDArray[np.int64]:
        return self.fit.count

    @property
    def key(self) -> NDArray[np.int64]:
        return self.fit.key

    @property
    def total(self) -> int:
        """How many tasks of the class the cluster takes now, on its own; policies about other pods not
        asked."""
        return self.fit.total

    @property
    def allocator(self) -> DeviceAllocator:
        """For tasks that need parts of cards: who knows of cards."""
        return self.fit.allocator

    def refresh(self) -> None:
        """Take in what has changed since the last time."""
        self.fit.refresh()

    def best(self) -> int:
        """The best row that takes a task of the class now; -1 if none. Domains are not asked."""
        return self.fit.best()

    def future(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``count`` and ``key`` of some rows as they will be: what terminates gone, promises kept."""
        return self.fit.future(rows)

    def future_count(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first of :meth:`future` alone."""
        return self.fit.future_count(rows)

    def future_total(self) -> int:
        """``total`` as it will be once all that terminates is gone."""
        return self.fit.future_total()

    def __repr__(self) -> str:
        return f"<TaskClass {self.number} {dict(self.items)}>"


class ClassIndex:
    """All classes by their needs. A class without tasks is kept for a while: its like may come back."""

    def __init__(self, table: NodeTable, plugins: PluginSet, keep: int) -> None:
        self._table = table
        self._plugins = plugins
        self._keep = keep
        self._by_needs: dict[Needs, TaskClass] = {}
        self._context = FitContext(table, plugins)
        self.allocator = self._context.allocator
        self._trim_at = keep
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
        found = TaskClass(number, needs, self._table, self._plugins, self._fit(needs))
        self._next = max(self._next, number + 1)
        self._plugins.learn(number, needs, self.counted_by)
        self._by_needs[needs] = found
        return found

    def _fit(self, needs: Needs) -> NodeFit:
        part = needs.node_part()
        fit = self._context.fits.get(part)
        if fit is None:
            request = request_of(part.node_request)
            fit = NodeFit(part, request, self._table, self._plugins, self._context)
            self._context.fits[part] = fit
            self._context.budget.share(len(self._context.fits))
        fit.users += 1
        return fit

    def placed(self) -> Iterator[tuple[int, Mapping[int, int]]]:
        """Every class that is placed anywhere, with its tasks by row."""
        return ((cls.number, cls.placed) for cls in self._by_needs.values() if cls.placed)

    def staying(self) -> Iterator[tuple[int, Mapping[int, int]]]:
        """:meth:`placed` without the tasks that terminate."""
        return ((cls.number, cls.staying()) for cls in self._by_needs.values() if cls.placed)

    def counted_by(self, plugin: Domain) -> Iterator[tuple[int, Mapping[int, int]]]:
        """What a policy about pods in relation to one another counts, by class."""
        return self.placed() if counts_terminating(plugin) else self.staying()

    def judge_trends(self) -> None:
        """Scores move differently from now on: look again which classes may be placed by counting."""
        for cls in self._by_needs.values():
            cls.countable = _countable(cls.needs, self._plugins)

    def touch(self, cls: TaskClass) -> None:
        """The class was used: it is kept longest."""
        self._clock += 1
        cls.used_at = cls.fit.used_at = self._clock

    def trim(self, watched: Container[TaskClass]) -> None:
        """Keep memory bounded: forget classes without tasks, and arrays, used longest ago."""
        if len(self._by_needs) <= self._trim_at:
            return
        idle = sorted((c for c in self._by_needs.values() if not c.tasks), key=lambda c: c.used_at)
        gone = idle[: len(self._by_needs) - self._keep]
        for cls in gone:
            self._plugins.forget(cls.number)
            del self._by_needs[cls.needs]
            cls.fit.users -= 1
            if not cls.fit.users:
                del self._context.fits[cls.fit.needs]
        if gone:
            self._by_identity.clear()
            self._context.budget.share(len(self._context.fits))
        kept = {cls.fit for cls in self._by_needs.values() if cls in watched}
        built = sorted(
            (f for f in self._context.fits.values() if f.built and f not in kept), key=lambda f: f.used_at
        )
        for fit in built[: max(0, len(built) - self._keep)]:
            fit.drop()
        # Where most classes have tasks, looking through all of them after every cycle would cost more.
        self._trim_at = max(self._keep, len(self._by_needs) + len(self._by_needs) // 8)
