"""From a group's state to its place among those that wait."""

from __future__ import annotations

import heapq
from functools import lru_cache

from windlass.engine.groups.entries import GroupEntry, nominated
from windlass.engine.groups.next_step import NextTasks, next_step
from windlass.engine.pending.scheduling_queue import PendingClass, SchedulingQueue, Signature, line_of
from windlass.engine.queueing.permit import PAUSE_SECONDS
from windlass.engine.queueing.queue_order import QueueHeap
from windlass.engine.queues.tree import QueueEntry
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.objects import QueueState
from windlass.spi.topology import TopologyNeed

_OPEN = QueueState.OPEN
STRICT = "strict"
"""The value of ``EngineConfig.backfill`` with which nobody passes the first group of his queue."""


class Enqueuer:
    """Puts groups into buckets, or leaves them out while they cannot take a step at all: on hold,
    short of members, in a queue that takes no work, or pausing after failed binds."""

    def __init__(self, state: ClusterState, scheduling_queue: SchedulingQueue, queue_heap: QueueHeap) -> None:
        self._state = state
        self._scheduling_queue = scheduling_queue
        self._queue_heap = queue_heap
        self._strict = state.config.backfill == STRICT
        self._pauses: list[tuple[float, str]] = []

    def settle(self, group: GroupEntry, now: float) -> None:
        """Bring a group's place in line with its state."""
        pending_class = group.bucket
        if not group.pending and not group.failures and not group.newly_failed:
            if pending_class is not None:
                self._forsake(group, pending_class)
                group.order_key = group.step = None
            return
        if group.newly_failed:
            self._begin_pause(group, now)
        elif group.failures and not group.pending and all_confirmed(group):
            group.failures = 0
        step = self.step(group, now)
        if group.promises:
            kept = nominated(group)
            if step is None or (not step.extra and len(kept) < step.members):
                for entry in kept:  # a part of what it lacks serves nobody
                    self._state.ledger.withdraw(entry)
        if step is None:
            self._leave(group)
            return
        group.step = step
        queue = group.queue
        if queue is None:
            raise RuntimeError(f"group {group.key} has no queue")
        order_key = self._state.group_order(group)
        signature = line_of(queue) if self._strict else signature_of(group, step)
        if (
            pending_class is not None
            and pending_class.signature == signature
            and group.order_key == order_key
        ):
            pending_class.note_promises(group)
            shorter = pending_class.look_again(group) and bool(pending_class.waits.kept_for)
            if shorter or self._served(pending_class, group):
                self._look_again(pending_class)
            return
        if pending_class is not None:
            self._forsake(group, pending_class)
        group.order_key = order_key
        pending_class = self._scheduling_queue.enter(signature, queue, group)
        if not pending_class.parked:
            self._queue_heap.came(pending_class, group)
        elif (group.timed and pending_class.waits.kept_for) or self._served(pending_class, group):
            self._look_again(pending_class)  # it may pass the others, or comes first

    def _served(self, pending_class: PendingClass, group: GroupEntry) -> bool:
        """Whether a turn of a strict line is the group's own: it comes first, or has been promised room."""
        return self._strict and (pending_class.head() is group or group.key in pending_class.promised)

    def _leave(self, group: GroupEntry) -> None:
        if group.bucket is not None:
            self._forsake(group, group.bucket)
        group.order_key = None
        group.step = None

    def _forsake(self, group: GroupEntry, pending_class: PendingClass) -> None:
        """Take a group out; in a strict line it was perhaps for this one that the others waited."""
        if not self._strict:
            self._scheduling_queue.leave(group)
            return
        first = pending_class.parked and pending_class.head() is group
        self._scheduling_queue.leave(group)
        if first and pending_class.members:
            self._look_again(pending_class)

    def _look_again(self, pending_class: PendingClass) -> None:
        """Another than before may be had, or is the first to be tried."""
        if pending_class.parked:
            self._scheduling_queue.unpark(pending_class)
            self._queue_heap.push(pending_class)

    def step(self, group: GroupEntry, now: float) -> NextTasks | None:
        """The step that may be tried now."""
        spec = group.group
        if spec is None or not group.pending or spec.held or group.not_before > now:
            return None
        queue, state = group.queue, self._state
        if queue is None:
            return None
        version, reason = queue.closed
        if (reason if version == state.queues.version else closed_reason(queue)) is not None:
            return None
        if state.gate.serves is not None and state.gate.closed(group):
            return None
        step = next_step(group)
        return step if type(step) is NextTasks else None

    def due(self, now: float) -> list[GroupEntry]:
        """Groups whose pause is over."""
        found = []
        while self._pauses and self._pauses[0][0] <= now:
            not_before, key = heapq.heappop(self._pauses)
            group = self._state.groups.get(key)
            if group is not None and group.not_before == not_before:
                group.not_before, group.refusal = 0.0, None
                found.append(group)
        return found

    def next_due(self) -> float | None:
        return self._pauses[0][0] if self._pauses else None

    def refuse(self, group: GroupEntry, now: float) -> None:
        """Let a group pause for which a policy would not have decided what was found."""
        self.resume_pause(group, now + PAUSE_SECONDS)
        self.settle(group, now)

    def resume_pause(self, group: GroupEntry, not_before: float) -> None:
        """A pause that was running when the engine's state was written down."""
        group.not_before = not_before
        heapq.heappush(self._pauses, (not_before, group.key))

    def _begin_pause(self, group: GroupEntry, now: float) -> None:
        config = self._state.config
        group.newly_failed, group.refusal = False, None
        group.failures += 1
        pause = min(config.backoff_cap_seconds, config.backoff_seconds * 2.0 ** min(group.failures - 1, 40))
        self.resume_pause(group, now + pause)


def all_confirmed(group: GroupEntry) -> bool:
    """Whether the world has confirmed every placement of the group."""
    return all(entry.task.node or entry.row < 0 for entry in group.tasks.values())


def closed_reason(queue: QueueEntry) -> str | None:
    """Why the queue takes no new work: ``missing``, ``parent-missing``, ``not-leaf`` or ``closed``."""
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
    """Equal for groups whose steps have equal chances: queue, API, standing, classes, roles and numbers."""
    spec = group.group
    if spec is None or group.queue is None:
        raise ValueError(f"group {group.key} cannot wait anywhere")
    runs = step.batches
    standing = (
        group.queue.name,
        spec.dialect.value,
        spec.priority,
        spec.preemptible,
        spec.min_member,
        step.extra,
        step.members,
    )
    if step.alone and not (group.promises or group.near):
        number = runs[0].cls.number
        return (*standing, "shares", number) if group.shares else (*standing, number)
    if group.shares:
        standing = (*standing, "shares")  # the first of those that share time may claim room
    if group.promises:
        # Room is kept for this one alone, and for another of its tasks once whoever moves there has come.
        standing = (*standing, group.key, len(nominated(group)))
    if group.near:
        standing = (*standing, *_nearness(group))
    if step.root is not None:
        standing = (*standing, step.root.shape(), tuple(part.shape() for part in step.pool))
    if step.options:
        standing = (*standing, tuple(option.shape() for option in step.options))
    if len(runs) == 1 and not step.roles:
        return (*standing, runs[0].cls.number)
    return (
        *standing,
        tuple(sorted(step.roles.items())),
        tuple((batch.cls.number, batch.role, len(batch.entries)) for batch in runs),
    )


def _nearness(group: GroupEntry) -> tuple[str, ...]:
    """What the group asks of topologies; one with members has a chance of its own."""
    needs = [] if group.spec.topology is None else [said(group.spec.topology)]
    needs += [f"{part}: {said(need)}" for part, need in group.near_parts.items()]
    return (*needs, group.key) if group.active or group.near_parts else tuple(needs)


@lru_cache(maxsize=1024)
def said(need: TopologyNeed) -> str:
    """What is asked for as a text: equal for equal needs."""
    return repr(need)
