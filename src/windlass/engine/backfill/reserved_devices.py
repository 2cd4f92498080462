"""What of cards is kept for a reservation: the part of it that nothing leaves by then.

A reserved part of a card that others hold until the reservation starts needs no keeping from those who are
there, but from everybody else: it is booked as promised as far as what leaves does not cover it, share by share
and slice by slice. For plain whole cards of a reservation the cards that sharers will have left by then are
closed to new sharers.
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
"""Row, resource, index of a card; -1 for a resource that is counted without cards."""


def shares_by_row(seats: Iterable[tuple[TaskEntry, int, TaskShares | None]]) -> dict[int, TaskShares]:
    """What tasks have, or would have, of cards by the row on which they are placed."""
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
    """Compute and memory of shares that has been reserved so far, by card."""
    _drawn: dict[tuple[int, str], int] = field(default_factory=dict)
    """By row and name, what of cards that claims share has been reserved so far."""

    def parts(self, row: int, cuts: TaskShares, ending: Sequence[TaskEntry]) -> TaskShares:
        """What of the reserved parts has to be booked, while ``ending`` are those who leave before."""
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
        """Of a card that claims share, what those who leave do not give back."""
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
        """Whether the slice can be had only once the other is gone."""
        if not other.profile:
            return True
        cards = self.table.cards.row(row)
        card = cards.device_set.cards[cards.device_set.slots[share.resource, share.index]]
        if card.geometry is None:
            return True
        codes = card.geometry.codes
        taken = card.geometry.mask(codes[other.profile], other.start)
        return bool(card.geometry.mask(codes[share.profile], share.start) & taken)

    def vacated(self, row: int, ending: Sequence[TaskEntry]) -> dict[str, list[int]]:
        """By resource, the cards of the row that are shared now, and nobody's once ``ending`` have left."""
        if not any(entry.cuts for entry in ending):
            return {}
        staying = {
            (share.resource, share.index)
            for entry in self.table.tasks[row].values()
            if entry not in ending and entry.state is not TaskState.RELEASING
            for share in entry.cuts
        }
        device_set = self.table.cards.row(row).device_set
        found: dict[str, list[int]] = {}
        for at in sorted({(c.resource, c.index) for entry in ending for c in entry.cuts} - staying):
            card = device_set.cards[device_set.slots[at]] if at in device_set.slots else None
            if card is not None and card.counted and not card.sick:
                found.setdefault(at[0], []).append(at[1])
        return found

    def closed(
        self, row: int, amounts: NDArray[np.int64], ending: Sequence[TaskEntry], leaving: NDArray[np.int64]
    ) -> TaskShares:
        """The cards that plain whole ones of a reservation need of those that sharers will have left: nobody
        new gets in. ``leaving``: what ``ending`` hold, without parts of cards."""
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
