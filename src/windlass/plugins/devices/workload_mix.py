"""Mix of typical pod requests, learned from the existing pods.

The mix is a function of the cluster at one time: the classes of pods with their
numbers, and the models of the nodes' devices. A new mix is adopted after
:data:`PATIENCE_SECONDS` at the earliest, and only if the pods or the models changed by
more than :data:`TOLERANCE`. So scores are stable while the workload is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from windlass.plugins.devices.device_arrays import WHOLE, share_of
from windlass.plugins.devices.fragmentation import PodDemand
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Needs
from windlass.spi.quantities import is_device
from windlass.spi.scoring import ClusterTotals

PATIENCE_SECONDS = 60.0
TOLERANCE = 0.1
"""Maximum share of pods in other classes before a new mix is adopted."""


_Listed = tuple[int, int, int, tuple[str, ...], tuple[str, ...], int]


@dataclass(frozen=True, slots=True)
class MixSnapshot:
    """Mix at one time.

    ``pods``: class → number of pods. ``models``: model → number of devices.
    ``memory_mib``: median memory of the devices.
    """

    pods: tuple[tuple[PodDemand, int], ...] = ()
    models: tuple[tuple[str, int], ...] = ()
    memory_mib: int = 0
    sliced: bool = False
    """True if any device supports MIG.

    Such a device is either shared or partitioned, so its free capacity is not one
    number.
    """

    @property
    def shared(self) -> bool:
        """True if any pod requests a part of a device, and all parts are shares."""
        return not self.sliced and any(demand.count and demand.milli < WHOLE for demand, _ in self.pods)

    @property
    def mixed(self) -> bool:
        """True if there are several models."""
        return len(self.models) > 1

    def as_list(self) -> list[Any]:
        """Return plain values for :meth:`of_list`."""
        pods = [[d.cpu, d.milli, d.count, list(d.models), list(d.models_not), n] for d, n in self.pods]
        return [pods, [list(item) for item in self.models], self.memory_mib, self.sliced]

    @staticmethod
    def of_list(listed: Any) -> MixSnapshot:
        """Return the snapshot of plain values (:meth:`as_list`).

        :raises msgspec.ValidationError: if the values are invalid
        """
        known = tuple[list[_Listed], list[tuple[str, int]], int, bool]
        pods, models, memory, sliced = msgspec.convert(listed, known)
        kinds = tuple(
            (PodDemand(cpu, milli, count, some, none), n) for cpu, milli, count, some, none, n in pods
        )
        return MixSnapshot(kinds, tuple(models), memory, sliced)

    def differs(self, other: MixSnapshot) -> bool:
        """Return whether it differs from ``other`` by more than :data:`TOLERANCE`."""
        if {name for name, _ in self.models} != {name for name, _ in other.models}:
            return True
        if self.sliced != other.sliced:
            return True
        return _distance(dict(self.pods), dict(other.pods)) > TOLERANCE


def _distance(counts: dict[PodDemand, int], other: dict[PodDemand, int]) -> float:
    """Return half the sum of differences of shares: 0 for equal mixes, 1 for disjoint ones."""
    first, second = sum(counts.values()), sum(other.values())
    if not first or not second:
        return float(first != second)
    kinds = counts.keys() | other.keys()
    return sum(abs(counts.get(kind, 0) / first - other.get(kind, 0) / second) for kind in kinds) / 2


class MixLearner:
    """Base class of scores that learn a mix. Subclasses adopt a snapshot in :meth:`_adopt`."""

    def __init__(self) -> None:
        self._snapshot = MixSnapshot()
        self._learned_at = float("-inf")
        self._devices: object = None
        """Devices at the time of the last evaluation."""

    def learn_from(self, now: float, totals: ClusterTotals) -> bool:
        """See :class:`~windlass.spi.scoring.LearningScore`."""
        if now - self._learned_at < PATIENCE_SECONDS or totals.empty():
            return False
        self._learned_at = now
        devices, known = totals.devices(), self._devices
        if known is devices and not self._concerns(self._snapshot) and not totals.shares_requested():
            return False  # silent with these devices before, and no pod requests a share
        self._devices = devices
        snapshot = observe(totals)
        if not self._concerns(snapshot):
            snapshot = replace(snapshot, pods=())
        elif not snapshot.differs(self._snapshot):
            return False
        before = self.silent
        self._snapshot = snapshot
        self._adopt(snapshot)
        return not (before and self.silent)

    @property
    def silent(self) -> bool:
        """True while the score has no opinion (see :mod:`windlass.spi.scoring`)."""
        return not self._concerns(self._snapshot)

    def _concerns(self, snapshot: MixSnapshot) -> bool:
        """Return whether the score has an opinion for such a mix."""
        raise NotImplementedError

    def _adopt(self, snapshot: MixSnapshot) -> None:
        raise NotImplementedError

    def remembered(self) -> object:
        """See :class:`~windlass.spi.scoring.LearningScore`."""
        learned_at = self._learned_at if math.isfinite(self._learned_at) else None
        return [learned_at, self._snapshot.as_list()]

    def recall(self, learned: object) -> None:
        """See :class:`~windlass.spi.scoring.LearningScore`."""
        learned_at, listed = msgspec.convert(learned, tuple[float | None, Any])
        self._learned_at = float("-inf") if learned_at is None else learned_at
        self._snapshot = MixSnapshot.of_list(listed)
        self._adopt(self._snapshot)


def observe(totals: ClusterTotals) -> MixSnapshot:
    """Return the current mix. Pods are counted only if shares are requested or models are mixed."""
    models: dict[str, int] = {}
    sizes: list[tuple[int, int]] = []
    for (model, memory), number in totals.devices().items():
        models[model] = models.get(model, 0) + number
        sizes.append((memory, number))
    snapshot = MixSnapshot((), tuple(sorted(models.items())), _median(sizes), totals.sliceable())
    if not snapshot.mixed and (snapshot.sliced or not totals.shares_requested()):
        return snapshot
    pods: dict[PodDemand, int] = {}
    for needs, number in totals.kinds():
        demand = demand_of(needs, snapshot.memory_mib)
        pods[demand] = pods.get(demand, 0) + number
    return replace(snapshot, pods=tuple(sorted(pods.items())))


def _median(sizes: list[tuple[int, int]]) -> int:
    """Return the median size. Unknown sizes (0) are ignored unless all are unknown."""
    known = sorted((size, number) for size, number in sizes if size)
    half = sum(number for _, number in known) // 2
    for size, number in known:
        half -= number
        if half < 0:
            return size
    return 0


def demand_of(needs: Needs, memory_mib: int = 0) -> PodDemand:
    """Return the request of a pod for fragmentation. Only the first of several device
    needs counts.

    :param memory_mib: memory of a device, for requests in MiB; 0: such a request counts
        as a whole device
    """
    cpu = next((units for name, units in needs.request if name == "cpu"), 0)
    if not needs.devices:  # most pods: no lookup by all their needs
        whole = [units // WHOLE for name, units in needs.node_request if units >= WHOLE and is_device(name)]
        return PodDemand(cpu, WHOLE, whole[0]) if whole else PodDemand(cpu)
    need = needs.devices[0]
    return PodDemand(cpu, milli_of(need, memory_mib), need.count, need.models, need.models_not)


def milli_of(need: DeviceNeed, memory_mib: int) -> int:
    """Return the milli that a need takes of a device with that much memory, at least 1."""
    if need.profile:
        return share_of(need.profile)
    by_memory = 0
    if need.memory_mib:
        by_memory = need.memory_mib * WHOLE // memory_mib if memory_mib else WHOLE
    return min(WHOLE, max(need.milli, need.memory_milli, by_memory, 1))
