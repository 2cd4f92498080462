"""Checks made just before a bind is sent."""

from __future__ import annotations

from windlass.engine.decision import Bind
from windlass.kits.clock import Clock
from windlass.scheduler.commit.bind_guard import BindGuard
from windlass.scheduler.commit.conflict_detector import BindConflicts
from windlass.scheduler.commit.device_reservations import LEASE_UNCERTAIN, DeviceReservations
from windlass.scheduler.commit.yield_to_others import YieldToOthers
from windlass.scheduler.leader.leadership import Leadership


class BindChecks:
    """Reasons against sending a bind that has been decided.

    ``guard`` is ``None`` if the API server does not ask Windlass about bindings.
    """

    def __init__(
        self,
        leadership: Leadership,
        conflicts: BindConflicts,
        yield_to_others: YieldToOthers,
        reservations: DeviceReservations,
        guard: BindGuard | None,
        *,
        clock: Clock,
    ) -> None:
        self._leadership = leadership
        self._conflicts = conflicts
        self._yield_to_others = yield_to_others
        self._reservations = reservations
        self._guard = guard
        self._clock = clock

    def objection(self, bind: Bind) -> str:
        """Return why a bind must not be sent, ``""`` if it may be."""
        if not self._leadership.holds_lease():
            return LEASE_UNCERTAIN
        why = self._conflicts.objection(bind) or self._reservations.objection(bind)
        if not why and self._guard is not None:
            why = self._guard.objection(bind, self._clock.monotonic())
        return why

    def is_unrivaled(self, now: float) -> bool:
        """Return whether no other scheduler may take capacity while a bind is in progress."""
        if self._guard is not None and self._guard.effective(now):
            return True
        return self._conflicts.is_quiet(now) and not self._yield_to_others.is_active(now)

    def expire(self, now: float) -> None:
        """Forget foreign binds and bookings that no longer matter."""
        self._conflicts.expire(now)
        if self._guard is not None:
            self._guard.expire(now)

    def next_deadline(self) -> float | None:
        """Return the monotonic time at which the next booking of the guard ends."""
        return self._guard.next_end if self._guard is not None and self._guard.booked else None
