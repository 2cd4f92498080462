"""Invariants of devices and their shares, recomputed from the tasks (see ``invariants``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from windlass.engine.core import Core
from windlass.engine.devices.share_table import (
    FIELDS,
    HELD_SIDE,
    NOMINATED_SIDE,
    RELEASING_SIDE,
    SIDES,
    TAKEN,
    DeviceFacts,
    TaskShare,
    TaskShares,
)
from windlass.engine.devices.whole_device_table import WHOLE, bits
from windlass.engine.groups.entries import OCCUPYING
from windlass.spi.objects import TaskState

DeviceKey = tuple[int, str, int]
"""Row, resource, index."""


@dataclass(slots=True)
class DeviceHolders:
    """Shares of one device by side."""

    held: list[TaskShare] = field(default_factory=list)
    releasing: list[TaskShare] = field(default_factory=list)
    nominated: list[TaskShare] = field(default_factory=list)

    def sides(self) -> tuple[list[TaskShare], list[TaskShare], list[TaskShare]]:
        return self.held, self.releasing, self.nominated

    def later(self) -> list[TaskShare]:
        """Return the shares of the device after all releases."""
        remaining = list(self.held)
        for share in self.releasing:
            remaining.remove(share)
        return remaining + self.nominated


def all_shares(engine: Core) -> Iterator[tuple[int, int, TaskShares]]:
    """Yield row, side and shares of all tasks, holds and reservations."""
    for entry in engine.state.tasks.values():
        if entry.state in OCCUPYING and entry.row >= 0:
            yield entry.row, HELD_SIDE, entry.shares
            if entry.state is TaskState.RELEASING:
                yield entry.row, RELEASING_SIDE, entry.shares
        if entry.nominated_row >= 0:
            yield entry.nominated_row, NOMINATED_SIDE, entry.nominated_shares
    for hold in engine.state.ledger.holds:
        yield hold.row, NOMINATED_SIDE, hold.shares


def collect_holders(engine: Core) -> dict[DeviceKey, DeviceHolders]:
    """Return the holders of each device, from the tasks."""
    holders_by_device: dict[DeviceKey, DeviceHolders] = {}
    for row, side, shares in all_shares(engine):
        for share in shares:
            if share.index >= 0:
                holders = holders_by_device.setdefault((row, share.resource, share.index), DeviceHolders())
                holders.sides()[side].append(share)
    return holders_by_device


def is_counted(engine: Core, key: DeviceKey) -> bool:
    """Return whether the device counts in the planes while it is open."""
    row, resource, index = key
    node = engine.state.table.nodes[row]
    for device in node.devices if node is not None else ():
        if (device.resource, device.index) == (resource, index):
            return DeviceFacts(device).counted
    devices = engine.state.table.shares.rows[row]
    slot = devices.device_set.slots.get((resource, index)) if devices is not None else None
    return True if devices is None or slot is None else devices.device_set.devices[slot].counted


def _is_unhealthy(engine: Core, device: DeviceKey) -> bool:
    """Return whether the node reports the device as unhealthy."""
    row, resource, index = device
    slots = engine.state.table.devices.rows[row].get(resource)
    return slots is not None and bool(slots.unhealthy >> index & 1)


def add_device_charges(engine: Core, expected: NDArray[np.int64]) -> None:
    """Add the charges of open devices, and of shares of unknown devices, to the expected planes."""
    table = engine.state.table
    for row, side, shares in all_shares(engine):
        for share in shares:
            if share.index < 0:
                expected[row, 1 + side, table.resources.codes[share.resource]] += share.milli
    for device, holders in collect_holders(engine).items():
        if is_counted(engine, device):
            row, resource, _ = device
            staying = len(holders.held) > len(holders.releasing)
            releases = bool(holders.held) and not staying and not _is_unhealthy(engine, device)
            open_as = (bool(holders.held), releases, bool(holders.nominated) and not staying)
            for side, is_open in enumerate(open_as):
                expected[row, 1 + side, table.resources.codes[resource]] += WHOLE * is_open


def open_devices(engine: Core) -> dict[tuple[int, str], set[int]]:
    """Return the devices that are taken because shares of them are held, by row and resource."""
    found: dict[tuple[int, str], set[int]] = {}
    for device, holders in collect_holders(engine).items():
        if holders.held and is_counted(engine, device):
            found.setdefault(device[:2], set()).add(device[2])
    return found


def device_problems(engine: Core, overcommitted: bool) -> list[str]:
    """Return the differences of the share table from the tasks, and over-committed devices."""
    table, holders_by_device = engine.state.table, collect_holders(engine)
    problems = []
    consumption = _consumption(engine)
    for name, row in table.rows.items():
        devices = table.shares.rows[row]
        if devices is None:
            if any(device[0] == row for device in holders_by_device):
                problems.append(f"the devices of {name} are unknown")
            continue
        table.shares.sync(row)
        whole = _whole(engine, row)
        if consumption.get(row, {}) != devices.consumption:
            problems.append(f"consumption on {name}: {consumption.get(row)}, recorded {devices.consumption}")
        for (resource, index), slot in devices.device_set.slots.items():
            facts, device_holders = (
                devices.device_set.devices[slot],
                holders_by_device.get((row, resource, index), DeviceHolders()),
            )
            cells = table.shares.cells[row, slot]
            sums = np.zeros(SIDES * FIELDS, dtype=np.int64)
            for side, shares in enumerate(device_holders.sides()):
                for share in shares:
                    sums[side * FIELDS : (side + 1) * FIELDS] += facts.vector(share)
            if (cells[:TAKEN] != sums).any():
                problems.append(f"device {index} of {name}: the sums are wrong")
            holders = whole[resource, index]
            if bool(cells[TAKEN]) != bool(holders) and facts.counted and not overcommitted:
                problems.append(
                    f"device {index} of {name}: {holders} plain pods hold it, recorded {cells[TAKEN]}"
                )
            if not overcommitted:
                problems += [
                    f"device {index} of {name}: {p}"
                    for p in share_problems(facts, device_holders.held, holders)
                ]
    return problems


def _whole(engine: Core, row: int) -> Counter[tuple[str, int]]:
    counts: Counter[tuple[str, int]] = Counter()
    for entry in engine.state.table.tasks[row].values():
        counts.update((resource, index) for resource, mask in entry.masks for index in bits(mask))
    return counts


def share_problems(facts: DeviceFacts, device_shares: list[TaskShare], whole: int) -> list[str]:
    """Return the problems of a device with these shares and ``whole`` plain pods on all of it."""
    problems = []
    if whole + bool(device_shares) > 1:
        problems.append(f"is held whole by {whole} pods and has {len(device_shares)} shares")
    shares, slices = [c for c in device_shares if not c.profile], [c for c in device_shares if c.profile]
    if shares and slices:
        problems.append("is shared and sliced")
    problems += _overconsumed(device_shares)
    if (
        sum(share.milli for share in shares) > WHOLE
        or sum(share.mib for share in shares) > facts.device.memory_mib
    ):
        problems.append("is over-committed")
    if 0 < facts.device.slots < len(shares):
        problems.append("is shared by more than may share it")
    if len(shares) > 1 and any(share.milli >= WHOLE for share in shares):
        problems.append("is held whole and shared")
    if slices:
        problems += _over_slices(facts, slices)
    for index, share in enumerate(device_shares):
        if any(
            set(share.carries) & set(other.avoids)
            for other in (*device_shares[:index], *device_shares[index + 1 :])
        ):
            problems.append("holds pods that avoid one another")
    return problems


def _consumption(engine: Core) -> dict[int, dict[str, list[int]]]:
    """Return the consumption of shared devices by row and name: held, releasing, nominated."""
    consumption: dict[int, dict[str, list[int]]] = {}
    for row, side, shares in all_shares(engine):
        for name, units, _ in (draw for share in shares for draw in share.draws if draw[1]):
            consumption.setdefault(row, {}).setdefault(name, [0] * SIDES)[side] += units
    return consumption


def _overconsumed(shares: list[TaskShare]) -> list[str]:
    used: Counter[str] = Counter()
    totals: dict[str, int] = {}
    for name, units, total in (draw for share in shares for draw in share.draws):
        used[name] += units
        totals[name] = total
    return [
        f"{used[name]} of {totals[name]} of {name} are consumed"
        for name in totals
        if used[name] > totals[name]
    ]


def _over_slices(facts: DeviceFacts, slices: list[TaskShare]) -> list[str]:
    geometry = facts.geometry
    if geometry is None:
        return ["is sliced and cannot be"]
    profiles = [(geometry.profiles[geometry.codes[share.profile]], share.start) for share in slices]
    places = Counter(index for profile, start in profiles for index in range(start, start + profile.size))
    problems = []
    if any(start not in profile.starts for profile, start in profiles) or max(places.values()) > 1:
        problems.append("has slices on top of one another")
    if sum(profile.compute for profile, _ in profiles) > geometry.compute:
        problems.append("has more compute slices than there are")
    if sum(profile.media for profile, _ in profiles) > 1:
        problems.append("has its media extensions twice")
    return problems
