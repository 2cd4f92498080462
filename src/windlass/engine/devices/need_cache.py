"""Cache of single-device answers, the path of most pods, which need a share of one device.

The state of a device is one number
(:class:`~windlass.engine.devices.share_table.ShareTable` assigns it), so the answer of
a state to a need is computed once. The count of a row is then a sum, cached by the
states of all its devices, and its choice is a minimum over one look-up per device.
Everything else is left to :mod:`windlass.engine.devices.assignment`; both give equal
results (a property test checks this).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.assignment import DeviceSummary
from windlass.engine.devices.device_state import DeviceState, capacity_of, opening_charge, rank_of, share_of
from windlass.engine.devices.need_on_device import NeedOnDevice
from windlass.engine.devices.share_table import RowDevices, TaskShare
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.spi.devices import DeviceNeed

MAX_ANSWERS = 20_000
MAX_TALLIES = 4_000
"""Maximum number of cached tallies (states of all devices of a row) per need."""


class DeviceAnswer(NamedTuple):
    """Answer of a device to a need now.

    ``opens``: 1 if a whole device is charged for it, -1 if only the full evaluation can
    tell.
    ``rank``: sort key; the smallest is taken first.
    ``shares``: allocation of the pod; empty if it does not fit.
    """

    capacity: int
    opens: int
    rank: tuple[bool, int, int]
    shares: tuple[TaskShare, ...]


DOES_NOT_FIT = DeviceAnswer(0, 0, (False, 0, 0), ())


class NeedTally(NamedTuple):
    """Number of pods that the devices of a row hold, and charges for opened devices.

    ``total``: -1 if the full evaluation is required.
    """

    total: int
    opened: tuple[tuple[str, int], ...]


EVALUATE_FULLY = NeedTally(-1, ())


class NeedCache:
    """Cached answers of the devices of one device set to one need for a single device."""

    __slots__ = ("_need", "_needs_here", "_summaries", "_tallies", "answers")

    def __init__(self, need: DeviceNeed, needs_here: Sequence[NeedOnDevice], devices: RowDevices) -> None:
        self._need = need
        self._needs_here = {need_here.slot: need_here for need_here in needs_here}
        facts = devices.device_set.devices
        self.answers: list[tuple[int, str, dict[int, DeviceAnswer]]] = [
            (slot, facts[slot].device.resource, {}) for slot in sorted(self._needs_here)
        ]
        """Slot, resource, state → answer."""
        self._summaries: dict[tuple[int, int], tuple[bool, tuple[int, ...], tuple[int, ...], bool]] = {}
        """(Slot, state) → fits, free milli if shareable, free MiB, at its share limit."""

        self._tallies: dict[tuple[int, ...], NeedTally] = {}
        """States of all devices → tally."""

    @staticmethod
    def is_cacheable(need: DeviceNeed) -> bool:
        """Return whether answers to the need can be cached."""
        return need.count == 1 and not (need.carries or need.avoids or need.by_name)

    def answer(
        self, devices: RowDevices, slot: int, cells: NDArray[np.int64], known: dict[int, DeviceAnswer]
    ) -> DeviceAnswer:
        """Evaluate one device and cache the answer. ``cells``: of the row."""
        need, need_here = self._need, self._needs_here[slot]
        device = DeviceState(
            devices.device_set.devices[slot], cells[slot].tolist(), later=False, vacated=False
        )
        capacity = capacity_of(need, need_here, device)
        share = share_of(need, need_here, device) if capacity else None
        answer = DOES_NOT_FIT
        if share is not None:
            answer = DeviceAnswer(capacity, _opens(device), rank_of(need, share, device, slot), (share,))
        if len(known) > MAX_ANSWERS:
            known.clear()
        known[devices.states[slot]] = answer
        return answer

    def tally(self, devices: RowDevices, cells: NDArray[np.int64], row: int) -> NeedTally:
        """Return the tally of all devices of a row. ``cells``: of all rows."""
        key = tuple(devices.states)
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) > MAX_TALLIES:
                self._tallies.clear()
            tally = self._tallies[key] = self._tally(devices, cells[row])
        return tally

    def _tally(self, devices: RowDevices, cells: NDArray[np.int64]) -> NeedTally:
        total, states = 0, devices.states
        opened: dict[str, int] = {}
        for slot, resource, known in self.answers:
            answer = known.get(states[slot])
            if answer is None:
                answer = self.answer(devices, slot, cells, known)
            if answer.capacity:
                if answer.opens < 0:
                    return EVALUATE_FULLY
                total += answer.capacity
                if answer.opens:
                    opened[resource] = opened.get(resource, 0) + WHOLE
        return NeedTally(total, tuple(opened.items()))

    def summary(self, devices: RowDevices, cells: NDArray[np.int64]) -> DeviceSummary:
        """Return the summary of the devices for the need now.

        It equals
        :meth:`~windlass.engine.devices.assignment.NodeDeviceAssignment.summary`.
        """
        fitting, at_limit, milli, mib = 0, 0, list[int](), list[int]()
        for slot, need_here in self._needs_here.items():
            key = slot, devices.states[slot]
            cached = self._summaries.get(key)
            if cached is None:
                device = DeviceState(
                    devices.device_set.devices[slot], cells[slot].tolist(), later=False, vacated=False
                )
                fits = share_of(self._need, need_here, device) is not None
                full = not device.taken and device.at_share_limit
                free_milli = () if device.taken or device.slices or full else (WHOLE - device.milli,)
                cached = fits, free_milli, () if device.taken or full else (device.free_mib(),), full
                if len(self._summaries) > MAX_ANSWERS:
                    self._summaries.clear()
                self._summaries[key] = cached
            fitting += cached[0]
            milli += cached[1]
            mib += cached[2]
            at_limit += cached[3]
        most = max(milli, default=0), max(mib, default=0)
        return DeviceSummary(self._need, len(self._needs_here), fitting, *most, at_limit)


def _opens(device: DeviceState) -> int:
    if not device.facts.counted or opening_charge(device, later=False) is None:
        return 0
    return -1 if device.held or device.nominated else 1


def pick(
    cache: NeedCache,
    devices: RowDevices,
    cells: NDArray[np.int64],
    free: dict[str, int],
    points: Sequence[float] | None = None,
) -> tuple[TaskShare, ...] | None:
    """Return the share that a pod gets; ``None`` if the full evaluation is required.

    ``points``: scores by slot; they precede the default order of the devices.
    """
    best: DeviceAnswer | None = None
    best_score = 0.0
    states = devices.states
    for slot, resource, known in cache.answers:
        answer = known.get(states[slot])
        if answer is None:
            answer = cache.answer(devices, slot, cells, known)
        if not answer.capacity:
            continue
        score = 0.0 if points is None else points[slot]
        if best is not None and (score < best_score or (score == best_score and answer.rank >= best.rank)):
            continue
        if answer.opens and (answer.opens < 0 or free.get(resource, 0) < WHOLE):
            return None
        best, best_score = answer, score
    return best.shares if best is not None else None
