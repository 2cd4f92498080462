"""Time-sharing: who of the groups that opted in should run now.

Groups that agreed to be suspended for one another are ranked by one policy, those that run and those that wait
alike. The engine's action ``timeshare`` suspends groups of the worst rank for one that waits with a better rank,
as a transaction: only if the whole gang that waits is proven to fit, and with the room kept for it. Both have
to be of one queue, and the one that goes of no higher priority.

A policy is asked for a rank when a group appears, when it is suspended, and when the group has run for as long
as the policy itself named (:attr:`Rank.until`): in between ranks stand, so that nothing is asked in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import msgspec

from windlass.spi.objects import Group
from windlass.spi.plugins import QueueView


@dataclass(slots=True)
class RunSegment:
    """A group's account of time. It belongs to the engine; a policy reads it, and may keep ``memory``: plain values
    that JSON knows, as they are part of a dumped state. ``None``: what it attained so far, somebody else has seen.

    ``devices``: whole accelerators that the group asks for at the least (0: none). ``attained``: for how many
    seconds it has held its room in all, up to its last suspension or ranking. ``waited``: seconds without, in all,
    up to then. ``started``: since when it runs, ``None`` while it waits; ``again``: it had run before that.
    """

    group: Group
    devices: float
    attained: float = 0.0
    waited: float = 0.0
    suspensions: int = 0
    memory: Any = None
    started: float | None = None
    again: bool = False


class Rank(msgspec.Struct, frozen=True):
    """Whoever has the smaller ``value`` runs first. ``falls``: by how much it gets smaller with each second that
    the group runs. ``until``: ask again once the group has run for so many seconds in all, ``waited_until``: once it
    has waited for so many; ``None``: never. ``rests``: once it is suspended it claims nobody's room for so many
    seconds; it starts sooner where there is room."""

    value: float
    falls: float = 0.0
    until: float | None = None
    waited_until: float | None = None
    rests: float = 0.0


class QueueContention(Protocol):
    """The groups of a claim's queue that share time: how many run, and how many wait, the claimer among them."""

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    def before(self, rank: float) -> int:
        """How many of those that wait rank before that."""
        ...


@runtime_checkable
class TimeSharing(Protocol):
    """The policy. The engine uses the last one it is given: one on top of others replaces theirs."""

    name: str

    def joins(self, group: Group, path: Sequence[QueueView]) -> bool:
        """Whether the group opted in. ``path``: its queue up to the root."""
        ...

    def rank(self, segment: RunSegment) -> Rank:
        """The group's rank from now on, and how it changes by itself."""
        ...

    def spared_until(
        self, victim: RunSegment, claimer: RunSegment, rank: float, crowd: QueueContention, now: float
    ) -> float:
        """Until when ``victim``, which runs and is of that rank now, is left alone by ``claimer``, as far as ranks and
        the crowd stay as they are; infinite for always. Not after ``now``: it may be stopped."""
        ...

    def ended(self, segment: RunSegment) -> None:
        """The group needs its room no more, however it ended."""
        ...


Tally = tuple[list[float], list[float]]
"""By stretch: how many runs ended in it, how many outlived it."""


class RunTimeCounts(msgspec.Struct, frozen=True):
    """What a policy has counted of runs. ``divisions``: where the stretches begin, in seconds of a run: counts mean
    nothing where these are others. ``every``: of all runs; ``sizes``: of those of about one size."""

    divisions: tuple[float, ...]
    every: Tally
    sizes: dict[int, Tally]


@runtime_checkable
class PersistentCounts(TimeSharing, Protocol):
    """A policy whose counts outlast the process."""

    @property
    def counted(self) -> float:
        """So much it has counted; more with every count."""
        ...

    def counts(self) -> RunTimeCounts:
        """All of them."""
        ...

    def resume(self, counts: RunTimeCounts) -> None:
        """Go on with these instead of its own. Raises ``ValueError``, and keeps its own, where they cannot be gone
        on with."""
        ...
