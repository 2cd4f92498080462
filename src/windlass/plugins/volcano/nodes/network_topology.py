"""Volcano's ``network-topology-aware``: scores of HyperNodes for gangs, and for other pods.

A HyperNode's score is that of ``binpack`` over all its nodes: its use including the
gang, and 0 if it has too little of a weighted resource. Pods without a topology
constraint prefer nodes outside of HyperNodes, which are for gangs. The engine itself
tries the nearest HyperNode first and places members near running ones
(:mod:`windlass.engine.placement.domain_selector`), whether the plugin is configured or
not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from windlass.plugins.argument_values import Arguments, boolean, number
from windlass.plugins.dialects import VOLCANO
from windlass.spi.nodes import BoolArray, FloatArray, IntArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import DomainsView
from windlass.spi.topology import HYPERNODE_PATH

NAME = "network-topology-aware"
LISTED = "hypernode.binpack.resources"
GRADIENT = "hypernode.gradient.evict.max-hypernodes"
NORMAL = "hypernode.binpack.normal-pod."


class HyperNodeBinpack:
    """Score 100 · Σ w·(used + request)/allocatable ÷ Σ w over the requested resources
    with a weight.

    It is 0 if one of them does not fit. ``request`` is that of all members that are to
    be placed.
    """

    name = NAME
    dialects = VOLCANO

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = dict(weights)

    def domain_scores(self, request: Mapping[str, int], domains: DomainsView) -> FloatArray:
        amounts = [
            (self._weights[name], domains.used(name) + units, domains.allocatable(name))
            for name, units in request.items()
            if name in self._weights
        ]
        return 100.0 * _fullness(amounts, len(domains.allocatable("pods")))


class PodHyperNodeBinpack:
    """Score that packs pods into HyperNodes.

    It is the mean, over all tiers, of the same score for the HyperNode of that tier
    that the node is in. Tier t has the weight ``fading``^(t - 1). Without a HyperNode
    of a tier the node counts as full, so that nodes outside of HyperNodes come first.
    """

    name = "network-topology-aware-pods"
    dialects = VOLCANO

    def __init__(self, weights: Mapping[str, float], fading: float, weight: float) -> None:
        self.weight = weight
        self._weights = dict(weights)
        self.fading = fading

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        return len(nodes.label_values(HYPERNODE_PATH)) > 1

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        weighed = self._weighed(needs)
        codes = nodes.label(HYPERNODE_PATH)
        amounts = {name: (nodes.used(name), nodes.allocatable(name)) for name in weighed}
        score, weights = np.zeros(nodes.size), 0.0
        for tier, numbers in _tiers(nodes.label_values(HYPERNODE_PATH)).items():
            hypernodes = numbers[codes]
            sums = []
            for name, units in weighed.items():
                used, allocatable = (_sums(hypernodes, column) for column in amounts[name])
                sums.append((self._weights[name], used + units, allocatable))
            full = _fullness(sums, int(hypernodes.max(initial=0)) + 1)
            fade = self.fading ** (tier - 1)
            score += fade * np.where(hypernodes > 0, full[hypernodes], 1.0)
            weights += fade
        return 100.0 * score / weights if weights else score

    def _weighed(self, needs: Needs) -> dict[str, int]:
        return {name: units for name, units in needs.request if units > 0 and name in self._weights}


def _fullness(amounts: Sequence[tuple[float, IntArray, IntArray]], size: int) -> FloatArray:
    """Return the weighted mean use over resources for ``size`` HyperNodes; 0 if one is
    too small.

    :param amounts: weight, use including the request, allocatable
    """
    fullness, fits = np.zeros(size), np.ones(size, dtype=np.bool_)
    for weight, after, allocatable in amounts:
        fits &= after <= allocatable
        fullness += weight * after / np.maximum(allocatable, 1)
    whole = sum(weight for weight, _, _ in amounts)
    return np.where(fits, fullness / whole, 0.0) if whole else np.zeros(size)


def _sums(codes: IntArray, values: IntArray) -> IntArray:
    sums = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.int64)
    np.add.at(sums, codes, values)
    return sums


def _tiers(paths: Sequence[str]) -> dict[int, IntArray]:
    """Return tier → by code of the path label the number of the tier's HyperNode, 0 for none."""
    values = list(paths)
    numbers: dict[tuple[int, str], int] = {}
    tiers: dict[int, IntArray] = {}
    for code, path in enumerate(values[1:], start=1):
        for step in path.split(","):
            tier, _, name = step.partition("=")
            key = (int(tier), name)
            number = numbers.setdefault(key, len(numbers) + 1)
            tiers.setdefault(key[0], np.zeros(len(values), dtype=np.int64))[code] = number
    return tiers


def weights_of(arguments: Arguments) -> dict[str, float]:
    """Return the weights of resources.

    They are ``hypernode.binpack.cpu``, ``…memory``, ``…resources`` and
    ``…resources.NAME``, each 1 by default. A negative weight counts as 1.
    """
    names = ["cpu", "memory"]
    names += [name for text in str(arguments.get(LISTED) or "").split(",") if (name := text.strip())]
    weights = {}
    for name in names:
        key = f"hypernode.binpack.{name}" if name in ("cpu", "memory") else f"{LISTED}.{name}"
        weight = number(arguments, key, 1)
        weights[name] = weight if weight >= 0 else 1.0
    return weights


def build(arguments: Arguments, *, hypernodes: bool, nodes: bool) -> list[object]:
    """Return the scores of the plugin's arguments. ``weight`` 0 disables all of them.

    :param hypernodes: score HyperNodes
    :param nodes: score nodes for pods without a topology constraint; ``weight`` is the
        weight of this score
    """
    weight = number(arguments, "weight", 1)
    weights = weights_of(arguments)
    scores: list[object] = []
    if weight <= 0:
        return scores
    if hypernodes:
        scores.append(HyperNodeBinpack(weights))
    if nodes and boolean(arguments, f"{NORMAL}enable", True):
        fading = number(arguments, f"{NORMAL}fading", 0.8)
        scores.append(PodHyperNodeBinpack(weights, fading if fading >= 0 else 0.8, weight))
    return scores
