"""The action ``enqueue`` of a tiered configuration (Volcano's): who is let in.

A pass over the groups that are not let in, queues in their order, groups in theirs; whoever the voters
permit may then have its pods created and placed. A group that states no ``minResources`` is permitted
without a vote, and a refused one keeps nobody behind it waiting.

What is booked: a group that was let in but does not hold its minimum yet has its ``minResources``
reserved; what it holds is taken off for its queue's account (not for the cluster's). What a group holds
above its ``minResources`` could be taken from it, so it is not counted against newcomers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.engine.actions.volcano_evict import tiers_of
from windlass.engine.actions.volcano_views import GangLook
from windlass.engine.cycle import CycleContext, Machinery
from windlass.engine.enrolment import closed_reason
from windlass.engine.groups import GroupEntry
from windlass.engine.queues import QueueEntry
from windlass.engine.table import USED
from windlass.spi.plugins import Refusal
from windlass.spi.tiers import Admission, Tiers

Sums = dict[str, int]


@dataclass(slots=True)
class _Booking:
    """What one group adds to the accounts: of its queues, and of the cluster."""

    path: tuple[str, ...] = ()
    queue: Mapping[str, int] = field(default_factory=dict)
    cluster: Mapping[str, int] = field(default_factory=dict)


class VolcanoEnqueue:
    name = "volcano-enqueue"

    def __init__(self, machinery: Machinery) -> None:
        self._m = machinery
        self._tiers = tiers_of(machinery.policies)
        self._waiting: dict[str, GroupEntry] = {}
        self._bookings: dict[str, _Booking] = {}
        self._by_queue: dict[str, Sums] = {}
        self._cluster: Sums = {}
        self._fresh = True
        self._again = 0.0
        """When a deadline of a waiting group passes next."""
        if self._tiers is not None:
            machinery.world.gate.serves = self._tiers.serves

    def run(self, ctx: CycleContext) -> None:
        tiers = self._tiers
        if tiers is None:
            return
        world = self._m.world
        changed = list(world.groups.values()) if self._fresh else list(ctx.touched.values())
        for group in changed:
            self._follow(group)
        if self._waiting and (self._fresh or changed or ctx.improved or ctx.now >= self._again > 0):
            self._pass(tiers, ctx)
        self._fresh = False
        ctx.wake(self._next_deadline(tiers, ctx.now))

    # ------------------------------------------------------------------ who waits, and what is booked

    def _follow(self, group: GroupEntry) -> None:
        """Take in what has become of a group."""
        world = self._m.world
        known = world.groups.get(group.key) is group and group.group is not None
        if known and world.gate.closed(group):
            self._waiting[group.key] = group
        else:
            self._waiting.pop(group.key, None)
        self._book(group.key, self._booking(group) if known else _Booking())

    def _booking(self, group: GroupEntry) -> _Booking:
        queue, wanted = group.queue, group.spec.min_resources
        if queue is None or group.key in self._waiting or not (wanted or group.active):
            return _Booking()
        held = GangLook(group).holding
        below = group.held_members < group.minimum
        reserves = below or group.active >= group.minimum
        account: Sums = {}
        for name in {*wanted, *held}:
            units = wanted.get(name, 0) - held.get(name, 0)
            if units < 0 or (reserves and units > 0):
                account[name] = units
        path = tuple(entry.name for entry in queue.path)
        return _Booking(path, account, dict(wanted) if below else {})

    def _book(self, key: str, booking: _Booking) -> None:
        before = self._bookings.get(key, _Booking())
        if booking.path:
            self._bookings[key] = booking
        else:
            self._bookings.pop(key, None)
        for sign, part in ((-1, before), (1, booking)):
            for name in part.path:
                _add(self._by_queue.setdefault(name, {}), part.queue, sign)
            _add(self._cluster, part.cluster, sign)

    # ------------------------------------------------------------------ one pass

    def _pass(self, tiers: Tiers, ctx: CycleContext) -> None:
        world = self._m.world
        namespaces: dict[str, Sums] = {}
        refused: dict[tuple[Any, ...], Refusal] = {}
        used = self._used()
        for group in self._in_turn():
            spec = group.spec
            if spec.held or group.queue is None or closed_reason(group.queue) is not None:
                continue
            namespace = spec.key.partition("/")[0]
            refusal = None
            if spec.min_resources:
                overdue = tiers.deadline(spec)
                alike = (
                    group.queue.name,
                    namespace,
                    tuple(sorted(spec.min_resources.items())),
                    overdue is not None and overdue <= ctx.now,
                )
                refusal = refused.get(alike)
                if refusal is None:
                    booked = namespaces.setdefault(namespace, {})
                    refusal = tiers.admit(self._admission(group, ctx.now, used, booked))
                if refusal is not None:
                    refused[alike] = refusal
            if refusal is None:
                _add(namespaces.setdefault(namespace, {}), spec.min_resources, 1)
                self._let_in(group, ctx)
            elif world.gate.refuse(group, refusal):
                ctx.touched[group.key] = group

    def _let_in(self, group: GroupEntry, ctx: CycleContext) -> None:
        world = self._m.world
        world.gate.open(group)
        self._follow(group)
        ctx.touched[group.key] = group
        self._m.enrolment.settle(group, ctx.now)

    def _admission(
        self, group: GroupEntry, now: float, used: Mapping[str, int], namespace: Mapping[str, int]
    ) -> Admission:
        return Admission(
            gang=GangLook(group),
            now=now,
            booked=self._by_queue,
            cluster_booked=self._cluster,
            cluster_used=used,
            namespace_booked=namespace,
        )

    def _in_turn(self) -> Iterable[GroupEntry]:
        """The groups that wait, best queue first. Letting one in moves no queue's place."""
        world, orders = self._m.world, self._m.policies.queue_orders
        by_queue: dict[str, list[GroupEntry]] = {}
        for group in self._waiting.values():
            if group.queue is not None:
                by_queue.setdefault(group.queue.name, []).append(group)

        def place(name: str) -> tuple[Any, ...]:
            path: Iterable[QueueEntry] = reversed(world.queues.get(name).path)
            return tuple(
                (*[order.queue_key(entry, None) for order in orders], entry.spec.created, entry.name)
                for entry in path
            )

        for name in sorted(by_queue, key=place):
            yield from sorted(by_queue[name], key=world.group_order)

    def _used(self) -> Mapping[str, int]:
        table = self._m.world.table
        sums = table.planes[: table.height, USED].sum(axis=0).tolist()
        return {name: sums[column] for name, column in table.resources.codes.items() if sums[column]}

    def _next_deadline(self, tiers: Tiers, now: float) -> float | None:
        moments = [tiers.deadline(group.spec) for group in self._waiting.values()]
        ahead = [moment for moment in moments if moment is not None and moment > now]
        self._again = min(ahead, default=0.0)
        return self._again or None


def _add(sums: Sums, more: Mapping[str, int], sign: int) -> None:
    for name, units in more.items():
        sums[name] = sums.get(name, 0) + sign * units
