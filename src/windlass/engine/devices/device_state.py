"""State of one device during an assignment: taken and free capacity, charges for opening."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.devices.need_on_device import NeedOnDevice
from windlass.engine.devices.share_table import (
    COMPUTE,
    FIELDS,
    MEDIA,
    MIB,
    MILLI,
    PLACES,
    SHARES,
    SLICES,
    TAKEN,
    DeviceFacts,
    TaskShare,
    charges_by_count,
    occupied_slices,
)
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.spi.devices import DeviceNeed

UNLIMITED = 1 << 30
"""Upper bound for pod counts (stands for "unlimited")."""


class DeviceState:
    """State of one device during an assignment, now or later.

    *Now* and *later* have the meaning of :mod:`windlass.engine.devices.assignment`.
    """

    __slots__ = (
        "compute",
        "facts",
        "held",
        "mask",
        "media",
        "mib",
        "milli",
        "nominated",
        "releasing",
        "shares",
        "slices",
        "taken",
        "users",
    )

    def __init__(self, facts: DeviceFacts, cells: Sequence[int], *, later: bool, vacated: bool) -> None:
        """``vacated``: the plain pod that holds the whole device, if any, terminates."""
        self.facts = facts
        h, g, k = cells, cells[FIELDS : 2 * FIELDS], cells[2 * FIELDS : 3 * FIELDS]
        taken = cells[TAKEN]
        if later:
            sums = [h[field] - g[field] + k[field] for field in range(FIELDS)]
            self.mask = occupied_slices(h[PLACES] - g[PLACES]) | occupied_slices(k[PLACES])
            self.taken = bool(taken) and not vacated
        else:
            sums = [max(h[field], h[field] - g[field] + k[field]) for field in range(FIELDS)]
            self.mask = occupied_slices(h[PLACES]) | occupied_slices(k[PLACES])
            self.taken = bool(taken)
        self.milli, self.mib, self.shares, self.slices = sums[MILLI], sums[MIB], sums[SHARES], sums[SLICES]
        self.users = self.shares
        if not later:
            self.shares, self.slices = h[SHARES] + k[SHARES], h[SLICES] + k[SLICES]
        self.compute, self.media = sums[COMPUTE], sums[MEDIA] > 0
        self.held = h[SHARES] + h[SLICES]
        self.releasing = g[SHARES] + g[SLICES]
        self.nominated = k[SHARES] + k[SLICES]

    def copy(self) -> DeviceState:
        other = object.__new__(DeviceState)
        for name in DeviceState.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    @property
    def state(self) -> int:
        geometry = self.facts.geometry
        return geometry.state(self.mask, self.compute, media=self.media) if geometry is not None else -1

    def slice_start(self, profile: int) -> int:
        """Return the start of the next slice of a profile; -1 if none fits."""
        geometry = self.facts.geometry
        if profile < 0 or geometry is None or self.shares or self.taken:
            return -1
        best = geometry.best(self.state, profile)
        return best[0] if best is not None else -1

    @property
    def at_share_limit(self) -> bool:
        """Return whether the device has as many shares as it allows."""
        return 0 < self.facts.device.slots <= self.users

    def takes_share(self, share: tuple[int, int] | None) -> bool:
        """Return whether a share fits.

        If all compute is allocated, no further share fits, not even one of memory only.
        """
        if share is None or self.slices or self.taken or self.at_share_limit:
            return False
        milli, mib = share
        if milli >= WHOLE and self.shares:
            return False
        fits = self.milli + milli <= WHOLE and (milli > 0 or self.milli < WHOLE)
        return fits and (not mib or self.mib + mib <= self.facts.device.memory_mib)

    def fullness(self) -> int:
        """Return the taken part in thousandths: of compute or of memory, the larger one."""
        geometry, memory = self.facts.geometry, self.facts.device.memory_mib
        if self.slices and geometry is not None:
            return self.mask.bit_count() * WHOLE // geometry.size
        return max(self.milli, self.mib * WHOLE // memory if memory else 0)

    def free_mib(self) -> int:
        """Return the free memory, or of a sliced device that of the largest slice that fits."""
        geometry, memory = self.facts.geometry, self.facts.device.memory_mib
        if geometry is None or (not self.slices and self.facts.counted):
            return memory - self.mib
        remaining = geometry.remaining(self.state)
        return max((p.memory_mib for index, p in enumerate(geometry.profiles) if remaining[index]), default=0)

    def take(self, share: TaskShare, *, later: bool) -> None:
        if share.profile:
            geometry = self.facts.geometry
            if geometry is None:
                raise RuntimeError(f"{share} on a device that cannot be sliced")
            code = geometry.codes[share.profile]
            self.mask |= geometry.mask(code, share.start)
            self.compute += geometry.profiles[code].compute
            self.media = self.media or geometry.profiles[code].media
            self.slices += 1
        else:
            self.milli += share.milli
            self.mib += share.mib
            self.shares += 1
            self.users += 1
        if later:
            self.nominated += 1
        else:
            self.held += 1


def capacity_of(need: DeviceNeed, need_here: NeedOnDevice, device: DeviceState) -> int:
    """Return how many pods the device holds by itself, tokens ignored."""
    if device.taken:
        return 0
    exclusive = not set(need.carries).isdisjoint(need.avoids)
    if not device.shares and device.facts.geometry is not None and _prefers_slice(need, need_here, device):
        count = device.facts.geometry.remaining(device.state)[need_here.profile]
        if count or need_here.share is None:
            return min(count, 1) if exclusive else count
    if need_here.share is None or not device.takes_share(need_here.share):
        return 0
    milli, mib = need_here.share
    if exclusive or milli >= WHOLE:
        return 1
    count = (WHOLE - device.milli) // milli if milli else UNLIMITED
    if mib:
        count = min(count, (device.facts.device.memory_mib - device.mib) // mib)
    slots = device.facts.device.slots
    return min(count, slots - device.users) if slots else count


def share_of(need: DeviceNeed, need_here: NeedOnDevice, device_state: DeviceState) -> TaskShare | None:
    """Return the share that the need would get; ``None`` if it does not fit. Tokens are ignored."""
    if device_state.taken:
        return None
    device, geometry = device_state.facts.device, device_state.facts.geometry
    start = (
        device_state.slice_start(need_here.profile) if _prefers_slice(need, need_here, device_state) else -1
    )
    if start >= 0 and geometry is not None:
        name = geometry.profiles[need_here.profile].name
        return TaskShare(device.resource, device.index, 0, 0, name, start, need.carries, need.avoids)
    if need_here.share is not None and device_state.takes_share(need_here.share):
        return TaskShare(device.resource, device.index, *need_here.share, "", -1, need.carries, need.avoids)
    return None


def rank_of(need: DeviceNeed, share: TaskShare, device: DeviceState, slot: int) -> tuple[bool, int, int]:
    """Return the sort key of a device without plugin scores; the smallest is taken first.

    A need with compute prefers a share over a slice, because the slice is usually
    larger than needed.
    """
    fullness = device.fullness()
    unlike = need.milli > 0 and bool(share.profile)
    return unlike, (fullness if need.pack is False else -fullness), slot


def opening_charge(device: DeviceState, *, later: bool) -> tuple[int, int, int] | None:
    """Return the change of the planes for one more share; ``None`` if there is none."""
    before = charges_by_count(device.held, device.releasing, device.nominated)
    if later:
        after = charges_by_count(device.held, device.releasing, device.nominated + 1)
    else:
        after = charges_by_count(device.held + 1, device.releasing, device.nominated)
    if before == after:
        return None
    return after[0] - before[0], after[1] - before[1], after[2] - before[2]


def _prefers_slice(need: DeviceNeed, need_here: NeedOnDevice, device: DeviceState) -> bool:
    """Return whether a slice is tried before a share.

    On a free device that allows both, a need with compute is served by a share, and a
    need with memory only by a slice.
    """
    return need_here.profile >= 0 and (need_here.share is None or device.slices > 0 or need.milli == 0)
