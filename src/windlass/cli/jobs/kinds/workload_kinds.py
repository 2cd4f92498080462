"""Workloads of ``apps/v1`` for commands: they serve, and have no end of their own."""

from __future__ import annotations

from typing import Any

from windlass.api.resources import DAEMON_SETS, DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, Resource
from windlass.cli.jobs.kinds.job_kind import JobKind, JobRole
from windlass.cli.jobs.kinds.queue_names import queue_named

Object = dict[str, Any]
IDLE = "Idle"
"""State of a workload that should have no pods."""


def _template(obj: Object) -> Object:
    return (obj.get("spec") or {}).get("template") or {}


def _number(obj: Object, field: str) -> int:
    return int((obj.get("status") or {}).get(field) or 0)


def wanted(obj: Object) -> int:
    """Return the number of wanted pods."""
    status = obj.get("status") or {}
    if "desiredNumberScheduled" in status:
        return int(status["desiredNumberScheduled"])
    replicas = (obj.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def ready(obj: Object) -> int:
    """Return the number of ready pods."""
    return _number(obj, "readyReplicas") or _number(obj, "numberReady")


def _phase(obj: Object) -> str:
    if wanted(obj) == 0:
        return IDLE
    return "Running" if ready(obj) else "Pending"


def _queue(obj: Object) -> str:
    return queue_named(_template(obj).get("metadata") or {})


def _selects(obj: Object) -> str:
    from windlass.api import selectors  # slow to import, and not needed for lists

    found = selectors.from_object((obj.get("spec") or {}).get("selector"))
    return found.text if found else ""


def _kind(resource: Resource) -> JobKind:
    return JobKind(
        resource=resource,
        words=(
            resource.singular,
            resource.plural,
            *resource.short_names,
            f"{resource.singular}.{resource.group}",
        ),
        phase=_phase,
        roles=lambda obj: [JobRole("", wanted(obj), _template(obj))],
        queue=_queue,
        ended=lambda obj: 0.0,
        succeeded=lambda obj: 0,
        group=lambda obj: f"podgroup-{obj['metadata'].get('uid')}",
        selector=lambda name: "",
        selects=_selects,
    )


WORKLOAD_KINDS = (_kind(REPLICA_SETS), _kind(DEPLOYMENTS), _kind(STATEFUL_SETS), _kind(DAEMON_SETS))
"""Kinds, each after those that it creates."""
WORKLOADS = tuple(kind.resource for kind in WORKLOAD_KINDS)
