"""The states of a pod on this machine and of its containers, and which event leads where.

``(state, event)`` → the method of :class:`windlass.node.lifecycle.state_machine.PodMachine` that carries it out. A pair
that stands in neither table cannot happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from windlass.node.lifecycle.events import Kind


class PodStep(StrEnum):
    SETUP = "Setup"
    INITIALIZING = "Initializing"
    RUNNING = "Running"
    ENDING = "Ending"
    TEARDOWN = "Teardown"
    ENDED = "Ended"
    GONE = "Gone"


class Step(StrEnum):
    WAITING = "Waiting"
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    BACKOFF = "BackOff"
    DONE = "Done"


POD_TABLE: Mapping[tuple[PodStep, Kind], str] = {
    (PodStep.SETUP, Kind.PREPARED): "_prepared",
    (PodStep.SETUP, Kind.NOT_PREPARED): "_not_prepared",
    (PodStep.SETUP, Kind.RETRY): "_retry",
    (PodStep.SETUP, Kind.RESUMED): "_retry",
    (PodStep.SETUP, Kind.REJECTED): "_rejected",
    (PodStep.SETUP, Kind.DELETE): "_delete",
    (PodStep.SETUP, Kind.DEADLINE): "_deadline",
    (PodStep.SETUP, Kind.EVICT): "_evict",
    (PodStep.INITIALIZING, Kind.RESUMED): "_nothing",
    (PodStep.INITIALIZING, Kind.DELETE): "_delete",
    (PodStep.INITIALIZING, Kind.DEADLINE): "_deadline",
    (PodStep.INITIALIZING, Kind.EVICT): "_evict",
    (PodStep.RUNNING, Kind.RESUMED): "_nothing",
    (PodStep.RUNNING, Kind.DELETE): "_delete",
    (PodStep.RUNNING, Kind.DEADLINE): "_deadline",
    (PodStep.RUNNING, Kind.EVICT): "_evict",
    # Containers that were lost have ended all: the pod is past this before it is told that it was resumed.
    (PodStep.ENDING, Kind.RESUMED): "_nothing",
    (PodStep.TEARDOWN, Kind.RESUMED): "_nothing",
    (PodStep.ENDING, Kind.DELETE): "_delete",
    (PodStep.ENDING, Kind.DEADLINE): "_nothing",
    (PodStep.ENDING, Kind.EVICT): "_delete_sooner",
    (PodStep.TEARDOWN, Kind.DELETE): "_delete",
    (PodStep.TEARDOWN, Kind.DEADLINE): "_nothing",
    (PodStep.TEARDOWN, Kind.EVICT): "_nothing",
    # The pod ended while it was being prepared; the worker tears down after that.
    (PodStep.TEARDOWN, Kind.PREPARED): "_nothing",
    (PodStep.TEARDOWN, Kind.NOT_PREPARED): "_nothing",
    (PodStep.TEARDOWN, Kind.REJECTED): "_nothing",
    (PodStep.TEARDOWN, Kind.RETRY): "_nothing",
    (PodStep.TEARDOWN, Kind.TORN_DOWN): "_torn_down",
    (PodStep.ENDED, Kind.RETRY): "_nothing",
    (PodStep.ENDED, Kind.DEADLINE): "_nothing",
    (PodStep.ENDED, Kind.EVICT): "_nothing",
    (PodStep.ENDED, Kind.DELETE): "_delete_ended",
    (PodStep.ENDED, Kind.REMOVED): "_gone",
    (PodStep.GONE, Kind.RETRY): "_nothing",
    (PodStep.GONE, Kind.DEADLINE): "_nothing",
    (PodStep.GONE, Kind.EVICT): "_nothing",
    (PodStep.GONE, Kind.DELETE): "_nothing",
}
"""``(step, event)`` → method of :class:`PodMachine`."""

CONTAINER_TABLE: Mapping[tuple[Step, Kind], str] = {
    (Step.WAITING, Kind.START): "_container_start",
    (Step.WAITING, Kind.STOP): "_container_never_ran",
    (Step.STARTING, Kind.RUNS): "_container_runs",
    (Step.STARTING, Kind.STARTED): "_container_started",
    (Step.STARTING, Kind.KILL): "_container_kill",
    (Step.STARTING, Kind.REFUSED): "_container_refused",
    (Step.STARTING, Kind.EXITED): "_container_exited",
    (Step.STARTING, Kind.STOP): "_container_stop",
    (Step.RUNNING, Kind.PROBED): "_container_probed",
    (Step.RUNNING, Kind.EXITED): "_container_exited",
    (Step.RUNNING, Kind.STOP): "_container_stop",
    (Step.STOPPING, Kind.RUNS): "_container_nothing",
    (Step.STOPPING, Kind.STARTED): "_container_started_too_late",
    (Step.STOPPING, Kind.PROBED): "_container_probed",
    (Step.STOPPING, Kind.KILL): "_container_nothing",
    (Step.STOPPING, Kind.REFUSED): "_container_never_ran",
    (Step.STOPPING, Kind.EXITED): "_container_exited",
    (Step.STOPPING, Kind.STOP): "_container_stop_sooner",
    (Step.BACKOFF, Kind.DUE): "_container_restart",
    (Step.BACKOFF, Kind.STOP): "_container_give_up",
    (Step.DONE, Kind.STOP): "_container_nothing",
    (Step.DONE, Kind.DUE): "_container_nothing",
}
"""``(step, event)`` → method of :class:`PodMachine` for one container."""
