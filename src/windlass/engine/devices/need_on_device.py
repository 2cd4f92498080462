"""What a need for cards comes to on each card of a node, whoever has the cards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windlass.engine.devices.matching import suits
from windlass.engine.devices.share_table import DeviceFacts, DeviceSet
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.spi.devices import DeviceMode, DeviceNeed, JointDeviceNeed


@dataclass(frozen=True, slots=True)
class NeedOnDevice:
    """What a need comes to on one card: a share of so much, a slice of this profile (-1: none), or either."""

    slot: int
    share: tuple[int, int] | None
    profile: int = -1


def needs_on_device(
    need: DeviceNeed, device_set: DeviceSet, uuids: Sequence[str]
) -> tuple[NeedOnDevice, ...]:
    """The cards of a node that could serve a need if nobody had any of them."""
    found = []
    kinds = [need] if need.joint is None else _options(need.joint)
    for slot, card in enumerate(device_set.cards):
        if card.usable and any(suits(kind, card.device, uuids[slot]) for kind in kinds):
            share, profile = kind_of(need, card)
            if share is not None or profile >= 0:
                found.append(NeedOnDevice(slot, share, profile))
    return tuple(found)


def _options(joint: JointDeviceNeed) -> list[DeviceNeed]:
    """The kinds of cards that claims would hold."""
    every = [
        option.need
        for requests in joint.claims
        for options in requests
        for option in options
        if not option.admin
    ]
    return list(dict.fromkeys(every))


def kind_of(need: DeviceNeed, card: DeviceFacts) -> tuple[tuple[int, int] | None, int]:
    """What a need comes to on a card, whoever has the card: compute and memory of a share, or ``None``; the
    code of a slice's profile, or -1."""
    return _share(need, card), _profile(need, card)


def memory_of(need: DeviceNeed, card: DeviceFacts) -> int:
    """What is asked of this card's memory, in MiB; of a whole one all of it."""
    if need.whole:
        return card.device.memory_mib
    return need.memory_mib or card.device.memory_mib * need.memory_milli // WHOLE


def _share(need: DeviceNeed, card: DeviceFacts) -> tuple[int, int] | None:
    device = card.device
    if device.shared:
        return (0, 0) if need.whole else None
    if device.mode is DeviceMode.SLICED or need.profile or not (need.shares or need.whole):
        return None
    if device.mode in (DeviceMode.WHOLE, DeviceMode.NAMED) and not need.whole:
        return None
    mib = memory_of(need, card)
    if mib > device.memory_mib or need.milli > WHOLE:
        return None
    if need.memory_milli and not device.memory_mib and need.milli < need.memory_milli:
        return None  # nothing would count what it takes of a memory of unknown size
    return need.milli, mib


def _profile(need: DeviceNeed, card: DeviceFacts) -> int:
    geometry = card.geometry
    if geometry is None:
        return -1
    if need.profile:
        return geometry.codes.get(need.profile, -1)
    mib = memory_of(need, card)
    if not need.slices or need.whole or mib <= 0:
        return -1
    most = max((p.sms for p in geometry.profiles), default=0)
    fitting = [
        (p.memory_mib, p.compute, at)
        for at, p in enumerate(geometry.profiles)
        if p.memory_mib >= mib
        and not p.media
        and (
            p.sms * WHOLE >= need.milli * most if most else p.compute * WHOLE >= need.milli * geometry.compute
        )
    ]
    return min(fitting)[2] if fitting else -1
