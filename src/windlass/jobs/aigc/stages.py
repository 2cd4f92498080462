"""Stages of an AIGCJob as roles: their workers, and what the status tells about them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields import aigc
from windlass.api.fields.aigc import Json
from windlass.api.fields.stages import GPU_STAGE
from windlass.jobs.definition import RestartRule, Role
from windlass.jobs.members import RolePod
from windlass.kits.timestamps import rfc3339, stored_time

RESERVED_PHASE = "Reserved"
"""Phase of a stage with a reservation of GPUs that is not claimed yet."""


@dataclass(frozen=True, slots=True)
class StageWorkers:
    """Decision about one stage.

    ``bound``: it has workers. ``ended``: all rows have left it. ``workers``: number of them.
    ``on_cpu``: a GPU stage that runs without GPUs (``onNoGPU: CPUFallback``).
    ``notes``: fields of ``status.stages`` that the next plan reads.
    """

    name: str
    kind: str
    least: int
    most: int
    bound: bool
    ended: bool
    workers: int
    on_cpu: bool
    notes: Mapping[str, Any]

    @property
    def is_gpu(self) -> bool:
        return self.kind == GPU_STAGE and not self.on_cpu

    @property
    def is_reserved(self) -> bool:
        """Return whether its GPUs are reserved, so that its workers wait with a closed scheduling gate."""
        ended = self.notes.get("claimedAt") or self.notes.get("expiredAt")
        return self.bound and bool(self.notes.get("reservedAt")) and not ended


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Decisions about all stages. ``scaled``: time of the last change of the split, as it is stored."""

    stages: tuple[StageWorkers, ...]
    scaled: str

    @property
    def gpu_bound(self) -> bool:
        """Return whether a GPU stage holds GPUs, or asks for them."""
        return any(stage.kind == GPU_STAGE and stage.bound and not stage.is_reserved for stage in self.stages)

    def reservation(self, name: str, limit: float) -> dict[str, str]:
        """Return the annotations of the PodGroup of a stage. ``limit``: seconds for which GPUs are reserved."""
        stage = self.stage(name)
        if stage is None or not stage.bound or not stage.notes.get("reservedAt"):
            return {}
        if stage.notes.get("releasedAt"):
            return {}
        claimed = stage.notes.get("claimedAt")
        until = rfc3339(stored_time(claimed or stage.notes["reservedAt"]) + limit)
        start = str(claimed or stage.notes.get("expectedAt"))
        return {names.EARLIEST_START: start, names.RESERVE_UNTIL: until}

    @property
    def gpu_started(self) -> bool:
        """Return whether a worker of a GPU stage has run."""
        return any(stage.kind == GPU_STAGE and bool(stage.notes.get("startedAt")) for stage in self.stages)

    def stage(self, name: str) -> StageWorkers | None:
        return next((stage for stage in self.stages if stage.name == name), None)


def stage_roles(stages: Sequence[Json], plan: StagePlan | None) -> list[Role]:
    """Return a role for each stage. Without a plan each has its least number of workers."""
    found = []
    for stage in stages:
        decided = plan.stage(stage["name"]) if plan is not None else None
        workers = decided.workers if decided is not None else stage["parallelism"]["min"]
        least = min(stage["parallelism"]["min"], workers)
        on_cpu = decided is not None and decided.on_cpu
        key = f"{stage['name']}-cpu" if on_cpu else stage["name"]
        template = stage_template(stage, on_cpu=on_cpu)
        found.append(Role(stage["name"], key, workers, least, template, RestartRule.REPLACE))
    return found


def stage_template(stage: Json, *, on_cpu: bool = False) -> dict[str, Any]:
    """Return the pod template of the workers of a stage. ``on_cpu``: without its GPUs."""
    template = dict(aigc.part(stage, "template"))
    pod = dict(aigc.part(template, "spec"))
    containers = [dict(one) for one in pod.get("containers") or () if isinstance(one, Mapping)]
    if not containers:
        containers = [{"name": "worker"}]
    if not containers[0].get("resources"):
        containers[0]["resources"] = stage["resources"]
    if on_cpu:
        containers = [{**one, "resources": _without_gpus(one.get("resources"))} for one in containers]
    pod["containers"] = containers
    template["spec"] = pod
    return template


def _without_gpus(resources: Any) -> dict[str, Any]:
    if not isinstance(resources, Mapping):
        return {}
    return {
        kind: {name: amount for name, amount in amounts.items() if "/" not in name or "gpu" not in name}
        for kind, amounts in resources.items()
        if isinstance(amounts, Mapping)
    }


def stage_statuses(
    plan: StagePlan, batch: Json | None, pods: Sequence[RolePod], old: Sequence[Json]
) -> list[dict[str, Any]]:
    """Return ``status.stages``. Figures of a driver that does not answer are kept."""
    figures = {str(one.get("name")): one for one in (batch or {}).get("stages") or ()}
    before = {str(one.get("name")): one for one in old}
    return [
        _status(stage, figures.get(stage.name) or before.get(stage.name) or {}, pods) for stage in plan.stages
    ]


_STEP_SECONDS = 10.0
"""Interval between two changes of the time of a reservation in the status (seconds)."""
_FIGURES = ("done", "failed", "waiting", "inFlight", "secondsPerItem", "busySeconds", "perSecond")


def _status(stage: StageWorkers, figures: Json, pods: Sequence[RolePod]) -> dict[str, Any]:
    own = [pod for pod in pods if pod.role == stage.name]
    running = sum(pod.running for pod in own)
    return {
        "name": stage.name,
        "kind": stage.kind,
        "phase": _phase(stage, running),
        "desired": stage.workers,
        "replicas": sum(not pod.finished for pod in own),
        "ready": sum(pod.ready for pod in own),
        **{name: figures[name] for name in _FIGURES if name in figures},
        **stage.notes,
    }


def stopped_statuses(old: Sequence[Json], batch: Json | None, ended: str) -> list[dict[str, Any]]:
    """Return ``status.stages`` of a job that does not run. ``ended``: time of its success, or empty."""
    figures = {str(one.get("name")): one for one in (batch or {}).get("stages") or ()}
    found = []
    for stage in old:
        one = {**stage, "desired": 0, "replicas": 0, "ready": 0}
        seen = figures.get(stage["name"]) or {}
        one |= {name: seen[name] for name in _FIGURES if name in seen}
        if ended:
            one = {"finishedAt": ended, **one, "phase": "Succeeded"}
        elif one["phase"] != "Succeeded":
            one["phase"] = "Stopped"
        found.append(one)
    return found


def _phase(stage: StageWorkers, running: int) -> str:
    if stage.ended:
        return "Succeeded"
    if running:
        return "Running"
    if stage.is_reserved:
        return RESERVED_PHASE
    if stage.bound:
        return "WaitingForGPU" if stage.is_gpu else "Starting"
    return "Released" if stage.notes.get("releasedAt") else "Waiting"


def stage_condition(stage: Json) -> tuple[str, bool, str, str]:
    """Return the condition ``StageReady/<stage>``: type, value, reason, message."""
    words = f"{stage['ready']} of {stage['desired']} workers are ready"
    ready = bool(stage["desired"]) and stage["ready"] >= 1
    return f"StageReady/{stage['name']}", ready, str(stage["phase"]), words


def reserved_seconds(plan: StagePlan, now: float, gpus: Callable[[str], int]) -> float:
    """Return the GPU seconds of reservations that others could use. ``gpus``: role → GPUs of its least workers."""
    found = 0.0
    for stage in plan.stages:
        if begun := stored_time(stage.notes.get("reservedAt")):
            end = stored_time(stage.notes.get("claimedAt") or stage.notes.get("expiredAt"))
            end = end or now - now % _STEP_SECONDS
            found += max(0.0, end - begun) * gpus(stage.name)
    return found


def unbound_seconds(plan: StagePlan, placed: float, gpus: Callable[[str], int]) -> float:
    """Return the GPU seconds between the first pod on a node and the time when GPUs were asked for.

    ``placed``: time of that pod; 0: none was placed. ``gpus``: stage → GPUs of its least workers if they
    are bound late, else 0.
    """
    found = 0.0
    for stage in plan.stages:
        bound = stored_time(stage.notes.get("boundAt"))
        if stage.kind == GPU_STAGE and placed and bound:
            found += max(0.0, bound - int(placed)) * gpus(stage.name)  # bound is in whole seconds, too
    return found


def gpu_stage_seconds(plan: StagePlan, statuses: Sequence[Json], gpus: Callable[[str], int]) -> float:
    """Return the GPU seconds that worked on rows. ``gpus``: role → GPUs of a worker."""
    return sum(
        float(stage.get("busySeconds") or 0) * gpus(stage["name"])
        for stage in statuses
        if stage["kind"] == GPU_STAGE and (found := plan.stage(stage["name"])) is not None and found.is_gpu
    )
