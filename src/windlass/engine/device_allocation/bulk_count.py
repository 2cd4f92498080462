"""Counting at once, over many rows, how many shares of one card the cards take: the plain case.

Plain is: one need of one card of a named resource, by its kind alone; no card of the row can be sliced for it;
nothing on the row's cards terminates or is promised; and the planes hold all cards that would be opened. For
rows that are not plain the answer is left to :mod:`windlass.engine.devices.assignment`, with which this agrees
elsewhere (a property test holds it).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.device_state import PLENTY
from windlass.engine.devices.need_on_device import needs_on_device
from windlass.engine.devices.share_table import MIB, MILLI, SHARES, SLICES, TAKEN, ShareTable
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.nodes.table import ALLOCATABLE, PROMISED, RELEASING, USED, NodeTable
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Device

NO_SHARE, SLICED = -1, -2
"""Of a card and a need: it has no share for it; it could be sliced for it."""


def is_plain(need: DeviceNeed) -> bool:
    """Whether such a need may be counted here at all."""
    named = need.resource and not (need.by_name or need.carries or need.avoids)
    return bool(named) and need.count == 1 and not need.profile and not need.listed


def plain_counts(
    table: NodeTable, rows: NDArray[np.int64], need: DeviceNeed
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """How many tasks of a plain need each row's cards take, and for which rows that is known."""
    cards = table.cards
    cards.sync_all(rows)
    kits = cards.kit_of[rows]
    milli, mib = _shares(cards, need)
    width = milli.shape[1]
    milli, mib = milli[kits], mib[kits]
    cells = cards.cells[:, :width]
    known = (milli != SLICED).all(axis=1)
    if cards.moving:
        known &= ~np.isin(rows, list(cards.moving))
    shares = cells[:, :, SHARES][rows]
    free = (cells[:, :, TAKEN][rows] == 0) & (cells[:, :, SLICES][rows] == 0) & (milli >= 0)
    if need.whole:
        here = (free & (shares == 0)).astype(np.int64)
    else:
        compute = WHOLE - cells[:, :, MILLI][rows]
        here = np.where(milli > 0, compute // _divisor(milli), np.where(compute > 0, PLENTY, 0))
        if mib.any():
            whole = _fact(cards, "memory of cards", lambda device: device.memory_mib)[kits]
            left = whole - cells[:, :, MIB][rows]
            here = np.minimum(here, np.where(mib > 0, left // _divisor(mib), PLENTY))
        slots = _fact(cards, "slots of cards", lambda device: device.slots)
        if slots.any():
            slots = slots[kits]
            here = np.where(slots > 0, np.minimum(here, slots - shares), here)
        here = np.where(free, np.maximum(here, 0), 0)
    opened = ((here > 0) & (shares == 0)).sum(axis=1) * WHOLE
    planes = table.planes[rows, :, table.column(need.resource)]
    kept = np.maximum(planes[:, PROMISED] - planes[:, RELEASING], 0)
    known &= planes[:, ALLOCATABLE] - planes[:, USED] - kept >= opened
    return np.minimum(here.sum(axis=1), PLENTY), known


def _divisor(asked: NDArray[np.int64]) -> int | NDArray[np.int64]:
    """To divide by, where anything is asked for: by one number, if all ask for the same, is a lot faster."""
    most = int(asked.max(initial=1))
    return most if ((asked == most) | (asked <= 0)).all() else np.maximum(asked, 1)


def _shares(cards: ShareTable, need: DeviceNeed) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What the need takes of each card of each kind of node: milli (or :data:`NO_SHARE`, :data:`SLICED`), MiB."""
    both = cards.facts.get(need)
    if both is None:
        widest = max((len(kit.cards) for kit in cards.device_sets), default=0)
        both = np.zeros((2, len(cards.device_sets), widest), dtype=np.int64)
        both[0] = NO_SHARE
        for device_set in cards.device_sets:
            for wish in needs_on_device(need, device_set, ("",) * len(device_set.cards)):
                if wish.profile >= 0:
                    both[0, device_set.code, wish.slot] = SLICED
                elif wish.share is not None:
                    both[:, device_set.code, wish.slot] = wish.share
        if len(cards.facts) > 1000:
            cards.facts.clear()
        cards.facts[need] = both
    return both[0], both[1]


def _fact(cards: ShareTable, name: str, of: Callable[[Device], int]) -> NDArray[np.int64]:
    found = cards.facts.get(name)
    if found is None:
        widest = max((len(kit.cards) for kit in cards.device_sets), default=0)
        found = np.zeros((len(cards.device_sets), widest), dtype=np.int64)
        for device_set in cards.device_sets:
            found[device_set.code, : len(device_set.cards)] = [of(card.device) for card in device_set.cards]
        cards.facts[name] = found
    return found
