"""Volcano's ``usage``: nodes by their measured load.

The load comes from outside (:class:`~windlass.spi.inputs.TakesLoads`); without any, and on nodes whose
figures are older than five minutes, the policy has nothing to say. What pods will use that are too young
to be seen in the figures is estimated from their requests. Limits are not known here, so the estimator's
``burst_ratio``, which weighs what lies between request and limit, has no effect; it is 0 by default.
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
    """What a pod will use: ``request_ratio`` of its request, times ``risk_factor`` on a node that is
    loaded to ``risk_threshold`` (a share of 1) or more; of a pod that asks for nothing, ``best_effort``."""

    request_ratio: float = 0.7
    risk_threshold: float = 0.6
    risk_factor: float = 1.2
    best_effort: tuple[int, int] = (250, 200 << 20)
    """CPU in milli, memory in bytes."""


@dataclass(frozen=True, slots=True)
class UsageRules:
    """Thresholds in percent, for cpu and memory. ``visible_after``: for how many seconds a pod that was
    placed is not in the figures yet."""

    thresholds: tuple[float, float] = (80.0, 80.0)
    weights: tuple[float, float] = (1.0, 1.0)
    estimator: Estimator = Estimator()
    visible_after: float = 30.0


@dataclass(slots=True)
class _Young:
    """A placement that the figures do not show yet."""

    since: float
    number: int
    estimate: tuple[float, float]


class Usage:
    """The node is closed above a threshold (of the measured load alone). The score is the weighted mean of
    what is left of cpu and memory, in percent, estimates counted."""

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

    # ------------------------------------------------------------------ what is told

    def take_loads(self, loads: Mapping[str, NodeLoad]) -> None:
        """The newest figures by node; they replace all earlier ones."""
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
        """When the first figures are too old."""
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
        for _ in range(-count):  # the last one that came, if it is still young
            found = self._young.get(row, [])
            at = next((i for i in reversed(range(len(found))) if found[i].number == number), None)
            if at is not None:
                del found[at]
                if not found:
                    del self._young[row]

    def constrains(self, number: int) -> bool:
        return False

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        return None

    def listens_to(self, number: int) -> Sequence[int]:
        return ()

    def relabelled(self, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        return

    # ------------------------------------------------------------------ what is asked

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        if not self._closes or not self._fresh or needs.dialect is not Dialect.VOLCANO:
            return None
        return ~(self._above(0, nodes) | self._above(1, nodes))

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        if not self._closes or needs.dialect is not Dialect.VOLCANO:
            return []
        found = []
        for at, resource in enumerate(MEASURED):
            blocked = self._above(at, nodes)
            if blocked.any():
                detail = f"measured {resource} load above {self._rules.thresholds[at]:g} %"
                found.append(NodeBlocker(Reason.NODE_OVERLOADED, blocked, detail=detail))
        return found

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return bool(self._fresh)

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        """No node's score depends on others, but on what was placed on it: so it is made anew each time."""
        left = np.zeros(nodes.size)
        whole = sum(self._rules.weights) or 1.0
        capacity = [nodes.allocatable(resource) for resource in MEASURED]
        for at, (row, name) in enumerate(zip(nodes.rows.tolist(), nodes.names(), strict=True)):
            load = self._load(name)
            if load is None or not candidates[at]:
                continue
            shares = self._composite(load, row, [int(c[at]) for c in capacity])
            left[at] = sum(w * (1.0 - share) for w, share in zip(self._rules.weights, shares, strict=True))
        return 100.0 * left / whole

    # ------------------------------------------------------------------ parts

    def _load(self, name: str) -> NodeLoad | None:
        return self._loads[name] if name in self._fresh else None

    def _above(self, at: int, nodes: NodeView) -> BoolArray:
        limit = self._rules.thresholds[at]
        return np.array(
            [(load := self._load(name)) is not None and load.percent(at) > limit for name in nodes.names()],
            dtype=np.bool_,
        ).reshape(nodes.size)

    def _composite(self, load: NodeLoad, row: int, capacity: Sequence[int]) -> list[float]:
        """Measured and estimated, as shares of the node: 0 to 1."""
        shares = []
        for at, whole in enumerate(capacity):
            young = sum(y.estimate[at] for y in self._young.get(row, ()))
            shares.append(min(1.0, load.percent(at) / 100.0 + young / whole) if whole > 0 else 0.0)
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
    """``usage.weight`` (5), ``cpu.weight``, ``memory.weight`` (1), ``thresholds`` (80 each) and the
    ``estimator``; what lies outside of its range keeps its default. ``closes``: whether the predicate is
    switched on. ``interval``: seconds between two measurements."""

    def positive(name: str, default: float) -> float:
        given = number(arguments, name, default)
        return given if given >= 0 else default

    given = arguments.get("thresholds")
    limits = given if isinstance(given, Mapping) else {}
    rules = UsageRules(
        thresholds=(_within(limits, "cpu", 80.0, 100.0), _within(limits, "mem", 80.0, 100.0)),
        weights=(positive("cpu.weight", 1), positive("memory.weight", 1)),
        estimator=_estimator(arguments.get("estimator")),
        visible_after=interval,
    )
    return [Usage(positive("usage.weight", 5), rules, closes=closes)]


def _estimator(given: object) -> Estimator:
    section = given if isinstance(given, Mapping) else {}
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
    given = number(section, name, default)
    return given if 0 <= given <= most else default


def _amount(given: object, resource: str, default: int, unit: int) -> int:
    """A whole number counts ``unit`` each (milli-CPU, MiB), text is a quantity."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given * unit if given >= 0 else default
    if isinstance(given, str):
        try:
            units = to_units(resource, given)
        except ValueError:
            return default
        return units if units >= 0 else default
    return default
