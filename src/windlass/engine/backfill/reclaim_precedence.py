"""Who goes before somebody that has a reservation, as he could take back from him what he is due.

Where queues reclaim what they are due (the action ``reclaim``), a group that will be beyond its queue's fair share when
its reservation comes is the first to be evicted, as soon as a group of another queue that stays within its share finds
no room. To keep room from the latter until then is to start somebody in order to evict him. So who stays within his
queue's share goes before who will be beyond his: as work beyond its quota is allocated after work within it by KAI
Scheduler, and overused queues are passed over by Volcano. What is within and beyond is what it is for the claim itself
(:mod:`windlass.plugins.queues.victims`): at every level below that at which the paths of the two queues part, in the
resources that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from windlass.engine.backfill.reservation import UNKNOWN, Reservation
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.next_step import whole_step
from windlass.engine.queues.queue import QueueEntry, add
from windlass.engine.state.cluster_state import ClusterState

RECLAIM = "reclaim"


class ReclaimPrecedence:
    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._reclaims = RECLAIM in state.config.actions
        self._now = 0.0
        self._left: dict[tuple[str, str], tuple[Reservation, Mapping[str, int], dict[str, int]]] = {}
        """Group and queue → the reservation, what the queue held when it was asked, and how much of that will have been
        given back when the reservation comes. Of this moment."""

    def before(
        self, group: GroupEntry, kept: Iterable[Reservation], every: Iterable[Reservation], now: float
    ) -> list[Reservation]:
        """Those of what is ``kept`` before whose groups this one goes; ``every``: all that there are."""
        queue, step = group.queue, group.step
        if not self._reclaims or queue is None or step is None or group.spec.never_preempts:
            return []
        others = [r for r in kept if _may_lose(r.group, queue)]
        if not others:
            return []
        if now != self._now:
            self._now = now
            self._left.clear()
        asked = {name: units for name, units in whole_step(group, step).request.items() if units > 0}
        return [
            r
            for r in others
            if _within(_apart(queue, r.group.queue), asked)
            and all(self._beyond(r, theirs, asked, every) for theirs in _apart(r.group.queue, queue))
        ]

    def _beyond(
        self, reservation: Reservation, queue: QueueEntry, asked: Iterable[str], every: Iterable[Reservation]
    ) -> bool:
        """Whether the queue will hold more than its share of something that is asked for when the reservation, which
        brings some of it, has come; and before it those that come before."""
        brought = _request(reservation.group)
        held = dict(queue.committed)
        add(held, brought.items())
        for other in every:
            if other is not reservation and self._there_by_then(other, reservation, queue):
                add(held, _request(other.group).items())
        names = [name for name in asked if brought.get(name, 0) > 0 and name in queue.fair_share]
        over = [name for name in names if held[name] > queue.fair_share[name]]
        if not over or reservation.start >= UNKNOWN:
            return bool(over)
        left = self._given_back(reservation, queue)
        return any(held[name] - left.get(name, 0) > queue.fair_share[name] for name in over)

    def _there_by_then(self, other: Reservation, reservation: Reservation, queue: QueueEntry) -> bool:
        """Whether the other is of the queue, too, begins first and will not have ended."""
        if other.group.queue is None or queue not in other.group.queue.path:
            return False
        first = (other.start, other.group.rank) < (reservation.start, reservation.group.rank)
        end = other.ends(self._now)
        return first and (end is None or end > reservation.start)

    def _given_back(self, reservation: Reservation, queue: QueueEntry) -> dict[str, int]:
        """How much of what the queue holds will have become free when the reservation comes, as far as is known."""
        at, held = (reservation.group.key, queue.name), queue.committed
        known = self._left.get(at)
        if known is not None and known[0] is reservation and known[1] == held:
            return known[2]
        found: dict[str, int] = {}
        for moment, _, entries in self._state.ledger.ends.at(self._now):
            if moment > reservation.start:
                break
            for entry in entries:
                holder = entry.group.queue if entry.group is not None else None
                if holder is not None and queue in holder.path:
                    add(found, entry.cls.items)
        self._left[at] = reservation, dict(held), found
        return found


def _may_lose(group: GroupEntry, claimer: QueueEntry) -> bool:
    """Whether it is of another queue, which may take from it at all."""
    queue = group.queue
    if queue is None or queue is claimer or group.step is None or group.group is None:
        return False
    return queue.spec.reclaimable and group.group.preemptible


def _apart(queue: QueueEntry | None, other: QueueEntry | None) -> list[QueueEntry]:
    """The queue and those above it, up to where its path meets the other's."""
    if queue is None or other is None:
        return []
    return [entry for entry in queue.path if entry not in other.path]


def _request(group: GroupEntry) -> Mapping[str, int]:
    return whole_step(group, group.step).request if group.step is not None else {}


def _within(path: Sequence[QueueEntry], asked: Mapping[str, int]) -> bool:
    """Whether all of these queues stay within their shares with what is asked for."""
    return all(
        queue.committed.get(name, 0) + units <= queue.fair_share[name]
        for queue in path
        for name, units in asked.items()
        if name in queue.fair_share
    )
