"""What pods usually ask for, learned from those that exist: by it some scores tell what would be missed.

All that is learned is a function of one moment: which kinds of pods there are and how many, and which models
of cards the nodes have. A new moment is taken over only after :data:`PATIENCE_SECONDS`, and only if the
pods or the models have changed by more than :data:`TOLERANCE`; so the answers of scores stand still while
the cluster goes on as it did.
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
"""How large a part of the pods must be of other kinds before the new mix counts."""


_Listed = tuple[int, int, int, tuple[str, ...], tuple[str, ...], int]


@dataclass(frozen=True, slots=True)
class MixSnapshot:
    """``pods``: kind → how many exist; ``models``: model → how many cards; ``memory_mib``: of the middle one."""

    pods: tuple[tuple[PodDemand, int], ...] = ()
    models: tuple[tuple[str, int], ...] = ()
    memory_mib: int = 0
    sliced: bool = False
    """Whether any card can be cut into slices: a card then is shared or sliced, never both, and what is left
    of it is no number."""

    @property
    def shared(self) -> bool:
        """Whether any pod asks for a part of a card, and parts are all shares."""
        return not self.sliced and any(demand.count and demand.milli < WHOLE for demand, _ in self.pods)

    @property
    def mixed(self) -> bool:
        """Whether there is more than one model to choose from."""
        return len(self.models) > 1

    def as_list(self) -> list[Any]:
        """Of plain values, for :meth:`of_list`."""
        pods = [[d.cpu, d.milli, d.count, list(d.models), list(d.models_not), n] for d, n in self.pods]
        return [pods, [list(item) for item in self.models], self.memory_mib, self.sliced]

    @staticmethod
    def of_list(listed: Any) -> MixSnapshot:
        """Raises ``msgspec.ValidationError`` for what :meth:`as_list` never says."""
        known = tuple[list[_Listed], list[tuple[str, int]], int, bool]
        pods, models, memory, sliced = msgspec.convert(listed, known)
        kinds = tuple(
            (PodDemand(cpu, milli, count, some, none), n) for cpu, milli, count, some, none, n in pods
        )
        return MixSnapshot(kinds, tuple(models), memory, sliced)

    def differs(self, other: MixSnapshot) -> bool:
        """Whether it differs from ``other`` by more than :data:`TOLERANCE`."""
        if {name for name, _ in self.models} != {name for name, _ in other.models}:
            return True
        if self.sliced != other.sliced:
            return True
        return _distance(dict(self.pods), dict(other.pods)) > TOLERANCE


def _distance(one: dict[PodDemand, int], two: dict[PodDemand, int]) -> float:
    """Half the sum of the differences of the parts: 0 for equal mixes, 1 for those without a common kind."""
    first, second = sum(one.values()), sum(two.values())
    if not first or not second:
        return float(first != second)
    kinds = one.keys() | two.keys()
    return sum(abs(one.get(kind, 0) / first - two.get(kind, 0) / second) for kind in kinds) / 2


class MixLearner:
    """Takes stock for a score, which says what it makes of a moment by :meth:`_adopt`."""

    def __init__(self) -> None:
        self._snapshot = MixSnapshot()
        self._learned_at = float("-inf")
        self._devices: object = None
        """Those of which it has taken stock."""

    def learn_from(self, now: float, totals: ClusterTotals) -> bool:
        """See :class:`~windlass.spi.scoring.LearningScore`."""
        if now - self._learned_at < PATIENCE_SECONDS or totals.empty():
            return False
        self._learned_at = now
        devices, known = totals.devices(), self._devices
        if known is devices and not self._concerns(self._snapshot) and not totals.shares_requested():
            return False  # it had no word with these cards, and nobody asks for a part of one
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
        """See :mod:`windlass.spi.scoring`."""
        return not self._concerns(self._snapshot)

    def _concerns(self, snapshot: MixSnapshot) -> bool:
        """Whether the score has a word at such a moment."""
        raise NotImplementedError

    def _adopt(self, snapshot: MixSnapshot) -> None:
        raise NotImplementedError

    def remembered(self) -> object:
        """See :class:`~windlass.spi.scoring.LearningScore`."""
        at = self._learned_at if math.isfinite(self._learned_at) else None
        return [at, self._snapshot.as_list()]

    def recall(self, learned: object) -> None:
        """See :class:`~windlass.spi.scoring.LearningScore`."""
        at, listed = msgspec.convert(learned, tuple[float | None, Any])
        self._learned_at = float("-inf") if at is None else at
        self._snapshot = MixSnapshot.of_list(listed)
        self._adopt(self._snapshot)


def observe(totals: ClusterTotals) -> MixSnapshot:
    """The moment: kinds of pods only where parts of cards are wanted or there is more than one model."""
    models: dict[str, int] = {}
    sizes: list[tuple[int, int]] = []
    for (model, memory), number in totals.devices().items():
        models[model] = models.get(model, 0) + number
        sizes.append((memory, number))
    snapshot = MixSnapshot((), tuple(sorted(models.items())), _middle(sizes), totals.sliceable())
    if not snapshot.mixed and (snapshot.sliced or not totals.shares_requested()):
        return snapshot
    pods: dict[PodDemand, int] = {}
    for needs, number in totals.kinds():
        demand = demand_of(needs, snapshot.memory_mib)
        pods[demand] = pods.get(demand, 0) + number
    return replace(snapshot, pods=tuple(sorted(pods.items())))


def _middle(sizes: list[tuple[int, int]]) -> int:
    """The size of the middle one; of 0 (unknown) only if all are."""
    known = sorted((size, number) for size, number in sizes if size)
    half = sum(number for _, number in known) // 2
    for size, number in known:
        half -= number
        if half < 0:
            return size
    return 0


def demand_of(needs: Needs, memory_mib: int = 0) -> PodDemand:
    """A pod as fragmentation sees it. Of several needs of cards the first counts. ``memory_mib`` of a card,
    for what is asked in MiB; 0: that then counts as a whole card."""
    cpu = next((units for name, units in needs.request if name == "cpu"), 0)
    if not needs.devices:  # most pods: without looking them up by all that they need
        whole = [units // WHOLE for name, units in needs.node_request if units >= WHOLE and is_device(name)]
        return PodDemand(cpu, WHOLE, whole[0]) if whole else PodDemand(cpu)
    need = needs.devices[0]
    return PodDemand(cpu, milli_of(need, memory_mib), need.count, need.models, need.models_not)


def milli_of(need: DeviceNeed, memory_mib: int) -> int:
    """What a need takes of a card with that much memory, in milli, at least 1."""
    if need.profile:
        return share_of(need.profile)
    by_memory = 0
    if need.memory_mib:
        by_memory = need.memory_mib * WHOLE // memory_mib if memory_mib else WHOLE
    return min(WHOLE, max(need.milli, need.memory_milli, by_memory, 1))
