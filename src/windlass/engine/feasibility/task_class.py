"""Task classes: tasks with equal needs, and their locations.

What is known about every node for a class is in its
:class:`~windlass.engine.feasibility.node_fit.NodeFit`. Classes that differ only in the
relation of their pods to other pods share it. Masks of ``Domain`` plugins are not part
of it, because they depend on other rows. They are computed at each placement (see
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


def request_of(request_items: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return a complete request: every task takes one of ``pods``."""
    request = {name: units for name, units in request_items if units > 0}
    request[PODS] = max(1, request.get(PODS, 0))
    return request


def _countable(needs: Needs, plugins: PluginSet) -> bool:
    return plugins.countable and plugins.score_never_falls(needs) and not _uses_device_ranks(needs, plugins)


def _uses_device_ranks(needs: Needs, plugins: PluginSet) -> bool:
    """Return whether device scores of whole nodes may change how many tasks the devices hold."""
    several = len(needs.devices) > 1 or any(need.count > 1 for need in needs.devices)
    return bool(plugins.device_ranks) and several


class TaskClass:
    """One class. Its arrays are valid after :meth:`refresh`, until the next change of the table."""

    __slots__ = (
        "_domains",
        "_plugins",
        "_plugins_version",
        "_rankers",
        "_staying_domains",
        "accelerators",
        "countable",
        "device_requests",
        "fit",
        "is_best_effort",
        "items",
        "needs",
        "node_items",
        "number",
        "placed",
        "request",
        "tasks",
        "terminating",
        "used_at",
    )

    def __init__(
        self, number: int, needs: Needs, table: NodeTable, plugins: PluginSet, fit: NodeFit | None = None
    ) -> None:
        """``fit``: one to share, with the same :meth:`~windlass.spi.objects.Needs.node_part`."""
        self.number = number
        self.needs = needs
        self.request: Mapping[str, int] = request_of(needs.request)
        """Request of a task that its queue is charged for."""
        self.fit = fit or NodeFit(
            needs.node_part(),
            request_of(needs.node_request),
            table,
            plugins,
            FitContext(table, plugins),
        )
        self.is_best_effort = not any(name != PODS for name, units in needs.request if units > 0)
        """True if its tasks request nothing (best effort)."""
        self.items = tuple(sorted(self.request.items()))
        self.accelerators = sum(units for name, units in self.items if is_device(name))
        """Devices of any kind that its queue is charged for one task, in milli."""
        self.node_items = tuple(sorted(request_of(needs.node_request).items()))
        """Request of a task to its node, without what is counted by device."""
        self.device_requests = tuple(
            (name, units // WHOLE)
            for name, units in self.node_items
            if is_device(name) and units % WHOLE == 0
        )
        self.tasks = 0
        """Number of existing tasks of the class."""
        self.placed: dict[int, int] = {}
        """Row → number of its tasks on it or nominated to it."""
        self.terminating: dict[int, int] = {}
        """Row → number of its terminating tasks."""
        self.used_at = 0
        self._plugins = plugins
        self._plugins_version = -1
        self._domains: tuple[Domain, ...] = ()
        self._staying_domains: tuple[Domain, ...] = ()
        self._rankers: tuple[RelativeScore, ...] = ()
        self.countable = _countable(needs, plugins)
        """True if filling up the best node equals placing one by one."""

    # ------------------------------------------------------------------ relation to other pods

    @property
    def domains(self) -> tuple[Domain, ...]:
        """Return the plugins about the relation of pods that need updates about tasks of the class."""
        if self._plugins_version != self._plugins.version:
            self._update_plugins()
        return self._domains

    @property
    def domains_without_terminating(self) -> tuple[Domain, ...]:
        """Return those of :attr:`domains` that ignore terminating tasks."""
        if self._plugins_version != self._plugins.version:
            self._update_plugins()
        return self._staying_domains

    @property
    def rankers(self) -> tuple[RelativeScore, ...]:
        """Return the scores by other nodes or pods that may apply to the class."""
        if self._plugins_version != self._plugins.version:
            self._update_plugins()
        return self._rankers

    def placed_without_terminating(self) -> Mapping[int, int]:
        """Return :attr:`placed` without terminating tasks."""
        counts = {row: n - self.terminating.get(row, 0) for row, n in self.placed.items()}
        return {row: n for row, n in counts.items() if n}

    def _update_plugins(self) -> None:
        plugins = self._plugins
        self._plugins_version = plugins.version
        self._domains = plugins.interested(self.number)
        self._staying_domains = tuple([p for p in self._domains if not counts_terminating(p)])
        self._rankers = plugins.rankers(self.number, self.needs.dialect)

    # ------------------------------------------------------------------ fit

    @property
    def vector(self) -> NDArray[np.int64]:
        """Return the request as a row of the table."""
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
        """Return how many tasks of the class fit now, without plugins about other pods."""
        return self.fit.total

    @property
    def allocator(self) -> DeviceAllocator:
        """Return the allocator of devices, for tasks that need shares."""
        return self.fit.allocator

    def refresh(self) -> None:
        """Process the changes since the last call."""
        self.fit.refresh()

    def best(self) -> int:
        """Return the best row for a task of the class now.

        -1 if none. Domain plugins are not applied.
        """
        return self.fit.best()

    def future(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return ``count`` and ``key`` of some rows after all releases and nominations."""
        return self.fit.future(rows)

    def future_count(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return only the counts of :meth:`future`."""
        return self.fit.future_count(rows)

    def future_total(self) -> int:
        """Return ``total`` after all releases."""
        return self.fit.future_total()

    def __repr__(self) -> str:
        return f"<TaskClass {self.number} {dict(self.items)}>"


class ClassIndex:
    """All classes by their needs.

    A class without tasks is kept for a while, because it may be used again.
    """

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
        """Return the class of these needs; a new one is created. Look-up is by identity first."""
        cached = self._by_identity.get(id(needs))
        if cached is not None:
            return cached[1]
        cls = self._by_needs.get(needs) or self.restore(self._next, needs)
        if len(self._by_identity) > 4 * self._keep:
            self._by_identity.clear()
        self._by_identity[id(needs)] = (needs, cls)
        return cls

    def restore(self, number: int, needs: Needs) -> TaskClass:
        """Create the class of these needs, which have to be new, with a given number."""
        cls = TaskClass(number, needs, self._table, self._plugins, self._fit(needs))
        self._next = max(self._next, number + 1)
        self._plugins.learn(number, needs, self.counted_by)
        self._by_needs[needs] = cls
        return cls

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
        """Yield every placed class, with its tasks by row."""
        return ((cls.number, cls.placed) for cls in self._by_needs.values() if cls.placed)

    def placed_without_terminating(self) -> Iterator[tuple[int, Mapping[int, int]]]:
        """Yield :meth:`placed` without terminating tasks."""
        return (
            (cls.number, cls.placed_without_terminating()) for cls in self._by_needs.values() if cls.placed
        )

    def counted_by(self, plugin: Domain) -> Iterator[tuple[int, Mapping[int, int]]]:
        """Return what a plugin about the relation of pods counts, by class."""
        return self.placed() if counts_terminating(plugin) else self.placed_without_terminating()

    def update_countable(self) -> None:
        """Check again which classes may be placed by counting, after scores changed their trend."""
        for cls in self._by_needs.values():
            cls.countable = _countable(cls.needs, self._plugins)

    def touch(self, cls: TaskClass) -> None:
        """Mark the class as used last; the most recently used classes are kept longest."""
        self._clock += 1
        cls.used_at = cls.fit.used_at = self._clock

    def trim(self, watched: Container[TaskClass]) -> None:
        """Keep memory bounded: drop the least recently used classes without tasks, and arrays."""
        if len(self._by_needs) <= self._trim_at:
            return
        idle = sorted((c for c in self._by_needs.values() if not c.tasks), key=lambda c: c.used_at)
        removed = idle[: len(self._by_needs) - self._keep]
        for cls in removed:
            self._plugins.forget(cls.number)
            del self._by_needs[cls.needs]
            cls.fit.users -= 1
            if not cls.fit.users:
                del self._context.fits[cls.fit.needs]
        if removed:
            self._by_identity.clear()
            self._context.budget.share(len(self._context.fits))
        watched_fits = {cls.fit for cls in self._by_needs.values() if cls in watched}
        built = sorted(
            (f for f in self._context.fits.values() if f.built and f not in watched_fits),
            key=lambda f: f.used_at,
        )
        for fit in built[: max(0, len(built) - self._keep)]:
            fit.drop()
        # With tasks in most classes, checking all of them after every cycle would cost
        # more.
        self._trim_at = max(self._keep, len(self._by_needs) + len(self._by_needs) // 8)
