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
from windlass.engine.pending.scheduling_queue import Bucket, ParkingLot
from windlass.engine.placement.gang_allocator import Allocation
from windlass.engine.placement.placer import Placer
from windlass.engine.plugin_set import Policies
from windlass.engine.queueing.enqueue import Enrolment
from windlass.engine.queueing.permit import Consent
from windlass.engine.queueing.queue_order import Turns
from windlass.engine.queues.running_groups import RunningGroups
from windlass.engine.state.cluster_state import World
from windlass.engine.state.statement import Outbox, Statement
from windlass.spi.consent import LATER


@dataclass(frozen=True, slots=True)
class Machinery:
    """What actions work with. Lives as long as the engine."""

    world: World
    policies: Policies
    statement: Statement
    placer: Placer
    allocation: Allocation
    lot: ParkingLot
    turns: Turns
    enrolment: Enrolment
    running: RunningGroups
    reservations: Reservations
    consent: Consent


class CycleContext(msgspec.Struct):
    """One cycle. ``now`` in Unix seconds."""

    machinery: Machinery
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
    parked: dict[Bucket, None] = {}
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
        machinery = self.machinery
        if not machinery.consent.asked:
            return True
        refusal = machinery.consent.refusal(group, self.now)
        if refusal is None or group is None:
            return True
        if refusal is LATER:
            self.unfinished = True
        else:
            group.refusal = refusal
        machinery.statement.rollback()
        return False

    def commit(self, group: GroupEntry | None = None) -> bool:
        """Decide what the statement holds, and bring the groups concerned in line at once. False: some policy
        had something against it, and nothing was done. ``group``: for whom."""
        if not self.consents(group):
            return False
        self.machinery.statement.commit(self.out)
        self.settle_dirty()
        return True

    def settle_dirty(self) -> None:
        """Bring the groups that decisions have touched in line with their new state."""
        ledger, enrolment = self.machinery.world.ledger, self.machinery.enrolment
        dirty, ledger.dirty = ledger.dirty, {}
        for key, group in dirty.items():
            self.touched[key] = group
            enrolment.settle(group, self.now)


class Pass(NamedTuple):
    """An action of a cycle that is over. ``binds``: where those that it decided stand in the decision."""

    action: str
    seconds: float
    binds: range


class Action(Protocol):
    """A pass of the cycle. One instance serves one engine and may remember what it has tried."""

    name: str

    def run(self, ctx: CycleContext) -> None: ...
