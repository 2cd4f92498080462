"""Trace recorded from a history, with the number of jobs left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windlass.sim.jobs import TraceJob


@dataclass(frozen=True, slots=True)
class Recording:
    """Recorded trace.

    ``jobs``: from the first submission on. ``first``: its time, Unix seconds. ``unfinished``: number of jobs that
    still run or wait, with an expected run time. ``running``, ``waiting``: number left out for an unknown run time;
    ``earlier``: left out as too early; ``never_ran``: ended before they ran. ``made_anew``: number of jobs with
    possible earlier pods of unknown run time: they were suspended, or their pods were created late.
    """

    jobs: Sequence[TraceJob]
    first: float = 0.0
    unfinished: int = 0
    running: int = 0
    waiting: int = 0
    earlier: int = 0
    never_ran: int = 0
    made_anew: int = 0
