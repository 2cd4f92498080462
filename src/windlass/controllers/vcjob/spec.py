"""Spec of a Volcano Job with the defaults of Volcano's admission.

The same defaults apply on a cluster without that admission (``maxRetry: 0`` and
``minAvailable: 0`` mean "not set", as there).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.defaults.volcano import PLUGIN_NEEDS
from windlass.kits import durations

DEFAULT_QUEUE = "default"
DEFAULT_SCHEDULER = "volcano"
DEFAULT_MAX_RETRY = 3


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """Policy: on ``events`` or ``exit_code`` do ``action``, after ``delay_seconds``.

    The event must still hold then. ``delay_seconds`` is ``None`` if no timeout is set.
    """

    action: str
    events: tuple[str, ...] = ()
    exit_code: int | None = None
    delay_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """Part of a task that is placed and restarted together."""

    total: int
    size: int
    minimum: int
    topology: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class JobTask:
    name: str
    replicas: int
    min_available: int
    template: Mapping[str, Any]
    policies: tuple[JobPolicy, ...] = ()
    max_retry: int = DEFAULT_MAX_RETRY
    depends_on: tuple[str, ...] = ()
    depends_on_any: bool = False
    topology_policy: str = ""
    partition: Partition | None = None

    @property
    def pod_spec(self) -> Mapping[str, Any]:
        return self.template.get("spec") or {}


@dataclass(frozen=True, slots=True)
class JobVolume:
    """``claim`` None: the claim named ``claim_name`` must be there already."""

    mount_path: str
    claim_name: str
    claim: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class JobSpec:
    name: str
    namespace: str
    uid: str
    queue: str
    scheduler_name: str
    priority_class: str
    min_available: int
    min_success: int | None
    max_retry: int
    ttl_seconds: int | None
    tasks: tuple[JobTask, ...]
    policies: tuple[JobPolicy, ...]
    plugins: Mapping[str, tuple[str, ...]]
    volumes: tuple[JobVolume, ...]
    topology: Mapping[str, Any] | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    running_estimate: str = ""

    @property
    def replicas(self) -> int:
        return sum(task.replicas for task in self.tasks)

    @property
    def task_minimum(self) -> int:
        return sum(task.min_available for task in self.tasks)

    @property
    def group_name(self) -> str:
        return f"{self.name}-{self.uid}"

    def task(self, name: str) -> JobTask | None:
        return next((task for task in self.tasks if task.name == name), None)

    def pod_name(self, task: str, index: int) -> str:
        return f"{self.name}-{task}-{index}"


def read(job: Mapping[str, Any], scheduler: str = DEFAULT_SCHEDULER) -> JobSpec:
    """Parse a Job. ``scheduler``: scheduler of its pods if it names none.

    Raises ``ValueError``, ``TypeError`` or ``KeyError`` on a spec that validation
    rejects.
    """
    metadata = job["metadata"]
    spec = job.get("spec") or {}
    tasks = tuple(_task(raw, position) for position, raw in enumerate(spec.get("tasks") or ()))
    plugins = {name: tuple(arguments or ()) for name, arguments in (spec.get("plugins") or {}).items()}
    for name in list(plugins):
        for needed in PLUGIN_NEEDS.get(name, ()):
            plugins.setdefault(needed, ())
    return JobSpec(
        name=metadata["name"],
        namespace=metadata.get("namespace") or "default",
        uid=metadata.get("uid", ""),
        queue=spec.get("queue") or DEFAULT_QUEUE,
        scheduler_name=spec.get("schedulerName") or scheduler,
        priority_class=spec.get("priorityClassName") or "",
        min_available=int(spec.get("minAvailable") or 0) or sum(task.min_available for task in tasks),
        min_success=spec.get("minSuccess"),
        max_retry=int(spec.get("maxRetry") or 0) or DEFAULT_MAX_RETRY,
        ttl_seconds=spec.get("ttlSecondsAfterFinished"),
        tasks=tasks,
        policies=_policies(spec.get("policies")),
        plugins=plugins,
        volumes=tuple(_volume(raw) for raw in spec.get("volumes") or ()),
        topology=spec.get("networkTopology"),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        running_estimate=spec.get("runningEstimate") or "",
    )


def _task(raw: Mapping[str, Any], position: int) -> JobTask:
    replicas = int(raw.get("replicas") or 0)
    partition = _partition(raw.get("partitionPolicy"))
    least = raw.get("minAvailable")
    if least is None:
        least = partition.minimum * partition.size if partition and partition.minimum else replicas
    depends = raw.get("dependsOn") or {}
    return JobTask(
        name=raw.get("name") or f"default{position}",
        replicas=replicas,
        min_available=int(least),
        template=raw.get("template") or {},
        policies=_policies(raw.get("policies")),
        max_retry=int(raw.get("maxRetry") or 0) or DEFAULT_MAX_RETRY,
        depends_on=tuple(depends.get("name") or ()),
        depends_on_any=depends.get("iteration") == "any",
        topology_policy=raw.get("topologyPolicy") or "",
        partition=partition,
    )


def _partition(raw: Mapping[str, Any] | None) -> Partition | None:
    if not raw:
        return None
    return Partition(
        total=int(raw.get("totalPartitions") or 0),
        size=int(raw.get("partitionSize") or 0),
        minimum=int(raw.get("minPartitions") or 0),
        topology=raw.get("networkTopology"),
    )


def _policies(raw: Any) -> tuple[JobPolicy, ...]:
    return tuple(_policy(entry) for entry in raw or ())


def _policy(raw: Mapping[str, Any]) -> JobPolicy:
    events = list(raw.get("events") or ())
    if raw.get("event"):
        events.append(raw["event"])
    timeout = raw.get("timeout")
    return JobPolicy(
        action=raw.get("action") or "",
        events=tuple(events),
        exit_code=raw.get("exitCode"),
        delay_seconds=None if timeout is None else durations.parse(timeout),
    )


def _volume(raw: Mapping[str, Any]) -> JobVolume:
    return JobVolume(
        mount_path=raw.get("mountPath") or "",
        claim_name=raw.get("volumeClaimName") or "",
        claim=raw.get("volumeClaim"),
    )
