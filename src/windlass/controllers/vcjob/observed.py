"""What surrounds a job when it is looked at."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.controllers.vcjob.members import Members
from windlass.controllers.vcjob.spec import DEFAULT_SCHEDULER

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """What surrounds a job.

    ``pods`` are those that the job controls. ``group`` is the PodGroup of its name. ``objects``: present
    ConfigMaps and Services by (kind, name), whoever owns them. ``claims``: names of present
    PersistentVolumeClaims. ``commands`` target the job, the oldest first. ``priorities``: PriorityClass →
    value. ``now``: Unix seconds. ``scheduler``: who places the pods of a job that names nobody.
    """

    pods: Members
    group: Json | None
    objects: Mapping[tuple[str, str], Json]
    claims: Container[str]
    commands: tuple[Json, ...]
    priorities: Mapping[str, int]
    now: float
    scheduler: str = DEFAULT_SCHEDULER
