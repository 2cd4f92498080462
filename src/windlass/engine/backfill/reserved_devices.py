"""Device shares that are booked for a reservation: the part that no release covers in time.

A reserved share of a device may be held by other tasks until the reservation starts. It
is not taken from them, only from new tasks. It is booked as nominated as far as
releases do not cover it, share by share and slice by slice. For plain whole devices of
a reservation, devices that are shared now and free by then are closed to new shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.share_table import TaskShare, TaskShares
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.groups.entries import TaskEntry
from windlass.engine.nodes.table import ALLOCATABLE, USED, NodeTable
from windlass.spi.devices import Draws
from windlass.spi.objects import TaskState
from windlass.spi.quantities import is_device

Place = tuple[int, str, int]
"""Row, resource, index of a device; -1 for a resource that is counted without devices."""


def shares_by_row(seats: Iterable[tuple[TaskEntry, int, TaskShares | None]]) -> dict[int, TaskShares]:
    """Return the device shares of tasks by the row of their placement."""
    found: dict[int, TaskShares] = {}
    for _, row, cuts in seats:
        if cuts:
            found[row] = found.get(row, ()) + cuts
    return found


@dataclass(slots=True)
class ReservedDevices:
    """One booking of all reservations, earliest first."""

    table: NodeTable
    _reserved: dict[Place, list[int]] = field(default_factory=dict)
    """Compute and memory of shares that have been reserved so far, by device."""
    _drawn: dict[tuple[int, str], int] = field(default_factory=dict)
    """(Row, name) → consumption of shared devices that has been reserved so far."""

    def parts(self, row: int, cuts: TaskShares, ending: Sequence[TaskEntry]) -> TaskShares:
        """Return the part of the reserved shares to book.

        ``ending``: tasks that end before the start.
        """
        kept = []
        for share in cuts:
            booked = self._booked(row, share, ending)
            if booked is not None:
                kept.append(booked)
        return tuple(kept)

    def _booked(self, row: int, share: TaskShare, ending: Sequence[TaskEntry]) -> TaskShare | None:
        mine = [
            other
            for entry in ending
            for other in entry.cuts
            if (other.resource, other.index) == (share.resource, share.index)
        ]
        whole = any(
            resource == share.resource and share.index >= 0 and mask >> share.index & 1
            for entry in ending
            for resource, mask in entry.masks
        )
        if whole:
            return None
        if share.profile:
            return None if any(self._in_the_way(row, share, other) for other in mine) else share
        if any(other.profile for other in mine):
            return None
        before = self._reserved.setdefault((row, share.resource, share.index), [0, 0])
        left = []
        for at, (asked, covered) in enumerate(
            ((share.milli, sum(o.milli for o in mine)), (share.mib, sum(o.mib for o in mine)))
        ):
            left.append(max(before[at] + asked - covered, 0) - max(before[at] - covered, 0))
            before[at] += asked
        draws = self._left_to_draw(row, share, mine)
        if mine and not any(left) and not draws:
            return None
        return replace(share, milli=left[0], mib=left[1], draws=draws)

    def _left_to_draw(self, row: int, share: TaskShare, mine: Sequence[TaskShare]) -> Draws:
        """Return the consumption of a shared device that the ending tasks do not give back."""
        found = []
        for name, units, total in share.draws:
            covered = sum(has for other in mine for what, has, _ in other.draws if what == name)
            before = self._drawn.get((row, name), 0)
            self._drawn[row, name] = before + units
            left = max(before + units - covered, 0) - max(before - covered, 0)
            if left:
                found.append((name, left, total))
        return tuple(found)

    def _in_the_way(self, row: int, share: TaskShare, other: TaskShare) -> bool:
        """Return whether the slice is available only after the other one is gone."""
        if not other.profile:
            return True
        cards = self.table.shares.row(row)
        card = cards.device_set.devices[cards.device_set.slots[share.resource, share.index]]
        if card.geometry is None:
            return True
        codes = card.geometry.codes
        taken = card.geometry.mask(codes[other.profile], other.start)
        return bool(card.geometry.mask(codes[share.profile], share.start) & taken)

    def vacated(self, row: int, ending: Sequence[TaskEntry]) -> dict[str, list[int]]:
        """Return the shared devices of the row that are free once ``ending`` are gone, by resource."""
        if not any(entry.cuts for entry in ending):
            return {}
        staying = {
            (share.resource, share.index)
            for entry in self.table.tasks[row].values()
            if entry not in ending and entry.state is not TaskState.RELEASING
            for share in entry.cuts
        }
        device_set = self.table.shares.row(row).device_set
        found: dict[str, list[int]] = {}
        for at in sorted({(c.resource, c.index) for entry in ending for c in entry.cuts} - staying):
            card = device_set.devices[device_set.slots[at]] if at in device_set.slots else None
            if card is not None and card.counted and not card.unhealthy:
                found.setdefault(at[0], []).append(at[1])
        return found

    def closed(
        self, row: int, amounts: NDArray[np.int64], ending: Sequence[TaskEntry], leaving: NDArray[np.int64]
    ) -> TaskShares:
        """Return the devices to close to new shares for plain whole devices of a reservation.

        ``leaving``: what ``ending`` hold, without device shares.
        """
        table, found = self.table, []
        for resource, indices in self.vacated(row, ending).items():
            column = table.resources.codes[resource]
            if not is_device(resource) or column >= len(amounts) or not amounts[column]:
                continue
            planes = table.planes[row, :, column]
            free = int(planes[ALLOCATABLE] - planes[USED]) + int(leaving[column])
            needed = (int(amounts[column]) - free) // WHOLE
            found += [TaskShare(resource, index, WHOLE) for index in indices[: max(0, needed)]]
        return tuple(found)
