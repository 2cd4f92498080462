"""States of a pod and of its containers, with the transition tables.

``(state, event)`` → the method of
:class:`windlass.node.lifecycle.state_machine.PodMachine` that processes the event. A pair without
an entry cannot occur.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from windlass.node.lifecycle.events import PodEventKind


class PodStep(StrEnum):
    SETUP = "Setup"
    INITIALIZING = "Initializing"
    RUNNING = "Running"
    ENDING = "Ending"
    TEARDOWN = "Teardown"
    ENDED = "Ended"
    GONE = "Gone"


class ContainerStep(StrEnum):
    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    BACKOFF = "BackOff"
    DONE = "Done"


POD_TABLE: Mapping[tuple[PodStep, PodEventKind], str] = {
    (PodStep.SETUP, PodEventKind.PREPARED): "_prepared",
    (PodStep.SETUP, PodEventKind.NOT_PREPARED): "_not_prepared",
    (PodStep.SETUP, PodEventKind.RETRY): "_retry",
    (PodStep.SETUP, PodEventKind.RESUMED): "_retry",
    (PodStep.SETUP, PodEventKind.REJECTED): "_rejected",
    (PodStep.SETUP, PodEventKind.DELETE): "_delete",
    (PodStep.SETUP, PodEventKind.DEADLINE): "_deadline",
    (PodStep.SETUP, PodEventKind.EVICT): "_evict",
    (PodStep.INITIALIZING, PodEventKind.RESUMED): "_ignore",
    (PodStep.INITIALIZING, PodEventKind.DELETE): "_delete",
    (PodStep.INITIALIZING, PodEventKind.DEADLINE): "_deadline",
    (PodStep.INITIALIZING, PodEventKind.EVICT): "_evict",
    (PodStep.RUNNING, PodEventKind.RESUMED): "_ignore",
    (PodStep.RUNNING, PodEventKind.DELETE): "_delete",
    (PodStep.RUNNING, PodEventKind.DEADLINE): "_deadline",
    (PodStep.RUNNING, PodEventKind.EVICT): "_evict",
    (PodStep.INITIALIZING, PodEventKind.RESTART_ALL): "_restart_all",
    (PodStep.INITIALIZING, PodEventKind.RESTART_DUE): "_restart_due",
    (PodStep.INITIALIZING, PodEventKind.BARRIER_LIFTED): "_lift_barrier",
    (PodStep.RUNNING, PodEventKind.RESTART_ALL): "_restart_all",
    (PodStep.RUNNING, PodEventKind.RESTART_DUE): "_restart_due",
    (PodStep.RUNNING, PodEventKind.BARRIER_LIFTED): "_lift_barrier",
    **{
        (step, kind): "_ignore"
        for step in (PodStep.ENDING, PodStep.TEARDOWN, PodStep.ENDED, PodStep.GONE)
        for kind in (PodEventKind.RESTART_ALL, PodEventKind.RESTART_DUE, PodEventKind.BARRIER_LIFTED)
    },
    # All containers were lost and count as ended: the pod is here before it gets RESUMED.
    (PodStep.ENDING, PodEventKind.RESUMED): "_ignore",
    (PodStep.TEARDOWN, PodEventKind.RESUMED): "_ignore",
    (PodStep.ENDING, PodEventKind.DELETE): "_delete",
    (PodStep.ENDING, PodEventKind.DEADLINE): "_ignore",
    (PodStep.ENDING, PodEventKind.EVICT): "_delete_sooner",
    (PodStep.TEARDOWN, PodEventKind.DELETE): "_delete",
    (PodStep.TEARDOWN, PodEventKind.DEADLINE): "_ignore",
    (PodStep.TEARDOWN, PodEventKind.EVICT): "_ignore",
    # The pod ended during preparation. The worker tears it down after that.
    (PodStep.TEARDOWN, PodEventKind.PREPARED): "_ignore",
    (PodStep.TEARDOWN, PodEventKind.NOT_PREPARED): "_ignore",
    (PodStep.TEARDOWN, PodEventKind.REJECTED): "_ignore",
    (PodStep.TEARDOWN, PodEventKind.RETRY): "_ignore",
    (PodStep.TEARDOWN, PodEventKind.TORN_DOWN): "_torn_down",
    (PodStep.ENDED, PodEventKind.RETRY): "_ignore",
    (PodStep.ENDED, PodEventKind.DEADLINE): "_ignore",
    (PodStep.ENDED, PodEventKind.EVICT): "_ignore",
    (PodStep.ENDED, PodEventKind.DELETE): "_delete_ended",
    (PodStep.ENDED, PodEventKind.REMOVED): "_gone",
    (PodStep.GONE, PodEventKind.RETRY): "_ignore",
    (PodStep.GONE, PodEventKind.DEADLINE): "_ignore",
    (PodStep.GONE, PodEventKind.EVICT): "_ignore",
    (PodStep.GONE, PodEventKind.DELETE): "_ignore",
}
"""``(step, event)`` → method of :class:`PodMachine`."""

CONTAINER_TABLE: Mapping[tuple[ContainerStep, PodEventKind], str] = {
    (ContainerStep.WAITING, PodEventKind.START): "_container_start",
    (ContainerStep.WAITING, PodEventKind.STOP): "_container_never_ran",
    (ContainerStep.STARTING, PodEventKind.RUNS): "_container_runs",
    (ContainerStep.STARTING, PodEventKind.STARTED): "_container_started",
    (ContainerStep.STARTING, PodEventKind.KILL): "_container_kill",
    (ContainerStep.STARTING, PodEventKind.REFUSED): "_container_refused",
    (ContainerStep.STARTING, PodEventKind.EXITED): "_container_exited",
    (ContainerStep.STARTING, PodEventKind.STOP): "_container_stop",
    (ContainerStep.RUNNING, PodEventKind.PROBED): "_container_probed",
    (ContainerStep.RUNNING, PodEventKind.EXITED): "_container_exited",
    (ContainerStep.RUNNING, PodEventKind.STOP): "_container_stop",
    (ContainerStep.STOPPING, PodEventKind.RUNS): "_container_ignore",
    (ContainerStep.STOPPING, PodEventKind.STARTED): "_container_started_too_late",
    (ContainerStep.STOPPING, PodEventKind.PROBED): "_container_probed",
    (ContainerStep.STOPPING, PodEventKind.KILL): "_container_ignore",
    (ContainerStep.STOPPING, PodEventKind.REFUSED): "_container_never_ran",
    (ContainerStep.STOPPING, PodEventKind.EXITED): "_container_exited",
    (ContainerStep.STOPPING, PodEventKind.STOP): "_container_stop_sooner",
    (ContainerStep.BACKOFF, PodEventKind.DUE): "_container_restart",
    (ContainerStep.BACKOFF, PodEventKind.STOP): "_container_give_up",
    (ContainerStep.DONE, PodEventKind.STOP): "_container_ignore",
    # The timer of a back-off that a restart of all containers has cut short.
    (ContainerStep.WAITING, PodEventKind.DUE): "_container_ignore",
    (ContainerStep.STARTING, PodEventKind.DUE): "_container_ignore",
    (ContainerStep.RUNNING, PodEventKind.DUE): "_container_ignore",
    (ContainerStep.STOPPING, PodEventKind.DUE): "_container_ignore",
    (ContainerStep.DONE, PodEventKind.DUE): "_container_ignore",
}
"""``(step, event)`` → method of :class:`PodMachine` for one container."""
