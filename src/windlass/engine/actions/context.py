"""Context of a cycle, and the interface of its actions.

An *action* is one pass over the pending groups (or over the running ones):
``allocate``, ``reclaim``, … :class:`~windlass.engine.config.EngineConfig` names the
actions of a cycle in order. An action decides through the one
:class:`~windlass.engine.state.statement.Statement` and leaves it empty. Its decisions
change the state at once, so the next action builds on them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from windlass.engine.backfill.reservations import Reservations
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.pending_class import PendingClass
from windlass.engine.pending.scheduling_queue import SchedulingQueue
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.placement.placer import Placer
from windlass.engine.plugin_set import PluginSet
from windlass.engine.queueing.enqueue import Enqueuer
from windlass.engine.queueing.permit import PermitCheck
from windlass.engine.queueing.queue_order import QueueHeap
from windlass.engine.queues.running_groups import RunningGroups
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Outbox, Statement
from windlass.spi.consent import LATER


@dataclass(frozen=True, slots=True)
class ActionContext:
    """Dependencies of actions. Lives as long as the engine."""

    state: ClusterState
    plugins: PluginSet
    statement: Statement
    placer: Placer
    gang_allocator: GangAllocator
    scheduling_queue: SchedulingQueue
    queue_heap: QueueHeap
    enqueuer: Enqueuer
    running: RunningGroups
    reservations: Reservations
    permit: PermitCheck


class CycleContext(msgspec.Struct):
    """One cycle. ``now`` in Unix seconds."""

    context: ActionContext
    now: float
    out: Outbox
    touched: dict[str, GroupEntry]
    """Groups with a possible change of status; they are reported."""
    improved: frozenset[int]
    """Rows on which something has become possible since the last cycle."""
    plugins_changed: bool = False
    """True if a plugin may give other results than before."""
    running_stamp: tuple[int, int] = (-1, -1)
    """Statement count and number of touched groups when ``running`` was last updated."""
    state_changed: bool = False
    """True if deltas have changed what tasks hold since the last cycle."""
    parked: dict[PendingClass, None] = {}
    """Pending classes that were parked in this cycle; they are explained."""
    exhausted: set[TaskClass] = set()
    """Classes of which no node holds another task in this cycle's allocation."""
    wake_at: float | None = None
    unfinished: bool = False
    """True if the limit of the cycle ended it early. The next cycle follows at once."""

    def wake(self, time: float | None) -> None:
        """Schedule the next cycle no later than ``time``, because time alone changes something then."""
        if time is not None and (self.wake_at is None or time < self.wake_at):
            self.wake_at = time

    def is_permitted(self, group: GroupEntry | None = None) -> bool:
        """Return whether the statement may be committed for ``group``; otherwise roll it back.

        A statement without a requesting group is always permitted.
        """
        context = self.context
        if not context.permit.is_active:
            return True
        rejection = context.permit.rejection(group, self.now)
        if rejection is None or group is None:
            return True
        if rejection is LATER:
            self.unfinished = True
        else:
            group.rejection = rejection
        context.statement.rollback()
        return False

    def commit(self, group: GroupEntry | None = None) -> bool:
        """Commit the statement and update the groups concerned.

        False: a plugin has rejected it and nothing was done. ``group``: the group that
        it serves.
        """
        if not self.is_permitted(group):
            return False
        self.context.statement.commit(self.out)
        self.update_dirty_groups()
        return True

    def update_dirty_groups(self) -> None:
        """Update the groups that decisions have changed."""
        ledger, enqueuer = self.context.state.ledger, self.context.enqueuer
        dirty, ledger.dirty = ledger.dirty, {}
        for key, group in dirty.items():
            self.touched[key] = group
            enqueuer.update(group, self.now)


class ActionPass(NamedTuple):
    """Finished action of a cycle. ``binds``: range of its binds in the decision."""

    action: str
    seconds: float
    binds: range


EVERY_CYCLE: Collection[object] = ("cycle",)
"""Subjects of an action that no cycle skips."""


class Action(Protocol):
    """Pass of the cycle. One instance serves one engine and may remember what it has tried.

    ``subjects``: live collection of what it acts on. A cycle skips the action while it is
    empty, so an optional feature costs nothing until an object uses it.
    """

    name: str
    subjects: Collection[object]

    def run(self, cycle: CycleContext) -> None: ...
