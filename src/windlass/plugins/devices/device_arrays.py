"""Device requests of pods and free shares of devices, as arrays (nodes × slots).

Compute and memory have one unit: thousandths of a device (milli). The free share of a
device is that of its scarcer resource. A pod takes the larger of its two requests.
Amounts of memory are rounded down, both requested and free, so that three thirds make a
whole device. These arrays do not decide whether a pod fits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from windlass.spi.accelerators import known
from windlass.spi.devices import DeviceNeed, DeviceView
from windlass.spi.model_names import names_any
from windlass.spi.nodes import BoolArray, IntArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.quantities import is_device
from windlass.spi.scoring import DeviceKinds, NodeDevices

WHOLE = 1000
BARRED = WHOLE + 1
"""Request that no device can serve, in milli. It marks devices that the pod may not use."""
COMPUTE_SLICES = 7
"""Compute slices of a device that supports MIG; a profile ``3g.40gb`` has three of them."""
_PROFILE = re.compile(r"([0-9]+)g\.")


@lru_cache(maxsize=4096)
def request_of(needs: Needs) -> tuple[DeviceNeed, ...]:
    """Return all requests of a pod for devices and device shares, whole devices included."""
    whole = tuple(
        DeviceNeed(name, units // WHOLE, WHOLE)
        for name, units in needs.node_request
        if units >= WHOLE and is_device(name)
    )
    return (*needs.devices, *whole)


@lru_cache(maxsize=4096)
def share_of(profile: str) -> int:
    """Return the milli of a MIG instance by its compute slices; a whole device if unclear."""
    match = _PROFILE.match(profile)
    return -(-int(match[1]) * WHOLE // COMPUTE_SLICES) if match and int(match[1]) <= COMPUTE_SLICES else WHOLE


def free_milli(nodes: NodeView, devices: DeviceView) -> IntArray:
    """Return the free milli of each device, compute or memory, whichever is scarcer.

    It is 0 in slots without a healthy device. For pods bound by another scheduler it is
    unknown which whole devices they hold. So as many free devices, the last ones, count
    as theirs.
    """
    memory = devices.memory_mib
    by_memory = np.where(memory > 0, devices.free_mib * WHOLE // np.maximum(memory, 1), WHOLE)
    free: IntArray = np.where(devices.exists & devices.healthy, np.minimum(devices.free_milli, by_memory), 0)
    whole = free >= WHOLE
    for code, resource in enumerate(devices.resources):
        mine = whole & (devices.resource == code) if len(devices.resources) > 1 else whole
        free_units = nodes.available(resource) // WHOLE
        if (mine.sum(axis=1) > free_units).any():
            free[mine & (np.cumsum(mine, axis=1) > np.maximum(free_units, 0)[:, None])] = 0
    return free


def requested_milli(need: DeviceNeed, devices: DeviceView) -> IntArray:
    """Return the milli that the need takes of each device: the larger of compute and memory.

    It is :data:`BARRED` for devices that the pod may not use.
    """
    if need.profile:
        amount = np.full(devices.exists.shape, share_of(need.profile), dtype=np.int64)
    else:
        amount = np.full(devices.exists.shape, max(need.milli, need.memory_milli), dtype=np.int64)
        if need.memory_mib:
            memory = devices.memory_mib
            by_memory = np.where(memory > 0, need.memory_mib * WHOLE // np.maximum(memory, 1), WHOLE)
            amount = np.maximum(amount, by_memory)
    return np.where(usable(need, devices), amount, BARRED)


def requests_of_kinds(need: DeviceNeed, kinds: DeviceKinds) -> tuple[int, ...]:
    """Return :func:`requested_milli` for the devices of one node."""
    requested = []
    for slot, usable_ in enumerate(kinds.usable):
        memory = kinds.memory_mib[slot]
        if (
            not usable_
            or not _model_serves(need, kinds.models[slot])
            or (need.resource and need.resource != kinds.resources[slot])
            or memory < need.min_memory_mib
        ):
            requested.append(BARRED)
            continue
        amount = share_of(need.profile) if need.profile else max(need.milli, need.memory_milli)
        if need.memory_mib and not need.profile:
            amount = max(amount, need.memory_mib * WHOLE // memory if memory > 0 else WHOLE)
        requested.append(amount)
    return tuple(requested)


def free_of_devices(devices: NodeDevices) -> tuple[int, ...]:
    """Return :func:`free_milli` of one node, without whole devices of unknown pods."""
    kinds = devices.kinds
    return tuple(
        (min(milli, mib * WHOLE // memory) if memory > 0 else min(milli, WHOLE)) if usable_ else 0
        for usable_, milli, mib, memory in zip(
            kinds.usable, devices.free_milli, devices.free_mib, kinds.memory_mib, strict=True
        )
    )


def without_whole(free: Sequence[int], kinds: DeviceKinds, free_units: Mapping[str, int]) -> tuple[int, ...]:
    """Return ``free``, limited to the first ``free_units`` whole devices of each resource."""
    limited, left = list(free), {name: max(n, 0) for name, n in free_units.items()}
    for slot, name in enumerate(kinds.resources):
        if free[slot] >= WHOLE and name in left:
            if left[name]:
                left[name] -= 1
            else:
                limited[slot] = 0
    return tuple(limited)


def usable(need: DeviceNeed, devices: DeviceView) -> BoolArray:
    """Return a mask of the devices of the requested kind. UUIDs are not compared."""
    models = np.array([_model_serves(need, name) for name in devices.models], dtype=np.bool_)
    mask = devices.exists & devices.healthy & models[devices.model]
    if need.resource:
        named = np.array([name == need.resource for name in devices.resources], dtype=np.bool_)
        mask &= named[devices.resource]
    if need.min_memory_mib:
        mask &= devices.memory_mib >= need.min_memory_mib
    return mask


def _model_serves(need: DeviceNeed, model: str) -> bool:
    if names_any(need.models_not, model):
        return False
    if need.models and not names_any(need.models, model):
        return False
    if need.min_compute == (0, 0):
        return True
    entry = known(model)
    return entry is None or entry.compute >= need.min_compute
