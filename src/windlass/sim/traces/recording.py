"""What a history gives when it is made a trace, and what of it is left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windlass.sim.jobs import TraceJob


@dataclass(frozen=True, slots=True)
class Recording:
    """``jobs``: from the first submission on. ``first``: when that was, Unix seconds. ``unfinished``: how many of them
    still run or wait, with the run time that is expected. ``running``, ``waiting``: how many were left out because
    nobody knows how long they run; ``earlier``: how many because they came too early; ``never_ran``: how many because
    they were over before they ran. ``made_anew``: of how many of the jobs earlier pods may have run, of which nothing
    is known: they were suspended, or waited for long until their pods were made."""

    jobs: Sequence[TraceJob]
    first: float = 0.0
    unfinished: int = 0
    running: int = 0
    waiting: int = 0
    earlier: int = 0
    never_ran: int = 0
    made_anew: int = 0
