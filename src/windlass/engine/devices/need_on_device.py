"""Translation of a device need into a share or slice of each device of a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windlass.engine.devices.matching import matches
from windlass.engine.devices.share_table import DeviceFacts, DeviceSet
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.spi.devices import DeviceMode, DeviceNeed, JointDeviceNeed


@dataclass(frozen=True, slots=True)
class NeedOnDevice:
    """Share or slice that would serve a need on one device.

    ``share``: compute (milli) and memory (MiB), or ``None``.
    ``profile``: code of the slice profile, or -1.
    """

    slot: int
    share: tuple[int, int] | None
    profile: int = -1


def needs_on_device(
    need: DeviceNeed, device_set: DeviceSet, uuids: Sequence[str]
) -> tuple[NeedOnDevice, ...]:
    """Return the devices of a node that could serve a need if all of them were free."""
    result = []
    options = [need] if need.joint is None else _options(need.joint)
    for slot, facts in enumerate(device_set.devices):
        if facts.usable and any(matches(kind, facts.device, uuids[slot]) for kind in options):
            share, profile = share_and_profile(need, facts)
            if share is not None or profile >= 0:
                result.append(NeedOnDevice(slot, share, profile))
    return tuple(result)


def _options(joint: JointDeviceNeed) -> list[DeviceNeed]:
    """Return the device needs of all requests that hold a device."""
    needs = [
        option.need
        for requests in joint.claims
        for options in requests
        for option in options
        if not option.admin
    ]
    return list(dict.fromkeys(needs))


def share_and_profile(need: DeviceNeed, facts: DeviceFacts) -> tuple[tuple[int, int] | None, int]:
    """Return the share (compute, memory) or ``None``, and the code of the slice profile or -1.

    Current allocations of the device are ignored.
    """
    return _share(need, facts), _profile(need, facts)


def memory_of(need: DeviceNeed, facts: DeviceFacts) -> int:
    """Return the memory in MiB that the need takes of this device."""
    if need.whole:
        return facts.device.memory_mib
    return need.memory_mib or facts.device.memory_mib * need.memory_milli // WHOLE


def _share(need: DeviceNeed, facts: DeviceFacts) -> tuple[int, int] | None:
    device = facts.device
    if device.shared:
        return (0, 0) if need.whole else None
    if device.mode is DeviceMode.SLICED or need.profile or not (need.shares or need.whole):
        return None
    if device.mode in (DeviceMode.WHOLE, DeviceMode.NAMED) and not need.whole:
        return None
    mib = memory_of(need, facts)
    if mib > device.memory_mib or need.milli > WHOLE:
        return None
    if need.memory_milli and not device.memory_mib and need.milli < need.memory_milli:
        return None  # the consumption of a memory of unknown size could not be counted
    return need.milli, mib


def _profile(need: DeviceNeed, facts: DeviceFacts) -> int:
    geometry = facts.geometry
    if geometry is None:
        return -1
    if need.profile:
        return geometry.codes.get(need.profile, -1)
    mib = memory_of(need, facts)
    if not need.slices or need.whole or mib <= 0:
        return -1
    max_sms = max((p.sms for p in geometry.profiles), default=0)
    fitting = [
        (p.memory_mib, p.compute, code)
        for code, p in enumerate(geometry.profiles)
        if p.memory_mib >= mib
        and not p.media
        and (
            p.sms * WHOLE >= need.milli * max_sms
            if max_sms
            else p.compute * WHOLE >= need.milli * geometry.compute
        )
    ]
    return min(fitting)[2] if fitting else -1
