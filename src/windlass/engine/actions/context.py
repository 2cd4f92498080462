"""One cycle: what its actions share, and what an action is.

An *action* is one pass over the groups that wait (or over those that run): ``allocate``, ``reclaim``, …
:class:`~windlass.engine.config.EngineConfig` names those of a cycle, in order. An action decides through
the one :class:`~windlass.engine.state.statement.Statement` and leaves it empty; what it decides takes effect on
the books at once, so that the next action builds on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from windlass.engine.backfill.reservations import Reservations
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.pending.scheduling_queue import PendingClass, SchedulingQueue
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
    """What actions work with. Lives as long as the engine."""

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
    """Groups whose standing may have changed: they are reported on."""
    improved: frozenset[int]
    """Rows on which something has become possible since the last cycle."""
    varied: bool = False
    """Whether a policy may answer otherwise than before."""
    followed: tuple[int, int] = (-1, -1)
    """What had been decided, and how many were touched, when ``running`` last took in who was."""
    stirred: bool = False
    """Whether the world has changed what is held, or by whom, since the last cycle."""
    parked: dict[PendingClass, None] = {}
    """Buckets that were parked in this cycle: they are explained."""
    exhausted: set[TaskClass] = set()
    """Classes of which no node takes a task any more in this cycle's allocation."""
    wake_at: float | None = None
    unfinished: bool = False
    """Whether the cycle's bound cut it short: the rest runs in the next, at once."""

    def wake(self, moment: float | None) -> None:
        """Have the next cycle no later than ``moment``: time alone changes something then."""
        if moment is not None and (self.wake_at is None or moment < self.wake_at):
            self.wake_at = moment

    def consents(self, group: GroupEntry | None = None) -> bool:
        """Whether what the statement holds may be decided for ``group``; if not, it is undone. What nobody asked
        for is decided in any case."""
        context = self.context
        if not context.permit.asked:
            return True
        rejection = context.permit.rejection(group, self.now)
        if rejection is None or group is None:
            return True
        if rejection is LATER:
            self.unfinished = True
        else:
            group.refusal = rejection
        context.statement.rollback()
        return False

    def commit(self, group: GroupEntry | None = None) -> bool:
        """Decide what the statement holds, and bring the groups concerned in line at once. False: some policy
        had something against it, and nothing was done. ``group``: for whom."""
        if not self.consents(group):
            return False
        self.context.statement.commit(self.out)
        self.settle_dirty()
        return True

    def settle_dirty(self) -> None:
        """Bring the groups that decisions have touched in line with their new state."""
        ledger, enqueuer = self.context.state.ledger, self.context.enqueuer
        dirty, ledger.dirty = ledger.dirty, {}
        for key, group in dirty.items():
            self.touched[key] = group
            enqueuer.settle(group, self.now)


class ActionPass(NamedTuple):
    """An action of a cycle that is over. ``binds``: where those that it decided stand in the decision."""

    action: str
    seconds: float
    binds: range


class Action(Protocol):
    """A pass of the cycle. One instance serves one engine and may remember what it has tried."""

    name: str

    def run(self, cycle: CycleContext) -> None: ...
