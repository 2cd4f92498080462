"""Table of device shares: the allocated part of every device, row by row.

Whole devices of plain pods are counted in the planes and picked from the bit sets of
:mod:`windlass.engine.devices.whole_device_table`. This table holds shares, MIG slices,
and whole devices of tasks that need a certain one. One block ``cells[row, slot, …]`` of
int64 has three sums of shares per device: held, the releasing part of it, and
nominated. Everything else follows from these sums, so the removal of a share is exact.

A device with any held share is *open*. The planes count an open device as one whole
device: used, or releasing if all its shares are released, or nominated if only
nominations open it. The bit sets count it as taken. Therefore no count or choice of
whole devices collides with a share. Devices that are always sliced
(:attr:`~windlass.spi.devices.DeviceMode.SLICED`) or allocated by name only are counted
nowhere else.

The devices of a row are built on first use. A cluster without device shares pays
nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.mig import MigGeometry, geometry_of
from windlass.engine.devices.whole_device_table import UNCOUNTED, WHOLE, WholeDeviceTable, bits
from windlass.spi.devices import ConsumedCounters, DeviceMode
from windlass.spi.objects import Device, Node

HELD_SIDE, RELEASING_SIDE, NOMINATED_SIDE = range(3)
"""The three sums of a device: held, releasing (the part that terminates), nominated."""
SIDES = 3
MILLI, MIB, SHARES, SLICES, PLACES, COMPUTE, MEDIA = range(7)
"""Fields of each sum.

Compute and memory of shares, number of shares, number of slices, use count of each
memory slice (eight bits each), compute slices, media extensions.
"""
FIELDS = 7
TAKEN = SIDES * FIELDS
"""Last column: a plain pod holds the whole device."""
COLUMNS = TAKEN + 1
UNKNOWN_START = -2
"""Start of a slice of a device that no node has reported yet."""
FREE = 0
"""State number of a device without any share."""
MAX_STATES = 200_000
MAX_TRANSITIONS = 50_000
MAX_MEMORY_SLICES = 8
"""Maximum number of memory slices of a device."""


@dataclass(frozen=True, slots=True)
class TaskShare:
    """Allocation of one device to one task: a share, a MIG slice or the whole device.

    ``index``: -1 if the device is unknown; then ``milli`` of ``resource`` is charged to
    the planes.
    ``draws``: consumption from a device that resource claims share.
    """

    resource: str
    index: int
    milli: int = 0
    mib: int = 0
    profile: str = ""
    start: int = -1
    carries: tuple[str, ...] = ()
    avoids: tuple[str, ...] = ()
    draws: ConsumedCounters = ()


TaskShares = tuple[TaskShare, ...]


class ShareTransition(NamedTuple):
    """Result of adding or removing one share.

    ``after``: number of the state afterwards.
    ``cells``: cells of the device afterwards.
    ``charged_before``, ``charged_after``: charges in the planes (see :func:`charges`).
    ``nominated``: whether any share of the device is nominated afterwards.
    """

    share: TaskShare
    after: int
    cells: NDArray[np.int64]
    charged_before: tuple[int, int, int]
    charged_after: tuple[int, int, int]
    nominated: bool


class DeviceFacts:
    """Constant facts of a device, until its node reports others. Equal devices share one."""

    __slots__ = ("_vectors", "counted", "device", "geometry", "known", "transitions")

    def __init__(self, device: Device, *, known: bool = True) -> None:
        """``known``: the node reports the device; otherwise only tasks refer to it."""
        self.device = device
        self.known = known
        self.counted = device.mode not in UNCOUNTED
        sliceable = device.mode in (DeviceMode.SLICED, DeviceMode.EITHER)
        slice_geometry = geometry_of(device) if sliceable else None
        self.geometry: MigGeometry | None = (
            slice_geometry
            if slice_geometry is not None and slice_geometry.size <= MAX_MEMORY_SLICES
            else None
        )
        self._vectors: dict[TaskShare, NDArray[np.int64]] = {}
        self.transitions: dict[tuple[int, int, int, int], ShareTransition] = {}
        """(State, identity of a share, side, sign) → transition."""

    @property
    def usable(self) -> bool:
        return self.known and self.device.healthy

    @property
    def unhealthy(self) -> bool:
        """Return whether the device cannot be allocated again after its release."""
        return self.known and not self.device.healthy

    def charges(self, cells: Sequence[int]) -> tuple[int, int, int]:
        """Return the charges of the device in the planes."""
        used, releasing, nominated = charges(cells)
        return used, 0 if self.unhealthy else releasing, nominated

    def vector(self, share: TaskShare) -> NDArray[np.int64]:
        """Return the share as an addend to a sum of this device."""
        vector = self._vectors.get(share)
        if vector is None:
            if len(self._vectors) > 4096:
                self._vectors.clear()
            vector = self._vectors[share] = np.array(self._addend(share), dtype=np.int64)
        return vector

    def _addend(self, share: TaskShare) -> list[int]:
        if not share.profile:
            return [share.milli, share.mib, 1, 0, 0, 0, 0]
        if self.geometry is None or share.profile not in self.geometry.codes:
            return [0, 0, 0, 1, 0, 0, 0]
        code = self.geometry.codes[share.profile]
        profile = self.geometry.profiles[code]
        mask = self.geometry.mask(code, max(0, share.start))
        places = sum(1 << 8 * index for index in bits(mask))
        return [0, 0, 0, 1, places, profile.compute, int(profile.media)]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSet:
    """Devices of a node, without their UUIDs. Nodes with equal devices share one set.

    ``code``: number of the set.
    ``unknown_consumption``: consumption of shared devices by unknown holders.
    """

    code: int
    devices: tuple[DeviceFacts, ...]
    slots: dict[tuple[str, int], int]
    """(Resource, index) → slot."""
    unknown_consumption: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True, eq=False)
class RowDevices:
    """Devices of one row and their holders.

    ``tokens``: slot → (carried?, token) → counts held, releasing, nominated.
    ``draws``: the same sums by name for the consumption of devices that resource claims
    share.
    """

    device_set: DeviceSet
    uuids: tuple[str, ...]
    whole_taken: dict[str, int]
    """Resource → bit set of whole devices that has been copied into the cells."""
    states: list[int] = field(default_factory=list)
    """Slot → number of the state of the device."""
    holders: dict[tuple[int, str], TaskShares] = field(default_factory=dict)
    """(Side, key of the task) → its shares."""
    tokens: dict[int, dict[tuple[bool, str], list[int]]] = field(default_factory=dict)
    consumption: dict[str, list[int]] = field(default_factory=dict)


class DevicePlanes(Protocol):
    """Node table, as far as the table of shares uses it."""

    @property
    def nodes(self) -> Sequence[Node | None]: ...

    @property
    def devices(self) -> WholeDeviceTable: ...

    @property
    def capacity(self) -> int: ...

    @property
    def planes(self) -> NDArray[np.int64]: ...

    def column(self, resource: str) -> int:
        """Return the column of a resource."""
        ...

    def write_allocatable(self, row: int) -> None:
        """Write the allocatable resources of a row again."""
        ...


class ShareTable:
    """Shares of the devices of all nodes."""

    def __init__(self, table: DevicePlanes) -> None:
        self._table = table
        self.rows: list[RowDevices | None] = []
        self.cells: NDArray[np.int64] = np.zeros((0, 0, COLUMNS), dtype=np.int64)
        self._has_shares: bool | None = False
        """Cache of :attr:`has_shares`; ``None`` after a change."""
        self._bits_current = True
        """True if the bit sets match the node as it is known."""
        self._device_sets: dict[tuple[tuple[Device, bool], ...], DeviceSet] = {}
        self.device_sets: list[DeviceSet] = []
        """Device sets by code."""
        self.device_set_of: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """Row → code of its device set; -1 before its devices are built."""
        self.derived: dict[object, NDArray[np.int64]] = {}
        """Arrays derived from the device sets, by name. Cleared when a set is added."""
        self._states: dict[bytes, int] = {bytes(8 * COLUMNS): FREE}
        """Cells of a device → number of the state. A number is never used twice."""
        self._next_state = FREE + 1
        self.models: dict[str, int] = {"": 0}
        self.resources: dict[str, int] = {"": 0}

    # ------------------------------------------------------------------ rows

    def resize(self, capacity: int) -> None:
        self.device_set_of = np.concatenate(
            [self.device_set_of, np.full(max(0, capacity - len(self.rows)), -1, dtype=np.int64)]
        )
        self.rows.extend([None] * (capacity - len(self.rows)))
        if len(self.cells):
            self._reshape(capacity, self.cells.shape[1])

    def _reshape(self, capacity: int, slots: int) -> None:
        cells = np.zeros((capacity, slots, COLUMNS), dtype=np.int64)
        cells[: self.cells.shape[0], : self.cells.shape[1]] = self.cells
        self.cells = cells

    @property
    def has_shares(self) -> bool:
        """Return whether any task has a share or a slice of a device."""
        if self._has_shares is None:
            self._has_shares = bool(self.cells[:, :, SHARES].any() or self.cells[:, :, SLICES].any())
        return self._has_shares

    def row(self, row: int) -> RowDevices:
        """Return the devices of a row. They are built on first use."""
        devices = self.rows[row]
        return devices if devices is not None else self._build_row(row, ())

    def detach(self, row: int) -> dict[tuple[int, str], TaskShares]:
        """Remove and return all shares of a row.

        :meth:`reattach` puts them back once the new devices of the node are known.
        """
        devices = self.rows[row]
        if devices is None:
            return {}
        holders = dict(devices.holders)
        self._bits_current = False
        for (side, task), shares in reversed(holders.items()):
            self.put(row, task, shares, side, -1)
        self._bits_current = True
        self.rows[row] = None
        self.device_set_of[row] = -1
        self.cells[row] = 0
        self._has_shares = None
        return holders

    def reattach(self, row: int, holders: dict[tuple[int, str], TaskShares]) -> None:
        """Put back the shares that :meth:`detach` returned. Devices that are gone stay while held."""
        for (side, task), shares in holders.items():
            self.put(row, task, shares, side, 1)

    def _build_row(self, row: int, unknown: Sequence[Device]) -> RowDevices:
        """Build the devices of a row.

        ``unknown``: devices that tasks refer to and that the node does not have.
        """
        node = self._table.nodes[row]
        listed = tuple(node.devices) if node is not None else ()
        listed_resources = {device.resource for device in listed}
        anonymous = [
            Device(index, resource)
            for resource, slots in self._table.devices.rows[row].items()
            if resource not in listed_resources
            for index in bits(slots.known)
        ]
        known = {(device.resource, device.index): (device, True) for device in (*listed, *anonymous)}
        for device in unknown:
            known.setdefault((device.resource, device.index), (device, False))
        order = sorted(known)
        device_set = self._device_set(
            tuple([(_without_uuid(known[index][0]), known[index][1]) for index in order])
        )
        if len(self.cells) < self._table.capacity or self.cells.shape[1] < max(1, len(order)):
            self._reshape(self._table.capacity, max(1, len(order), self.cells.shape[1]))
        devices = RowDevices(
            device_set, tuple(known[index][0].uuid for index in order), {}, [FREE] * len(order)
        )
        self.rows[row] = devices
        self.device_set_of[row] = device_set.code
        self._table.devices.stale.add(row)
        self.sync(row)
        return devices

    def _device_set(self, key: tuple[tuple[Device, bool], ...]) -> DeviceSet:
        device_set = self._device_sets.get(key)
        if device_set is None:
            facts_by_slot = tuple(DeviceFacts(device, known=known) for device, known in key)
            slots = {
                (facts.device.resource, facts.device.index): slot for slot, facts in enumerate(facts_by_slot)
            }
            drawn = tuple(item for facts in facts_by_slot for item in facts.device.drawn)
            device_set = self._device_sets[key] = DeviceSet(
                len(self._device_sets), facts_by_slot, slots, drawn
            )
            self.device_sets.append(device_set)
            self.derived.clear()
            for device, _ in key:
                self.models.setdefault(device.model, len(self.models))
                self.resources.setdefault(device.resource, len(self.resources))
        return device_set

    def _add_unknown_devices(self, row: int, extra: Sequence[TaskShare]) -> RowDevices:
        """Rebuild a row with slots for devices that tasks refer to and the node does not have.

        Such a slot exists as long as a task refers to it.
        """
        holders = self.detach(row)
        device_keys = {
            (share.resource, share.index)
            for shares in (*holders.values(), extra)
            for share in shares
            if share.index >= 0
        }
        devices = self._build_row(row, [Device(index, resource) for resource, index in sorted(device_keys)])
        self.reattach(row, holders)
        return devices

    # ------------------------------------------------------------------ allocations

    def put(self, row: int, task: str, shares: TaskShares, side: int, sign: int) -> None:
        """Add the shares of a task to one of the sums (``sign`` 1), or remove them (-1)."""
        devices = self.rows[row] or self._build_row(row, ())
        unknown = [
            task_share
            for task_share in shares
            if task_share.index >= 0
            and (task_share.resource, task_share.index) not in devices.device_set.slots
        ]
        if unknown:
            devices = self._add_unknown_devices(row, unknown)
        for share in shares:
            if share.index < 0:
                column = self._table.column(share.resource)
                self._table.planes[row, 1 + side, column] += sign * share.milli
                continue
            self._put_on_device(
                row, devices, devices.device_set.slots[share.resource, share.index], share, side, sign
            )
        if sign > 0:
            devices.holders[side, task] = shares
        else:
            del devices.holders[side, task]

    def _put_on_device(
        self, row: int, devices: RowDevices, slot: int, share: TaskShare, side: int, sign: int
    ) -> None:
        facts = devices.device_set.devices[slot]
        key = (devices.states[slot], id(share), side, sign)
        transition = facts.transitions.get(key)
        if transition is None:
            if len(facts.transitions) > MAX_TRANSITIONS:
                facts.transitions.clear()
            transition = facts.transitions[key] = self._transition(
                facts, self.cells[row, slot], share, side, sign
            )
        self.cells[row, slot] = transition.cells
        self._has_shares = None
        devices.states[slot] = transition.after
        if share.carries or share.avoids:
            self._count_tokens(devices, slot, share, side, sign)
        for name, units, _ in share.draws:
            sums = devices.consumption.setdefault(name, [0, 0, 0])
            sums[side] += sign * units
            if not any(sums):
                del devices.consumption[name]
        if side == NOMINATED_SIDE and facts.counted:
            self._mark_nominated(row, share, nominated=transition.nominated)
        if transition.charged_before != transition.charged_after:
            self._charge(row, devices, share, transition.charged_before, transition.charged_after)

    def _transition(
        self, facts: DeviceFacts, before: NDArray[np.int64], share: TaskShare, side: int, sign: int
    ) -> ShareTransition:
        cells = before.copy()
        cells[side * FIELDS : (side + 1) * FIELDS] += sign * facts.vector(share)
        nominated = bool(
            cells[NOMINATED_SIDE * FIELDS + SHARES] + cells[NOMINATED_SIDE * FIELDS + SLICES] > 0
        )
        charged_before = charged_after = (0, 0, 0)
        if facts.counted:
            charged_before, charged_after = facts.charges(before.tolist()), facts.charges(cells.tolist())
        return ShareTransition(share, self._state(cells), cells, charged_before, charged_after, nominated)

    def _mark_nominated(self, row: int, share: TaskShare, *, nominated: bool) -> None:
        slots = self._table.devices.rows[row].get(share.resource)
        if slots is not None:
            bit = 1 << share.index
            slots.nominated = slots.nominated | bit if nominated else slots.nominated & ~bit

    def _charge(
        self, row: int, devices: RowDevices, share: TaskShare, before: tuple[int, ...], after: tuple[int, ...]
    ) -> None:
        """Update the planes and bit sets after a device was opened or closed."""
        table = self._table
        column = table.column(share.resource)
        for side in range(SIDES):
            if after[side] != before[side]:
                table.planes[row, 1 + side, column] += (after[side] - before[side]) * WHOLE
        if after[HELD_SIDE] != before[HELD_SIDE]:
            devices.whole_taken[share.resource] = -1
            masks = ((share.resource, 1 << share.index),)
            if after[HELD_SIDE]:
                table.devices.take(row, masks)
            else:
                table.devices.give(row, masks)
            slots = table.devices.rows[row][share.resource]
            if slots.known != slots.healthy and self._bits_current:
                table.write_allocatable(row)

    def _count_tokens(self, devices: RowDevices, slot: int, share: TaskShare, side: int, sign: int) -> None:
        counts = devices.tokens.setdefault(slot, {})
        for carried, tokens in ((True, share.carries), (False, share.avoids)):
            for token in tokens:
                sums = counts.setdefault((carried, token), [0, 0, 0])
                sums[side] += sign
                if not any(sums):
                    del counts[carried, token]
        if not counts:
            del devices.tokens[slot]

    def sync(self, row: int) -> None:
        """Copy the devices that plain pods hold whole from the bit sets."""
        devices = self.rows[row]
        if devices is None:
            self._build_row(row, ())
            return
        stale = self._table.devices.stale
        if row not in stale:
            return
        stale.discard(row)
        for resource, slots in self._table.devices.rows[row].items():
            taken = slots.taken
            if devices.whole_taken.get(resource, 0) == taken and not slots.surplus:
                continue
            devices.whole_taken[resource] = -1 if slots.surplus else taken
            for slot, facts in enumerate(devices.device_set.devices):
                if facts.device.resource != resource:
                    continue
                held = taken >> facts.device.index & 1
                cells = self.cells[row, slot]
                opened = facts.counted and cells[SHARES] + cells[SLICES] > 0
                cells[TAKEN] = held and (not opened or facts.device.index in slots.surplus)
                devices.states[slot] = self._state(cells)

    def sync_all(self, rows: NDArray[np.int64]) -> None:
        """Apply :meth:`sync` to many rows."""
        for row in rows[self.device_set_of[rows] < 0].tolist():
            self._build_row(row, ())
        stale = self._table.devices.stale
        if stale:
            wanted = np.zeros(self._table.capacity, dtype=np.bool_)
            wanted[rows] = True
            for row in [row for row in stale if wanted[row]]:
                self.sync(row)

    def state_key(self, row: int) -> bytes:
        """Return the state of the row's devices, without tokens and UUIDs, as a key."""
        self.sync(row)
        devices = self.rows[row]
        return (
            array("q", (devices.device_set.code, *devices.states)).tobytes() if devices is not None else b""
        )

    def _state(self, cells: NDArray[np.int64]) -> int:
        """Return the number of a state.

        When the cache is full, all numbers are dropped and devices get new ones as they
        change. A state can then have two numbers. It is evaluated twice, with the same
        result.
        """
        key = cells.tobytes()
        number = self._states.get(key)
        if number is None:
            if len(self._states) > MAX_STATES:
                self._states = {bytes(8 * COLUMNS): FREE}
            number = self._states[key] = self._next_state
            self._next_state += 1
        return number


def _without_uuid(device: Device) -> Device:
    return replace(device, uuid="") if device.uuid else device


def charges(cells: Sequence[int]) -> tuple[int, int, int]:
    """Return the charges of a healthy device: used, releasing, nominated; each 0 or 1."""
    held = cells[SHARES] + cells[SLICES]
    releasing = cells[FIELDS + SHARES] + cells[FIELDS + SLICES]
    nominated = cells[2 * FIELDS + SHARES] + cells[2 * FIELDS + SLICES]
    return charges_by_count(held, releasing, nominated)


def charges_by_count(held: int, releasing: int, nominated: int) -> tuple[int, int, int]:
    """Return :func:`charges` from the numbers of held, releasing and nominated shares."""
    all_released = held <= releasing
    return int(held > 0), int(held > 0 and all_released), int(nominated > 0 and all_released)


@lru_cache(maxsize=65_536)
def occupied_slices(places: int) -> int:
    """Return the memory slices with a use count above zero, as bits."""
    return sum(
        1 << slice_index for slice_index in range(MAX_MEMORY_SLICES) if places >> 8 * slice_index & 255
    )


def shares_fit(facts: DeviceFacts, cells: Sequence[int], *, whole: bool) -> bool:
    """Return whether the remaining and the nominated shares of a device fit together.

    ``whole``: a plain pod holds the whole device as well.
    """
    after = [cells[field] - cells[FIELDS + field] + cells[2 * FIELDS + field] for field in range(FIELDS)]
    shares, slices = after[SHARES], after[SLICES]
    if not shares and not slices:
        return True
    if whole or (shares and slices):
        return False
    if after[MILLI] > WHOLE or after[MIB] > facts.device.memory_mib:
        return False
    if 0 < facts.device.slots < shares:
        return False
    if not slices:
        return True
    doubled = any(after[PLACES] >> 8 * field & 255 > 1 for field in range(MAX_MEMORY_SLICES))
    return facts.geometry is not None and not doubled and after[COMPUTE] <= facts.geometry.compute
