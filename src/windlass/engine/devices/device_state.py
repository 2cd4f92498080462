"""One card while pods are seated on it: what is taken of it, what it still takes, and what opening it costs."""

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
    counted_as,
    covered,
)
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.spi.devices import DeviceNeed

PLENTY = 1 << 30
"""More pods than this nobody counts."""


class DeviceState:
    """One card while pods are seated: what is taken of it, in the sense of the row's
    :class:`~windlass.engine.devices.assignment.NodeDeviceAssignment`."""

    __slots__ = (
        "card",
        "compute",
        "held",
        "kept",
        "leaving",
        "mask",
        "media",
        "mib",
        "milli",
        "shares",
        "slices",
        "taken",
        "users",
    )

    def __init__(self, card: DeviceFacts, cells: Sequence[int], *, later: bool, vacated: bool) -> None:
        """``vacated``: if a plain whole pod has it, that one terminates."""
        self.card = card
        h, g, k = cells, cells[FIELDS : 2 * FIELDS], cells[2 * FIELDS : 3 * FIELDS]
        taken = cells[TAKEN]
        if later:
            sums = [h[at] - g[at] + k[at] for at in range(FIELDS)]
            self.mask = covered(h[PLACES] - g[PLACES]) | covered(k[PLACES])
            self.taken = bool(taken) and not vacated
        else:
            sums = [max(h[at], h[at] - g[at] + k[at]) for at in range(FIELDS)]
            self.mask = covered(h[PLACES]) | covered(k[PLACES])
            self.taken = bool(taken)
        self.milli, self.mib, self.shares, self.slices = sums[MILLI], sums[MIB], sums[SHARES], sums[SLICES]
        self.users = self.shares
        if not later:
            self.shares, self.slices = h[SHARES] + k[SHARES], h[SLICES] + k[SLICES]
        self.compute, self.media = sums[COMPUTE], sums[MEDIA] > 0
        self.held = h[SHARES] + h[SLICES]
        self.leaving = g[SHARES] + g[SLICES]
        self.kept = k[SHARES] + k[SLICES]

    def copy(self) -> DeviceState:
        other = object.__new__(DeviceState)
        for name in DeviceState.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    @property
    def state(self) -> int:
        geometry = self.card.geometry
        return geometry.state(self.mask, self.compute, media=self.media) if geometry is not None else -1

    def slice_start(self, profile: int) -> int:
        """Where the next slice would stand; -1 if it cannot."""
        geometry = self.card.geometry
        if profile < 0 or geometry is None or self.shares or self.taken:
            return -1
        found = geometry.best(self.state, profile)
        return found[0] if found is not None else -1

    @property
    def crowded(self) -> bool:
        """Whether as many share it as may."""
        return 0 < self.card.device.slots <= self.users

    def takes_share(self, share: tuple[int, int] | None) -> bool:
        """Where all compute is given away nobody else gets in, not even for memory alone."""
        if share is None or self.slices or self.taken or self.crowded:
            return False
        milli, mib = share
        if milli >= WHOLE and self.shares:
            return False
        fits = self.milli + milli <= WHOLE and (milli > 0 or self.milli < WHOLE)
        return fits and (not mib or self.mib + mib <= self.card.device.memory_mib)

    def fullness(self) -> int:
        """The part of it that is taken, in thousandths: of compute or memory, whichever is more."""
        geometry, memory = self.card.geometry, self.card.device.memory_mib
        if self.slices and geometry is not None:
            return self.mask.bit_count() * WHOLE // geometry.size
        return max(self.milli, self.mib * WHOLE // memory if memory else 0)

    def free_mib(self) -> int:
        """The memory that is left: of a sliced card what the largest further slice would have."""
        geometry, memory = self.card.geometry, self.card.device.memory_mib
        if geometry is None or (not self.slices and self.card.counted):
            return memory - self.mib
        left = geometry.more(self.state)
        return max((p.memory_mib for at, p in enumerate(geometry.profiles) if left[at]), default=0)

    def take(self, share: TaskShare, *, later: bool) -> None:
        if share.profile:
            geometry = self.card.geometry
            if geometry is None:
                raise RuntimeError(f"{share} on a card that cannot be sliced")
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
            self.kept += 1
        else:
            self.held += 1


def capacity_of(need: DeviceNeed, wish: NeedOnDevice, device: DeviceState) -> int:
    """How many pods a card would take, alone; tokens aside."""
    if device.taken:
        return 0
    alone = not set(need.carries).isdisjoint(need.avoids)
    if not device.shares and device.card.geometry is not None and _carved(need, wish, device):
        here = device.card.geometry.more(device.state)[wish.profile]
        if here or wish.share is None:
            return min(here, 1) if alone else here
    if wish.share is None or not device.takes_share(wish.share):
        return 0
    milli, mib = wish.share
    if alone or milli >= WHOLE:
        return 1
    here = (WHOLE - device.milli) // milli if milli else PLENTY
    if mib:
        here = min(here, (device.card.device.memory_mib - device.mib) // mib)
    slots = device.card.device.slots
    return min(here, slots - device.users) if slots else here


def share_of(need: DeviceNeed, wish: NeedOnDevice, seat: DeviceState) -> TaskShare | None:
    """The part of a card that the need would get; ``None`` if the card does not do. Tokens aside."""
    if seat.taken:
        return None
    device, geometry = seat.card.device, seat.card.geometry
    start = seat.slice_start(wish.profile) if _carved(need, wish, seat) else -1
    if start >= 0 and geometry is not None:
        name = geometry.profiles[wish.profile].name
        return TaskShare(device.resource, device.index, 0, 0, name, start, need.carries, need.avoids)
    if wish.share is not None and seat.takes_share(wish.share):
        return TaskShare(device.resource, device.index, *wish.share, "", -1, need.carries, need.avoids)
    return None


def rank_of(need: DeviceNeed, share: TaskShare, device: DeviceState, slot: int) -> tuple[bool, int, int]:
    """The place of a card in the order in which cards are taken where no policy has a word: the least first.
    Who asks for a part of compute rather shares a card than has a slice, which is larger mostly."""
    fullness = device.fullness()
    unlike = need.milli > 0 and bool(share.profile)
    return unlike, (fullness if need.pack is False else -fullness), slot


def opening_of(device: DeviceState, *, later: bool) -> tuple[int, int, int] | None:
    """What the planes would be charged for one more part of the card; ``None`` for nothing."""
    before = counted_as(device.held, device.leaving, device.kept)
    if later:
        after = counted_as(device.held, device.leaving, device.kept + 1)
    else:
        after = counted_as(device.held + 1, device.leaving, device.kept)
    if before == after:
        return None
    return after[0] - before[0], after[1] - before[1], after[2] - before[2]


def _carved(need: DeviceNeed, wish: NeedOnDevice, device: DeviceState) -> bool:
    """Whether a slice is tried before a share. On a card of which nobody has anything, and that could be
    either, who asks for a part of its compute shares it, and who asks for memory alone gets a slice."""
    return wish.profile >= 0 and (wish.share is None or device.slices > 0 or need.milli == 0)
