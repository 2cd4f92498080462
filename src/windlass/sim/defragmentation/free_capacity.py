"""Free capacity of an engine's nodes during the search for moves, and the capacity that pods take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from windlass.engine.decision import DeviceShare
from windlass.engine.groups.entries import TaskEntry
from windlass.engine.nodes.view import TableView
from windlass.model.devices.assignment import allocated_devices
from windlass.plugins.devices.device_arrays import BARRED, WHOLE, request_of, requested_milli
from windlass.spi.devices import DeviceView
from windlass.spi.nodes import BoolArray, IntArray
from windlass.spi.objects import Needs


def asks(entry: TaskEntry, resource: str) -> int:
    """Return the request of a pod for a resource, in the engine's units."""
    return entry.cls.request.get(resource, 0)


def milli_of(entry: TaskEntry) -> int:
    """Return the thousandths of devices that a pod holds; its request if the devices are unknown."""
    return sum(map(held_of, entry.devices)) or asked_for(entry.cls.needs)


def held_of(share: DeviceShare) -> int:
    """Thousandths of its device."""
    return share.milli if share.milli >= WHOLE else allocated_devices(share).milli


def asked_for(needs: Needs) -> int:
    """Thousandths of devices that a pod asks for; of devices of which it says only how much memory one each."""
    return sum(need.count * max(need.milli, need.memory_milli, 1) for need in request_of(needs))


def asked_on(needs: Needs, view: TableView, node: str = "") -> int:
    """The same of the devices that there are, the least that it comes to: on a node, or on any."""
    asked = request_of(needs)
    if not any(need.memory_mib or need.profile for need in asked):
        return asked_for(needs)
    cards = view.devices()
    rows = np.array([not node or name == node for name in view.names()], dtype=np.bool_)
    return sum(
        need.count * min(WHOLE, int(requested_milli(need, cards)[rows].min(initial=BARRED))) for need in asked
    )


class MoveStep(NamedTuple):
    """A pod that moves, and to which row."""

    entry: TaskEntry
    to: int


@dataclass(slots=True)
class FreeCapacity:
    """Current free capacity, nodes (× slots)."""

    cpu: IntArray
    memory: IntArray
    cards: IntArray
    kinds: DeviceView
    takes: Callable[[TaskEntry], BoolArray]
    """The nodes that would take a pod, were they empty and had they its kind of devices."""
    asked: dict[int, IntArray] = field(default_factory=dict)
    """Number of a class → what it takes of each device."""
    open: dict[int, BoolArray] = field(default_factory=dict)
    """Number of a class → the nodes that would take one of it as they are."""

    def milli(self, entry: TaskEntry) -> IntArray | None:
        """Return the capacity the pod takes of each device; :data:`BARRED` where it is not allowed.

        Returns ``None`` for a pod without devices.
        """
        asked = request_of(entry.cls.needs)
        if not asked:
            return None
        number = entry.cls.number
        if number not in self.asked:
            milli = self.asked[number] = requested_milli(asked[0], self.kinds)
            milli[~self.takes(entry)] = BARRED
        return self.asked[number]

    def fits(self, entry: TaskEntry) -> BoolArray:
        """The nodes that would take the pod."""
        found = self.takes(entry) & (self.cpu >= asks(entry, "cpu")) & (self.memory >= asks(entry, "memory"))
        milli = self.milli(entry)
        if milli is not None:
            found &= (self.cards >= milli).sum(axis=1) >= request_of(entry.cls.needs)[0].count
        return found

    def possible(self, entry: TaskEntry) -> BoolArray:
        """The nodes on which the pod could be at all, whatever is left there."""
        milli = self.milli(entry)
        return self.takes(entry) if milli is None else (milli <= WHOLE).sum(axis=1) > 0

    def hopeful(self, entry: TaskEntry, row: int) -> bool:
        """Return whether the pod, which is on that node, could find a place: elsewhere, or on another device."""
        number = entry.cls.number
        if number not in self.open:
            self.open[number] = self.fits(entry)
        found = self.open[number]
        if int(found.sum()) > int(found[row]):
            return True
        milli = self.milli(entry)
        held = {share.index for share in entry.devices}
        return milli is not None and any(
            free >= asked
            for slot, (free, asked) in enumerate(
                zip(self.cards[row].tolist(), milli[row].tolist(), strict=True)
            )
            if slot not in held
        )

    def without(self, row: int, movers: Sequence[TaskEntry]) -> FreeCapacity:
        """A copy in which some pods of a node have left it."""
        found = FreeCapacity(
            self.cpu.copy(), self.memory.copy(), self.cards.copy(), self.kinds, self.takes, self.asked
        )
        found.cpu[row] += sum(asks(entry, "cpu") for entry in movers)
        found.memory[row] += sum(asks(entry, "memory") for entry in movers)
        for entry in movers:
            for share in entry.devices:
                left = found.cards[row, share.index] + held_of(share)
                found.cards[row, share.index] = min(WHOLE, left)
            if not entry.devices:  # its whole devices are unknown: take any devices without free capacity
                taken = np.flatnonzero(self.kinds.exists[row] & (found.cards[row] <= 0))
                found.cards[row, taken[: milli_of(entry) // WHOLE]] = WHOLE
        return found
