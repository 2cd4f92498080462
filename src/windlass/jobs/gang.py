"""Resources that the gang of a job needs to start."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from windlass.api.quantities import add, from_units
from windlass.api.views import decode_pod
from windlass.jobs.definition import JobDefinition, Role


def min_resources(job: JobDefinition, priorities: Mapping[str, int]) -> dict[str, str]:
    """Return the requests of the first ``min_available`` pods.

    Roles are taken by the priority of their template's class, then by their order in
    the spec; of each role its minimum first. ``priorities``: PriorityClass → value.
    """
    ordered = sorted(job.roles, key=lambda role: -_priority(role, job, priorities))
    left = job.min_available
    counts = dict.fromkeys((role.name for role in ordered), 0)
    for role in ordered:
        counts[role.name] = min(role.minimum, left)
        left -= counts[role.name]
    for role in ordered:
        more = min(role.replicas - counts[role.name], left)
        counts[role.name] += more
        left -= more
    total: dict[str, int] = {}
    for role in ordered:
        request = pod_request(role.pod_spec)
        total = add(total, {name: units * counts[role.name] for name, units in request.items()})
    return {name: from_units(name, units) for name, units in sorted(total.items()) if units}


def _priority(role: Role, job: JobDefinition, priorities: Mapping[str, int]) -> int:
    return priorities.get(role.pod_spec.get("priorityClassName") or job.gang.priority_class, 0)


def pod_request(pod_spec: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the effective request of a pod spec in engine units. Unreadable quantities count as 0."""
    return _request(msgspec.json.encode({"metadata": {"name": "template"}, "spec": pod_spec}))


@lru_cache(maxsize=1024)
def _request(raw: bytes) -> Mapping[str, int]:
    return decode_pod(raw).shape.request
