"""Groups that may start before a reservation because they could reclaim its capacity anyway.

This applies where queues reclaim their shares (action ``reclaim``). A reservation can
take its queue over its fair share. Its group is then the first victim when a group of
another queue, within its share, finds no capacity. To reserve capacity against that
group would start work only to evict it. Therefore a group within the share of its queue
precedes a reservation that exceeds the share of its own queue. KAI Scheduler likewise
allocates work over quota after work within quota, and Volcano skips overused queues.

The share is compared as for the reclaim itself
(:mod:`windlass.plugins.queues.victims`): at every level below the common ancestor of
the two queues, in the requested resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from windlass.engine.backfill.reservation import UNKNOWN, Reservation
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.next_step import whole_step_view
from windlass.engine.groups.queue_entry import QueueEntry, add
from windlass.engine.state.cluster_state import ClusterState

RECLAIM = "reclaim"


class ReclaimPrecedence:
    """Decides which reservations a group may ignore because its queue is within its share."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._reclaims = RECLAIM in state.config.actions
        self._now = 0.0
        self._released: dict[tuple[str, str], tuple[Reservation, Mapping[str, int], dict[str, int]]] = {}
        """(Group, queue) → cached result of ``_released_by``. Valid for the current time only.

        Reservation, usage of the queue when it was computed, and usage that will be
        released before the start.
        """

    def passable(
        self,
        group: GroupEntry,
        reservations: Iterable[Reservation],
        all_reservations: Iterable[Reservation],
        now: float,
    ) -> list[Reservation]:
        """Return the reservations that this group precedes.

        ``reservations``: candidates.
        ``all_reservations``: all reservations.
        """
        queue, step = group.queue, group.step
        if not self._reclaims or queue is None or step is None or group.spec.never_preempts:
            return []
        others = [r for r in reservations if _is_reclaimable(r.group, queue)]
        if not others:
            return []
        if now != self._now:
            self._now = now
            self._released.clear()
        requested = {name: units for name, units in whole_step_view(group, step).request.items() if units > 0}
        return [
            r
            for r in others
            if _stays_within(_below_common_ancestor(queue, r.group.queue), requested)
            and all(
                self._exceeds_share(r, other_queue, requested, all_reservations)
                for other_queue in _below_common_ancestor(r.group.queue, queue)
            )
        ]

    def _exceeds_share(
        self,
        reservation: Reservation,
        queue: QueueEntry,
        requested: Iterable[str],
        all_reservations: Iterable[Reservation],
    ) -> bool:
        """Return whether the queue exceeds its share of a requested resource with the reservation.

        Earlier reservations of the queue count as well.
        """
        added = _request(reservation.group)
        held = dict(queue.committed)
        add(held, added.items())
        for other in all_reservations:
            if other is not reservation and self._holds_at_start(other, reservation, queue):
                add(held, _request(other.group).items())
        names = [name for name in requested if added.get(name, 0) > 0 and name in queue.fair_share]
        exceeded = [name for name in names if held[name] > queue.fair_share[name]]
        if not exceeded or reservation.start >= UNKNOWN:
            return bool(exceeded)
        released = self._released_by(reservation, queue)
        return any(held[name] - released.get(name, 0) > queue.fair_share[name] for name in exceeded)

    def _holds_at_start(self, other: Reservation, reservation: Reservation, queue: QueueEntry) -> bool:
        """Return whether the other is of the same queue, starts first and still runs then."""
        if other.group.queue is None or queue not in other.group.queue.path:
            return False
        first = (other.start, other.group.rank) < (reservation.start, reservation.group.rank)
        end = other.end(self._now)
        return first and (end is None or end > reservation.start)

    def _released_by(self, reservation: Reservation, queue: QueueEntry) -> dict[str, int]:
        """Return how much of the queue's usage is known to be released before the reservation."""
        key, held = (reservation.group.key, queue.name), queue.committed
        known = self._released.get(key)
        if known is not None and known[0] is reservation and known[1] == held:
            return known[2]
        released: dict[str, int] = {}
        for time, _, entries in self._state.ledger.expected_ends.at(self._now):
            if time > reservation.start:
                break
            for entry in entries:
                holder = entry.group.queue if entry.group is not None else None
                if holder is not None and queue in holder.path:
                    add(released, entry.cls.items)
        self._released[key] = reservation, dict(held), released
        return released


def _is_reclaimable(group: GroupEntry, preemptor_queue: QueueEntry) -> bool:
    """Return whether the group is of another queue and can be reclaimed at all."""
    queue = group.queue
    if queue is None or queue is preemptor_queue or group.step is None or group.group is None:
        return False
    return queue.spec.reclaimable and group.group.preemptible


def _below_common_ancestor(queue: QueueEntry | None, other: QueueEntry | None) -> list[QueueEntry]:
    """Return the queue and its ancestors, up to the common ancestor of both queues."""
    if queue is None or other is None:
        return []
    return [entry for entry in queue.path if entry not in other.path]


def _request(group: GroupEntry) -> Mapping[str, int]:
    return whole_step_view(group, group.step).request if group.step is not None else {}


def _stays_within(path: Sequence[QueueEntry], requested: Mapping[str, int]) -> bool:
    """Return whether all of these queues stay within their shares with the request."""
    return all(
        queue.committed.get(name, 0) + units <= queue.fair_share[name]
        for queue in path
        for name, units in requested.items()
        if name in queue.fair_share
    )
