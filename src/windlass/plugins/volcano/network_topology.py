"""Volcano's ``network-topology-aware``: which HyperNode a gang goes to, and where pods without a wish go.

A HyperNode's score is that of ``binpack`` over all of its nodes: how full it is once the gang is there. That the
nearest HyperNode is tried first, and that members go next to those that are there, is the engine's business
(:mod:`windlass.engine.topology`), whether the plugin is configured or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from windlass.plugins.dialects import VOLCANO
from windlass.plugins.volcano.arguments import Arguments, boolean, number
from windlass.spi.nodes import BoolArray, FloatArray, IntArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import DomainsView
from windlass.spi.topology import HYPERNODE_PATH

NAME = "network-topology-aware"
LISTED = "hypernode.binpack.resources"
GRADIENT = "hypernode.gradient.evict.max-hypernodes"
NORMAL = "hypernode.binpack.normal-pod."


class HyperNodeBinpack:
    """100 · Σ w·(used + request)/allocatable ÷ Σ w over the requested resources with a weight; what does not
    fit adds nothing. ``request`` is that of all members that are to be placed."""

    name = NAME
    dialects = VOLCANO

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = dict(weights)

    def domain_scores(self, request: Mapping[str, int], domains: DomainsView) -> FloatArray:
        weighed = {name: units for name, units in request.items() if self._weights.get(name, 0) > 0}
        found: FloatArray | None = None
        for name, units in weighed.items():
            part = _filled(domains.used(name) + units, domains.allocatable(name)) * self._weights[name]
            found = part if found is None else found + part
        if found is None:
            return np.zeros(len(domains.allocatable("pods")))
        return 100.0 * found / sum(self._weights[name] for name in weighed)


class NormalPods:
    """Packs pods into HyperNodes: of every HyperNode that a node is in the same score as above, those of tier
    t weighing ``fading``^(t - 1). A node in no HyperNode has 0."""

    name = "network-topology-aware-pods"
    dialects = VOLCANO

    def __init__(self, weights: Mapping[str, float], fading: float, weight: float) -> None:
        self.weight = weight
        self._weights = dict(weights)
        self._fading = fading

    def opines(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return len(nodes.label_values(HYPERNODE_PATH)) > 1 and bool(self._weighed(needs))

    def relative(self, number: int, needs: Needs, nodes: NodeView, rivals: BoolArray) -> FloatArray:
        weighed = self._weighed(needs)
        whole = sum(self._weights[name] for name in weighed)
        codes = nodes.label(HYPERNODE_PATH)
        amounts = {name: (nodes.used(name), nodes.allocatable(name)) for name in weighed}
        score, weights = np.zeros(nodes.size), np.zeros(nodes.size)
        for tier, numbers in _tiers(nodes.label_values(HYPERNODE_PATH)).items():
            hypernodes = numbers[codes]
            inside = hypernodes > 0
            fade = self._fading ** (tier - 1)
            part = np.zeros(nodes.size)
            for name, units in weighed.items():
                used, allocatable = (_sums(hypernodes, column) for column in amounts[name])
                part += self._weights[name] * _filled(used + units, allocatable)[hypernodes]
            score += np.where(inside, fade * part / whole, 0.0)
            weights += np.where(inside, fade, 0.0)
        return 100.0 * score / np.maximum(weights, 1e-9)

    def _weighed(self, needs: Needs) -> dict[str, int]:
        return {name: units for name, units in needs.request if units > 0 and self._weights.get(name, 0) > 0}


def _filled(after: IntArray, allocatable: IntArray) -> FloatArray:
    fits = (after <= allocatable) & (allocatable > 0)
    return np.where(fits, after / np.maximum(allocatable, 1), 0.0)


def _sums(codes: IntArray, values: IntArray) -> IntArray:
    found = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.int64)
    np.add.at(found, codes, values)
    return found


def _tiers(paths: Sequence[str]) -> dict[int, IntArray]:
    """Tier → per code of the path label the number of the HyperNode of that tier, 0 for none."""
    values = list(paths)
    numbers: dict[tuple[int, str], int] = {}
    found: dict[int, IntArray] = {}
    for code, path in enumerate(values[1:], start=1):
        for step in path.split(","):
            tier, _, name = step.partition("=")
            key = (int(tier), name)
            number = numbers.setdefault(key, len(numbers) + 1)
            found.setdefault(key[0], np.zeros(len(values), dtype=np.int64))[code] = number
    return found


def weights_of(arguments: Arguments) -> dict[str, float]:
    """``hypernode.binpack.cpu``, ``…memory``, ``…resources`` and ``…resources.NAME``, each 1 where it is not
    given; a negative one is 1."""
    names = ["cpu", "memory"]
    names += [name for text in str(arguments.get(LISTED) or "").split(",") if (name := text.strip())]
    found = {}
    for name in names:
        key = f"hypernode.binpack.{name}" if name in ("cpu", "memory") else f"{LISTED}.{name}"
        weight = number(arguments, key, 1)
        found[name] = weight if weight >= 0 else 1.0
    return found


def build(arguments: Arguments, *, hypernodes: bool, nodes: bool) -> list[object]:
    """``hypernodes``, ``nodes``: whether HyperNodes, and nodes for pods without a wish, are scored. ``weight``: of
    the latter; 0 switches all of it off."""
    weight = number(arguments, "weight", 1)
    weights = weights_of(arguments)
    found: list[object] = []
    if weight <= 0:
        return found
    if hypernodes:
        found.append(HyperNodeBinpack(weights))
    if nodes and boolean(arguments, f"{NORMAL}enable", True):
        found.append(NormalPods(weights, number(arguments, f"{NORMAL}fading", 0.8), weight))
    return found
