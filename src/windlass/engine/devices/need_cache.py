"""What is remembered about single cards: the way of most pods, which ask for a part of one card.

The state of a card is one number (:class:`~windlass.engine.devices.share_table.ShareTable` hands them out), so what a
card in some state says to a need is found once. A row's count is then a sum, remembered by the states of all its cards,
and its choice a least one, over as many look-ups as it has cards. Whatever needs more than that is left to
:mod:`windlass.engine.devices.assignment`, whose answers these are (a property test holds it).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.assignment import DeviceSummary
from windlass.engine.devices.device_state import DeviceState, capacity_of, opening_of, rank_of, share_of
from windlass.engine.devices.need_on_device import NeedOnDevice
from windlass.engine.devices.share_table import RowDevices, TaskShare
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.spi.devices import DeviceNeed

MOST = 20_000
MOST_ROWS = 4_000
"""Of so many states of all cards of a row a need remembers what they say together."""


class DeviceAnswer(NamedTuple):
    """What a card says to a need now. ``opens``: 1 if a whole card is charged for it, -1 if that takes a closer
    look. ``rank``: the least is taken. ``cuts``: what the pod would get; empty if the card does not take it."""

    capacity: int
    opens: int
    rank: tuple[bool, int, int]
    shares: tuple[TaskShare, ...]


NOTHING = DeviceAnswer(0, 0, (False, 0, 0), ())


class NeedTally(NamedTuple):
    """How many pods the cards of a row take, -1 if that takes a closer look; and by resource what is charged for
    whole cards then."""

    total: int
    opened: tuple[tuple[str, int], ...]


CLOSER = NeedTally(-1, ())


class NeedCache:
    """One need of one card, on the cards of one kit."""

    __slots__ = ("_need", "_seen", "_tallies", "_wishes", "places")

    def __init__(self, need: DeviceNeed, wishes: Sequence[NeedOnDevice], found: RowDevices) -> None:
        self._need = need
        self._wishes = {wish.slot: wish for wish in wishes}
        cards = found.device_set.cards
        self.places: list[tuple[int, str, dict[int, DeviceAnswer]]] = [
            (slot, cards[slot].device.resource, {}) for slot in sorted(self._wishes)
        ]
        """Slot, resource, state → place."""
        self._seen: dict[tuple[int, int], tuple[bool, tuple[int, ...], tuple[int, ...], bool]] = {}
        """Slot and state → whether the card does, and what is left of it: milli if it may be shared, MiB; whether as
        many share it as may."""

        self._tallies: dict[tuple[int, ...], NeedTally] = {}
        """The states of all cards → what they say together."""

    @staticmethod
    def serves(need: DeviceNeed) -> bool:
        """Whether this way may be gone for the need."""
        return need.count == 1 and not (need.carries or need.avoids or need.by_name)

    def place(
        self, found: RowDevices, slot: int, cells: NDArray[np.int64], known: dict[int, DeviceAnswer]
    ) -> DeviceAnswer:
        """Look at one card, and remember. ``cells``: of the row."""
        need, wish = self._need, self._wishes[slot]
        device = DeviceState(found.device_set.cards[slot], cells[slot].tolist(), later=False, vacated=False)
        capacity = capacity_of(need, wish, device)
        share = share_of(need, wish, device) if capacity else None
        place = NOTHING
        if share is not None:
            place = DeviceAnswer(capacity, _opens(device), rank_of(need, share, device, slot), (share,))
        if len(known) > MOST:
            known.clear()
        known[found.states[slot]] = place
        return place

    def tally(self, found: RowDevices, cells: NDArray[np.int64], row: int) -> NeedTally:
        """What all cards of a row say. ``cells``: of all rows."""
        key = tuple(found.states)
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) > MOST_ROWS:
                self._tallies.clear()
            tally = self._tallies[key] = self._tally(found, cells[row])
        return tally

    def _tally(self, found: RowDevices, cells: NDArray[np.int64]) -> NeedTally:
        total, states = 0, found.states
        opened: dict[str, int] = {}
        for slot, resource, known in self.places:
            place = known.get(states[slot])
            if place is None:
                place = self.place(found, slot, cells, known)
            if place.capacity:
                if place.opens < 0:
                    return CLOSER
                total += place.capacity
                if place.opens:
                    opened[resource] = opened.get(resource, 0) + WHOLE
        return NeedTally(total, tuple(opened.items()))

    def summary(self, found: RowDevices, cells: NDArray[np.int64]) -> DeviceSummary:
        """What the cards say to the need now
        (:meth:`~windlass.engine.devices.assignment.NodeDeviceAssignment.glance`)."""
        taking, crowded, milli, mib = 0, 0, list[int](), list[int]()
        for slot, wish in self._wishes.items():
            key = slot, found.states[slot]
            seen = self._seen.get(key)
            if seen is None:
                device = DeviceState(
                    found.device_set.cards[slot], cells[slot].tolist(), later=False, vacated=False
                )
                takes = share_of(self._need, wish, device) is not None
                full = not device.taken and device.crowded
                left = () if device.taken or device.slices or full else (WHOLE - device.milli,)
                seen = takes, left, () if device.taken or full else (device.free_mib(),), full
                if len(self._seen) > MOST:
                    self._seen.clear()
                self._seen[key] = seen
            taking += seen[0]
            milli += seen[1]
            mib += seen[2]
            crowded += seen[3]
        most = max(milli, default=0), max(mib, default=0)
        return DeviceSummary(self._need, len(self._wishes), taking, *most, crowded)


def _opens(device: DeviceState) -> int:
    if not device.card.counted or opening_of(device, later=False) is None:
        return 0
    return -1 if device.held or device.kept else 1


def pick(
    memo: NeedCache,
    found: RowDevices,
    cells: NDArray[np.int64],
    free: dict[str, int],
    points: Sequence[float] | None = None,
) -> tuple[TaskShare, ...] | None:
    """The part that a pod gets; ``None`` if a closer look is needed. ``points``: by slot, what counts before
    the usual order of the cards."""
    best: DeviceAnswer | None = None
    most = 0.0
    states = found.states
    for slot, resource, known in memo.places:
        place = known.get(states[slot])
        if place is None:
            place = memo.place(found, slot, cells, known)
        if not place.capacity:
            continue
        here = 0.0 if points is None else points[slot]
        if best is not None and (here < most or (here == most and place.rank >= best.rank)):
            continue
        if place.opens and (place.opens < 0 or free.get(resource, 0) < WHOLE):
            return None
        best, most = place, here
    return best.shares if best is not None else None
