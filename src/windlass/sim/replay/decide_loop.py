"""Decision loop of an engine at one time of a virtual clock: order of cycles and deltas.

With preemption or reclaim, the engine receives the results of its decisions as on a cluster. It runs cycles while it
requests them. Then it receives its binds, because only bound pods can be evicted. Evicted pods, which take time to
terminate, follow once it requests no further cycle. With time-sharing alone, it receives all results at once.
"""

from __future__ import annotations

from collections.abc import Callable

from windlass.engine.decision import Decision
from windlass.engine.deltas import Delta
from windlass.engine.engine import Engine

ROUNDS = 1000
"""Maximum number of cycles at one time, as protection against an endless loop."""


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
        self.confirmed: list[Delta] = [] if engine.plain_preempt_actions else self.changes
        self.engine = engine
        self._claims = bool(engine.plain_preempt_actions)
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
