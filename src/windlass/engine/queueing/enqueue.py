"""Enqueuing of groups: from the state of a group to its position in the scheduling queue."""

from __future__ import annotations

import heapq
from functools import lru_cache

from windlass.engine.groups.entries import GroupEntry, NextTasks, nominated
from windlass.engine.groups.next_step import next_step
from windlass.engine.groups.pending_class import PendingClass, Signature, strict_signature
from windlass.engine.pending.scheduling_queue import SchedulingQueue
from windlass.engine.queueing.permit import PAUSE_SECONDS
from windlass.engine.queueing.queue_order import QueueHeap
from windlass.engine.queues.tree import QueueEntry
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.objects import QueueState
from windlass.spi.topology import TopologyNeed

_OPEN = QueueState.OPEN
STRICT = "strict"
"""Value of ``EngineConfig.backfill`` for a strict order of each queue."""


class Enqueuer:
    """Puts groups into pending classes.

    A group is left out while no step is possible: on hold, with missing members, in a
    closed queue, or during the backoff after failed binds.
    """

    def __init__(self, state: ClusterState, scheduling_queue: SchedulingQueue, queue_heap: QueueHeap) -> None:
        self._state = state
        self._scheduling_queue = scheduling_queue
        self._queue_heap = queue_heap
        self._strict = state.config.backfill == STRICT
        self.pauses: list[tuple[float, str]] = []
        self.early_starts: dict[str, float] = {}
        """Group → its earliest start, as far as it waits for that time."""

    def update(self, group: GroupEntry, now: float) -> None:
        """Update the position of a group after a change of its state."""
        pending_class = group.pending_class
        if not group.pending and not group.failures and not group.newly_failed:
            if pending_class is not None:
                self._take_out(group, pending_class)
                group.order_key = group.step = None
            return
        if group.newly_failed:
            self._start_backoff(group, now)
        elif group.failures and not group.pending and all_confirmed(group):
            group.failures = 0
        step = self.step(group, now)
        if group.nominations:
            nominations = nominated(group)
            if step is None or (not step.extra and len(nominations) < step.members):
                for entry in nominations:  # a part of what it lacks is useless
                    self._state.ledger.withdraw_nomination(entry)
        if step is None:
            self._remove(group)
            return
        group.step = step
        queue = group.queue
        if queue is None:
            raise RuntimeError(f"group {group.key} has no queue")
        order_key = self._state.group_order(group)
        signature = strict_signature(queue) if self._strict else signature_of(group, step)
        if (
            pending_class is not None
            and pending_class.signature == signature
            and group.order_key == order_key
        ):
            pending_class.update_nominated(group)
            may_pass = pending_class.update_member(group) and bool(pending_class.wake_conditions.reserved_for)
            if may_pass or self._may_be_tried(pending_class, group):
                self._activate(pending_class)
            return
        if pending_class is not None:
            self._take_out(group, pending_class)
        group.order_key = order_key
        pending_class = self._scheduling_queue.enter(signature, queue, group)
        if not pending_class.parked:
            self._queue_heap.group_added(pending_class, group)
        elif (group.timed and pending_class.wake_conditions.reserved_for) or self._may_be_tried(
            pending_class, group
        ):
            self._activate(pending_class)  # it may pass the others, or comes first

    def _may_be_tried(self, pending_class: PendingClass, group: GroupEntry) -> bool:
        """Return whether the group itself may be tried in a strict order: it is first, or nominated."""
        return self._strict and (pending_class.head() is group or group.key in pending_class.nominated)

    def _remove(self, group: GroupEntry) -> None:
        if group.pending_class is not None:
            self._take_out(group, group.pending_class)
        group.order_key = None
        group.step = None

    def _take_out(self, group: GroupEntry, pending_class: PendingClass) -> None:
        """Remove a group. In a strict order the others may have waited for it."""
        if not self._strict:
            self._scheduling_queue.leave(group)
            return
        first = pending_class.parked and pending_class.head() is group
        self._scheduling_queue.leave(group)
        if first and pending_class.members:
            self._activate(pending_class)

    def _activate(self, pending_class: PendingClass) -> None:
        """Activate a parked class, because another group may fit or is the first now."""
        if pending_class.parked:
            self._scheduling_queue.unpark(pending_class)
            self._queue_heap.push(pending_class)

    def step(self, group: GroupEntry, now: float) -> NextTasks | None:
        """Return the step that may be tried now."""
        spec = group.group
        if spec is None or not group.pending or spec.held or group.not_before > now:
            return None
        if spec.earliest_start is not None:
            if spec.earliest_start > now:
                self.early_starts[group.key] = spec.earliest_start
                return None
            self.early_starts.pop(group.key, None)
        queue, state = group.queue, self._state
        if queue is None:
            return None
        version, reason = queue.closed
        if (reason if version == state.queues.version else closed_reason(queue)) is not None:
            return None
        if state.gate.applies_to is not None and state.gate.is_closed(group):
            return None
        step = next_step(group)
        return step if type(step) is NextTasks else None

    def due(self, now: float) -> list[GroupEntry]:
        """Return the groups with a finished backoff or an earliest start that has come."""
        due = []
        for key in [key for key, start in self.early_starts.items() if start <= now]:
            del self.early_starts[key]
            if (group := self._state.groups.get(key)) is not None:
                due.append(group)
        while self.pauses and self.pauses[0][0] <= now:
            not_before, key = heapq.heappop(self.pauses)
            group = self._state.groups.get(key)
            if group is not None and group.not_before == not_before:
                group.not_before, group.rejection = 0.0, None
                due.append(group)
        return due

    def next_due(self) -> float | None:
        """Return the first time for which a group waits."""
        times = [*self.early_starts.values(), *(time for time, _ in self.pauses[:1])]
        return min(times, default=None)

    def reject(self, group: GroupEntry, now: float) -> None:
        """Start a pause for a group that a plugin has rejected at commit."""
        self.resume_pause(group, now + PAUSE_SECONDS)
        self.update(group, now)

    def resume_pause(self, group: GroupEntry, not_before: float) -> None:
        """Resume a pause that was active when the engine was dumped."""
        group.not_before = not_before
        heapq.heappush(self.pauses, (not_before, group.key))

    def resume_early(self, group: GroupEntry) -> None:
        """Resume the wait of a group for its earliest start that was active when the engine was dumped."""
        if group.group is not None and group.group.earliest_start is not None and group.pending:
            self.early_starts[group.key] = group.group.earliest_start

    def _start_backoff(self, group: GroupEntry, now: float) -> None:
        config = self._state.config
        group.newly_failed, group.rejection = False, None
        group.failures += 1
        pause = min(config.backoff_cap_seconds, config.backoff_seconds * 2.0 ** min(group.failures - 1, 40))
        self.resume_pause(group, now + pause)


def all_confirmed(group: GroupEntry) -> bool:
    """Return whether the cluster has confirmed every placement of the group."""
    return all(entry.task.node or entry.row < 0 for entry in group.tasks.values())


def closed_reason(queue: QueueEntry) -> str | None:
    """Return why the queue takes no new work.

    One of ``missing``, ``parent-missing``, ``not-leaf`` and ``closed``; ``None`` if it
    is open.
    """
    version, reason = queue.closed
    if version != queue.version:
        reason = _closed_reason(queue)
        queue.closed = queue.version, reason
    return reason


def _closed_reason(queue: QueueEntry) -> str | None:
    if queue.missing:
        return "missing"
    if any(not child.missing for child in queue.children.values()):
        return "not-leaf"
    for ancestor in queue.path:
        if ancestor.missing:
            return "parent-missing"
        if ancestor.spec.state is not _OPEN:
            return "closed"
    return None


def signature_of(group: GroupEntry, step: NextTasks) -> Signature:
    """Return a key that is equal for groups with steps that fit equally.

    It contains queue, API, rank, classes, roles and numbers.
    """
    spec = group.group
    if spec is None or group.queue is None:
        raise ValueError(f"group {group.key} cannot wait anywhere")
    batches = step.batches
    key = (
        group.queue.name,
        spec.dialect.value,
        spec.priority,
        spec.preemptible,
        spec.min_member,
        step.extra,
        step.members,
    )
    if step.is_single_task and not (group.nominations or group.has_topology):
        number = batches[0].cls.number
        return (*key, "shares", number) if group.shares_time else (*key, number)
    if group.shares_time:
        key = (*key, "shares")  # the first time-sharing group may suspend others
    if group.nominations:
        # Nominations are for this group alone. They change as its moved tasks are
        # recreated.
        key = (*key, group.key, len(nominated(group)))
    if group.has_topology:
        key = (*key, *_topology_key(group))
    if step.root is not None:
        key = (*key, step.root.shape(), tuple(subgroup.shape() for subgroup in step.pool))
    if step.options:
        key = (*key, tuple(option.shape() for option in step.options))
    if len(batches) == 1 and not step.roles:
        return (*key, batches[0].cls.number)
    return (
        *key,
        tuple(sorted(step.roles.items())),
        tuple((batch.cls.number, batch.role, len(batch.entries)) for batch in batches),
    )


def _topology_key(group: GroupEntry) -> tuple[str, ...]:
    """Return the topology constraints of the group. A group with placed members is unique."""
    needs = [] if group.spec.topology is None else [topology_text(group.spec.topology)]
    needs += [f"{subgroup}: {topology_text(need)}" for subgroup, need in group.subgroup_topologies.items()]
    return (*needs, group.key) if group.active or group.subgroup_topologies else tuple(needs)


@lru_cache(maxsize=1024)
def topology_text(need: TopologyNeed) -> str:
    """Return the constraint as text: equal for equal constraints."""
    return repr(need)
