"""What must hold of cards and their parts, recomputed from the tasks alone: see ``invariants``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from windlass.engine.core import Core
from windlass.engine.devices.share_table import (
    FIELDS,
    HELD,
    KEPT,
    LEAVING,
    SIDES,
    TAKEN,
    DeviceFacts,
    TaskShare,
    TaskShares,
)
from windlass.engine.devices.whole_device_table import WHOLE, bits
from windlass.engine.groups.entries import OCCUPYING
from windlass.spi.objects import TaskState

Place = tuple[int, str, int]
"""Row, resource, index."""


@dataclass(slots=True)
class DeviceHolders:
    """Who has what of one card."""

    held: list[TaskShare] = field(default_factory=list)
    leaving: list[TaskShare] = field(default_factory=list)
    kept: list[TaskShare] = field(default_factory=list)

    def sides(self) -> tuple[list[TaskShare], list[TaskShare], list[TaskShare]]:
        return self.held, self.leaving, self.kept

    def later(self) -> list[TaskShare]:
        """What is had of it once all that terminates is gone."""
        rest = list(self.held)
        for share in self.leaving:
            rest.remove(share)
        return rest + self.kept


def all_shares(engine: Core) -> Iterator[tuple[int, int, TaskShares]]:
    """Row, side and parts, of all tasks, holds and reservations."""
    for entry in engine.state.tasks.values():
        if entry.state in OCCUPYING and entry.row >= 0:
            yield entry.row, HELD, entry.cuts
            if entry.state is TaskState.RELEASING:
                yield entry.row, LEAVING, entry.cuts
        if entry.promised >= 0:
            yield entry.promised, KEPT, entry.kept
    for hold in engine.state.ledger.holds:
        yield hold.row, KEPT, hold.cuts


def device_holders(engine: Core) -> dict[Place, DeviceHolders]:
    """By card, from the tasks."""
    books: dict[Place, DeviceHolders] = {}
    for row, side, cuts in all_shares(engine):
        for share in cuts:
            if share.index >= 0:
                book = books.setdefault((row, share.resource, share.index), DeviceHolders())
                book.sides()[side].append(share)
    return books


def is_counted(engine: Core, place: Place) -> bool:
    """Whether the card counts in the planes when it is open."""
    row, resource, index = place
    node = engine.state.table.nodes[row]
    for device in node.devices if node is not None else ():
        if (device.resource, device.index) == (resource, index):
            return DeviceFacts(device).counted
    found = engine.state.table.cards.rows[row]
    slot = found.device_set.slots.get((resource, index)) if found is not None else None
    return True if found is None or slot is None else found.device_set.cards[slot].counted


def _is_sick(engine: Core, place: Place) -> bool:
    """Whether the node says so of the card."""
    row, resource, index = place
    slots = engine.state.table.devices.rows[row].get(resource)
    return slots is not None and bool(slots.sick >> index & 1)


def add_device_charges(engine: Core, expected: NDArray[np.int64]) -> None:
    """What open cards and parts of unknown cards come to in the planes."""
    table = engine.state.table
    for row, side, cuts in all_shares(engine):
        for share in cuts:
            if share.index < 0:
                expected[row, 1 + side, table.resources.codes[share.resource]] += share.milli
    for place, book in device_holders(engine).items():
        if is_counted(engine, place):
            row, resource, _ = place
            staying = len(book.held) > len(book.leaving)
            leaves = bool(book.held) and not staying and not _is_sick(engine, place)
            open_as = (bool(book.held), leaves, bool(book.kept) and not staying)
            for side, is_open in enumerate(open_as):
                expected[row, 1 + side, table.resources.codes[resource]] += WHOLE * is_open


def open_devices(engine: Core) -> dict[tuple[int, str], set[int]]:
    """By row and resource, the cards that are taken because parts of them are held."""
    found: dict[tuple[int, str], set[int]] = {}
    for place, book in device_holders(engine).items():
        if book.held and is_counted(engine, place):
            found.setdefault(place[:2], set()).add(place[2])
    return found


def device_problems(engine: Core, overcommitted: bool) -> list[str]:
    """The table of cards against the tasks, and every card against what can be had of it."""
    table, books = engine.state.table, device_holders(engine)
    problems = []
    moving = Counter(row for row, side, cuts in all_shares(engine) if side != HELD for _ in cuts)
    if moving != table.cards.moving:
        problems.append(
            f"rows where parts of cards terminate or are promised: {moving}, noted {table.cards.moving}"
        )
    drawn = _drawn(engine)
    for name, row in table.rows.items():
        found = table.cards.rows[row]
        if found is None:
            if any(place[0] == row for place in books):
                problems.append(f"the cards of {name} are not known")
            continue
        table.cards.sync(row)
        whole = _whole(engine, row)
        if drawn.get(row, {}) != found.draws:
            problems.append(f"what is drawn on {name}: {drawn.get(row)}, noted {found.draws}")
        for (resource, index), slot in found.device_set.slots.items():
            card, book = found.device_set.cards[slot], books.get((row, resource, index), DeviceHolders())
            cells = table.cards.cells[row, slot]
            sums = np.zeros(SIDES * FIELDS, dtype=np.int64)
            for side, shares in enumerate(book.sides()):
                for share in shares:
                    sums[side * FIELDS : (side + 1) * FIELDS] += card.vector(share)
            if (cells[:TAKEN] != sums).any():
                problems.append(f"card {index} of {name}: the sums are wrong")
            holders = whole[resource, index]
            if bool(cells[TAKEN]) != bool(holders) and card.counted and not overcommitted:
                problems.append(
                    f"card {index} of {name}: a plain pod has it: {holders}, noted {cells[TAKEN]}"
                )
            if not overcommitted:
                problems += [f"card {index} of {name}: {p}" for p in over(card, book.held, holders)]
    return problems


def _whole(engine: Core, row: int) -> Counter[tuple[str, int]]:
    found: Counter[tuple[str, int]] = Counter()
    for entry in engine.state.table.tasks[row].values():
        found.update((resource, index) for resource, mask in entry.masks for index in bits(mask))
    return found


def over(card: DeviceFacts, cuts: list[TaskShare], whole: int) -> list[str]:
    """What is wrong with a card that all of these have parts of, and so many plain pods whole."""
    problems = []
    if whole + bool(cuts) > 1:
        problems.append(f"is held whole by {whole} beside {len(cuts)} parts")
    shares, slices = [c for c in cuts if not c.profile], [c for c in cuts if c.profile]
    if shares and slices:
        problems.append("is shared and sliced")
    problems += _overdrawn(cuts)
    if (
        sum(share.milli for share in shares) > WHOLE
        or sum(share.mib for share in shares) > card.device.memory_mib
    ):
        problems.append("is over-committed")
    if 0 < card.device.slots < len(shares):
        problems.append("is shared by more than may share it")
    if len(shares) > 1 and any(share.milli >= WHOLE for share in shares):
        problems.append("is held whole and shared")
    if slices:
        problems += _over_slices(card, slices)
    for at, one in enumerate(cuts):
        if any(set(one.carries) & set(other.avoids) for other in (*cuts[:at], *cuts[at + 1 :])):
            problems.append("holds pods that avoid one another")
    return problems


def _drawn(engine: Core) -> dict[int, dict[str, list[int]]]:
    """By row and name, what is taken of cards that claims share: held, leaving, promised."""
    found: dict[int, dict[str, list[int]]] = {}
    for row, side, cuts in all_shares(engine):
        for name, units, _ in (draw for share in cuts for draw in share.draws if draw[1]):
            found.setdefault(row, {}).setdefault(name, [0] * SIDES)[side] += units
    return found


def _overdrawn(shares: list[TaskShare]) -> list[str]:
    used: Counter[str] = Counter()
    totals: dict[str, int] = {}
    for name, units, total in (draw for share in shares for draw in share.draws):
        used[name] += units
        totals[name] = total
    return [
        f"{name} is drawn to {used[name]} of {totals[name]}" for name in totals if used[name] > totals[name]
    ]


def _over_slices(card: DeviceFacts, slices: list[TaskShare]) -> list[str]:
    geometry = card.geometry
    if geometry is None:
        return ["is sliced and cannot be"]
    profiles = [(geometry.profiles[geometry.codes[share.profile]], share.start) for share in slices]
    places = Counter(at for profile, start in profiles for at in range(start, start + profile.size))
    problems = []
    if any(start not in profile.starts for profile, start in profiles) or max(places.values()) > 1:
        problems.append("has slices on top of one another")
    if sum(profile.compute for profile, _ in profiles) > geometry.compute:
        problems.append("has more compute slices than there are")
    if sum(profile.media for profile, _ in profiles) > 1:
        problems.append("has its media extensions twice")
    return problems
