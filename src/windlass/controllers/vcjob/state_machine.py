"""Life cycle of a Volcano Job as one table: ``(phase, trigger) → transition``.

A trigger is an *action* (requested by a policy or a Command) or a *fact* (observed in
the pods). A pair that is not in the table changes nothing.

Two deliberate differences from Volcano: a restarting job can be aborted, terminated and
completed (Volcano drops such a request), and ``RestartJob`` of a job that restarts a
part only widens the restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    ABORTING = "Aborting"
    ABORTED = "Aborted"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    FAILED = "Failed"


class JobTrigger(StrEnum):
    # Actions; the values are those of policies and of Commands.
    ABORT = "AbortJob"
    RESTART = "RestartJob"
    RESTART_TASK = "RestartTask"
    RESTART_POD = "RestartPod"
    RESTART_PARTITION = "RestartPartition"
    TERMINATE = "TerminateJob"
    COMPLETE = "CompleteJob"
    RESUME = "ResumeJob"
    # Facts.
    STARTED = "Started"
    """running + succeeded + failed ≥ minAvailable."""
    STALLED = "Stalled"
    """pending > replicas − minAvailable."""
    ENOUGH_SUCCEEDED = "EnoughSucceeded"
    """minSuccess is reached, or every pod has finished and enough of them well."""
    TOO_FEW_SUCCEEDED = "TooFewSucceeded"
    """Every pod has finished, and not enough of them well."""
    RETRIES_SPENT = "RetriesSpent"
    """retryCount ≥ maxRetry."""
    CLEARED = "Cleared"
    """All pods to restart are deleted or terminating, and replicas − terminating ≥ minAvailable."""
    QUIET = "Quiet"
    """No pod is pending, running or terminating."""


ACTIONS = frozenset(
    {
        JobTrigger.ABORT,
        JobTrigger.RESTART,
        JobTrigger.RESTART_TASK,
        JobTrigger.RESTART_POD,
        JobTrigger.RESTART_PARTITION,
        JobTrigger.TERMINATE,
        JobTrigger.COMPLETE,
        JobTrigger.RESUME,
    }
)
TARGETED = frozenset({JobTrigger.RESTART_TASK, JobTrigger.RESTART_POD, JobTrigger.RESTART_PARTITION})


class RestartScope(StrEnum):
    """Pods that a restart replaces. A new restart adds its scope to one in progress."""

    NONE = "none"
    ALL = "all"
    TARGET = "target"
    UNSUCCEEDED = "unsucceeded"


@dataclass(frozen=True, slots=True)
class Transition:
    """``retry``: counts as a retry. ``scope``: pods to restart."""

    phase: Phase
    retry: bool = False
    scope: RestartScope = RestartScope.NONE


_RESTART = Transition(Phase.RESTARTING, retry=True, scope=RestartScope.ALL)
_RESTART_PART = Transition(Phase.RESTARTING, retry=True, scope=RestartScope.TARGET)
_WIDEN_TO_ALL = Transition(Phase.RESTARTING, scope=RestartScope.ALL)
_WIDEN = Transition(Phase.RESTARTING, scope=RestartScope.TARGET)
_RESUME = Transition(Phase.RESTARTING, retry=True, scope=RestartScope.UNSUCCEEDED)
_ABORT = Transition(Phase.ABORTING)
_TERMINATE = Transition(Phase.TERMINATING)
_COMPLETE = Transition(Phase.COMPLETING)

TRANSITIONS: Mapping[tuple[Phase, JobTrigger], Transition] = {
    (Phase.PENDING, JobTrigger.RESTART): _RESTART,
    (Phase.PENDING, JobTrigger.RESTART_TASK): _RESTART_PART,
    (Phase.PENDING, JobTrigger.RESTART_POD): _RESTART_PART,
    (Phase.PENDING, JobTrigger.RESTART_PARTITION): _RESTART_PART,
    (Phase.PENDING, JobTrigger.ABORT): _ABORT,
    (Phase.PENDING, JobTrigger.TERMINATE): _TERMINATE,
    (Phase.PENDING, JobTrigger.COMPLETE): _COMPLETE,
    (Phase.PENDING, JobTrigger.STARTED): Transition(Phase.RUNNING),
    (Phase.RUNNING, JobTrigger.RESTART): _RESTART,
    (Phase.RUNNING, JobTrigger.RESTART_TASK): _RESTART_PART,
    (Phase.RUNNING, JobTrigger.RESTART_POD): _RESTART_PART,
    (Phase.RUNNING, JobTrigger.RESTART_PARTITION): _RESTART_PART,
    (Phase.RUNNING, JobTrigger.ABORT): _ABORT,
    (Phase.RUNNING, JobTrigger.TERMINATE): _TERMINATE,
    (Phase.RUNNING, JobTrigger.COMPLETE): _COMPLETE,
    (Phase.RUNNING, JobTrigger.ENOUGH_SUCCEEDED): Transition(Phase.COMPLETED),
    (Phase.RUNNING, JobTrigger.TOO_FEW_SUCCEEDED): Transition(Phase.FAILED),
    (Phase.RUNNING, JobTrigger.STALLED): Transition(Phase.PENDING),
    (Phase.RESTARTING, JobTrigger.RETRIES_SPENT): Transition(Phase.FAILED),
    (Phase.RESTARTING, JobTrigger.CLEARED): Transition(Phase.PENDING),
    (Phase.RESTARTING, JobTrigger.RESTART): _WIDEN_TO_ALL,
    (Phase.RESTARTING, JobTrigger.RESTART_TASK): _WIDEN,
    (Phase.RESTARTING, JobTrigger.RESTART_POD): _WIDEN,
    (Phase.RESTARTING, JobTrigger.RESTART_PARTITION): _WIDEN,
    (Phase.RESTARTING, JobTrigger.ABORT): _ABORT,
    (Phase.RESTARTING, JobTrigger.TERMINATE): _TERMINATE,
    (Phase.RESTARTING, JobTrigger.COMPLETE): _COMPLETE,
    (Phase.ABORTING, JobTrigger.RESUME): _RESUME,
    (Phase.ABORTING, JobTrigger.QUIET): Transition(Phase.ABORTED),
    (Phase.ABORTED, JobTrigger.RESUME): _RESUME,
    (Phase.TERMINATING, JobTrigger.QUIET): Transition(Phase.TERMINATED),
    (Phase.COMPLETING, JobTrigger.QUIET): Transition(Phase.COMPLETED),
}

ACTIVE = frozenset({Phase.PENDING, Phase.RUNNING})
"""Phases in which the job's pods are created."""
RESTARTABLE = frozenset({Phase.PENDING, Phase.RUNNING, Phase.RESTARTING})
"""Phases in which policies apply."""
ENDING = frozenset({Phase.ABORTING, Phase.TERMINATING, Phase.COMPLETING})
FINAL = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.TERMINATED})
"""Phases without a transition."""


def follow(phase: Phase, trigger: JobTrigger) -> Transition | None:
    """Return the transition of a trigger; ``None`` if it changes nothing."""
    return TRANSITIONS.get((phase, trigger))
