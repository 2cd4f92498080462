"""``rescheduling``: moves pods from nodes with high measured load to nodes with low load.

Its only strategy, ``lowNodeUtilization``, compares the measured load of CPU and memory.
A node is *low* if both are below ``thresholds``; it can receive pods. It is *high* if
one is above ``targetThresholds``. Every ``interval`` pods are evicted from high nodes,
the most loaded node first. On each node those of lowest priority and quality of service
come first, until the node is at its targets. A pod counts with its request. The action
``shuffle`` does this.

Volcano adds up all low nodes. Beyond that, each pod needs a node that accepts it and
stays within its targets. A pod is evicted only if it requests a resource of which its
node has too much load. Pods moved too late for the metrics count as moved. Nodes
without fresh metrics neither lose nor receive pods. The replacement of a moved pod
avoids nodes above the targets while others accept it.
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
"""Default of every threshold, in percent."""
_BEST_EFFORT = Estimator().best_effort


@dataclass(frozen=True, slots=True)
class Rules:
    """Durations in seconds, thresholds in percent of the node's capacity, for CPU and memory."""

    interval: float = 300.0
    mean_seconds: float = 300.0
    thresholds: tuple[float, float] = (WHOLE, WHOLE)
    targets: tuple[float, float] = (WHOLE, WHOLE)


@dataclass(frozen=True, slots=True)
class _Move:
    """Pod that was moved. ``amounts``: its CPU and memory in engine units."""

    time: float
    source: str
    target: str
    amounts: tuple[int, int]


class Rescheduling:
    """Rescheduling policy with the metrics and recent moves of one engine."""

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
        """Time of the next round; the first one is an interval after the first call."""
        self._moves: list[_Move] = []
        self._moved_needs: dict[Needs, None] = {}
        """Requirements of the pods that the last round moved."""
        self._sent: frozenset[Needs] = frozenset()
        """The same at the last :meth:`changed`, on which scores are based."""
        self._high: frozenset[str] = frozenset()
        self._changed = False
        """True if :attr:`_high` has to be computed again at any time."""
        self._lasts = float("inf")
        """Time until which it is valid without other changes."""

    # ------------------------------------------------------------------ updates

    def take_loads(self, loads: Mapping[str, NodeLoad]) -> None:
        """Replace the loads of all nodes by the newest ones."""
        self._loads = dict(loads)
        self._changed = True

    def record(self, move: _Move, needs: Needs) -> None:
        """Record a pod that is evicted and has a new node."""
        self._moves.append(move)
        self._moved_needs[needs.node_part()] = None
        self._changed = True

    # ------------------------------------------------------------------ evictions

    def relief(self, running: Sequence[TaskView], nodes: NodeView, now: float) -> ReschedulingRound | None:
        if self._next is None:
            self._next = now + self.rules.interval
            return None
        if now < self._next:
            return None
        self._next = now + self.rules.interval
        self._moved_needs.clear()
        self._changed = True
        loads = _LoadTable(self.rules, nodes, self._current(nodes.names(), now))
        if not loads.low.any() or not loads.high.any():
            return None
        return ReschedulingRound(self, loads, running, now)

    def next_due(self, now: float) -> float | None:
        return now + self.rules.interval if self._next is None else max(self._next, now)

    def _current(self, names: Sequence[str], now: float) -> dict[str, tuple[NodeLoad, tuple[int, int]]]:
        """Return by node its fresh load, and the CPU and memory moved there since it
        was measured.

        Amounts moved from the node are subtracted.
        """
        self._moves = [m for m in self._moves if now - m.time < FRESH_SECONDS + self.mean_seconds]
        current = {name: (load, (0, 0)) for name in names if (load := self._fresh(name, now)) is not None}
        for move in self._moves:
            for name, sign in ((move.source, -1), (move.target, 1)):
                load, (cpu, memory) = current.get(name, (None, (0, 0)))
                if load is not None and move.time > load.measured - self.mean_seconds:
                    moved = (cpu + sign * move.amounts[0], memory + sign * move.amounts[1])
                    current[name] = (load, moved)
        return current

    def _fresh(self, name: str, now: float) -> NodeLoad | None:
        load = self._loads.get(name)
        return load if load is not None and now - load.measured <= FRESH_SECONDS else None

    # ------------------------------------------------------------------ placement of
    # replacements

    def changed(self, now: float) -> bool:
        """Return whether the nodes that replacements of moved pods avoid have changed."""
        if not self._changed and now <= self._lasts:
            return False
        before, sent = self._high, self._sent
        self._sent = frozenset(self._moved_needs)
        fresh = {name: load for name in self._loads if (load := self._fresh(name, now)) is not None}
        above = [name for name, load in fresh.items() if self._is_above(load)] if self._sent else []
        self._high = frozenset(above)
        self._lasts = min((load.measured + FRESH_SECONDS for load in fresh.values()), default=float("inf"))
        self._changed = False
        return self._high != before or (bool(self._high) and self._sent != sent)

    def _is_above(self, load: NodeLoad) -> bool:
        return any(load.percent(index) > limit for index, limit in enumerate(self.rules.targets))

    def due(self, now: float) -> float | None:
        return None

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        if not self._high or needs.node_part() not in self._sent:
            return None
        return np.array([0.0 if name in self._high else 100.0 for name in nodes.names()]).reshape(nodes.size)


class _LoadTable:
    """Loads in percent of the nodes' capacity, by row for CPU and memory.

    Nodes without fresh metrics are neither low nor high.
    """

    def __init__(
        self, rules: Rules, nodes: NodeView, current: Mapping[str, tuple[NodeLoad, tuple[int, int]]]
    ) -> None:
        self.rules = rules
        self.row_of = {name: index for index, name in enumerate(nodes.names())}
        whole = np.stack([nodes.allocatable(resource) for resource in MEASURED], axis=1)
        self.whole = np.maximum(whole, 1).astype(np.float64)
        self.measured = np.zeros(self.whole.shape)
        """Load as measured."""
        self.percent = np.zeros(self.whole.shape)
        """Load including later moves."""
        known = np.zeros(nodes.size, dtype=np.bool_)
        for name, (load, moved) in current.items():
            index = self.row_of[name]
            known[index] = bool((whole[index] > 0).all())
            self.measured[index] = [load.percent(of) for of in range(len(MEASURED))]
            self.percent[index] = self.measured[index] + WHOLE * np.array(moved) / self.whole[index]
        self.low = known & (self.percent < rules.thresholds).all(axis=1) & ~nodes.unschedulable()
        self.high = known & ~self.low & (self.percent > rules.targets).any(axis=1)

    def above(self, row: int) -> list[int]:
        """Return the indices of resources above their target: 0 CPU, 1 memory."""
        return [index for index, limit in enumerate(self.rules.targets) if self.percent[row, index] > limit]


class ReschedulingRound:
    """Moves of one round."""

    def __init__(
        self, policy: Rescheduling, loads: _LoadTable, running: Sequence[TaskView], now: float
    ) -> None:
        self._policy = policy
        self._loads = loads
        self._now = now
        self._first = loads.percent.sum(axis=1)
        """Sort key of nodes."""
        located = [
            (self._row(task), task) for task in running if (row := self._row(task)) >= 0 and loads.high[row]
        ]
        self.candidates = [task for _, task in sorted(located, key=self._order)]

    def why(self, task: TaskView) -> str:
        row, amounts = self._row(task), _counts_for(task.request)
        above = [index for index in self._loads.above(row) if amounts[index] > 0] if row >= 0 else []
        if not above or not self._loads.high[row]:
            return ""
        index = above[0]
        load, target = self._loads.measured[row, index], self._loads.rules.targets[index]
        return (
            f"node {_name(task)} has a measured {MEASURED[index]} load of {load:.0f} %, above its target of "
            f"{target:g} % (plug-in rescheduling), and a node with little load takes the pod"
        )

    def takes(self, request: Resources, coming: Sequence[tuple[int, Resources]]) -> BoolArray:
        loads = self._loads
        then = loads.percent + self._share(request)
        for row, other in coming:
            then[row] += self._share(other)[row]
        return loads.low & (then <= loads.rules.targets).all(axis=1)

    def moved(self, task: TaskView, row: int) -> None:
        loads, source = self._loads, self._row(task)
        share = self._share(task.request)
        loads.percent[source] -= share[source]
        loads.percent[row] += share[row]
        names = list(loads.row_of)
        move = _Move(self._now, names[source], names[row], _counts_for(task.request))
        self._policy.record(move, task.task.needs)

    def _share(self, request: Resources) -> FloatArray:
        """Return a pod's request in percent of each node's capacity."""
        return WHOLE * np.array(_counts_for(request)) / self._loads.whole

    def _row(self, task: TaskView) -> int:
        return self._loads.row_of.get(_name(task), -1)

    def _order(self, item: tuple[int, TaskView]) -> tuple[float, int, int, int, float, int, str]:
        """Return the sort key: the most loaded node first, then priority and quality of
        service, lowest first.

        Of equal pods the youngest comes first, then the one with the highest index.
        """
        row, view = item
        task = view.task
        quality = 0 if not any(_requested(view.request)) else 2 if task.guaranteed else 1
        began = -(task.started or task.created)
        return -float(self._first[row]), row, task.priority, quality, began, -task.index, task.key


def _name(task: TaskView) -> str:
    return task.node.name if task.node is not None else ""


def _requested(request: Resources) -> tuple[int, int]:
    return request.get(MEASURED[0], 0), request.get(MEASURED[1], 0)


def _counts_for(request: Resources) -> tuple[int, int]:
    """Return the CPU and memory of a pod.

    A pod without requests counts with the estimate of ``usage`` for such pods.
    """
    requested = _requested(request)
    return requested if any(requested) else _BEST_EFFORT


def build(arguments: Arguments) -> Rescheduling | None:
    """Return the policy of a tier's ``arguments``; ``None`` if no known strategy is named."""
    strategies = arguments.get("strategies")
    params: object = None
    if isinstance(strategies, list) and strategies:
        named = [
            strategy
            for strategy in strategies
            if isinstance(strategy, Mapping) and strategy.get("name") == LOW_NODE_UTILIZATION
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


def _limits(value: object) -> tuple[float, float]:
    section = value if isinstance(value, Mapping) else {}
    cpu, memory = (number(section, resource, WHOLE) for resource in MEASURED)
    return _percent(cpu), _percent(memory)


def _percent(value: float) -> float:
    return value if 0 <= value <= WHOLE else WHOLE
