"""Time-sharing: which of the groups that opted in run now.

Groups that agreed to be suspended for one another are ranked by one policy, running and
pending ones alike. The action ``timeshare`` suspends groups of the worst rank for a
pending group with a better rank. It is a transaction: the whole pending gang is proven to
fit, and the capacity is nominated for it. Both groups are of one queue, and the suspended
group has no higher priority.

A policy is asked for a rank when a group appears, when it is suspended, and when it has
run for the time that the policy named (:attr:`Rank.until`). Ranks stay valid in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from windlass.spi import renamed
from windlass.spi.objects import Group
from windlass.spi.plugins import QueueView

if not TYPE_CHECKING:
    __getattr__ = renamed.old_names(__name__)


@renamed.attributes
@dataclass(slots=True)
class RunSegment:
    """Time account of a group, owned by the engine.

    A policy reads it, and may keep plain JSON values in ``memory``, which is part of a
    dump. A ``memory`` of ``None`` means that the policy has not seen what the group
    attained so far.

    * ``devices``: minimum number of whole devices that the group requests; 0 for none.
    * ``attained``: seconds in all for which it has held its capacity, up to its last
      suspension or ranking.
    * ``waited``: seconds in all without capacity, up to then.
    * ``started``: start of the current run; ``None`` while it is pending.
    * ``resumed``: the group had run before this run.
    """

    group: Group
    devices: float
    attained: float = 0.0
    waited: float = 0.0
    suspensions: int = 0
    memory: Any = None
    started: float | None = None
    resumed: bool = False


class Rank(msgspec.Struct, frozen=True):
    """Rank of a group. The group with the smallest ``value`` runs first.

    * ``falls``: decrease of ``value`` for each second that the group runs.
    * ``until``: the policy is asked again once the group has run for this many seconds in
      all; ``waited_until``: once it has waited for this many. ``None``: never.
    * ``rests``: seconds after a suspension in which the group causes no suspension. It
      starts earlier if there is free capacity.
    """

    value: float
    falls: float = 0.0
    until: float | None = None
    waited_until: float | None = None
    rests: float = 0.0


class QueueContention(Protocol):
    """Number of running and pending time-sharing groups of a queue, the preemptor included."""

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    def before(self, rank: float) -> int:
        """Return the number of pending groups with a better rank."""
        ...


@runtime_checkable
class TimeSharing(Protocol):
    """Policy of time-sharing. The engine uses the last one, so an added one replaces others.

    A policy may declare ``opt_in_keys: frozenset[str]``: annotations of groups and queues
    without which no group joins. Then the engine does not ask until one occurs.
    """

    name: str

    def joins(self, group: Group, path: Sequence[QueueView]) -> bool:
        """Return whether the group opted in. ``path``: from its queue to the root."""
        ...

    def rank(self, segment: RunSegment) -> Rank:
        """Return the rank of the group from now on, and how it changes by itself."""
        ...

    def protected_until(
        self, victim: RunSegment, preemptor: RunSegment, rank: float, contention: QueueContention, now: float
    ) -> float:
        """Return until when a running victim is protected from the preemptor.

        It holds while ranks and contention stay as they are; infinite for always. A time
        that is not after ``now`` means that the victim may be suspended. ``rank``: of the
        victim, now.
        """
        ...

    def finished(self, segment: RunSegment) -> None:
        """Note that the group needs its capacity no more, whatever its result."""
        ...


Tally = tuple[list[float], list[float]]
"""By interval of run time: number of runs that ended in it, and that outlived it."""


class RunTimeCounts(msgspec.Struct, frozen=True):
    """Counts of runs by run time.

    ``divisions``: beginnings of the intervals, in seconds of run time. Counts with other
    divisions are not comparable. ``every``: of all runs. ``sizes``: of runs of about one
    size.
    """

    divisions: tuple[float, ...]
    every: Tally
    sizes: dict[int, Tally]


@runtime_checkable
class PersistentCounts(TimeSharing, Protocol):
    """A policy with counts that outlast the process."""

    @property
    def counted(self) -> float:
        """Number of counted events. It grows with each one."""
        ...

    def counts(self) -> RunTimeCounts:
        """Return all counts."""
        ...

    def resume(self, counts: RunTimeCounts) -> None:
        """Continue with these counts in place of its own.

        Raise ``ValueError``, and keep its own, if they cannot be used.
        """
        ...
