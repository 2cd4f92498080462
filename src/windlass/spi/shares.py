"""Fair shares: how an amount is divided among the queues of one level of the tree.

A :class:`Division` is asked once for every level of which the total, the demand or the rules changed,
from the top down: what a queue gets is what its children then divide. Amounts are exact integers in
engine units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from windlass.spi.objects import Dialect

if TYPE_CHECKING:  # not at run time: commands read shares and have no use for node tables
    from windlass.spi.plugins import QueueView


class ShareCause(StrEnum):
    """Why a part of a share was given."""

    GUARANTEED = "guaranteed"
    """Reserved for the queue."""
    DESERVED = "deserved"
    """Stated as the queue's due."""
    SURPLUS = "surplus"
    """By weight, of what the stated amounts leave over."""
    ROUNDING = "rounding"
    """A whole unit for the largest fraction that rounding had cut off (negative: cut off)."""
    REST = "rest"
    """What the queues of the other API leave over."""


class SharePart(msgspec.Struct, frozen=True, eq=False):
    """``units`` of a share, given for one ``cause``. ``weight`` of ``weights``: the queue's weight and
    that of all it shared with, where the cause is the surplus; parts that differ in these are equal."""

    cause: ShareCause
    units: int
    weight: float = 0.0
    weights: float = 0.0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SharePart) and self.units == other.units and self.cause is other.cause

    def __hash__(self) -> int:
        return hash((self.cause, self.units))


class QueueShare(msgspec.Struct, frozen=True):
    """What a queue is due. All mappings are resource → engine units.

    ``fair``: the fair share; a resource that is not named has none. ``allocatable``: up to where the
    queue's holdings are safe from others that are below their share; a resource that is not named has
    no bound. ``real_capability``: what it can ever hold, with what is reserved for others taken off;
    a resource that is not named has no bound. ``parts``: how ``fair`` came about.
    """

    fair: Mapping[str, int] = {}
    allocatable: Mapping[str, int] = {}
    real_capability: Mapping[str, int] = {}
    parts: Mapping[str, tuple[SharePart, ...]] = {}


@runtime_checkable
class Division(Protocol):
    """Divides an amount among queues. The first one given for a ``dialect`` is used for its queues.

    ``flat``: it is asked once for all queues that have no children, wherever they stand in the tree
    (the share of an inner queue is then the sum over those below it); else level by level.

    A division may have a method ``heeds(queue, before, after)``: false promises that nobody's share changes when the
    queue's demand goes from ``before`` to ``after``, all else being as it was when its share was made. Without it,
    every change of a demand is divided anew.
    """

    name: str
    dialect: Dialect
    flat: bool

    def divide(
        self, parent: QueueView | None, queues: Sequence[QueueView], total: Mapping[str, int]
    ) -> Sequence[QueueShare]:
        """One share for each of ``queues``, in their order. ``parent`` is ``None`` for the top level and
        for a flat division; ``total`` is the parent's fair share, at the top what there is."""
        ...
