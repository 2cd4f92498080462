"""Gangs that their Volcano Job restarts as a whole if one of their pods is evicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.resources import VOLCANO_JOBS
from windlass.cli.simulate.live_cluster import Warn
from windlass.client.blocking import BlockingClient
from windlass.controllers.vcjob import policies, spec
from windlass.controllers.vcjob.state_machine import JobTrigger

_FORBIDDEN, _NOT_FOUND = 403, 404


def jobs_of(client: BlockingClient, tell: Warn) -> list[dict[str, Any]]:
    """Return the Volcano Jobs of a cluster; none if it lacks the kind, or they are forbidden.

    Raises ``StatusError`` and ``Unreachable``.

    :param tell: receives a warning if they are forbidden
    """
    try:
        return client.list(VOLCANO_JOBS).items
    except StatusError as error:
        if error.code not in (_FORBIDDEN, _NOT_FOUND):
            raise
        if error.code == _FORBIDDEN:
            tell(
                f"you may not read {VOLCANO_JOBS.qualified}, so gangs that lose a pod are assumed to keep the others:"
                f" {error.message}"
            )
        return []


def restarts(jobs: Iterable[Mapping[str, Any]]) -> dict[str, frozenset[str]]:
    """Return group → the tasks for which an eviction restarts the whole Job with a new group.

    Invalid Jobs are omitted.
    """
    by_group: dict[str, frozenset[str]] = {}
    for job in jobs:
        try:
            read = spec.read(job)
        except (ValueError, TypeError, KeyError):
            continue
        roles = frozenset(task.name for task in read.tasks if _is_restarted(read, task.name))
        if roles:
            by_group[f"{read.namespace}/{read.group_name}"] = roles
    return by_group


def _is_restarted(job: spec.JobSpec, task: str) -> bool:
    evicted = policies.JobEvent(policies.POD_EVICTED, 0.0, task, job.pod_name(task, 0))
    return any(answer.action is JobTrigger.RESTART for answer in policies.policy_actions(job, [evicted]))
