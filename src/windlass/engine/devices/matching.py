"""Match of a device with a need by kind, independent of allocations and without NumPy."""

from __future__ import annotations

from collections.abc import Collection

from windlass.spi.devices import DeviceMode, DeviceNeed
from windlass.spi.model_names import names_any
from windlass.spi.objects import Device

_FEW = 8
_MAX_SETS = 1_000
_SETS: dict[int, tuple[tuple[str, ...], frozenset[str]]] = {}
"""Sets of names by the identity of a tuple. Comparing equal tuples would cost more."""


def matches(need: DeviceNeed, device: Device, uuid: str) -> bool:
    """Return whether the device is of the kind that the need asks for."""
    if need.resource and device.resource != need.resource:
        return False
    if uuid in need.uuids_not or (need.uuids and uuid not in _lookup(need.uuids)):
        return False
    if (device.mode is DeviceMode.NAMED or device.shared) and not need.uuids:
        return False
    if need.models and not names_any(need.models, device.model):
        return False
    if names_any(need.models_not, device.model):
        return False
    return device.memory_mib >= need.min_memory_mib and device.compute >= need.min_compute


def _lookup(uuids: tuple[str, ...]) -> Collection[str]:
    """Return the names in a form for look-ups.

    One tuple may name all devices of the cluster, and many needs share it.
    """
    if len(uuids) <= _FEW:
        return uuids
    known = _SETS.get(id(uuids))
    if known is None or known[0] is not uuids:
        if len(_SETS) > _MAX_SETS:
            _SETS.clear()
        known = _SETS[id(uuids)] = uuids, frozenset(uuids)
    return known[1]
