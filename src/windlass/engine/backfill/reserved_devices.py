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
from windlass.spi.devices import ConsumedCounters
from windlass.spi.objects import TaskState
from windlass.spi.quantities import is_device

DeviceKey = tuple[int, str, int]
"""Row, resource, index of a device; -1 for a resource that is counted without devices."""


def shares_by_row(placements: Iterable[tuple[TaskEntry, int, TaskShares | None]]) -> dict[int, TaskShares]:
    """Return the device shares of tasks by the row of their placement."""
    found: dict[int, TaskShares] = {}
    for _, row, shares in placements:
        if shares:
            found[row] = found.get(row, ()) + shares
    return found


@dataclass(slots=True)
class ReservedDevices:
    """One booking of all reservations, earliest first."""

    table: NodeTable
    _reserved: dict[DeviceKey, list[int]] = field(default_factory=dict)
    """Compute and memory of shares that have been reserved so far, by device."""
    _consumed: dict[tuple[int, str], int] = field(default_factory=dict)
    """(Row, name) → consumption of shared devices that has been reserved so far."""

    def shares_to_book(self, row: int, shares: TaskShares, ending: Sequence[TaskEntry]) -> TaskShares:
        """Return the part of the reserved shares to book.

        ``ending``: tasks that end before the start.
        """
        kept = []
        for share in shares:
            share_to_book = self._share_to_book(row, share, ending)
            if share_to_book is not None:
                kept.append(share_to_book)
        return tuple(kept)

    def _share_to_book(self, row: int, share: TaskShare, ending: Sequence[TaskEntry]) -> TaskShare | None:
        released = [
            other
            for entry in ending
            for other in entry.shares
            if (other.resource, other.index) == (share.resource, share.index)
        ]
        releases_whole = any(
            resource == share.resource and share.index >= 0 and mask >> share.index & 1
            for entry in ending
            for resource, mask in entry.masks
        )
        if releases_whole:
            return None
        if share.profile:
            return None if any(self._conflicts(row, share, other) for other in released) else share
        if any(other.profile for other in released):
            return None
        before = self._reserved.setdefault((row, share.resource, share.index), [0, 0])
        uncovered = []
        for index, (requested, covered) in enumerate(
            ((share.milli, sum(o.milli for o in released)), (share.mib, sum(o.mib for o in released)))
        ):
            uncovered.append(max(before[index] + requested - covered, 0) - max(before[index] - covered, 0))
            before[index] += requested
        draws = self._uncovered_consumption(row, share, released)
        if released and not any(uncovered) and not draws:
            return None
        return replace(share, milli=uncovered[0], mib=uncovered[1], draws=draws)

    def _uncovered_consumption(
        self, row: int, share: TaskShare, released: Sequence[TaskShare]
    ) -> ConsumedCounters:
        """Return the consumption of a shared device that the ending tasks do not give back."""
        uncovered_draws = []
        for name, units, total in share.draws:
            covered = sum(has for other in released for what, has, _ in other.draws if what == name)
            before = self._consumed.get((row, name), 0)
            self._consumed[row, name] = before + units
            uncovered = max(before + units - covered, 0) - max(before - covered, 0)
            if uncovered:
                uncovered_draws.append((name, uncovered, total))
        return tuple(uncovered_draws)

    def _conflicts(self, row: int, share: TaskShare, other: TaskShare) -> bool:
        """Return whether the slice is available only after the other one is gone."""
        if not other.profile:
            return True
        devices = self.table.shares.row(row)
        facts = devices.device_set.devices[devices.device_set.slots[share.resource, share.index]]
        if facts.geometry is None:
            return True
        codes = facts.geometry.codes
        taken = facts.geometry.mask(codes[other.profile], other.start)
        return bool(facts.geometry.mask(codes[share.profile], share.start) & taken)

    def vacated(self, row: int, ending: Sequence[TaskEntry]) -> dict[str, list[int]]:
        """Return the shared devices of the row that are free once ``ending`` are gone, by resource."""
        if not any(entry.shares for entry in ending):
            return {}
        staying = {
            (share.resource, share.index)
            for entry in self.table.tasks[row].values()
            if entry not in ending and entry.state is not TaskState.RELEASING
            for share in entry.shares
        }
        device_set = self.table.shares.row(row).device_set
        indices_by_resource: dict[str, list[int]] = {}
        for index in sorted({(c.resource, c.index) for entry in ending for c in entry.shares} - staying):
            facts = device_set.devices[device_set.slots[index]] if index in device_set.slots else None
            if facts is not None and facts.counted and not facts.unhealthy:
                indices_by_resource.setdefault(index[0], []).append(index[1])
        return indices_by_resource

    def closed_shares(
        self,
        row: int,
        resources: NDArray[np.int64],
        ending: Sequence[TaskEntry],
        releasing: NDArray[np.int64],
    ) -> TaskShares:
        """Return the devices to close to new shares for plain whole devices of a reservation.

        ``releasing``: what ``ending`` hold, without device shares.
        """
        table, closed = self.table, []
        for resource, indices in self.vacated(row, ending).items():
            column = table.resources.codes[resource]
            if not is_device(resource) or column >= len(resources) or not resources[column]:
                continue
            planes = table.planes[row, :, column]
            free = int(planes[ALLOCATABLE] - planes[USED]) + int(releasing[column])
            needed = (int(resources[column]) - free) // WHOLE
            closed += [TaskShare(resource, index, WHOLE) for index in indices[: max(0, needed)]]
        return tuple(closed)
