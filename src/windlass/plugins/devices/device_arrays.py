"""What a pod asks of accelerator cards, beside what the cards of the nodes have: arrays nodes × slots.

One measure for compute and memory: thousandths of a card (milli). A card has as much free as the scarcer of
the two; a pod takes as much as the larger of the two. Amounts of memory are rounded down, what is asked for as
well as what is free: so three thirds of a card are a whole one. Whether a pod fits is not decided by this.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from windlass.spi.accelerators import known
from windlass.spi.devices import DeviceNeed, DeviceView
from windlass.spi.nodes import BoolArray, IntArray, NodeView
from windlass.spi.objects import Needs
from windlass.spi.quantities import is_device
from windlass.spi.scoring import DeviceKinds, NodeDevices

WHOLE = 1000
BARRED = WHOLE + 1
"""More than any card has: what a card that the pod may not use is said to be asked for."""
COMPUTE_SLICES = 7
"""Of a card that can be sliced; a profile ``3g.40gb`` has three of them."""
_PROFILE = re.compile(r"(\d+)g\.")


@lru_cache(maxsize=4096)
def request_of(needs: Needs) -> tuple[DeviceNeed, ...]:
    """All cards and parts of cards that a pod asks for, plain whole ones included."""
    whole = tuple(
        DeviceNeed(name, units // WHOLE, WHOLE)
        for name, units in needs.node_request
        if units >= WHOLE and is_device(name)
    )
    return (*needs.devices, *whole)


@lru_cache(maxsize=4096)
def share_of(profile: str) -> int:
    """What a slice of a profile takes of a card, in milli, by its compute slices; a whole card if unclear."""
    found = _PROFILE.match(profile)
    return -(-int(found[1]) * WHOLE // COMPUTE_SLICES) if found and int(found[1]) <= COMPUTE_SLICES else WHOLE


def free_milli(nodes: NodeView, devices: DeviceView) -> IntArray:
    """What is left of each card: the scarcer of compute and memory; 0 where there is no healthy card.

    Of pods that others bound nobody knows which whole cards they have: as many free cards, the last ones,
    count as theirs.
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
    """What the need takes of each card, in milli: the larger of compute and memory. :data:`BARRED` where it
    may not use the card."""
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
    """:func:`requested_milli` for the cards of one node."""
    found = []
    for slot, usable_ in enumerate(kinds.usable):
        memory = kinds.memory_mib[slot]
        if (
            not usable_
            or not _model_serves(need, kinds.models[slot])
            or (need.resource and need.resource != kinds.resources[slot])
            or memory < need.min_memory_mib
        ):
            found.append(BARRED)
            continue
        amount = share_of(need.profile) if need.profile else max(need.milli, need.memory_milli)
        if need.memory_mib and not need.profile:
            amount = max(amount, need.memory_mib * WHOLE // memory if memory > 0 else WHOLE)
        found.append(amount)
    return tuple(found)


def free_of_devices(devices: NodeDevices) -> tuple[int, ...]:
    """:func:`free_milli` of one node, as if its pods had no whole cards but those that are known."""
    kinds = devices.kinds
    return tuple(
        (min(milli, mib * WHOLE // memory) if memory > 0 else min(milli, WHOLE)) if usable_ else 0
        for usable_, milli, mib, memory in zip(
            kinds.usable, devices.free_milli, devices.free_mib, kinds.memory_mib, strict=True
        )
    )


def without_whole(free: Sequence[int], kinds: DeviceKinds, free_units: Mapping[str, int]) -> tuple[int, ...]:
    """``free`` with no more whole cards than those of each resource that are open: the first ones."""
    found, left = list(free), {name: max(n, 0) for name, n in free_units.items()}
    for slot, name in enumerate(kinds.resources):
        if free[slot] >= WHOLE and name in left:
            if left[name]:
                left[name] -= 1
            else:
                found[slot] = 0
    return tuple(found)


def usable(need: DeviceNeed, devices: DeviceView) -> BoolArray:
    """Which cards are of the kind that is asked for. Names of single cards (uuids) are left out."""
    models = np.array([_model_serves(need, name) for name in devices.models], dtype=np.bool_)
    found = devices.exists & devices.healthy & models[devices.model]
    if need.resource:
        named = np.array([name == need.resource for name in devices.resources], dtype=np.bool_)
        found &= named[devices.resource]
    if need.min_memory_mib:
        found &= devices.memory_mib >= need.min_memory_mib
    return found


def _model_serves(need: DeviceNeed, model: str) -> bool:
    name = model.casefold()
    if any(part.casefold() in name for part in need.models_not):
        return False
    if need.models and not any(part.casefold() in name for part in need.models):
        return False
    if need.min_compute == (0, 0):
        return True
    entry = known(model)
    return entry is None or entry.compute >= need.min_compute
