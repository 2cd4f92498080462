"""What the engine may be told from outside, besides its plugins."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """``binds_per_cycle`` bounds one cycle's work (0: no bound); what is left runs in the next, asked
    for through ``Decision.wake_at``. A group whose binds fail pauses ``backoff_seconds`` times two to
    the number of failures before, at most ``backoff_cap_seconds``.

    ``claim_pause_seconds``: the first pause of a group for which room was sought in vain; 0: none.
    ``move_hold_seconds``: how long the place of a moved task is kept until it comes back.
    ``actions``: those of a cycle, by name, in order (:mod:`windlass.engine.actions.registry`).
    ``backfill``: for how many room is kept whose start is known: ``none``, ``easy`` (the first) or
    ``conservative`` (the first few; :mod:`windlass.engine.backfill.reservations`). ``strict``: for nobody, and nobody
    passes the first of his queue that waits.
    ``reports``: whether decisions tell how groups and queues stand, and why groups wait; without, they hold what
    is to be done alone (``Engine.explain`` answers in any case).
    ``aging_seconds``: how long a group may find no room before nodes are emptied for it; 0: for ever.
    ``usage_half_life_seconds``: how fast past usage fades; 0: it does not count.
    """

    binds_per_cycle: int = 0
    backoff_seconds: float = 1.0
    backoff_cap_seconds: float = 300.0
    explain_holders: int = 5
    explain_ahead: int = 5
    class_caches: int = 1024
    claim_pause_seconds: float = 0.25
    move_hold_seconds: float = 60.0
    best_effort_apart: bool = False
    """Volcano's rule for its queues' groups: pods that ask for nothing take no part in the gang. They
    count as members while they wait, and ``backfill`` alone places them, one by one."""
    actions: tuple[str, ...] = ("allocate",)
    backfill: str = "easy"
    aging_seconds: float = 0.0
    usage_half_life_seconds: float = 0.0
    reports: bool = True
