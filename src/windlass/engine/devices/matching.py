"""Whether a card is of the kind that a need is for, whoever has it. Few cards are looked at without NumPy, too."""

from __future__ import annotations

from collections.abc import Collection

from windlass.spi.devices import DeviceMode, DeviceNeed
from windlass.spi.objects import Device

_FEW = 8
_MOST_SETS = 1_000
_SETS: dict[int, tuple[tuple[str, ...], frozenset[str]]] = {}
"""By the identity of a tuple: to tell equal ones costs more than a look-up."""


def suits(need: DeviceNeed, device: Device, uuid: str) -> bool:
    """Whether it is a card of the kind that is asked for."""
    if need.resource and device.resource != need.resource:
        return False
    if uuid in need.uuids_not or (need.uuids and uuid not in _named(need.uuids)):
        return False
    if (device.mode is DeviceMode.NAMED or device.shared) and not need.uuids:
        return False
    model = device.model.casefold()
    if need.models and not any(word.casefold() in model for word in need.models):
        return False
    if any(word.casefold() in model for word in need.models_not):
        return False
    return device.memory_mib >= need.min_memory_mib and device.compute >= need.min_compute


def _named(uuids: tuple[str, ...]) -> Collection[str]:
    """To look names up in: the devices of a whole cluster may be named, by one tuple that all who ask share."""
    if len(uuids) <= _FEW:
        return uuids
    known = _SETS.get(id(uuids))
    if known is None or known[0] is not uuids:
        if len(_SETS) > _MOST_SETS:
            _SETS.clear()
        known = _SETS[id(uuids)] = uuids, frozenset(uuids)
    return known[1]
