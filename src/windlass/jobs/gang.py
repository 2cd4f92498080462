"""Resources that the gang of a job needs to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from windlass.api.quantities import add, from_units
from windlass.api.views import decode_pod
from windlass.jobs.definition import JobDefinition, Role


@dataclass(frozen=True, slots=True)
class GangPart:
    """Equal pods of a gang. ``minimum``: as many of them as the gang needs at least."""

    replicas: int
    minimum: int
    priority: int
    pod_spec: Mapping[str, Any]


def min_resources(job: JobDefinition, priorities: Mapping[str, int]) -> dict[str, str]:
    """Return the requests of the pods with which a job starts. ``priorities``: PriorityClass → value."""
    parts = [
        GangPart(role.replicas, role.minimum, _priority(role, job, priorities), role.pod_spec)
        for role in job.roles
    ]
    return least_resources(parts, job.min_available)


def least_resources(parts: Sequence[GangPart], min_available: int) -> dict[str, str]:
    """Return the resources that a gang needs to start (Volcano's ``calcPGMinResources``).

    Parts are taken by priority, and in the given order among equals. If
    ``min_available`` is below the sum of the minimums, the requests of the first
    ``min_available`` pods count. Otherwise each minimum counts, filled up to
    ``min_available`` with the remaining replicas.
    """
    ordered = sorted(parts, key=lambda part: -part.priority)
    if min_available < sum(part.minimum for part in ordered):
        counts = _taken([part.replicas for part in ordered], min_available)
    else:
        counts = _taken([part.minimum for part in ordered], min_available)
        rest = [max(0, part.replicas - part.minimum) for part in ordered]
        more = _taken(rest, min_available - sum(counts))
        counts = [count + added for count, added in zip(counts, more, strict=True)]
    total: dict[str, int] = {}
    for part, count in zip(ordered, counts, strict=True):
        request = pod_request(part.pod_spec)
        total = add(total, {name: units * count for name, units in request.items()})
    return {name: from_units(name, units) for name, units in sorted(total.items()) if units}


def _taken(numbers: Sequence[int], count: int) -> list[int]:
    """Return how many of each are taken, the first ones first, until there are ``count``."""
    found = []
    for number in numbers:
        found.append(min(number, count))
        count -= found[-1]
    return found


def _priority(role: Role, job: JobDefinition, priorities: Mapping[str, int]) -> int:
    return priorities.get(role.pod_spec.get("priorityClassName") or job.gang.priority_class, 0)


def pod_request(pod_spec: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the effective request of a pod spec in engine units. Unreadable quantities count as 0."""
    return _request(msgspec.json.encode({"metadata": {"name": "template"}, "spec": pod_spec}))


@lru_cache(maxsize=1024)
def _request(raw: bytes) -> Mapping[str, int]:
    return decode_pod(raw).shape.request
