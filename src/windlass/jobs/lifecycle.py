"""Life cycle of a job as one table: ``(phase, trigger) → phase``.

A pair that is not in the table changes nothing. ``Succeeded`` and ``Failed`` are final.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class JobPhase(StrEnum):
    """Phase of a job."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    """A pod is being replaced."""
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class LifecycleTrigger(StrEnum):
    """Observed fact that may change the phase."""

    STARTED = "Started"
    """A pod of a role that decides about success runs."""
    POD_LOST = "PodLost"
    """A pod is being replaced: it failed, was evicted, or its node is gone."""
    SUCCEEDED = "Succeeded"
    """The success rule holds."""
    FAILED = "Failed"
    """A failure without a restart, spent restarts, or the deadline."""
    SUSPENDED = "Suspended"
    """``suspend`` is set."""
    RESUMED = "Resumed"
    """``suspend`` is not set any more."""


FINAL = frozenset({JobPhase.SUCCEEDED, JobPhase.FAILED})

_P, _T = JobPhase, LifecycleTrigger

TABLE: Mapping[tuple[JobPhase, LifecycleTrigger], JobPhase] = {
    (_P.CREATED, _T.STARTED): _P.RUNNING,
    (_P.CREATED, _T.POD_LOST): _P.RESTARTING,
    (_P.CREATED, _T.SUCCEEDED): _P.SUCCEEDED,
    (_P.CREATED, _T.FAILED): _P.FAILED,
    (_P.CREATED, _T.SUSPENDED): _P.SUSPENDED,
    (_P.RUNNING, _T.POD_LOST): _P.RESTARTING,
    (_P.RUNNING, _T.SUCCEEDED): _P.SUCCEEDED,
    (_P.RUNNING, _T.FAILED): _P.FAILED,
    (_P.RUNNING, _T.SUSPENDED): _P.SUSPENDED,
    (_P.RESTARTING, _T.STARTED): _P.RUNNING,
    (_P.RESTARTING, _T.SUCCEEDED): _P.SUCCEEDED,
    (_P.RESTARTING, _T.FAILED): _P.FAILED,
    (_P.RESTARTING, _T.SUSPENDED): _P.SUSPENDED,
    (_P.SUSPENDED, _T.RESUMED): _P.CREATED,
}


def next_phase(phase: JobPhase, trigger: LifecycleTrigger) -> JobPhase:
    """Return the phase after ``trigger``; ``phase`` itself if the table has no such pair."""
    return TABLE.get((phase, trigger), phase)
