"""How an engine decides at one moment of a virtual clock: what it is told meanwhile, and until when it is asked.

Where groups claim room from others the engine is told of what it decided as it is live: it goes on deciding as long as
it wants to; then it hears of its binds, as only who is known to be bound may be asked to go; and of those that it asked
to go, who take their time, when it wants nothing more. Where time is shared alone it hears of all that it decided.
"""

from __future__ import annotations

from collections.abc import Callable

from windlass.engine.decision import Decision
from windlass.engine.deltas import Delta
from windlass.engine.engine import Engine

ROUNDS = 1000
"""So many cycles may one moment take: more would never end."""


class Endless(RuntimeError):
    """The engine decides for ever at one moment."""


class DecideLoop:
    """One ``engine``, for which one that times it may be put. ``changes``: what it is to be told of; ``confirmed``: of
    what it bound. ``carry_out`` gets what each cycle decided, with the moment, and adds to both. ``pause`` is called
    before every cycle."""

    def __init__(
        self,
        engine: Engine,
        carry_out: Callable[[Decision, float], None],
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self.changes: list[Delta] = []
        self.confirmed: list[Delta] = [] if engine.claimants else self.changes
        self.engine = engine
        self._claims = bool(engine.claimants)
        self._hears = self._claims or engine.state.time_sharing.policy is not None
        self._carry_out = carry_out
        self._pause = pause

    def settle(self, now: float) -> float | None:
        """Tell what has changed, and let the engine decide until nothing more follows at once; when it wants to be
        asked again. Raises :class:`Endless`."""
        self._tell(self.changes)
        for _ in range(ROUNDS):
            self._pause()
            decision = self.engine.cycle(now)
            self._carry_out(decision, now)
            at_once = decision.wake_at is not None and decision.wake_at <= now
            again = at_once or bool(decision.evictions)
            if self._claims and self.confirmed and not at_once:
                self._tell(self.confirmed)
            elif self._claims and again:
                continue
            elif again or (self._hears and self.changes):
                self._tell(self.changes)
            else:
                return decision.wake_at
        raise Endless(f"at {now:.0f} s the engine decides without end")

    def _tell(self, deltas: list[Delta]) -> None:
        self.engine.apply(deltas)
        deltas.clear()
