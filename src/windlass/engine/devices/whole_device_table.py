"""Whole devices of the nodes as bit sets.

Per node and device resource there are two bit sets (Python integers, bit = device
index): ``healthy`` and ``free`` (healthy and not held). If two tasks claim the same
index, which only the outside world can cause, the holders are counted. The device is
free after both are gone. Exact indices are picked lowest first and never allocated
twice.
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
"""Modes of devices that are not counted in their resource."""


@dataclass(slots=True)
class Slots:
    """Devices of one resource on one node."""

    known: int = 0
    healthy: int = 0
    free: int = 0
    taken: int = 0
    surplus: dict[int, int] = field(default_factory=dict)
    """Index → holders beyond the first."""
    nominated: int = 0
    """Devices with nominated shares; they are picked last."""
    link_groups: tuple[int, ...] = ()
    """Devices joined by fast links, as one mask per group."""
    numa_groups: tuple[int, ...] = ()
    """Devices by NUMA, as one mask per NUMA node."""

    @property
    def unhealthy(self) -> int:
        """Return the devices that are not healthy."""
        return self.known & ~self.healthy

    @property
    def unusable(self) -> int:
        """Return the number of unhealthy devices without a holder.

        They are part of allocatable but cannot be allocated.
        """
        return (self.unhealthy & ~self.taken).bit_count()

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
        """Return ``count`` free devices as a mask; 0 if there are fewer.

        They come from the link group, or else the NUMA node, with the fewest free
        devices that has enough. If none has enough, they come from all free devices.
        Within these, the lowest indices are taken.
        """
        free = self.free
        if self.nominated and (free & ~self.nominated).bit_count() >= count:
            free &= ~self.nominated
        for groups in (self.link_groups, self.numa_groups) if self.link_groups or self.numa_groups else ():
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
    """Return the indices of the set bits in ascending order."""
    indices = []
    while mask:
        lowest = mask & -mask
        indices.append(lowest.bit_length() - 1)
        mask ^= lowest
    return indices


def slots_of(node: Node) -> dict[str, Slots]:
    """Return the devices of a node by resource.

    If the node lists no devices of a resource, they are anonymous, with indices 0…n-1.
    """
    slots_by_resource: dict[str, Slots] = {}
    for device in node.devices:
        slots = slots_by_resource.setdefault(device.resource, Slots())
        if device.mode in UNCOUNTED:
            continue
        slots.known |= 1 << device.index
        if device.healthy:
            slots.healthy |= 1 << device.index
    for resource, slots in slots_by_resource.items():
        listed = [device for device in node.devices if device.resource == resource]
        slots.link_groups = _groups({device.index: device.link_group for device in listed})
        slots.numa_groups = _groups({device.index: device.numa for device in listed})
    for resource, units in node.allocatable.items():
        if resource not in slots_by_resource and is_device(resource) and units >= WHOLE:
            all_devices = (1 << (units // WHOLE)) - 1
            slots_by_resource[resource] = Slots(known=all_devices, healthy=all_devices)
    for slots in slots_by_resource.values():
        slots.free = slots.healthy
    return slots_by_resource


def _groups(numbers: Mapping[int, int]) -> tuple[int, ...]:
    """Return one mask per group of devices with equal numbers. Negative ones are ignored."""
    masks: dict[int, int] = {}
    for index, number in numbers.items():
        if number >= 0:
            masks[number] = masks.get(number, 0) | 1 << index
    return tuple(masks.values())


class WholeDeviceTable:
    """Device bit sets of all rows."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Slots]] = []
        self.stale: set[int] = set()
        """Rows that changed since their bit sets were last copied to the share table."""
        self._holdings: dict[tuple[str, int], tuple[Masks, tuple[DeviceShare, ...]]] = {}

    def resize(self, capacity: int) -> None:
        self.rows.extend({} for _ in range(capacity - len(self.rows)))

    def holding(self, resource: str, mask: int) -> tuple[Masks, tuple[DeviceShare, ...]]:
        """Return what is recorded for a task that holds these devices: shared, immutable tuples."""
        key = (resource, mask)
        holding = self._holdings.get(key)
        if holding is None:
            if len(self._holdings) > 100_000:
                self._holdings.clear()
            holding = self._holdings[key] = (((resource, mask),), self.shares(resource, mask))
        return holding

    def shares(self, resource: str, mask: int) -> tuple[DeviceShare, ...]:
        return tuple(DeviceShare(index, resource) for index in bits(mask))

    def locate(self, row: int, requested: Sequence[tuple[str, int]], reported: Sequence[int]) -> Masks:
        """Return the device indices that a running task reports, by the resources it requests.

        A complete list is in the order of the resources, as binds write it. In any
        other list, each index counts for the resource that has a device of this index,
        or else for the first resource.
        """
        if not requested:
            return ()
        masks = dict.fromkeys((resource for resource, _ in requested), 0)
        if len(reported) == sum(count for _, count in requested):
            position = 0
            for resource, count in requested:
                for index in reported[position : position + count]:
                    masks[resource] |= 1 << index
                position += count
        else:
            for index in reported:
                masks[self._resource_of(row, masks, index)] |= 1 << index
        return tuple((resource, mask) for resource, mask in masks.items() if mask)

    def _resource_of(self, row: int, resources: Iterable[str], index: int) -> str:
        slots = self.rows[row]
        candidates = list(resources)
        return next((r for r in candidates if r in slots and slots[r].known >> index & 1), candidates[0])

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
"""Whole devices of a task on its node: (device resource, bit set)."""
