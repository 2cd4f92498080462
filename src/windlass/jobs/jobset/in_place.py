"""In-place restart of a JobSet (KEP-467): counters by which the agents in the pods synchronise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windlass.jobs.jobset.spec import JobSetDefinition


@dataclass(frozen=True, slots=True)
class InPlacePod:
    """Pod of a JobSet.

    ``attempt``: as its agent wrote it; ``None`` before that.
    ``gone``: it has failed or is being deleted, and its Job replaces it.
    ``container_restarts``: the highest count of its containers.
    """

    name: str
    attempt: int | None
    gone: bool
    succeeded: bool
    container_restarts: int


@dataclass(frozen=True, slots=True)
class InPlaceCounters:
    """Counters of ``status``. ``None``: not set."""

    previous: int | None
    current: int | None


def in_place_exceeded(definition: JobSetDefinition, pods: Sequence[InPlacePod], uncounted: int) -> bool:
    """Return whether the pods restarted more often than ``maxRestarts`` allows.

    ``uncounted``: restarts of the JobSet that do not count towards it.
    """
    most = definition.failure.max_restarts if definition.failure else 0
    attempts = _attempts(pods)
    return max((pod.container_restarts for pod in pods), default=0) > most or (
        max(attempts, default=0) - uncounted > most
    )


def next_in_place(
    definition: JobSetDefinition, pods: Sequence[InPlacePod], counters: InPlaceCounters
) -> InPlaceCounters:
    """Return the counters: the barrier is lifted once all pods have reached the same attempt."""
    attempts = _attempts(pods)
    total = sum(job.pods for job in definition.replicated)
    if len(attempts) == total and len(set(attempts)) == 1:
        return InPlaceCounters(counters.previous, attempts[0])
    highest = max(attempts, default=0)
    if highest == 0:
        return counters
    return InPlaceCounters(max(counters.previous or 0, highest - 1), counters.current)


def left_behind(pods: Sequence[InPlacePod]) -> str:
    """Return a pod that ended with success before a restart; empty if there is none.

    Its containers cannot be restarted, so the pods of the JobSet never reach one attempt.
    """
    highest = max(_attempts(pods), default=0)
    found = [pod.name for pod in pods if pod.succeeded and (pod.attempt or 0) < highest and not pod.gone]
    return min(found, default="")


def _attempts(pods: Sequence[InPlacePod]) -> list[int]:
    return [pod.attempt for pod in pods if pod.attempt is not None and not pod.gone]
