"""Which gangs their owners start over as a whole when one of their pods is evicted: read from Volcano Jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.resources import VOLCANO_JOBS
from windlass.cli.simulate.live_cluster import Tell
from windlass.client.blocking import BlockingClient
from windlass.controllers.vcjob import policies, spec
from windlass.controllers.vcjob.state_machine import JobTrigger

_FORBIDDEN, _NOT_FOUND = 403, 404


def jobs_of(client: BlockingClient, tell: Tell) -> list[dict[str, Any]]:
    """The Volcano Jobs of a cluster; none where it has not the kind, or the user may not read them (``tell`` is told).
    Raises ``StatusError``, ``Unreachable``."""
    try:
        return client.list(VOLCANO_JOBS).items
    except StatusError as error:
        if error.code not in (_FORBIDDEN, _NOT_FOUND):
            raise
        if error.code == _FORBIDDEN:
            tell(
                f"{VOLCANO_JOBS.qualified} may not be read: of gangs that lose a pod all others are taken to keep their"
                f" places: {error.message}"
            )
        return []


def restarts(jobs: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Group → the tasks of whose pods an eviction has the whole Job start over, with a new group. A Job that cannot be
    read is left out."""
    found: dict[str, frozenset[str]] = {}
    for job in jobs:
        try:
            read = spec.read(job)
        except (ValueError, TypeError, KeyError):
            continue
        roles = frozenset(task.name for task in read.tasks if _starts_over(read, task.name))
        if roles:
            found[f"{read.namespace}/{read.group_name}"] = roles
    return found


def _starts_over(job: spec.JobSpec, task: str) -> bool:
    evicted = policies.JobEvent(policies.POD_EVICTED, 0.0, task, job.pod_name(task, 0))
    return any(answer.action is JobTrigger.RESTART for answer in policies.policy_actions(job, [evicted]))
