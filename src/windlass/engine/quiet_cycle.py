"""Quiet cycles: cycles in which only possible victims can have changed since the last cycle.

While groups wait, ranks of time-sharing groups become due all the time, mostly without
any effect on a waiting group. Binds are confirmed, and their tasks become possible
victims. All other parts of the cycle are skipped under these conditions:

* The deltas only confirmed decisions.
* No decision affects groups that are waiting.
* No time that another part of the cycle has requested is reached.

A quiet cycle decides what a complete one would (a property test checks this). All
cycles are complete if reports are read, or if a plugin depends on time or on cycles.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.actions.allocate import Allocate
from windlass.engine.actions.context import Action, ActionContext
from windlass.engine.actions.preempt import PreemptAction
from windlass.engine.actions.stale_gang import StaleGangEviction
from windlass.engine.actions.timeshare import TimeShare

_TIME_BASED = {Allocate, PreemptAction, StaleGangEviction, TimeShare}
"""Actions that do nothing before a time that they requested, if nothing has changed.

The exception is a change of possible victims, which does not concern the first one.
"""


class QuietCycle:
    """Checks whether a quiet cycle is sufficient."""

    def __init__(self, context: ActionContext, actions: Sequence[Action]) -> None:
        self._context = context
        config, plugins = context.state.config, context.plugins
        self._possible = (
            {type(action) for action in actions} <= _TIME_BASED
            and not (config.reports or config.usage_half_life_seconds)
            and not (plugins.varying or plugins.cycle_observers or context.permit.is_active)
        )
        self.has_other_deltas = True
        """True if deltas did more than confirm decisions; also before the first cycle."""
        self.next_requested: float | None = None
        """First time that a part of a cycle has requested, without the times of ranks."""
        self.actions = tuple(action for action in actions if type(action) is not Allocate)
        """Actions of a quiet cycle: those that evict."""

    def is_sufficient(self, now: float) -> bool:
        """Return whether a quiet cycle is sufficient at a time."""
        if (
            self.has_other_deltas
            or not self._possible
            or (self.next_requested is not None and self.next_requested <= now)
        ):
            return False
        context = self._context
        state, reservations = context.state, context.reservations
        ledger, queues = state.ledger, state.queues
        return not (
            ledger.dirty
            or ledger.terminating
            or ledger.holds.by_group
            or queues.rules_changed
            or queues.recount
            or state.table.total_changed
            or not context.scheduling_queue.nothing_to_wake(ledger.moved_classes)
            or context.queue_heap.waiting
            or state.early
            or reservations.by_group
            or reservations.vacant
            or reservations.aging.since
        )
