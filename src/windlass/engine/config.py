"""Configuration of the engine, apart from its plugins."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Options of the engine.

    * ``binds_per_cycle``: maximum number of binds of a cycle (0: unlimited). The rest
      follows in the next cycle, requested through ``Decision.wake_at``.
    * ``backoff_seconds``, ``backoff_cap_seconds``: pause of a group after failed binds.
      It doubles with each failure, up to the cap.
    * ``claim_pause_seconds``: first pause of a group after a failed preemption attempt
      (0: none).
    * ``move_hold_seconds``: time for which the capacity of a moved task is held for its
      successor.
    * ``actions``: names of the actions of a cycle, in order
      (:mod:`windlass.engine.actions.registry`).
    * ``backfill``: number of groups for which capacity is reserved. ``none``: no group.
    ``easy``: the first. ``conservative``: the first few
        (:mod:`windlass.engine.backfill.reservations`). ``strict``: no group, and no
        group passes the first waiting one of its queue.
    * ``reports``: decisions contain the status of groups and queues, and reasons why
      groups wait. Without it they contain actions only, while ``Engine.explain`` still
      answers.
    * ``aging_seconds``: time without success after which nodes are emptied for a group
      (0: never).
    * ``usage_half_life_seconds``: half-life of past usage (0: past usage has no
      effect).
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
    """True if pods without requests are separate from their gang, as in Volcano's queues.

    They count as members while they wait, and only ``backfill`` places them, one by
    one.
    """
    actions: tuple[str, ...] = ("allocate",)
    backfill: str = "easy"
    aging_seconds: float = 0.0
    usage_half_life_seconds: float = 0.0
    reports: bool = True
