"""Action ``enqueue`` of a tiered configuration (Volcano's): admits groups.

It passes over the groups that are not admitted, queues in their order, groups in
theirs. If the plugins permit a group, its pods may be created and placed. A group
without ``minResources`` is permitted without a vote. A rejected group does not block
the groups behind it.

Accounting: an admitted group that does not hold its minimum yet has its
``minResources`` reserved, unless it has run and has no unfinished pod left. What it
holds is subtracted for its queue (not for the cluster). What a group holds above its
``minResources`` could be evicted, so it does not count against new groups.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.api.reasons import Reason
from windlass.engine.actions.context import EVERY_CYCLE, ActionContext, CycleContext
from windlass.engine.actions.volcano_evict import tiers_of
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.nodes.table import USED
from windlass.engine.queueing.enqueue import closed_reason
from windlass.engine.queueing.tier_views import EngineGangView
from windlass.engine.queues.tree import QueueEntry
from windlass.spi.objects import NamespaceQuota
from windlass.spi.plugins import Rejection
from windlass.spi.tiers import EnqueueRequest, Tiers

Sums = dict[str, int]
_UNTIL_DEADLINE = {
    Reason.EXCEEDS_CLUSTER: Reason.WAITING_FOR_SHARE,
    Reason.EXCEEDS_QUEUE_LIMIT: Reason.WAITING_FOR_QUOTA,
}
"""Codes of groups that are never admitted → codes of those that time admits."""


@dataclass(slots=True)
class _Booking:
    """Contribution of one group to the accounts of its queues and of the cluster."""

    path: tuple[str, ...] = ()
    queue: Mapping[str, int] = field(default_factory=dict)
    cluster: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Round:
    """One pass.

    ``used``: usage of nodes.
    ``booked``: by namespace, requests of groups admitted in this pass with pods that do
    not exist yet.
    ``requested``: by namespace, requests of all unfinished pods and of groups admitted
    before.
    """

    now: float
    used: Mapping[str, int]
    booked: dict[str, Sums] = field(default_factory=dict)
    requested: dict[str, Sums] = field(default_factory=dict)


class VolcanoEnqueue:
    """Admits groups.

    Groups of one queue and namespace with equal requests form one line, in order. A
    rejection of one is a rejection of all behind it, so ten thousand equal requests
    cost one vote. If a plugin looks at the identity of groups, each forms its own line.
    """

    name = "volcano-enqueue"
    subjects = EVERY_CYCLE

    def __init__(self, context: ActionContext) -> None:
        self._context = context
        self._tiers = tiers_of(context.plugins)
        self._lines: dict[Hashable, list[tuple[Any, str]]] = {}
        self._positions: dict[str, tuple[Any, str]] = {}
        """Pending group → its entry in its line."""
        self._deadlines: list[tuple[float, str]] = []
        self._bookings: dict[str, _Booking] = {}
        self._by_queue: dict[str, Sums] = {}
        self._cluster: Sums = {}
        self._decided: Mapping[str, GroupEntry] = {}
        """Groups touched in the previous cycle, about which later actions decided since."""
        self._is_new = True
        if self._tiers is not None:
            context.state.gate.applies_to = self._tiers.serves
            context.state.gate.reserved = self._by_queue

    def run(self, cycle: CycleContext) -> None:
        tiers = self._tiers
        if tiers is None:
            return
        state = self._context.state
        changed = list(state.groups.values()) if self._is_new else list(cycle.touched.values())
        changed += [
            group
            for key, group in self._decided.items()
            if key not in cycle.touched and self._booking_changed(group)
        ]
        self._is_new, self._decided = False, cycle.touched
        while self._deadlines and self._deadlines[0][0] <= cycle.now:
            _, key = heapq.heappop(self._deadlines)
            if key in self._positions:
                changed.append(state.groups[key])
        for group in changed:
            self._update(tiers, group, cycle.now)
        if self._lines and (changed or cycle.improved or cycle.plugins_changed):
            self._pass(tiers, cycle)
        while self._deadlines and self._deadlines[0][1] not in self._positions:
            heapq.heappop(self._deadlines)
        cycle.wake(self._deadlines[0][0] if self._deadlines else None)

    # ------------------------------------------------------------------ waiting groups and bookings

    def _update(self, tiers: Tiers, group: GroupEntry, now: float) -> None:
        """Update what is known of a group."""
        state = self._context.state
        known = state.groups.get(group.key) is group and group.group is not None
        closed = known and state.gate.is_closed(group)
        self._remove_from_line(group.key)
        if closed:
            self._add_to_line(tiers, group, now)
        self._book(group.key, self._booking(group) if known and not closed else _Booking())

    def _booking_changed(self, group: GroupEntry) -> bool:
        """Return whether what an admitted group holds or lacks differs from its booking.

        Decisions of other actions are not announced, so this has to be compared.
        """
        booked = self._bookings.get(group.key)
        return (
            booked is not None
            and self._context.state.groups.get(group.key) is group
            and self._booking(group) != booked
        )

    def _add_to_line(self, tiers: Tiers, group: GroupEntry, now: float) -> None:
        """Add the group to the line of equal requests."""
        state, spec, queue = self._context.state, group.spec, group.queue
        if queue is None or spec.held or closed_reason(queue) is not None:
            return
        deadline = tiers.deadline(spec)
        overdue = None if deadline is None else deadline <= now
        if deadline is not None and not overdue:
            heapq.heappush(self._deadlines, (deadline, group.key))
        namespace = spec.key.partition("/")[0]
        identity = spec.key if tiers.personal else ""
        line = (queue.name, namespace, tuple(sorted(spec.min_resources.items())), overdue, identity)
        position = (state.group_order(group), group.key)
        self._positions[group.key] = position
        state.gate.waiting[group.key] = line
        bisect.insort(self._lines.setdefault(line, []), position)

    def _remove_from_line(self, key: str) -> None:
        gate, position = self._context.state.gate, self._positions.pop(key, None)
        line = gate.waiting.pop(key, None)
        if position is None or line is None:
            return
        entries = self._lines[line]
        del entries[bisect.bisect_left(entries, position)]
        if not entries:
            del self._lines[line]
            gate.rejections.pop(line, None)

    def _booking(self, group: GroupEntry) -> _Booking:
        queue, required = group.queue, group.spec.min_resources
        if queue is None or not (required or group.active) or group.is_over():
            return _Booking()
        held = EngineGangView(group).holding
        below = group.held_members < group.minimum
        reserves = below or group.active >= group.minimum
        account: Sums = {}
        for name in {*required, *held}:
            units = required.get(name, 0) - held.get(name, 0)
            if units < 0 or (reserves and units > 0):
                account[name] = units
        path = tuple(entry.name for entry in queue.path)
        return _Booking(path, account, dict(required) if below else {})

    def _book(self, key: str, booking: _Booking) -> None:
        before = self._bookings.get(key, _Booking())
        if booking.path:
            self._bookings[key] = booking
        else:
            self._bookings.pop(key, None)
        for sign, booking_part in ((-1, before), (1, booking)):
            for name in booking_part.path:
                _add(self._by_queue.setdefault(name, {}), booking_part.queue, sign)
            _add(self._cluster, booking_part.cluster, sign)

    # ------------------------------------------------------------------ one pass

    def _pass(self, tiers: Tiers, cycle: CycleContext) -> None:
        """Try queues in their order, which admissions do not change, then groups in theirs."""
        by_queue: dict[str, list[tuple[tuple[Any, str], Hashable]]] = {}
        for line, entries in self._lines.items():
            group = self._context.state.groups[entries[0][1]]
            if group.queue is not None:
                by_queue.setdefault(group.queue.name, []).append((entries[0], line))
        current = _Round(cycle.now, self._used())
        for name in sorted(by_queue, key=self._queue_position):
            heads = by_queue[name]
            heapq.heapify(heads)
            while heads:
                (_, key), line = heads[0]
                if self._admit(tiers, cycle, key, line, current) and line in self._lines:
                    heapq.heapreplace(heads, (self._lines[line][0], line))
                else:
                    heapq.heappop(heads)

    def _admit(
        self,
        tiers: Tiers,
        cycle: CycleContext,
        key: str,
        line: Hashable,
        current: _Round,
    ) -> bool:
        """Admit a group, or record the reason for all groups in its line."""
        gate, group = self._context.state.gate, self._context.state.groups[key]
        required = group.spec.min_resources
        rejection = tiers.admit(self._admission(group, current)) if required else None
        deadline = tiers.deadline(group.spec)
        if rejection is not None and deadline is not None and deadline > current.now:
            rejection = _until_deadline(rejection)
        if rejection is not None:
            if gate.reject(line, rejection):
                for _, other in self._lines[line]:
                    cycle.touched[other] = self._context.state.groups[other]
            return False
        _add(current.booked.setdefault(_namespace(key), {}), _still_to_request(group), 1)
        gate.admitted.add(key)
        tiers.admitted(EngineGangView(group))
        self._update(tiers, group, cycle.now)
        cycle.touched[key] = group
        self._context.enqueuer.update(group, cycle.now)
        return True

    def _admission(self, group: GroupEntry, current: _Round) -> EnqueueRequest:
        namespace = _namespace(group.key)
        quotas = self._quotas(namespace)
        requested: Sums = {}
        if quotas:
            if namespace not in current.requested:
                current.requested[namespace] = self._requested_in(namespace)
            requested = dict(current.requested[namespace])
            _add(requested, group.requested, -1)  # its own requests are part of its minimum
        return EnqueueRequest(
            gang=EngineGangView(group),
            now=current.now,
            reserved=self._by_queue,
            cluster_reserved=self._cluster,
            cluster_used=current.used,
            namespace_reserved=current.booked.get(namespace, {}),
            namespace_used=requested,
            quotas=quotas,
        )

    def _quotas(self, namespace: str) -> tuple[NamespaceQuota, ...]:
        known = self._context.state.namespace_quotas
        return tuple([quota for key, quota in known.items() if _namespace(key) == namespace])

    def _requested_in(self, namespace: str) -> Sums:
        state = self._context.state
        sums: Sums = {}
        for key, group in state.groups.items():
            if _namespace(key) == namespace:
                _add(sums, group.requested, 1)
                admitted = group.group is not None and (group.spec.admitted or key in state.gate.admitted)
                if admitted and not group.is_over():
                    _add(sums, _still_to_request(group), 1)
        return sums

    def _queue_position(self, name: str) -> tuple[Any, ...]:
        """Return the position of a queue among all, from the root down."""
        orders = self._context.plugins.queue_orders
        path: Iterable[QueueEntry] = reversed(self._context.state.queues.get(name).path)
        return tuple(
            (*[order.queue_key(entry, None) for order in orders], entry.spec.created, entry.name)
            for entry in path
        )

    def _used(self) -> Mapping[str, int]:
        table = self._context.state.table
        sums = table.planes[: table.height, USED].sum(axis=0).tolist()
        return {name: sums[column] for name, column in table.resources.codes.items() if sums[column]}


def _until_deadline(rejection: Rejection) -> Rejection:
    """Return the rejection of a group that time admits (``sla``), whatever it requests."""
    code = _UNTIL_DEADLINE.get(rejection.code, rejection.code)
    return msgspec.structs.replace(rejection, code=code)


def _namespace(key: str) -> str:
    return key.partition("/")[0]


def _still_to_request(group: GroupEntry) -> Sums:
    """Return what an admitted group may still request: its minimum less its pods' requests."""
    requested = group.requested
    minimum = group.spec.min_resources
    return {
        name: units - requested.get(name, 0)
        for name, units in minimum.items()
        if units > requested.get(name, 0)
    }


def _add(sums: Sums, amounts: Mapping[str, int], sign: int) -> None:
    for name, units in amounts.items():
        sums[name] = sums.get(name, 0) + sign * units
