"""Spec of a JobFlow: its steps, and the conditions under which each begins.

A step creates one Volcano Job from the JobTemplate of its name. Without a probe it
begins when all its targets have completed. With a probe it begins when the pods of its
targets meet the conditions, whether or not they have completed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.views import Pod

Json = dict[str, Any]
CREATED_BY_TEMPLATE = "volcano.sh/createdByJobTemplate"
"""Label and annotation of a Job: ``NAMESPACE.NAME`` of its JobTemplate."""
CREATED_BY_FLOW = "volcano.sh/createdByJobFlow"
"""Label and annotation of a Job: ``NAMESPACE.NAME`` of its JobFlow."""


@dataclass(frozen=True, slots=True)
class PodCondition:
    """Condition on every pod of one task.

    ``phase``: phase of the pods. With ``port``, they accept connections there. With
    ``path`` too, they answer a GET request with a status from 200 to 399.
    """

    task: str
    phase: str = ""
    port: int = 0
    path: str = ""
    header: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class FlowStep:
    name: str
    targets: tuple[str, ...] = ()
    conditions: tuple[PodCondition, ...] = ()
    patch: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class FlowSpec:
    name: str
    namespace: str
    steps: tuple[FlowStep, ...]
    delete_jobs: bool

    def job_name(self, step: str) -> str:
        return f"{self.name}-{step}"

    @property
    def mark(self) -> str:
        """Value of :data:`CREATED_BY_FLOW`."""
        return f"{self.namespace}.{self.name}"


def read_flow(flow: Mapping[str, Any]) -> FlowSpec:
    metadata, spec = flow["metadata"], flow.get("spec") or {}
    return FlowSpec(
        name=metadata["name"],
        namespace=metadata.get("namespace") or "default",
        steps=tuple(_step(raw) for raw in spec.get("flows") or ()),
        delete_jobs=spec.get("jobRetainPolicy") == "delete",
    )


def _step(raw: Mapping[str, Any]) -> FlowStep:
    depends = raw.get("dependsOn") or {}
    probe = depends.get("probe") or {}
    conditions = [
        PodCondition(
            entry.get("taskName") or "",
            port=int(entry.get("port") or 0),
            path=f"/{(entry.get('path') or '').removeprefix('/')}",
            header=_header(entry.get("httpHeader")),
        )
        for entry in probe.get("httpGetList") or ()
    ]
    conditions += [
        PodCondition(entry.get("taskName") or "", port=int(entry.get("port") or 0))
        for entry in probe.get("tcpSocketList") or ()
    ]
    conditions += [
        PodCondition(entry.get("taskName") or "", phase=entry.get("phase") or "")
        for entry in probe.get("taskStatusList") or ()
    ]
    patch = (raw.get("patch") or {}).get("jobSpec")
    return FlowStep(raw["name"], tuple(depends.get("targets") or ()), tuple(conditions), patch)


def _header(raw: Mapping[str, Any] | None) -> tuple[str, str] | None:
    return (raw.get("name") or "", raw.get("value") or "") if raw else None


def pods_to_probe(condition: PodCondition, pods: Mapping[str, Sequence[Pod]]) -> list[Pod] | None:
    """Return the pods that a condition is about; ``None`` if it does not hold by their phases.

    ``pods``: pods of each target. A condition is about the targets that have the task.
    It does not hold if none of them has a pod of it.
    """
    found = [pod for group in pods.values() for pod in group if _task_of(pod) == condition.task]
    if not found or any(pod.deleting for pod in found):
        return None
    if condition.phase:
        return [] if all((pod.phase or "Pending") == condition.phase for pod in found) else None
    return found if all(pod.phase == "Running" and pod.pod_ip for pod in found) else None


def _task_of(pod: Pod) -> str:
    return pod.labels.get("volcano.sh/task-spec", "")
