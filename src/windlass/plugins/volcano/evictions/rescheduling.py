"""``rescheduling``: pods leave nodes that are loaded above a target, as far as nodes with little load take them.

Its one strategy, ``lowNodeUtilization``, looks at the measured load of CPU and memory. A node is *low* where both are
below ``thresholds``, and it takes pods; *high* where one is above ``targetThresholds``. Every ``interval`` pods leave
high nodes, the most loaded node first, from each those of lowest priority and quality of service first, until it is at
its targets; a pod counts for what it asks for. Done by the action ``shuffle``.

Beyond Volcano, where all low nodes are one sum: each pod has a node that takes it and stays within the targets with it;
a pod goes only if it asks for some of what its node has too much load of; what was moved too late for the figures to
show it counts as moved; nodes without figures that are fresh neither give nor take; and who comes in the place of a
moved pod is not put on a node above the targets while others take him.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windlass.plugins.argument_values import Arguments, duration, number
from windlass.plugins.arguments import LOW_NODE_UTILIZATION
from windlass.plugins.dialects import VOLCANO
from windlass.plugins.volcano.nodes.usage import Estimator
from windlass.spi.inputs import FRESH_SECONDS, MEASURED, NodeLoad
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.objects import Needs, Resources
from windlass.spi.plugins import Footprint, Trend
from windlass.spi.tiers import TaskView

INTERVAL = "5m"
METRICS_PERIOD = "5m"
WHOLE = 100.0
"""Every threshold that is not given, in percent."""
_BEST_EFFORT = Estimator().best_effort


@dataclass(frozen=True, slots=True)
class Rules:
    """Durations in seconds, thresholds in percent of what the node has, for cpu and memory."""

    interval: float = 300.0
    mean_seconds: float = 300.0
    thresholds: tuple[float, float] = (WHOLE, WHOLE)
    targets: tuple[float, float] = (WHOLE, WHOLE)


@dataclass(frozen=True, slots=True)
class _Move:
    """A pod that was moved. ``amounts``: what it counts for, of cpu and memory in engine units."""

    time: float
    source: str
    target: str
    amounts: tuple[int, int]


class Rescheduling:
    """Holds the figures and what was moved of late; one instance serves one engine."""

    name = "rescheduling"
    footprint = Footprint.STATIC
    dialects = VOLCANO
    outranks_vacancy = True

    def __init__(self, rules: Rules) -> None:
        self.weight = 1.0
        self.rules = rules
        self.mean_seconds = rules.mean_seconds
        self._loads: dict[str, NodeLoad] = {}
        self._next: float | None = None
        """When somebody is moved next; the first time an interval after the first look."""
        self._moves: list[_Move] = []
        self._gone: dict[Needs, None] = {}
        """What pods that were moved the last time need."""
        self._sent: frozenset[Needs] = frozenset()
        """The same as of the last :meth:`changed`, which answers go by."""
        self._high: frozenset[str] = frozenset()
        self._changed = False
        """True if :attr:`_high` is to be made anew whatever the time."""
        self._lasts = float("inf")
        """Up to when it holds, as nothing else happens."""

    # ------------------------------------------------------------------ what is told

    def take_loads(self, loads: Mapping[str, NodeLoad]) -> None:
        """The newest figures by node; they replace all earlier ones."""
        self._loads = dict(loads)
        self._changed = True

    def note(self, move: _Move, needs: Needs) -> None:
        """A pod goes, and its place is kept."""
        self._moves.append(move)
        self._gone[needs.node_part()] = None
        self._changed = True

    # ------------------------------------------------------------------ who goes

    def relief(self, running: Sequence[TaskView], nodes: NodeView, now: float) -> ReschedulingRound | None:
        if self._next is None:
            self._next = now + self.rules.interval
            return None
        if now < self._next:
            return None
        self._next = now + self.rules.interval
        self._gone.clear()
        self._changed = True
        figures = _LoadTable(self.rules, nodes, self._current(nodes.names(), now))
        if not figures.low.any() or not figures.high.any():
            return None
        return ReschedulingRound(self, figures, running, now)

    def next_due(self, now: float) -> float | None:
        return now + self.rules.interval if self._next is None else max(self._next, now)

    def _current(self, names: Sequence[str], now: float) -> dict[str, tuple[NodeLoad, tuple[int, int]]]:
        """By node its load, if that is fresh, and what of cpu and memory was moved there since it began to be
        measured, less what was moved from it."""
        self._moves = [m for m in self._moves if now - m.time < FRESH_SECONDS + self.mean_seconds]
        found = {name: (load, (0, 0)) for name in names if (load := self._fresh(name, now)) is not None}
        for move in self._moves:
            for name, sign in ((move.source, -1), (move.target, 1)):
                load, (cpu, memory) = found.get(name, (None, (0, 0)))
                if load is not None and move.time > load.measured - self.mean_seconds:
                    moved = (cpu + sign * move.amounts[0], memory + sign * move.amounts[1])
                    found[name] = (load, moved)
        return found

    def _fresh(self, name: str, now: float) -> NodeLoad | None:
        load = self._loads.get(name)
        return load if load is not None and now - load.measured <= FRESH_SECONDS else None

    # ------------------------------------------------------------------ where they go

    def changed(self, now: float) -> bool:
        """Return whether those that come in the place of moved pods are to avoid other nodes than before."""
        if not self._changed and now <= self._lasts:
            return False
        before, sent = self._high, self._sent
        self._sent = frozenset(self._gone)
        fresh = {name: load for name in self._loads if (load := self._fresh(name, now)) is not None}
        above = [name for name, load in fresh.items() if self._is_above(load)] if self._sent else []
        self._high = frozenset(above)
        self._lasts = min((load.measured + FRESH_SECONDS for load in fresh.values()), default=float("inf"))
        self._changed = False
        return self._high != before or (bool(self._high) and self._sent != sent)

    def _is_above(self, load: NodeLoad) -> bool:
        return any(load.percent(at) > limit for at, limit in enumerate(self.rules.targets))

    def due(self, now: float) -> float | None:
        return None

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        if not self._high or needs.node_part() not in self._sent:
            return None
        return np.array([0.0 if name in self._high else 100.0 for name in nodes.names()]).reshape(nodes.size)


class _LoadTable:
    """Loads in percent of what the nodes have: rows by cpu and memory; those without fresh figures are neither low nor
    high."""

    def __init__(
        self, rules: Rules, nodes: NodeView, current: Mapping[str, tuple[NodeLoad, tuple[int, int]]]
    ) -> None:
        self.rules = rules
        self.row_of = {name: at for at, name in enumerate(nodes.names())}
        whole = np.stack([nodes.allocatable(resource) for resource in MEASURED], axis=1)
        self.whole = np.maximum(whole, 1).astype(np.float64)
        self.told = np.zeros(self.whole.shape)
        """As it was measured."""
        self.percent = np.zeros(self.whole.shape)
        """With what was moved since."""
        known = np.zeros(nodes.size, dtype=np.bool_)
        for name, (load, moved) in current.items():
            at = self.row_of[name]
            known[at] = bool((whole[at] > 0).all())
            self.told[at] = [load.percent(of) for of in range(len(MEASURED))]
            self.percent[at] = self.told[at] + WHOLE * np.array(moved) / self.whole[at]
        self.low = known & (self.percent < rules.thresholds).all(axis=1) & ~nodes.unschedulable()
        self.high = known & ~self.low & (self.percent > rules.targets).any(axis=1)

    def above(self, row: int) -> list[int]:
        """The resources of which the node has more load than it is to have: 0 cpu, 1 memory."""
        return [at for at, limit in enumerate(self.rules.targets) if self.percent[row, at] > limit]


class ReschedulingRound:
    """The moves of one round."""

    def __init__(
        self, policy: Rescheduling, figures: _LoadTable, running: Sequence[TaskView], now: float
    ) -> None:
        self._policy = policy
        self._figures = figures
        self._now = now
        self._first = figures.percent.sum(axis=1)
        """By which nodes are sorted."""
        found = [
            (self._row(task), task) for task in running if (row := self._row(task)) >= 0 and figures.high[row]
        ]
        self.candidates = [task for _, task in sorted(found, key=self._order)]

    def why(self, task: TaskView) -> str:
        row, amounts = self._row(task), _counts_for(task.request)
        above = [at for at in self._figures.above(row) if amounts[at] > 0] if row >= 0 else []
        if not above or not self._figures.high[row]:
            return ""
        at = above[0]
        load, target = self._figures.told[row, at], self._figures.rules.targets[at]
        return (
            f"node {_name(task)} has a measured {MEASURED[at]} load of {load:.0f} %, above its target of {target:g} % "
            "(plug-in rescheduling), and a node with little load takes the pod"
        )

    def takes(self, request: Resources, coming: Sequence[tuple[int, Resources]]) -> BoolArray:
        figures = self._figures
        then = figures.percent + self._share(request)
        for row, other in coming:
            then[row] += self._share(other)[row]
        return figures.low & (then <= figures.rules.targets).all(axis=1)

    def moved(self, task: TaskView, row: int) -> None:
        figures, source = self._figures, self._row(task)
        share = self._share(task.request)
        figures.percent[source] -= share[source]
        figures.percent[row] += share[row]
        names = list(figures.row_of)
        move = _Move(self._now, names[source], names[row], _counts_for(task.request))
        self._policy.note(move, task.task.needs)

    def _share(self, request: Resources) -> FloatArray:
        """What a pod counts for on each node, in percent of what that has."""
        return WHOLE * np.array(_counts_for(request)) / self._figures.whole

    def _row(self, task: TaskView) -> int:
        return self._figures.row_of.get(_name(task), -1)

    def _order(self, found: tuple[int, TaskView]) -> tuple[float, int, int, int, float, int, str]:
        """The most loaded node first; there priority, then quality of service, the lowest first; of equals the one
        that began last, of the highest index."""
        row, view = found
        task = view.task
        quality = 0 if not any(_requested(view.request)) else 2 if task.guaranteed else 1
        began = -(task.started or task.created)
        return -float(self._first[row]), row, task.priority, quality, began, -task.index, task.key


def _name(task: TaskView) -> str:
    return task.node.name if task.node is not None else ""


def _requested(request: Resources) -> tuple[int, int]:
    return request.get(MEASURED[0], 0), request.get(MEASURED[1], 0)


def _counts_for(request: Resources) -> tuple[int, int]:
    """What a pod counts for of cpu and memory: what it asks for, and if that is nothing, what ``usage`` takes a pod
    that asks for nothing to use."""
    requested = _requested(request)
    return requested if any(requested) else _BEST_EFFORT


def build(arguments: Arguments) -> Rescheduling | None:
    """The policy of a tier's ``arguments``; ``None`` where no strategy that is known is named."""
    strategies = arguments.get("strategies")
    params: object = None
    if isinstance(strategies, list) and strategies:
        named = [
            one for one in strategies if isinstance(one, Mapping) and one.get("name") == LOW_NODE_UTILIZATION
        ]
        if not named:
            return None
        params = named[-1].get("params")
    section = params if isinstance(params, Mapping) else {}
    return Rescheduling(
        Rules(
            duration(arguments.get("interval", INTERVAL)) or 300.0,
            duration(arguments.get("metricsPeriod", METRICS_PERIOD)) or 300.0,
            _limits(section.get("thresholds")),
            _limits(section.get("targetThresholds")),
        )
    )


def _limits(given: object) -> tuple[float, float]:
    section = given if isinstance(given, Mapping) else {}
    cpu, memory = (number(section, resource, WHOLE) for resource in MEASURED)
    return _percent(cpu), _percent(memory)


def _percent(value: float) -> float:
    return value if 0 <= value <= WHOLE else WHOLE
