"""Volcano's ``resource-strategy-fit``: by resource, the fullest or the emptiest node.

Two more policies keep pods without devices away from nodes that have them (``sra``,
``proportional``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from windlass.api.reasons import Reason
from windlass.plugins.argument_values import Arguments, boolean, number
from windlass.plugins.dialects import VOLCANO
from windlass.spi.nodes import FloatArray, IntArray, NodeView
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint, NodeBlocker, Trend
from windlass.spi.quantities import from_units, scale

MOST, LEAST = "MostAllocated", "LeastAllocated"
GIGABYTE = 1_000_000_000
ENDLESS = 1 << 40


@dataclass(frozen=True, slots=True)
class ResourceStrategy:
    most: bool = False
    weight: float = 1.0


class ResourceStrategyFit:
    """Score 100 · Σ w·share ÷ Σ w over the requested resources with a strategy.

    The share is that in use with the task (``MostAllocated``) or that left
    (``LeastAllocated``). A node with too little of one of them has 0.
    """

    name = "resource-strategy-fit"
    footprint = Footprint.ROW
    dialects = VOLCANO

    def __init__(self, strategies: Mapping[str, ResourceStrategy], weight: float = 10.0) -> None:
        """:param strategies: by name of a resource, or by a prefix and ``*``"""
        self.weight = weight
        self._exact = {name: s for name, s in strategies.items() if not name.endswith("*")}
        prefixes = [(name[:-1], s) for name, s in strategies.items() if name.endswith("*")]
        self._prefixes = sorted(prefixes, key=lambda item: -len(item[0]))

    def trend(self, needs: Needs) -> Trend:
        kinds = {strategy.most for _, _, strategy in self._weighed(needs)}
        if len(kinds) > 1:
            return Trend.ANY
        return Trend.FALLS if kinds == {False} else Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        weighed = self._weighed(needs)
        whole = sum(strategy.weight for _, _, strategy in weighed)
        if whole <= 0:
            return None
        score = np.zeros(nodes.size)
        fits = np.ones(nodes.size, dtype=np.bool_)
        for resource, units, strategy in weighed:
            allocatable = nodes.allocatable(resource)
            after = nodes.used(resource) + units
            fits &= (after <= allocatable) | (allocatable == 0)
            part = after if strategy.most else allocatable - after
            score += np.where(allocatable > 0, strategy.weight * part / np.maximum(allocatable, 1), 0.0)
        return np.where(fits, 100.0 * score / whole, 0.0)

    def _weighed(self, needs: Needs) -> list[tuple[str, int, ResourceStrategy]]:
        """Return the requested resources with their strategies; the pod's own strategy
        comes first."""
        if needs.scoring is not None:
            if needs.scoring.strategy not in (MOST, LEAST):
                return []
            weights, most = dict(needs.scoring.weights), needs.scoring.strategy == MOST
            return [
                (resource, units, ResourceStrategy(most, weights[resource]))
                for resource, units in needs.request
                if units > 0 and weights.get(resource, 0) > 0
            ]
        weighed = []
        for resource, units in needs.request:
            strategy = self._strategy(resource)
            if units > 0 and strategy is not None:
                weighed.append((resource, units, strategy))
        return weighed

    def _strategy(self, resource: str) -> ResourceStrategy | None:
        """Return the strategy of the exact name, otherwise of the longest prefix."""
        strategy = self._exact.get(resource)
        if strategy is None:
            strategy = next((s for prefix, s in self._prefixes if resource.startswith(prefix)), None)
        return strategy


class ScarceResources:
    """``sra``: 100 · (1 − Σ w of the scarce resources that the node has ÷ Σ w).

    A node that lacks a requested resource has 0.
    """

    name = "sra"
    footprint = Footprint.ROW
    dialects = VOLCANO

    def __init__(self, weights: Mapping[str, float], weight: float = 1.0) -> None:
        self.weight = weight
        self._weights = dict(weights)

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        whole = sum(self._weights.values())
        if whole <= 0:
            return None
        present = np.zeros(nodes.size)
        for resource, weight in self._weights.items():
            present += weight * (nodes.allocatable(resource) > 0)
        score = 100.0 * (1.0 - present / whole)
        for resource, units in needs.request:
            if units > 0:
                score *= nodes.allocatable(resource) > 0
        return score


@dataclass(frozen=True, slots=True)
class Proportion:
    """Amounts reserved per idle unit of a device: CPU in cores, memory in GB (10⁹ bytes)."""

    cpu: float = 1.0
    memory: float = 1.0


class Proportional:
    """Filter that reserves CPU and memory for each idle device.

    Pods without any of these devices get the rest.
    """

    name = "proportional"

    def __init__(self, proportions: Mapping[str, Proportion]) -> None:
        self._proportions = dict(proportions)

    def capacity(self, needs: Needs, nodes: NodeView) -> IntArray | None:
        if not self._concerns(needs):
            return None
        count = np.full(nodes.size, ENDLESS, dtype=np.int64)
        request = dict(needs.request)
        for device in self._proportions:
            for resource, reserved in self._reserved(device, nodes):
                left = np.maximum(nodes.available(resource), 0) - reserved
                units = request.get(resource, 0)
                fits = left // units if units > 0 else np.where(left >= 0, ENDLESS, 0)
                has = nodes.allocatable(device) > 0
                np.minimum(count, np.where(has, np.maximum(fits, 0), ENDLESS), out=count)
        return count

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        if not self._concerns(needs):
            return []
        request = dict(needs.request)
        blockers = []
        for device in sorted(self._proportions):
            has = nodes.allocatable(device) > 0
            for resource, reserved in self._reserved(device, nodes):
                left = np.maximum(nodes.available(resource), 0) - reserved
                blocked = has & (left < request.get(resource, 0))
                if blocked.any():
                    most = from_units(resource, int(reserved[blocked].max()))
                    detail = f"up to {most} {resource} are kept for idle {device}"
                    blockers.append(NodeBlocker(Reason.NODE_RESERVED, blocked, detail=detail))
        return blockers

    def _concerns(self, needs: Needs) -> bool:
        if needs.dialect is not Dialect.VOLCANO:
            return False
        return not any(units > 0 and resource in self._proportions for resource, units in needs.request)

    def _reserved(self, device: str, nodes: NodeView) -> list[tuple[str, IntArray]]:
        proportion = self._proportions[device]
        idle = np.maximum(nodes.available(device), 0) / scale(device)
        return [
            ("cpu", np.ceil(idle * proportion.cpu * scale("cpu")).astype(np.int64)),
            ("memory", np.ceil(idle * proportion.memory * GIGABYTE).astype(np.int64)),
        ]


def build(arguments: Arguments) -> list[object]:
    """Return the policies of the plugin's arguments.

    They are ``resourceStrategyFitWeight`` (10), ``resources``, ``sra`` and
    ``proportional``. The default of ``resources`` is CPU and memory, the emptiest node
    first. A pattern with ``*`` elsewhere than at the end, or alone, is ignored. A
    weight of 0 or less counts as 1, an unknown type as ``LeastAllocated``.
    """
    weight = number(arguments, "resourceStrategyFitWeight", 10)
    policies: list[object] = []
    strategies = _strategies(_section(arguments, "resources"))
    if weight < 0:
        weight = 10.0
    if weight > 0:
        policies.append(ResourceStrategyFit(strategies, weight))
    scarce = _section(arguments, "sra")
    if boolean(scarce, "enable", False) and number(scarce, "weight", 0) > 0:
        weights = {}
        for name in _names(scarce):
            value = number(_section(scarce, "resourceWeight"), name, 1)
            weights[name] = value if value >= 0 else 1.0
        policies.append(ScarceResources(weights, number(scarce, "weight", 0)))
    proportional = _section(arguments, "proportional")
    if boolean(proportional, "enable", False):
        rates = _section(proportional, "resourceProportion")
        policies.append(
            Proportional(
                {
                    name: Proportion(_rate(rates, f"{name}.cpu"), _rate(rates, f"{name}.memory"))
                    for name in _names(proportional)
                }
            )
        )
    return policies


def _section(arguments: Arguments, name: str) -> Mapping[str, Any]:
    section = arguments.get(name)
    return section if isinstance(section, Mapping) else {}


def _names(section: Mapping[str, Any]) -> list[str]:
    return [name for text in str(section.get("resources") or "").split(",") if (name := text.strip())]


def _rate(rates: Mapping[str, Any], name: str) -> float:
    rate = number(rates, name, 1)
    return rate if rate >= 0 else 1.0


def _strategies(section: Mapping[str, Any]) -> dict[str, ResourceStrategy]:
    strategies = {}
    for name, section_value in section.items():
        if "*" in name and (name == "*" or name.count("*") > 1 or not name.endswith("*")):
            continue
        wanted = section_value if isinstance(section_value, Mapping) else {}
        weight = number(wanted, "weight", 1)
        strategies[name] = ResourceStrategy(wanted.get("type") == MOST, weight if weight > 0 else 1.0)
    return strategies or {"cpu": ResourceStrategy(), "memory": ResourceStrategy()}
