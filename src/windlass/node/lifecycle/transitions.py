"""The states of a pod on this machine and of its containers, and which event leads where.

``(state, event)`` → the method of :class:`windlass.node.lifecycle.state_machine.PodMachine` that carries it out. A pair
that stands in neither table cannot happen.
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
    (PodStep.INITIALIZING, PodEventKind.RESUMED): "_nothing",
    (PodStep.INITIALIZING, PodEventKind.DELETE): "_delete",
    (PodStep.INITIALIZING, PodEventKind.DEADLINE): "_deadline",
    (PodStep.INITIALIZING, PodEventKind.EVICT): "_evict",
    (PodStep.RUNNING, PodEventKind.RESUMED): "_nothing",
    (PodStep.RUNNING, PodEventKind.DELETE): "_delete",
    (PodStep.RUNNING, PodEventKind.DEADLINE): "_deadline",
    (PodStep.RUNNING, PodEventKind.EVICT): "_evict",
    # Containers that were lost have ended all: the pod is past this before it is told that it was resumed.
    (PodStep.ENDING, PodEventKind.RESUMED): "_nothing",
    (PodStep.TEARDOWN, PodEventKind.RESUMED): "_nothing",
    (PodStep.ENDING, PodEventKind.DELETE): "_delete",
    (PodStep.ENDING, PodEventKind.DEADLINE): "_nothing",
    (PodStep.ENDING, PodEventKind.EVICT): "_delete_sooner",
    (PodStep.TEARDOWN, PodEventKind.DELETE): "_delete",
    (PodStep.TEARDOWN, PodEventKind.DEADLINE): "_nothing",
    (PodStep.TEARDOWN, PodEventKind.EVICT): "_nothing",
    # The pod ended while it was being prepared; the worker tears down after that.
    (PodStep.TEARDOWN, PodEventKind.PREPARED): "_nothing",
    (PodStep.TEARDOWN, PodEventKind.NOT_PREPARED): "_nothing",
    (PodStep.TEARDOWN, PodEventKind.REJECTED): "_nothing",
    (PodStep.TEARDOWN, PodEventKind.RETRY): "_nothing",
    (PodStep.TEARDOWN, PodEventKind.TORN_DOWN): "_torn_down",
    (PodStep.ENDED, PodEventKind.RETRY): "_nothing",
    (PodStep.ENDED, PodEventKind.DEADLINE): "_nothing",
    (PodStep.ENDED, PodEventKind.EVICT): "_nothing",
    (PodStep.ENDED, PodEventKind.DELETE): "_delete_ended",
    (PodStep.ENDED, PodEventKind.REMOVED): "_gone",
    (PodStep.GONE, PodEventKind.RETRY): "_nothing",
    (PodStep.GONE, PodEventKind.DEADLINE): "_nothing",
    (PodStep.GONE, PodEventKind.EVICT): "_nothing",
    (PodStep.GONE, PodEventKind.DELETE): "_nothing",
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
    (ContainerStep.STOPPING, PodEventKind.RUNS): "_container_nothing",
    (ContainerStep.STOPPING, PodEventKind.STARTED): "_container_started_too_late",
    (ContainerStep.STOPPING, PodEventKind.PROBED): "_container_probed",
    (ContainerStep.STOPPING, PodEventKind.KILL): "_container_nothing",
    (ContainerStep.STOPPING, PodEventKind.REFUSED): "_container_never_ran",
    (ContainerStep.STOPPING, PodEventKind.EXITED): "_container_exited",
    (ContainerStep.STOPPING, PodEventKind.STOP): "_container_stop_sooner",
    (ContainerStep.BACKOFF, PodEventKind.DUE): "_container_restart",
    (ContainerStep.BACKOFF, PodEventKind.STOP): "_container_give_up",
    (ContainerStep.DONE, PodEventKind.STOP): "_container_nothing",
    (ContainerStep.DONE, PodEventKind.DUE): "_container_nothing",
}
"""``(step, event)`` → method of :class:`PodMachine` for one container."""
