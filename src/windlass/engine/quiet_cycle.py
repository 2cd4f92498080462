"""Whether anything but who may be asked to go can be otherwise than at the end of the cycle before.

The ranks of those who share time fall due all the time while groups wait, mostly without anybody ranking worse than
one who waits; and what was bound is confirmed, and may be asked to go from then on. Nothing else is looked at then if
it cannot have changed: nobody has told of anything but that what was decided is so, nothing was decided that others
wait for, and the moment is before all that the other parts of a cycle have named. Such a cycle decides what a whole
one would (a property test holds it). Where somebody reads reports, or a policy goes by the time or by cycles, all
cycles are whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.actions.allocate import Allocate
from windlass.engine.actions.context import Action, ActionContext
from windlass.engine.actions.preempt import PreemptAction
from windlass.engine.actions.stale_gang import StaleGangEviction
from windlass.engine.actions.timeshare import TimeShare

_BY_MOMENTS = {Allocate, PreemptAction, StaleGangEviction, TimeShare}
"""Actions of which nothing comes before a moment that they have named, if nothing has changed; but for the first,
nothing but who may be asked to go."""


class QuietCycle:
    def __init__(self, machinery: ActionContext, actions: Sequence[Action]) -> None:
        self._context = context = machinery
        config, plugins = context.state.config, context.plugins
        self._possible = (
            {type(action) for action in actions} <= _BY_MOMENTS
            and not (config.reports or config.usage_half_life_seconds)
            and not (plugins.varying or plugins.in_rounds or context.permit.asked)
        )
        self.told = True
        """Whether the world has told of more than that what was decided is so since the last cycle, or there was none
        yet."""
        self.others: float | None = None
        """The first moment that a part of a cycle has named, but for those of ranks."""
        self.pressing = tuple(action for action in actions if type(action) is not Allocate)
        """The actions of such a cycle: those that ask others to go."""

    def holds(self, now: float) -> bool:
        """Whether that is so at a moment."""
        if self.told or not self._possible or (self.others is not None and self.others <= now):
            return False
        context = self._context
        state, reservations = context.state, context.reservations
        ledger, queues = state.ledger, state.queues
        return not (
            ledger.dirty
            or ledger.leaving
            or ledger.holds.by_group
            or queues.reshaped
            or queues.recount
            or state.table.total_changed
            or not context.scheduling_queue.wakes_nobody(ledger.moved)
            or context.queue_heap.waiting
            or reservations.slots
            or reservations.vacant
            or reservations.aging.since
        )
