"""Volcano's ``binpack``: weighted use of the requested resources, including the task.

Only CPU, memory and the resources in ``binpack.resources`` count. So a GPU has to be
listed to be packed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from windlass.plugins.argument_values import Arguments, number
from windlass.plugins.dialects import VOLCANO
from windlass.spi.nodes import FloatArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.plugins import Footprint, Trend

LISTED = "binpack.resources"


class VolcanoBinpack:
    """Score 100 · Σ w·(used + request)/allocatable ÷ Σ w over the requested resources
    with a weight.

    A node without the resource, or with too little of it, adds nothing for it, but its
    weight still divides. Terminating pods count as used, nominated ones do not.
    """

    name = "binpack"
    footprint = Footprint.ROW
    dialects = VOLCANO

    def __init__(self, weights: Mapping[str, float], weight: float = 1.0) -> None:
        """:param weights: resource → weight, none negative
        :param weight: weight of the score; 0 disables it"""
        self.weight = weight
        self._weights = dict(weights)

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        weighed = [
            (resource, units, self._weights[resource])
            for resource, units in needs.request
            if units > 0 and resource in self._weights
        ]
        whole = sum(weight for _, _, weight in weighed)
        if whole <= 0:
            return None
        score = np.zeros(nodes.size)
        for resource, units, weight in weighed:
            allocatable = nodes.allocatable(resource)
            after = nodes.used(resource) + units
            fits = (after <= allocatable) & (allocatable > 0)
            score += np.where(fits, weight * after / np.maximum(allocatable, 1), 0.0)
        return 100.0 * score / whole


def build(arguments: Arguments) -> list[object]:
    """Return the score of the plugin's arguments.

    They are ``binpack.weight``, ``binpack.cpu``, ``binpack.memory``,
    ``binpack.resources`` and ``binpack.resources.NAME``, each 1 by default. A negative
    weight of a resource counts as 1.
    """
    names = ["cpu", "memory"]
    names += [name for text in str(arguments.get(LISTED) or "").split(",") if (name := text.strip())]
    weights = {}
    for name in names:
        key = f"binpack.{name}" if name in ("cpu", "memory") else f"{LISTED}.{name}"
        weight = number(arguments, key, 1)
        weights[name] = weight if weight >= 0 else 1.0
    whole = number(arguments, "binpack.weight", 1)
    return [VolcanoBinpack(weights, whole)] if whole > 0 else []
