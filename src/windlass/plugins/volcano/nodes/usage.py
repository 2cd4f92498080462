"""Volcano's ``usage``: filter and score of nodes by measured load.

The load is provided from outside (:class:`~windlass.spi.inputs.TakesLoads`). Without
any, and on nodes with metrics older than five minutes, the policy has no effect. The
use of pods that are too young for the metrics is estimated from their requests. Limits
are not known here. So the estimator's ``burst_ratio``, which weighs the difference of
limit and request, has no effect; it is 0 by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windlass.api.reasons import Reason
from windlass.plugins.argument_values import Arguments, number
from windlass.plugins.dialects import VOLCANO
from windlass.spi.inputs import FRESH_SECONDS, MEASURED, NodeLoad
from windlass.spi.nodes import BoolArray, FloatArray, NodeView
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint, NodeBlocker
from windlass.spi.quantities import to_units


@dataclass(frozen=True, slots=True)
class Estimator:
    """Estimate of a pod's use.

    ``request_ratio`` of its request, times ``risk_factor`` on a node with a load of at
    least ``risk_threshold`` (a part of 1). ``best_effort``: estimate of a pod without
    requests.
    """

    request_ratio: float = 0.7
    risk_threshold: float = 0.6
    risk_factor: float = 1.2
    best_effort: tuple[int, int] = (250, 200 << 20)
    """CPU in milli, memory in bytes."""


@dataclass(frozen=True, slots=True)
class UsageRules:
    """Thresholds in percent, for CPU and memory.

    ``visible_after``: seconds until the metrics show a placed pod.
    """

    thresholds: tuple[float, float] = (80.0, 80.0)
    weights: tuple[float, float] = (1.0, 1.0)
    estimator: Estimator = Estimator()
    visible_after: float = 30.0


@dataclass(slots=True)
class _Young:
    """Placement that the metrics do not show yet."""

    since: float
    number: int
    estimate: tuple[float, float]


class Usage:
    """Filter and score by measured load.

    A node is excluded if its measured load is above a threshold. The score is the
    weighted mean of free CPU and memory in percent, including estimates.
    """

    name = "usage"
    footprint = Footprint.STATIC
    dialects = VOLCANO

    def __init__(self, weight: float = 5.0, rules: UsageRules | None = None, *, closes: bool = True) -> None:
        self.weight = weight
        self._rules = rules or UsageRules()
        self._closes = closes
        self._now = 0.0
        self._loads: dict[str, NodeLoad] = {}
        self._fed = False
        self._fresh: frozenset[str] = frozenset()
        self._needs: dict[int, Needs] = {}
        self._young: dict[int, list[_Young]] = {}
        self._nodes: NodeView | None = None

    # ------------------------------------------------------------------ updates

    def take_loads(self, loads: Mapping[str, NodeLoad]) -> None:
        """Replace the loads of all nodes by the newest ones."""
        self._loads = dict(loads)
        self._fed = True

    def changed(self, now: float) -> bool:
        self._now = now
        fresh = frozenset(name for name, load in self._loads.items() if now - load.measured <= FRESH_SECONDS)
        changed = self._fed or fresh != self._fresh
        self._fresh, self._fed = fresh, False
        for row in list(self._young):
            self._young[row] = [y for y in self._young[row] if now - y.since < self._rules.visible_after]
            if not self._young[row]:
                del self._young[row]
        return changed

    def due(self, now: float) -> float | None:
        """Return the time at which the first metrics become too old."""
        ends = [self._loads[name].measured + FRESH_SECONDS for name in self._fresh]
        return min((end for end in ends if end > now), default=None)

    def attach(self, nodes: NodeView) -> None:
        self._nodes = nodes

    def learn(self, number: int, needs: Needs, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        self._needs[number] = needs

    def forget(self, number: int) -> None:
        self._needs.pop(number, None)

    def add(self, number: int, row: int, count: int) -> None:
        if not self._loads or self._nodes is None:
            return
        if count > 0:
            for _ in range(count):
                young = _Young(self._now, number, self._estimate(self._needs[number], row))
                self._young.setdefault(row, []).append(young)
            return
        for _ in range(-count):  # the latest placement, if the metrics do not show it yet
            placements = self._young.get(row, [])
            index = next(
                (i for i in reversed(range(len(placements))) if placements[i].number == number), None
            )
            if index is not None:
                del placements[index]
                if not placements:
                    del self._young[row]

    def constrains(self, number: int) -> bool:
        return False

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        return None

    def listens_to(self, number: int) -> Sequence[int]:
        return ()

    def relabelled(self, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        return

    # ------------------------------------------------------------------ queries

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        if not self._closes or not self._fresh or needs.dialect is not Dialect.VOLCANO:
            return None
        return ~(self._above(0, nodes) | self._above(1, nodes))

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        if not self._closes or needs.dialect is not Dialect.VOLCANO:
            return []
        blockers = []
        for index, resource in enumerate(MEASURED):
            blocked = self._above(index, nodes)
            if blocked.any():
                detail = f"measured {resource} load above {self._rules.thresholds[index]:g} %"
                blockers.append(NodeBlocker(Reason.NODE_OVERLOADED, blocked, detail=detail))
        return blockers

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return bool(self._fresh)

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        """Return the scores, which change with every placement on a node."""
        left = np.zeros(nodes.size)
        whole = sum(self._rules.weights) or 1.0
        capacity = [nodes.allocatable(resource) for resource in MEASURED]
        for index, (row, name) in enumerate(zip(nodes.rows.tolist(), nodes.names(), strict=True)):
            load = self._load(name)
            if load is None or not candidates[index]:
                continue
            shares = self._composite(load, row, [int(c[index]) for c in capacity])
            left[index] = sum(w * (1.0 - share) for w, share in zip(self._rules.weights, shares, strict=True))
        return 100.0 * left / whole

    # ------------------------------------------------------------------ helpers

    def _load(self, name: str) -> NodeLoad | None:
        return self._loads[name] if name in self._fresh else None

    def _above(self, index: int, nodes: NodeView) -> BoolArray:
        limit = self._rules.thresholds[index]
        return np.array(
            [
                (load := self._load(name)) is not None and load.percent(index) > limit
                for name in nodes.names()
            ],
            dtype=np.bool_,
        ).reshape(nodes.size)

    def _composite(self, load: NodeLoad, row: int, capacity: Sequence[int]) -> list[float]:
        """Return measured plus estimated load as parts of the node: 0 to 1."""
        shares = []
        for index, whole in enumerate(capacity):
            young = sum(y.estimate[index] for y in self._young.get(row, ()))
            shares.append(min(1.0, load.percent(index) / 100.0 + young / whole) if whole > 0 else 0.0)
        return shares

    def _estimate(self, needs: Needs, row: int) -> tuple[float, float]:
        rules, nodes = self._rules.estimator, self._nodes
        request = dict(needs.request)
        factor = 1.0
        load = None if nodes is None else self._load(nodes.names()[row])
        if nodes is not None and load is not None:
            capacity = [int(nodes.allocatable(resource)[row]) for resource in MEASURED]
            shares = self._composite(load, row, capacity)
            whole = sum(self._rules.weights)
            mean = sum(w * s for w, s in zip(self._rules.weights, shares, strict=True)) / (whole or 1.0)
            if whole and mean >= rules.risk_threshold:
                factor = max(1.0, rules.risk_factor)
        requested = [request.get(resource, 0) for resource in MEASURED]
        if not any(requested):
            return rules.best_effort[0] * factor, rules.best_effort[1] * factor
        cpu, memory = (min(units * rules.request_ratio * factor, units) for units in requested)
        return cpu, memory


def build(arguments: Arguments, *, closes: bool = True, interval: float = 30.0) -> list[Usage]:
    """Return the policy of the plugin's arguments.

    They are ``usage.weight`` (5), ``cpu.weight``, ``memory.weight`` (1), ``thresholds``
    (80 each) and the ``estimator``. Values outside of their range keep the default.

    :param closes: filter nodes, too
    :param interval: seconds between two measurements
    """

    def positive(name: str, default: float) -> float:
        value = number(arguments, name, default)
        return value if value >= 0 else default

    value = arguments.get("thresholds")
    limits = value if isinstance(value, Mapping) else {}
    rules = UsageRules(
        thresholds=(_within(limits, "cpu", 80.0, 100.0), _within(limits, "mem", 80.0, 100.0)),
        weights=(positive("cpu.weight", 1), positive("memory.weight", 1)),
        estimator=_estimator(arguments.get("estimator")),
        visible_after=interval,
    )
    return [Usage(positive("usage.weight", 5), rules, closes=closes)]


def _estimator(value: object) -> Estimator:
    section = value if isinstance(value, Mapping) else {}
    factor = number(section, "risk_factor", 1.2)
    return Estimator(
        _within(section, "request_ratio", 0.7, 1.0),
        _within(section, "risk_threshold", 0.6, 1.0),
        factor if factor >= 1 else 1.2,
        (
            _amount(section.get("be_cpu"), "cpu", 250, 1),
            _amount(section.get("be_mem"), "memory", 200 << 20, 1 << 20),
        ),
    )


def _within(section: Mapping[str, object], name: str, default: float, most: float) -> float:
    value = number(section, name, default)
    return value if 0 <= value <= most else default


def _amount(value: object, resource: str, default: int, unit: int) -> int:
    """Return an amount: integers count ``unit`` each (milli-CPU, MiB), text is a quantity."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value * unit if value >= 0 else default
    if isinstance(value, str):
        try:
            units = to_units(resource, value)
        except ValueError:
            return default
        return units if units >= 0 else default
    return default
