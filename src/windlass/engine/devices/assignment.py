"""Assignment of devices of one node to pods, and the number of pods that the devices hold.

Both work on a copy of the row's state: pods are assigned one after the other until the
next one does not fit. A count is therefore the result of placing one by one. If a need
is for a single device and nothing else interferes, the capacities of the devices are
summed instead, because the order does not matter then.

*Now*: releasing shares still count as held. Nominated capacity is available only as far
as releasing tasks cover it. *Later*: releasing shares are gone, and nominations hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from windlass.engine.devices.device_state import (
    UNLIMITED,
    DeviceState,
    capacity_of,
    opening_charge,
    rank_of,
    share_of,
)
from windlass.engine.devices.dra_allocator import (
    OfferedDevice,
    allocate,
    allocations,
    consumption_fits,
    shared_consumption,
)
from windlass.engine.devices.need_on_device import NeedOnDevice
from windlass.engine.devices.share_table import (
    HELD_SIDE,
    NOMINATED_SIDE,
    RELEASING_SIDE,
    RowDevices,
    TaskShare,
    TaskShares,
)
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.spi.devices import CandidateDevice, ConsumedCounters, DeviceNeed, JointDeviceNeed
from windlass.spi.quantities import scale

__all__ = ["UNLIMITED", "Budgets", "Choose", "DeviceSummary", "NodeDeviceAssignment"]

Budgets = dict[str, list[int]]
"""Resource → allocatable, used, releasing, nominated in the planes."""
Choose = Callable[[DeviceNeed, Sequence[CandidateDevice]], Sequence[float] | None]
"""Plugin scores of candidate devices, larger is better; ``None`` for no preference."""
_Snapshot = tuple[list[DeviceState], Budgets, dict[int, list[TaskShare]], dict[str, int]]
MAX_COUNTED_PODS = 1_000
"""Maximum number of pods that are counted on devices shared by resource claims."""


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """Summary of the devices of a row for one device need of a task.

    ``devices``: number of devices that match the need.
    ``fitting``: number of matching devices with enough free capacity.
    ``milli``, ``mib``: most compute and memory that is free on one of them.
    ``at_limit``: number of devices that have as many shares as they allow.
    """

    need: DeviceNeed
    devices: int
    fitting: int
    milli: int
    mib: int
    at_limit: int = 0
    listed: bool = False

    @property
    def missing_fraction(self) -> float:
        """Return the missing fraction of the required devices."""
        return max(0, self.need.count - self.fitting) / max(1, self.need.count)


class NodeDeviceAssignment:
    """Devices of one row while pods are assigned to them. Nothing is written to the table.

    ``choose``: plugin scores of devices.
    """

    def __init__(
        self,
        row_devices: RowDevices,
        cells: Sequence[Sequence[int]],
        budgets: Budgets,
        *,
        later: bool,
        vacated: frozenset[int] = frozenset(),
        choose: Choose | None = None,
        listed: Collection[str] | None = None,
        released: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """``listed``: resources that the node lists; ``None``: those with a positive allocatable.

        ``released``: consumption of shared devices that is given back in addition to
        that of releasing tasks.
        """
        self.row_devices = row_devices
        self.later = later
        self.devices = [
            DeviceState(facts, cells[slot], later=later, vacated=slot in vacated)
            for slot, facts in enumerate(row_devices.device_set.devices)
        ]
        self._budgets = budgets
        self._listed = {name for name, b in budgets.items() if b[0] > 0} if listed is None else listed
        self._choose = choose
        self._tokens: dict[int, list[TaskShare]] = {}
        self._consumed: dict[str, int] = {
            name: self._counted_side(sums, later=later) - released.get(name, 0)
            for name, sums in row_devices.consumption.items()
        }
        """Consumption of devices that resource claims share, by name."""
        for name, units in row_devices.device_set.unknown_consumption:
            self._consumed[name] = self._consumed.get(name, 0) + units

    @staticmethod
    def _counted_side(sums: Sequence[int], *, later: bool) -> int:
        rest = sums[HELD_SIDE] - sums[RELEASING_SIDE] + sums[NOMINATED_SIDE]
        return rest if later else max(sums[HELD_SIDE], rest)

    # ------------------------------------------------------------------ counts and assignments

    def count(
        self, needs: Sequence[DeviceNeed], plans: Sequence[Sequence[NeedOnDevice]], maximum: int
    ) -> int:
        """Return how many pods with these needs fit one after the other, at most ``maximum``."""
        alone = len(needs) == 1 and needs[0].count == 1 and needs[0].joint is None
        if alone and needs[0].listed not in self._listed:
            total = self._sum_over_devices(needs[0], plans[0], maximum)
            if total is not None:
                return total
        if len(needs) == 1 and (joint := needs[0].joint) is not None:
            total = self._joint_count(needs[0], joint, plans[0], maximum)
            if total is not None:
                return total
        assigned = 0
        if any(need.joint is not None for need in needs):
            maximum = min(maximum, MAX_COUNTED_PODS)
        while assigned < maximum and (shares := self.assign(needs, plans)) is not None:
            if not shares:
                return maximum
            assigned += 1
        return assigned

    def _sum_over_devices(self, need: DeviceNeed, plan: Sequence[NeedOnDevice], maximum: int) -> int | None:
        """Return the sum over devices, or ``None`` if the planes do not allow opening all of them."""
        total = 0
        opened: dict[str, int] = {}
        for need_here in plan:
            device = self.devices[need_here.slot]
            capacity = self._capacity(need, need_here, device)
            if not capacity:
                continue
            total += capacity
            if device.facts.counted and opening_charge(device, later=self.later):
                resource = device.facts.device.resource
                opened[resource] = opened.get(resource, 0) + 1
                if device.nominated or device.held:
                    return None
        for resource, n in opened.items():
            if self._free(self._budgets[resource]) < n * WHOLE:
                return None
        return min(total, maximum)

    def _capacity(self, need: DeviceNeed, need_here: NeedOnDevice, device: DeviceState) -> int:
        """Return how many pods one device holds by itself."""
        return 0 if self._conflict(need_here.slot, need) else capacity_of(need, need_here, device)

    def assign(
        self, needs: Sequence[DeviceNeed], plans: Sequence[Sequence[NeedOnDevice]]
    ) -> TaskShares | None:
        """Assign devices to one pod. Return ``None`` and change nothing if it does not fit."""
        if len(needs) == 1:
            return self._assign_need(needs[0], plans[0])
        saved = self._save()
        by_need: dict[int, TaskShares] = {}
        for index in sorted(range(len(needs)), key=lambda position: _bulk(needs[position]), reverse=True):
            shares = self._assign_need(needs[index], plans[index])
            if shares is None:
                self._restore(saved)
                return None
            by_need[index] = shares
        return tuple(share for position in sorted(by_need) for share in by_need[position])

    def _assign_joint(
        self, need: DeviceNeed, joint: JointDeviceNeed, plan: Sequence[NeedOnDevice]
    ) -> TaskShares | None:
        """Assign all devices of the pod's resource claims, in the order of the requests."""
        slots = self._joint_slots(need, joint, plan)
        if slots is None:
            return None
        saved = self._save() if len(slots) > 1 else None
        needs_here = {need_here.slot: need_here for need_here in plan}
        shares: list[TaskShare] = []
        for slot, draws in slots:
            share = self._share(need, needs_here[slot])
            if share is None or not self._charge_opening(self.devices[slot]):
                if saved is not None:
                    self._restore(saved)
                return None
            if draws:
                share = replace(share, draws=draws)
            self._assign_share(slot, share)
            shares.append(share)
        return tuple(shares)

    def _joint_count(
        self, need: DeviceNeed, joint: JointDeviceNeed, plan: Sequence[NeedOnDevice], maximum: int
    ) -> int | None:
        """Return :meth:`count` from one search; ``None`` if not only the devices decide."""
        if self.later or need.carries or need.avoids:
            return None
        known, offers = self._offers(need, plan)
        total = 0
        opened: dict[str, int] = {}
        in_use = {position for position, offer in enumerate(offers) if offer.in_use}
        for picks in allocations(joint, offers, self._consumption()):
            held = {pick.position for pick in picks if not pick.admin}
            for facts in (self.devices[known[position]].facts for position in held - in_use):
                if facts.counted:
                    opened[facts.device.resource] = opened.get(facts.device.resource, 0) + 1
            in_use |= held
            total += 1 if held else maximum
            if total >= min(maximum, MAX_COUNTED_PODS):
                break
        if any(self._free(self._budgets[name]) < units * WHOLE for name, units in opened.items()):
            return None
        return min(total, maximum)

    def _joint_slots(
        self, need: DeviceNeed, joint: JointDeviceNeed, plan: Sequence[NeedOnDevice]
    ) -> list[tuple[int, ConsumedCounters]] | None:
        """Return the devices for the claims, and the consumption of shared ones. Takes nothing."""
        known, offers = self._offers(need, plan)
        picks = allocate(joint, offers, self._consumption())
        if picks is None:
            return None
        return [
            (known[pick.position], shared_consumption(joint, pick, offers))
            for pick in picks
            if not pick.admin
        ]

    def _offers(
        self, need: DeviceNeed, plan: Sequence[NeedOnDevice]
    ) -> tuple[list[int], list[OfferedDevice]]:
        """Return the slots of the node's known devices and the offers for the search."""
        free = {need_here.slot for need_here in plan if self._share(need, need_here) is not None}
        known = [slot for slot, device in enumerate(self.devices) if device.facts.known]
        known.sort(key=lambda slot: self.devices[slot].facts.device.late)
        return known, [
            OfferedDevice(
                self.devices[slot].facts.device,
                self.row_devices.uuids[slot],
                slot in free,
                in_use=self.devices[slot].shares > 0,
            )
            for slot in known
        ]

    def _consumption(self) -> dict[str, int]:
        """Return the consumption of each counter and of each shared device."""
        used = dict(self._consumed)
        for device in self.devices:
            if device.facts.device.draws and (device.shares or device.taken):
                for name, units, _ in device.facts.device.draws:
                    used[name] = used.get(name, 0) + units
        return used

    def counters_hold(self) -> bool:
        """Return whether consumption stays within the total of each counter."""
        used = self._consumption()
        totals = {name: total for device in self.devices for name, _, total in device.facts.device.draws}
        totals |= {
            name: total
            for shares in self.row_devices.holders.values()
            for share in shares
            for name, _, total in share.draws
        }
        return all(units <= totals.get(name, units) for name, units in used.items())

    def _assign_share(self, slot: int, share: TaskShare) -> None:
        self.devices[slot].take(share, later=self.later)
        self._consume(share)
        if share.carries or share.avoids:
            self._tokens.setdefault(slot, []).append(share)

    def _consume(self, share: TaskShare) -> None:
        for name, units, _ in share.draws:
            self._consumed[name] = self._consumed.get(name, 0) + units

    def _assign_need(self, need: DeviceNeed, plan: Sequence[NeedOnDevice]) -> TaskShares | None:
        if need.joint is not None:
            return self._assign_joint(need, need.joint, plan)
        if need.listed in self._listed:
            return self._assign_listed(need, need.listed)
        options = [
            (on_device, share) for on_device in plan if (share := self._share(need, on_device)) is not None
        ]
        if len(options) < need.count:
            return None
        saved = self._save() if need.count > 1 else None
        shares: list[TaskShare] = []
        for need_here, share in self._in_order(need, options):
            device = self.devices[need_here.slot]
            if not self._charge_opening(device):
                continue
            self._assign_share(need_here.slot, share)
            shares.append(share)
            if len(shares) == need.count:
                return tuple(shares)
        if saved is not None:
            self._restore(saved)
        return None

    def _assign_listed(self, need: DeviceNeed, listed: str) -> TaskShares | None:
        units = need.count * scale(listed)
        budget = self._budgets[listed]
        if self._free(budget) < units:
            return None
        budget[3 if self.later else 1] += units
        return (TaskShare(listed, -1, units),)

    def assign_exactly(self, shares: TaskShares) -> bool:
        """Take exactly these shares. Return whether all are available."""
        for share in shares:
            if share.index < 0:
                budget = self._budgets.get(share.resource)
                if budget is None or self._free(budget) < share.milli:
                    return False
                budget[3 if self.later else 1] += share.milli
                continue
            slot = self.row_devices.device_set.slots.get((share.resource, share.index))
            if slot is None or not self._assign_exact_share(slot, share):
                return False
        return True

    def _assign_exact_share(self, slot: int, share: TaskShare) -> bool:
        device = self.devices[slot]
        geometry = device.facts.geometry
        if not device.facts.usable or self._excludes(slot, share.carries, share.avoids):
            return False
        if share.profile:
            code = geometry.codes.get(share.profile, -1) if geometry is not None else -1
            if geometry is None or code < 0 or device.shares or device.taken:
                return False
            if share.start not in geometry.starts(device.state, code):
                return False
        elif not device.takes_share((share.milli, share.mib)):
            return False
        in_use = device.facts.device.shared and device.shares > 0
        draws = share.draws if in_use else (*device.facts.device.draws, *share.draws)
        if draws and not consumption_fits(draws, self._consumption()):
            return False
        if not self._charge_opening(device):
            return False
        device.take(share, later=self.later)
        self._consume(share)
        self._tokens.setdefault(slot, []).append(share)
        return True

    def summary(self, need: DeviceNeed, plan: Sequence[NeedOnDevice]) -> DeviceSummary:
        """Return the summary of the devices for one need."""
        if need.listed in self._listed:
            free = max(0, self._free(self._budgets[need.listed])) // scale(need.listed)
            return DeviceSummary(need, need.count, min(free, need.count), 0, 0, listed=True)
        fitting = sum(self._share(need, need_here) is not None for need_here in plan)
        if need.joint is not None:
            served = self._joint_slots(need, need.joint, plan) is not None
            fitting = need.count if served else min(fitting, need.count - 1)
        available = [self.devices[w.slot] for w in plan if not self.devices[w.slot].taken]
        shared = [device for device in available if not device.slices and not device.at_share_limit]
        return DeviceSummary(
            need,
            len(plan),
            fitting,
            max((WHOLE - device.milli for device in shared), default=0),
            max((device.free_mib() for device in available if not device.at_share_limit), default=0),
            sum(device.at_share_limit for device in available),
        )

    # ------------------------------------------------------------------ devices

    def _share(self, need: DeviceNeed, need_here: NeedOnDevice) -> TaskShare | None:
        """Return the share of one device that the need would get; ``None`` if it does not fit."""
        return (
            None
            if self._conflict(need_here.slot, need)
            else share_of(need, need_here, self.devices[need_here.slot])
        )

    def _in_order(
        self, need: DeviceNeed, options: list[tuple[NeedOnDevice, TaskShare]]
    ) -> list[tuple[NeedOnDevice, TaskShare]]:
        """Return the candidate devices in the order of preference."""
        scores: Sequence[float] | None = None
        if self._choose is not None:
            scores = self._choose(need, [self._plugin_view(need_here, share) for need_here, share in options])
        if scores is not None:
            order = sorted(
                range(len(options)),
                key=lambda index: (-scores[index], self._by_default(need, options[index])),
            )
            return [options[index] for index in order]
        if need.whole:
            return self._by_locality(need, options)
        if len(options) == 1:
            return options
        return sorted(options, key=lambda option: self._by_default(need, option))

    def _by_default(self, need: DeviceNeed, option: tuple[NeedOnDevice, TaskShare]) -> tuple[bool, int, int]:
        need_here, share = option
        return rank_of(need, share, self.devices[need_here.slot], need_here.slot)

    def _by_locality(
        self, need: DeviceNeed, options: list[tuple[NeedOnDevice, TaskShare]]
    ) -> list[tuple[NeedOnDevice, TaskShare]]:
        """Sort whole devices: first those of the smallest link group, or NUMA, that has enough."""
        devices = [self.devices[need_here.slot].facts.device for need_here, _ in options]
        for numbers in ([d.link_group for d in devices], [d.numa for d in devices]):
            sizes = {number: numbers.count(number) for number in numbers if number >= 0}
            holding = [number for number in sizes if sizes[number] >= need.count]
            if holding:
                chosen = min(holding, key=lambda number: (sizes[number], numbers.index(number)))
                inside = [option for option, number in zip(options, numbers, strict=True) if number == chosen]
                return inside + [option for option in options if option not in inside]
        return options

    def _plugin_view(self, need_here: NeedOnDevice, share: TaskShare) -> CandidateDevice:
        device_state = self.devices[need_here.slot]
        device, geometry = device_state.facts.device, device_state.facts.geometry
        keeps: tuple[tuple[str, int], ...] = ()
        if share.profile and geometry is not None:
            after = geometry.state_after(device_state.state, geometry.codes[share.profile], share.start)
            remaining = geometry.remaining(after)
            keeps = tuple((p.name, remaining[index]) for index, p in enumerate(geometry.profiles))
        return CandidateDevice(
            device.resource,
            device.index,
            device.model,
            device.memory_mib,
            WHOLE - device_state.milli,
            device.memory_mib - device_state.mib,
            device_state.shares + device_state.slices,
            device.numa,
            device.link_group,
            share.profile,
            keeps,
        )

    # ------------------------------------------------------------------ tokens

    def _conflict(self, slot: int, need: DeviceNeed) -> bool:
        if not need.carries and not need.avoids:
            return False
        return self._excludes(slot, need.carries, need.avoids)

    def _excludes(self, slot: int, carries: Sequence[str], avoids: Sequence[str]) -> bool:
        for other in self._tokens.get(slot, ()):
            if not set(carries).isdisjoint(other.avoids) or not set(avoids).isdisjoint(other.carries):
                return True
        tokens = self.row_devices.tokens.get(slot)
        if not tokens:
            return False
        return any(self._has_token(tokens.get((False, token))) for token in carries) or any(
            self._has_token(tokens.get((True, token))) for token in avoids
        )

    def _has_token(self, sums: list[int] | None) -> bool:
        if sums is None:
            return False
        return (sums[HELD_SIDE] - sums[RELEASING_SIDE] if self.later else sums[HELD_SIDE]) + sums[
            NOMINATED_SIDE
        ] > 0

    # ------------------------------------------------------------------ planes

    def _free(self, budget: list[int]) -> int:
        allocatable, used, releasing, nominated = budget
        if self.later:
            return allocatable - used + releasing - nominated
        return allocatable - used - max(nominated - releasing, 0)

    def _charge_opening(self, device: DeviceState) -> bool:
        """Charge the planes for opening a device. Return whether they allow it."""
        change = opening_charge(device, later=self.later) if device.facts.counted else None
        if change is None:
            return True
        budget = self._budgets[device.facts.device.resource]
        for position, sign_change in enumerate(change, start=1):
            budget[position] += sign_change * WHOLE
        if self._free(budget) >= 0:
            return True
        for position, sign_change in enumerate(change, start=1):
            budget[position] -= sign_change * WHOLE
        return False

    # ------------------------------------------------------------------ undo

    def _save(self) -> _Snapshot:
        return (
            [device.copy() for device in self.devices],
            {name: list(budget) for name, budget in self._budgets.items()},
            {slot: list(shares) for slot, shares in self._tokens.items()},
            dict(self._consumed),
        )

    def _restore(self, saved: _Snapshot) -> None:
        self.devices, budgets, self._tokens, self._consumed = saved
        self._budgets.clear()
        self._budgets.update(budgets)


def _bulk(need: DeviceNeed) -> tuple[int, int, int, int]:
    return int(need.whole), max(need.milli, need.memory_milli), need.memory_mib, len(need.profile)
