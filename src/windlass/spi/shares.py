"""Fair shares: division of an amount among the queues of one level of the tree.

A :class:`Division` is called once for each level after its total, demand or rules
changed, from the top down: the share of a queue is the total of its children. Amounts are exact
integers in engine units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from windlass.spi import renamed
from windlass.spi.objects import Dialect

if TYPE_CHECKING:  # not at run time: commands read shares without node tables
    from windlass.spi.plugins import QueueView
else:
    __getattr__ = renamed.old_names(__name__)


class ShareCause(StrEnum):
    """Reason for a part of a share."""

    GUARANTEED = "guaranteed"
    """Guarantee of the queue."""
    DESERVED = "deserved"
    """Stated amount of the queue."""
    SURPLUS = "surplus"
    """Part by weight of what the stated amounts leave."""
    ROUNDING = "rounding"
    """A whole unit for the largest fraction that rounding cut off (negative: cut off)."""
    REST = "rest"
    """Amount that the queues of the other queue API leave."""


class SharePart(msgspec.Struct, frozen=True, eq=False):
    """Part of a share: ``units`` for one ``cause``.

    For a surplus, ``weight`` is the weight of the queue, and ``weights`` the sum over all
    queues that divided it. Parts that differ in these alone are equal.
    """

    cause: ShareCause
    units: int
    weight: float = 0.0
    weights: float = 0.0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SharePart) and self.units == other.units and self.cause is other.cause

    def __hash__(self) -> int:
        return hash((self.cause, self.units))


class QueueShare(msgspec.Struct, frozen=True):
    """Share of a queue. All mappings are resource → engine units.

    * ``fair``: the fair share; no entry means none.
    * ``allocatable``: amounts that queues below their share cannot reclaim; no entry
      means no bound.
    * ``real_capability``: maximum that it can hold, less what is reserved for others; no
      entry means no bound.
    * ``parts``: composition of ``fair``.
    """

    fair: Mapping[str, int] = {}
    allocatable: Mapping[str, int] = {}
    real_capability: Mapping[str, int] = {}
    parts: Mapping[str, tuple[SharePart, ...]] = {}


@runtime_checkable
class Division(Protocol):
    """Division of an amount among queues.

    The first one for a ``dialect`` is used for the queues of that API. If ``flat``, it is
    called once for all queues without children, wherever they are in the tree; the share
    of an inner queue is then the sum over those below. Otherwise it is called for each
    level.

    A division may have a method ``demand_matters(queue, before, after)``. False declares
    that no share changes if the demand of the queue goes from ``before`` to ``after`` and
    nothing else has changed since its share was computed. Without the method, each change
    of a demand leads to a new division.
    """

    name: str
    dialect: Dialect
    flat: bool

    def divide(
        self, parent: QueueView | None, queues: Sequence[QueueView], total: Mapping[str, int]
    ) -> Sequence[QueueShare]:
        """Return one share for each of ``queues``, in their order.

        ``parent``: ``None`` for the top level and for a flat division. ``total``: fair
        share of the parent; at the top, the amounts of the cluster.
        """
        ...
