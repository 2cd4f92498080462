"""Fill what is in use before opening what is free; devices count first."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from windlass.spi.nodes import FloatArray, NodeView
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint, Trend
from windlass.spi.quantities import is_device

ORDINARY = ("cpu", "memory")


class Binpack:
    """For a task with devices: 90 points for the share of the node's devices in use after placing it,
    10 for CPU and memory. Without devices: 60 for CPU and memory, 40 for a node that has no idle
    device to lose. A task that asks for nothing at all goes where the fewest pods are.
    """

    name = "binpack"
    footprint = Footprint.ROW

    def __init__(self, weight: float = 1.0, dialects: Collection[Dialect] = tuple(Dialect)) -> None:
        self.weight = weight
        self.dialects = dialects

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES if any(units > 0 for _, units in needs.request) else Trend.FALLS

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        request = {resource: units for resource, units in needs.request if units > 0}
        if not request:
            return fewest_pods(nodes)
        devices = {resource: units for resource, units in request.items() if is_device(resource)}
        ordinary = {resource: request[resource] for resource in ORDINARY if resource in request}
        if devices:
            return 90.0 * filled(devices, nodes) + 10.0 * filled(ordinary, nodes)
        return 60.0 * filled(ordinary, nodes) + 40.0 * _no_idle_device(nodes)


def filled(request: dict[str, int], nodes: NodeView) -> FloatArray:
    """The mean over the resources of the share in use once the task is there: 0 to 1."""
    total = np.zeros(nodes.size)
    for resource, units in sorted(request.items()):
        allocatable = nodes.allocatable(resource)
        after = nodes.used(resource) + units
        total += np.minimum(after, allocatable) / np.maximum(allocatable, 1)
    return total / max(len(request), 1)


def fewest_pods(nodes: NodeView) -> FloatArray:
    """From 100 on an empty node down with every pod; below 1 beyond 100 of them."""
    return 100.0 / (1.0 + np.maximum(nodes.used("pods"), 0))


def _no_idle_device(nodes: NodeView) -> FloatArray:
    idle = np.zeros(nodes.size, dtype=np.bool_)
    for resource in nodes.resources():
        if is_device(resource):
            idle |= nodes.allocatable(resource) > nodes.used(resource)
    return (~idle).astype(np.float64)
