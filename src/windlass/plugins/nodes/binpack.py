"""Score that fills nodes in use before free ones, devices first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from windlass.spi.nodes import FloatArray, IntArray, NodeView
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint, PlainScorer, Trend
from windlass.spi.quantities import is_device

ORDINARY = ("cpu", "memory")


class SilentScore(Protocol):
    """Score that may have no opinion at times."""

    @property
    def silent(self) -> bool: ...


class Binpack:
    """Score that packs nodes.

    * Task with devices: 90 points for the share of the node's devices in use after
      placing it, 10 for CPU and memory.
    * Task without devices: 60 points for CPU and memory, 40 for a node without an idle
      device.
    * Task without any request: the node with the fewest pods scores highest.
    """

    name = "binpack"
    footprint = Footprint.ROW

    def __init__(
        self,
        weight: float = 1.0,
        dialects: Collection[Dialect] = tuple(Dialect),
        *,
        yields_to: SilentScore | None = None,
    ) -> None:
        """:param yields_to: score that takes precedence: binpack is silent unless that one is"""
        self.weight = weight
        self.dialects = dialects
        self._yields_to = yields_to

    @property
    def silent(self) -> bool:
        """True while the score has no opinion (see :mod:`windlass.spi.scoring`)."""
        return self._yields_to is not None and not self._yields_to.silent

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES if any(units > 0 for _, units in needs.request) else Trend.FALLS

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        return self.score_many((needs,), nodes)[0]

    def score_many(self, many: Sequence[Needs], nodes: NodeView) -> FloatArray:
        weighed = [_weighed(needs.request) for needs in many]
        alike: dict[tuple[str, ...] | None, list[int]] = {}
        for index, kind in enumerate(weighed):
            alike.setdefault(None if kind is None else kind.resources, []).append(index)
        scores = np.zeros((len(many), nodes.size))
        for members in alike.values():
            kinds = [kind for index in members if (kind := weighed[index]) is not None]
            scores[members] = _shares_of(kinds, nodes) if kinds else fewest_pods(nodes)
        return scores

    def plain(self, needs: Needs, resources: Sequence[str]) -> PlainScorer | None:
        weighed = _weighed(needs.request)
        if weighed is None:
            pods = resources.index("pods")
            return lambda _, used, __: 100.0 / (1.0 + max(used[pods], 0))
        columns = [resources.index(resource) for resource in weighed.resources]
        parts = list(zip(columns, weighed.units.tolist(), weighed.points, strict=True))

        def share(allocatable: Sequence[int], used: Sequence[int], _: Sequence[int]) -> float:
            total = 0.0
            for column, requested, points in parts:
                whole, taken = allocatable[column], used[column] + requested
                total += points * ((taken if taken < whole else whole) / (whole if whole > 1 else 1))
            return total

        if weighed.devices:
            return share
        columns_of = DeviceColumns(resources)

        def share_and_idle(allocatable: Sequence[int], used: Sequence[int], gone: Sequence[int]) -> float:
            idle = any([allocatable[at] > used[at] for at in columns_of.now()])
            return share(allocatable, used, gone) + 40.0 * (not idle)

        return share_and_idle


class _Weighed(NamedTuple):
    """Request of a task as the score counts it: resources, units, and points of each resource.

    The points follow from the resources. ``devices``: True if devices are among them.
    """

    resources: tuple[str, ...]
    units: IntArray
    points: tuple[float, ...]
    devices: bool


@lru_cache(maxsize=4096)
def _weighed(request: tuple[tuple[str, int], ...]) -> _Weighed | None:
    """Return the request as the score counts it; ``None`` for a task without any request."""
    requested = [(resource, units) for resource, units in request if units > 0]
    if not requested:
        return None
    devices = [item for item in requested if is_device(item[0])]
    ordinary = [item for item in requested if item[0] in ORDINARY]
    points = [90.0 / len(devices) for _ in devices]
    points += [(10.0 if devices else 60.0) / len(ordinary) for _ in ordinary]
    counted = devices + ordinary
    return _Weighed(
        tuple(resource for resource, _ in counted),
        np.array([units for _, units in counted], dtype=np.int64),
        tuple(points),
        bool(devices),
    )


def _shares_of(kinds: Sequence[_Weighed], nodes: NodeView) -> FloatArray:
    """Return the scores of classes that request the same resources.

    They are computed one after the other in the same order, so that the result is equal
    to the last bit for any number of nodes and classes.
    """
    first = kinds[0]
    scores = np.zeros((len(kinds), nodes.size))
    if first.resources:
        allocatable, used = nodes.amounts(first.resources)
        units = np.stack([kind.units for kind in kinds])
        for at, points in enumerate(first.points):
            whole = allocatable[:, at]
            taken = np.minimum(used[:, at] + units[:, at, None], whole)
            scores += points * (taken / np.maximum(whole, 1))
    if not first.devices:
        scores += 40.0 * _no_idle_device(nodes)
    return scores


def filled(request: dict[str, int], nodes: NodeView) -> FloatArray:
    """Return the mean share (0 to 1) in use after placing the task.

    The mean is over the requested resources, at least one.
    """
    total = np.zeros(nodes.size)
    for resource, units in sorted(request.items()):
        allocatable = nodes.allocatable(resource)
        after = nodes.used(resource) + units
        total += np.minimum(after, allocatable) / np.maximum(allocatable, 1)
    return total / len(request)


def fewest_pods(nodes: NodeView) -> FloatArray:
    """Return 100 for an empty node, less with every pod: below 1 beyond 100 pods."""
    return 100.0 / (1.0 + np.maximum(nodes.used("pods"), 0))


class DeviceColumns:
    """Indices of the devices among ``resources``, a list that may grow."""

    def __init__(self, resources: Sequence[str]) -> None:
        self._resources = resources
        self._seen = 0
        self._found: list[int] = []

    def now(self) -> list[int]:
        if self._seen != len(self._resources):
            self._seen = len(self._resources)
            self._found = [at for at, resource in enumerate(self._resources) if is_device(resource)]
        return self._found


def _no_idle_device(nodes: NodeView) -> FloatArray:
    idle = np.zeros(nodes.size, dtype=np.bool_)
    for resource in nodes.resources():
        if is_device(resource):
            idle |= nodes.allocatable(resource) > nodes.used(resource)
    return (~idle).astype(np.float64)
