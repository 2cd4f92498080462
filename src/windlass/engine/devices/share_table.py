"""Parts of cards: what of every card is taken, row by row.

Plain whole cards are counted in the planes and picked from the bit sets of
:mod:`windlass.engine.devices.whole_device_table`. Here stands what is taken of cards in shares and slices, and whole by
tasks that must have a certain card. One block ``cells[row, slot, …]`` of int64 holds, per card, three sums over *cuts*
(what one task has of one card): what is held, the part of it that terminates, and what is promised. All else follows
from them, so taking a cut back is exact.

A card that anything is held of is *open*: it counts as a whole one in the planes (used; releasing if all
that is held of it terminates; promised if it would be open only by promises), and as taken in the bit sets.
So nobody who counts or picks whole cards can collide with a share. Cards that are always sliced
(:attr:`~windlass.spi.devices.DeviceMode.SLICED`), or given by name alone, are counted nowhere else.

Cards of a row are made at the first question about them; a cluster without parts of cards pays nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.mig import MigGeometry, geometry_of
from windlass.engine.devices.whole_device_table import UNCOUNTED, WHOLE, bits
from windlass.spi.devices import DeviceMode, Draws
from windlass.spi.objects import Device

if TYPE_CHECKING:
    from windlass.engine.nodes.table import NodeTable

HELD, LEAVING, KEPT = range(3)
"""The three sums of a card: what is held, what of it terminates, what is promised."""
SIDES = 3
MILLI, MIB, SHARES, SLICES, PLACES, COMPUTE, MEDIA = range(7)
"""Of each sum: compute and memory of shares; how many shares and slices; how often each memory slice is
taken (eight bits each); compute slices; media extensions."""
FIELDS = 7
TAKEN = SIDES * FIELDS
"""The last column: a plain whole pod has the card."""
COLUMNS = TAKEN + 1
UNSEEN = -2
"""The start of a part of a card that nobody has described yet."""
FREE = 0
"""The state of a card of which nobody has anything."""
MOST_STATES = 200_000
MOST_STEPS = 50_000
ROOMIEST = 8
"""Memory slices of a card, at most."""


@dataclass(frozen=True, slots=True)
class TaskShare:
    """What a task has of one card. ``index`` -1: of no card that is known, but ``milli`` of ``resource`` in
    the planes. ``draws``: of a card that claims share, what it takes of what that has."""

    resource: str
    index: int
    milli: int = 0
    mib: int = 0
    profile: str = ""
    start: int = -1
    carries: tuple[str, ...] = ()
    avoids: tuple[str, ...] = ()
    draws: Draws = ()


TaskShares = tuple[TaskShare, ...]


class ShareTransition(NamedTuple):
    """What comes of entering a cut: the state after it, the card's cells, what it counted as before and counts
    as then (see :func:`charges`), and whether anything of it is promised then."""

    share: TaskShare
    after: int
    cells: NDArray[np.int64]
    was: tuple[int, int, int]
    counts: tuple[int, int, int]
    kept: bool


class DeviceFacts:
    """What does not change about a card while its node reports the same. One for all nodes alike."""

    __slots__ = ("_vectors", "counted", "device", "geometry", "known", "steps")

    def __init__(self, device: Device, *, known: bool = True) -> None:
        """``known``: the node has it; else it is only spoken of by tasks."""
        self.device = device
        self.known = known
        self.counted = device.mode not in UNCOUNTED
        sliceable = device.mode in (DeviceMode.SLICED, DeviceMode.EITHER)
        found = geometry_of(device) if sliceable else None
        self.geometry: MigGeometry | None = found if found is not None and found.size <= ROOMIEST else None
        self._vectors: dict[TaskShare, NDArray[np.int64]] = {}
        self.steps: dict[tuple[int, int, int, int], ShareTransition] = {}
        """State, identity of a cut, side, sign → what comes of it."""

    @property
    def usable(self) -> bool:
        return self.known and self.device.healthy

    @property
    def sick(self) -> bool:
        """Whether nobody can be handed it once it is given back."""
        return self.known and not self.device.healthy

    def charges(self, cells: Sequence[int]) -> tuple[int, int, int]:
        """What it counts as in the planes."""
        used, releasing, promised = charges(cells)
        return used, 0 if self.sick else releasing, promised

    def vector(self, share: TaskShare) -> NDArray[np.int64]:
        """The cut as an addend to a sum of this card."""
        found = self._vectors.get(share)
        if found is None:
            if len(self._vectors) > 4096:
                self._vectors.clear()
            found = self._vectors[share] = np.array(self._sums(share), dtype=np.int64)
        return found

    def _sums(self, share: TaskShare) -> list[int]:
        if not share.profile:
            return [share.milli, share.mib, 1, 0, 0, 0, 0]
        if self.geometry is None or share.profile not in self.geometry.codes:
            return [0, 0, 0, 1, 0, 0, 0]
        code = self.geometry.codes[share.profile]
        profile = self.geometry.profiles[code]
        mask = self.geometry.mask(code, max(0, share.start))
        places = sum(1 << 8 * at for at in bits(mask))
        return [0, 0, 0, 1, places, profile.compute, int(profile.media)]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSet:
    """The cards of a node; equal ones are one object. ``code`` tells kits apart. UUIDs are not part of it. ``drawn``:
    what is taken of those that claims share for nobody who is known."""

    code: int
    cards: tuple[DeviceFacts, ...]
    slots: dict[tuple[str, int], int]
    """(resource, index) → slot."""
    drawn: tuple[tuple[str, int], ...] = ()


@dataclass(slots=True, eq=False)
class RowDevices:
    """The cards of one row, and who has what of them. ``tokens``: slot → (carried?, token) → held, leaving,
    promised. ``draws``: the same by what is taken of cards that claims share."""

    device_set: DeviceSet
    uuids: tuple[str, ...]
    taken: dict[str, int]
    """What of the bit sets has been copied into the cells."""
    states: list[int] = field(default_factory=list)
    """By slot, the number of the state that the card is in."""
    holders: dict[tuple[int, str], TaskShares] = field(default_factory=dict)
    """(side, who) → what."""
    tokens: dict[int, dict[tuple[bool, str], list[int]]] = field(default_factory=dict)
    draws: dict[str, list[int]] = field(default_factory=dict)


class ShareTable:
    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.rows: list[RowDevices | None] = []
        self.cells: NDArray[np.int64] = np.zeros((0, 0, COLUMNS), dtype=np.int64)
        self._parted: bool | None = False
        """:attr:`parted`; ``None`` where it is to be looked at again."""
        self.moving: dict[int, int] = {}
        """Row → how many parts of its cards terminate or are promised, where there are any."""
        self._settled = True
        """Whether the bit sets are those of the node as it is known."""
        self._kits: dict[tuple[tuple[Device, bool], ...], DeviceSet] = {}
        self.device_sets: list[DeviceSet] = []
        """By code."""
        self.kit_of: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        """Row → code of its kit; -1 where its cards have not been asked for."""
        self.facts: dict[object, NDArray[np.int64]] = {}
        """What views have gathered about kits; void when there is a new kit."""
        self._states: dict[bytes, int] = {bytes(8 * COLUMNS): FREE}
        """Cells of a card → number. A number is never given twice."""
        self._next_state = FREE + 1
        self.models: dict[str, int] = {"": 0}
        self.resources: dict[str, int] = {"": 0}

    # ------------------------------------------------------------------ rows

    def resize(self, capacity: int) -> None:
        self.kit_of = np.concatenate(
            [self.kit_of, np.full(max(0, capacity - len(self.rows)), -1, dtype=np.int64)]
        )
        self.rows.extend([None] * (capacity - len(self.rows)))
        if len(self.cells):
            self._shape(capacity, self.cells.shape[1])

    def _shape(self, capacity: int, slots: int) -> None:
        cells = np.zeros((capacity, slots, COLUMNS), dtype=np.int64)
        cells[: self.cells.shape[0], : self.cells.shape[1]] = self.cells
        self.cells = cells

    @property
    def parted(self) -> bool:
        """Whether anybody has a share or a slice of a card."""
        if self._parted is None:
            self._parted = bool(self.cells[:, :, SHARES].any() or self.cells[:, :, SLICES].any())
        return self._parted

    def row(self, row: int) -> RowDevices:
        """The cards of a row, made now if need be."""
        found = self.rows[row]
        return found if found is not None else self._make(row, ())

    def suspend(self, row: int) -> dict[tuple[int, str], TaskShares]:
        """Take everything off the cards of a row, to be put back by :meth:`resume` once the node's devices
        are known anew."""
        found = self.rows[row]
        if found is None:
            return {}
        holders = dict(found.holders)
        self._settled = False
        for (side, who), cuts in reversed(holders.items()):
            self.put(row, who, cuts, side, -1)
        self._settled = True
        self.rows[row] = None
        self.kit_of[row] = -1
        self.cells[row] = 0
        self._parted = None
        return holders

    def resume(self, row: int, holders: dict[tuple[int, str], TaskShares]) -> None:
        """The inverse of :meth:`suspend`; cards that are not there any more stay as long as they are held."""
        for (side, who), cuts in holders.items():
            self.put(row, who, cuts, side, 1)

    def _make(self, row: int, more: Sequence[Device]) -> RowDevices:
        """``more``: cards that tasks speak of and the node does not have."""
        node = self._table.nodes[row]
        listed = tuple(node.devices) if node is not None else ()
        names = {device.resource for device in listed}
        anonymous = [
            Device(index, resource)
            for resource, slots in self._table.devices.rows[row].items()
            if resource not in names
            for index in bits(slots.known)
        ]
        known = {(device.resource, device.index): (device, True) for device in (*listed, *anonymous)}
        for device in more:
            known.setdefault((device.resource, device.index), (device, False))
        order = sorted(known)
        device_set = self._kit(tuple([(_nameless(known[at][0]), known[at][1]) for at in order]))
        if len(self.cells) < self._table.capacity or self.cells.shape[1] < max(1, len(order)):
            self._shape(self._table.capacity, max(1, len(order), self.cells.shape[1]))
        found = RowDevices(device_set, tuple(known[at][0].uuid for at in order), {}, [FREE] * len(order))
        self.rows[row] = found
        self.kit_of[row] = device_set.code
        self._table.devices.stale.add(row)
        self.sync(row)
        return found

    def _kit(self, key: tuple[tuple[Device, bool], ...]) -> DeviceSet:
        found = self._kits.get(key)
        if found is None:
            cards = tuple(DeviceFacts(device, known=known) for device, known in key)
            slots = {(card.device.resource, card.device.index): slot for slot, card in enumerate(cards)}
            drawn = tuple(one for card in cards for one in card.device.drawn)
            found = self._kits[key] = DeviceSet(len(self._kits), cards, slots, drawn)
            self.device_sets.append(found)
            self.facts.clear()
            for device, _ in key:
                self.models.setdefault(device.model, len(self.models))
                self.resources.setdefault(device.resource, len(self.resources))
        return found

    def _with_ghosts(self, row: int, more: Sequence[TaskShare]) -> RowDevices:
        """A task speaks of cards that the node does not have: they get slots while they are spoken of."""
        holders = self.suspend(row)
        every = {
            (share.resource, share.index)
            for shares in (*holders.values(), more)
            for share in shares
            if share.index >= 0
        }
        found = self._make(row, [Device(index, resource) for resource, index in sorted(every)])
        self.resume(row, holders)
        return found

    # ------------------------------------------------------------------ books

    def put(self, row: int, who: str, cuts: TaskShares, side: int, sign: int) -> None:
        """Enter what ``who`` has of cards into one of the sums (1), or take it out (-1)."""
        found = self.rows[row] or self._make(row, ())
        ghosts = [
            cut for cut in cuts if cut.index >= 0 and (cut.resource, cut.index) not in found.device_set.slots
        ]
        if ghosts:
            found = self._with_ghosts(row, ghosts)
        for share in cuts:
            if share.index < 0:
                column = self._table.column(share.resource)
                self._table.planes[row, 1 + side, column] += sign * share.milli
                continue
            self._enter(row, found, found.device_set.slots[share.resource, share.index], share, side, sign)
        if side != HELD and cuts:
            self._note_moving(row, sign * len(cuts))
        if sign > 0:
            found.holders[side, who] = cuts
        else:
            del found.holders[side, who]

    def _enter(self, row: int, found: RowDevices, slot: int, share: TaskShare, side: int, sign: int) -> None:
        card = found.device_set.cards[slot]
        key = (found.states[slot], id(share), side, sign)
        step = card.steps.get(key)
        if step is None:
            if len(card.steps) > MOST_STEPS:
                card.steps.clear()
            step = card.steps[key] = self._step(card, self.cells[row, slot], share, side, sign)
        self.cells[row, slot] = step.cells
        self._parted = None
        found.states[slot] = step.after
        if share.carries or share.avoids:
            self._note_tokens(found, slot, share, side, sign)
        for name, units, _ in share.draws:
            sums = found.draws.setdefault(name, [0, 0, 0])
            sums[side] += sign * units
            if not any(sums):
                del found.draws[name]
        if side == KEPT and card.counted:
            self._note_kept(row, share, kept=step.kept)
        if step.was != step.counts:
            self._charge(row, found, share, step.was, step.counts)

    def _step(
        self, card: DeviceFacts, before: NDArray[np.int64], share: TaskShare, side: int, sign: int
    ) -> ShareTransition:
        cells = before.copy()
        cells[side * FIELDS : (side + 1) * FIELDS] += sign * card.vector(share)
        kept = bool(cells[KEPT * FIELDS + SHARES] + cells[KEPT * FIELDS + SLICES] > 0)
        was = counts = (0, 0, 0)
        if card.counted:
            was, counts = card.charges(before.tolist()), card.charges(cells.tolist())
        return ShareTransition(share, self._state(cells), cells, was, counts, kept)

    def _note_moving(self, row: int, n: int) -> None:
        left = self.moving.get(row, 0) + n
        if left:
            self.moving[row] = left
        else:
            del self.moving[row]

    def _note_kept(self, row: int, share: TaskShare, *, kept: bool) -> None:
        slots = self._table.devices.rows[row].get(share.resource)
        if slots is not None:
            bit = 1 << share.index
            slots.kept = slots.kept | bit if kept else slots.kept & ~bit

    def _charge(
        self, row: int, found: RowDevices, share: TaskShare, before: tuple[int, ...], after: tuple[int, ...]
    ) -> None:
        """The card was opened or closed: so the planes and the bit sets say."""
        table = self._table
        column = table.column(share.resource)
        for side in range(SIDES):
            if after[side] != before[side]:
                table.planes[row, 1 + side, column] += (after[side] - before[side]) * WHOLE
        if after[HELD] != before[HELD]:
            found.taken[share.resource] = -1
            masks = ((share.resource, 1 << share.index),)
            if after[HELD]:
                table.devices.take(row, masks)
            else:
                table.devices.give(row, masks)
            slots = table.devices.rows[row][share.resource]
            if slots.known != slots.healthy and self._settled:
                table.settle_allocatable(row)

    def _note_tokens(self, found: RowDevices, slot: int, share: TaskShare, side: int, sign: int) -> None:
        counts = found.tokens.setdefault(slot, {})
        for carried, tokens in ((True, share.carries), (False, share.avoids)):
            for token in tokens:
                sums = counts.setdefault((carried, token), [0, 0, 0])
                sums[side] += sign
                if not any(sums):
                    del counts[carried, token]
        if not counts:
            del found.tokens[slot]

    def sync(self, row: int) -> None:
        """Copy from the bit sets which cards plain whole pods have."""
        found = self.rows[row]
        if found is None:
            self._make(row, ())
            return
        stale = self._table.devices.stale
        if row not in stale:
            return
        stale.discard(row)
        for resource, slots in self._table.devices.rows[row].items():
            taken = slots.taken
            if found.taken.get(resource, 0) == taken and not slots.surplus:
                continue
            found.taken[resource] = -1 if slots.surplus else taken
            for slot, card in enumerate(found.device_set.cards):
                if card.device.resource != resource:
                    continue
                held = taken >> card.device.index & 1
                cells = self.cells[row, slot]
                opened = card.counted and cells[SHARES] + cells[SLICES] > 0
                cells[TAKEN] = held and (not opened or card.device.index in slots.surplus)
                found.states[slot] = self._state(cells)

    def sync_all(self, rows: NDArray[np.int64]) -> None:
        """:meth:`sync` for many rows."""
        for row in rows[self.kit_of[rows] < 0].tolist():
            self._make(row, ())
        stale = self._table.devices.stale
        if stale:
            asked = np.zeros(self._table.capacity, dtype=np.bool_)
            asked[rows] = True
            for row in [row for row in stale if asked[row]]:
                self.sync(row)

    def key(self, row: int) -> bytes:
        """The state of the row's cards, apart from tokens and UUIDs: equal for rows in equal states."""
        self.sync(row)
        found = self.rows[row]
        return array("q", (found.device_set.code, *found.states)).tobytes() if found is not None else b""

    def _state(self, cells: NDArray[np.int64]) -> int:
        """The number of a state. Cards of which the numbers have been forgotten get new ones as they change:
        then a state has two, and is looked at twice."""
        key = cells.tobytes()
        found = self._states.get(key)
        if found is None:
            if len(self._states) > MOST_STATES:
                self._states = {bytes(8 * COLUMNS): FREE}
            found = self._states[key] = self._next_state
            self._next_state += 1
        return found


def _nameless(device: Device) -> Device:
    return replace(device, uuid="") if device.uuid else device


def charges(cells: Sequence[int]) -> tuple[int, int, int]:
    """What a healthy card counts as in the planes: used, releasing, promised; each 0 or 1."""
    held = cells[SHARES] + cells[SLICES]
    leaving = cells[FIELDS + SHARES] + cells[FIELDS + SLICES]
    kept = cells[2 * FIELDS + SHARES] + cells[2 * FIELDS + SLICES]
    return counted_as(held, leaving, kept)


def counted_as(held: int, leaving: int, kept: int) -> tuple[int, int, int]:
    """:func:`charges` by how many cuts are held, terminate, are promised."""
    vacated = held <= leaving
    return int(held > 0), int(held > 0 and vacated), int(kept > 0 and vacated)


@lru_cache(maxsize=65_536)
def covered(places: int) -> int:
    """The memory slices that are taken at least once, as bits."""
    return sum(1 << at for at in range(ROOMIEST) if places >> 8 * at & 255)


def together(card: DeviceFacts, cells: Sequence[int], *, whole: bool) -> bool:
    """Whether what stays of a card's parts and what is promised of it can be had at once; ``whole``: beside a
    plain pod that has all of it."""
    after = [cells[at] - cells[FIELDS + at] + cells[2 * FIELDS + at] for at in range(FIELDS)]
    shares, slices = after[SHARES], after[SLICES]
    if not shares and not slices:
        return True
    if whole or (shares and slices):
        return False
    if after[MILLI] > WHOLE or after[MIB] > card.device.memory_mib:
        return False
    if 0 < card.device.slots < shares:
        return False
    if not slices:
        return True
    doubled = any(after[PLACES] >> 8 * at & 255 > 1 for at in range(ROOMIEST))
    return card.geometry is not None and not doubled and after[COMPUTE] <= card.geometry.compute
