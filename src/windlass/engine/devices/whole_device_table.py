"""Which device of a node is whose.

Per node and device resource two bit sets (Python integers, bit = device index): what is ``healthy``
and what is ``free`` (healthy and held by nobody). An index that two tasks claim (only the outside
world can cause that) is counted, so that it is free only after both have gone. Exact indices are
picked lowest first and never given twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from windlass.engine.decision import DeviceShare
from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Node
from windlass.spi.quantities import is_device

WHOLE = 1000
UNCOUNTED = (DeviceMode.SLICED, DeviceMode.NAMED)
"""Cards of these modes count for nothing in their resource."""


@dataclass(slots=True)
class Slots:
    """The devices of one resource on one node."""

    known: int = 0
    healthy: int = 0
    free: int = 0
    taken: int = 0
    surplus: dict[int, int] = field(default_factory=dict)
    """Index → holders beyond the first."""
    kept: int = 0
    """Of which a part is promised: picked last."""
    links: tuple[int, ...] = ()
    """The devices that are joined by fast links, group by group."""
    zones: tuple[int, ...] = ()
    """The same by NUMA zone."""

    @property
    def sick(self) -> int:
        """The devices that are not healthy."""
        return self.known & ~self.healthy

    @property
    def unusable(self) -> int:
        """How many devices are unhealthy and held by nobody: they count as allocatable but are not."""
        return (self.sick & ~self.taken).bit_count()

    def take(self, mask: int) -> None:
        both = mask & self.taken
        if both:
            for index in bits(both):
                self.surplus[index] = self.surplus.get(index, 0) + 1
        self.taken |= mask
        self.free &= ~mask

    def give(self, mask: int) -> None:
        if self.surplus:
            for index in bits(mask):
                if index in self.surplus:
                    mask &= ~(1 << index)
                    self.surplus[index] -= 1
                    if not self.surplus[index]:
                        del self.surplus[index]
        self.taken &= ~mask
        self.free = self.healthy & ~self.taken

    def pick(self, count: int) -> int:
        """``count`` free devices as a mask; 0 if there are fewer.

        They are of the group of joined devices, or else of the NUMA zone, with fewest free ones that has as
        many; the lowest of those, or of all where no group has as many.
        """
        free = self.free
        if self.kept and (free & ~self.kept).bit_count() >= count:
            free &= ~self.kept
        for groups in (self.links, self.zones) if self.links or self.zones else ():
            inside = [group & free for group in groups if (group & free).bit_count() >= count]
            if inside:
                free = min(inside, key=lambda group: (group.bit_count(), group & -group))
                break
        if count == 1:
            return free & -free
        mask = 0
        for _ in range(count):
            lowest = free & -free
            if not lowest:
                return 0
            mask |= lowest
            free ^= lowest
        return mask


def bits(mask: int) -> list[int]:
    """The indices of the set bits, rising."""
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


def slots_of(node: Node) -> dict[str, Slots]:
    """The device sets of a node; anonymous devices 0…n-1 where it lists none of a resource."""
    found: dict[str, Slots] = {}
    for device in node.devices:
        slots = found.setdefault(device.resource, Slots())
        if device.mode in UNCOUNTED:
            continue
        slots.known |= 1 << device.index
        if device.healthy:
            slots.healthy |= 1 << device.index
    for resource, slots in found.items():
        mine = [device for device in node.devices if device.resource == resource]
        slots.links = _groups({device.index: device.link_group for device in mine})
        slots.zones = _groups({device.index: device.numa for device in mine})
    for resource, units in node.allocatable.items():
        if resource not in found and is_device(resource) and units >= WHOLE:
            every = (1 << (units // WHOLE)) - 1
            found[resource] = Slots(known=every, healthy=every)
    for slots in found.values():
        slots.free = slots.healthy
    return found


def _groups(numbers: Mapping[int, int]) -> tuple[int, ...]:
    """The masks of devices of equal number."""
    masks: dict[int, int] = {}
    for index, number in numbers.items():
        if number >= 0:
            masks[number] = masks.get(number, 0) | 1 << index
    return tuple(masks.values())


class WholeDeviceTable:
    """The device sets of all rows."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Slots]] = []
        self.stale: set[int] = set()
        """Rows whose sets have changed since somebody who copies them has looked."""
        self._holdings: dict[tuple[str, int], tuple[Masks, tuple[DeviceShare, ...]]] = {}

    def resize(self, capacity: int) -> None:
        self.rows.extend({} for _ in range(capacity - len(self.rows)))

    def holding(self, resource: str, mask: int) -> tuple[Masks, tuple[DeviceShare, ...]]:
        """What is entered for a task that holds these devices: shared, immutable tuples."""
        key = (resource, mask)
        found = self._holdings.get(key)
        if found is None:
            if len(self._holdings) > 100_000:
                self._holdings.clear()
            found = self._holdings[key] = (((resource, mask),), self.shares(resource, mask))
        return found

    def shares(self, resource: str, mask: int) -> tuple[DeviceShare, ...]:
        return tuple(DeviceShare(index, resource) for index in bits(mask))

    def locate(self, row: int, wanted: Sequence[tuple[str, int]], indices: Sequence[int]) -> Masks:
        """Device indices that a running task reports, sorted under the device resources it asks for.

        A full list is in the order of the resources, as binds state it; of any other list, each index
        counts under the resource whose devices have it, or under the first.
        """
        if not wanted:
            return ()
        masks = dict.fromkeys((resource for resource, _ in wanted), 0)
        if len(indices) == sum(count for _, count in wanted):
            at = 0
            for resource, count in wanted:
                for index in indices[at : at + count]:
                    masks[resource] |= 1 << index
                at += count
        else:
            for index in indices:
                masks[self._home(row, masks, index)] |= 1 << index
        return tuple((resource, mask) for resource, mask in masks.items() if mask)

    def _home(self, row: int, resources: Iterable[str], index: int) -> str:
        slots = self.rows[row]
        names = list(resources)
        return next((r for r in names if r in slots and slots[r].known >> index & 1), names[0])

    def take(self, row: int, masks: Masks) -> None:
        self.stale.add(row)
        slots = self.rows[row]
        for resource, mask in masks:
            slots.setdefault(resource, Slots()).take(mask)

    def give(self, row: int, masks: Masks) -> None:
        self.stale.add(row)
        slots = self.rows[row]
        for resource, mask in masks:
            slots[resource].give(mask)


Masks = tuple[tuple[str, int], ...]
"""What a task holds on its node: (device resource, bit set)."""
