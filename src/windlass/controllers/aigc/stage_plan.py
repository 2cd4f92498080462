"""Plan of the stages of an AIGCJob: which have workers now, how many, and with which devices. Pure.

The plan follows from the spec, the figures of the driver, the pods and what the last plan has
written to ``status.stages``. It is the same when it is made again after a stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.api.fields import aigc
from windlass.api.fields import stages as stage_fields
from windlass.api.fields.aigc import Json
from windlass.api.fields.stages import CPU_FALLBACK, EAGER, GPU_STAGE, REQUEUE, RESERVE
from windlass.jobs.aigc.autoscale import decided_workers, scales
from windlass.jobs.aigc.stages import StagePlan, StageWorkers
from windlass.jobs.members import RolePod
from windlass.kits.timestamps import rfc3339, stored_time
from windlass.scaling.balance import StageLoad, balance

SCALE_SECONDS = 5.0
"""Interval between two changes of the split of the budget (seconds)."""
RESERVATION = ("reservedAt", "expectedAt", "claimedAt", "expiredAt")
"""Times of a reservation in ``status.stages``: its begin, the forecast, and how it ended."""
MOVE_SECONDS = 5.0
"""Minimum change of a forecast that is written (seconds)."""
MOVE_FRACTION = 0.2
"""Minimum change of a forecast that is written, as a part of the time left."""
REQUEUE_SECONDS = 60.0
"""Time for which a stage that found no GPU gives up its place (seconds)."""


@dataclass(frozen=True, slots=True)
class _Context:
    """Everything that a stage is decided by.

    ``figures``: the stage as the driver reports it. ``on_cpus``: no stage before it has GPUs.
    ``rate``: rows that the stage before it finishes per second, as measured; 0: unknown.
    ``held``: no pod is created now.
    """

    spec: Json
    stage: Json
    index: int
    old: Json
    figures: Json
    before_ended: bool
    on_cpus: bool
    total: int
    rows_read: bool
    pods: Sequence[RolePod]
    started: float
    now: float
    rate: float = 0.0
    held: bool = False

    @property
    def progressive(self) -> Json:
        return aigc.part(self.spec, "progressive")

    def seconds(self, name: str, default: float) -> float:
        value = self.progressive.get(name)
        return default if value is None else float(value)

    @property
    def ready(self) -> int:
        """Return the number of rows that have reached the stage and not left it."""
        return int(self.figures.get("waiting") or 0) + int(self.figures.get("inFlight") or 0)

    @property
    def placed(self) -> bool:
        return any(pod.node and not pod.finished for pod in self.pods)


def plan_stages(
    obj: Json,
    stages: Sequence[Json],
    batch: Json | None,
    pods: Sequence[RolePod],
    now: float,
    held: bool = False,
) -> StagePlan:
    """Return the plan. ``stages``: in normal form. ``batch``: status of the driver. ``held``: no pod is created."""
    spec, status = aigc.part(obj, "spec"), aigc.part(obj, "status")
    old = {str(one.get("name")): one for one in status.get("stages") or ()}
    figures = {str(one.get("name")): one for one in (batch or {}).get("stages") or ()}
    items = aigc.part(batch or {}, "items")
    total, read = int(items.get("total") or 0), bool(figures)
    started = stored_time(status.get("startTime")) or now
    decided: list[tuple[StageWorkers, Json]] = []
    ended = on_cpus = True
    rate = 0.0
    for index, stage in enumerate(stages):
        name = stage["name"]
        seen = figures.get(name) or {}
        own = [pod for pod in pods if pod.role == name and not pod.deleting]
        context = _Context(
            spec,
            stage,
            index,
            old.get(name) or {},
            seen,
            ended,
            on_cpus,
            total,
            read,
            own,
            started,
            now,
            rate,
            held,
        )
        rate = _rate(seen, old.get(name) or {})
        over = bool(seen.get("finished") or (batch or {}).get("finished"))
        decided.append((_decide(context, over), seen))
        ended = over
        on_cpus = on_cpus and stage["kind"] != GPU_STAGE
    return _with_workers(spec, status, decided, old, now, _budget(obj))


def _decide(seen: _Context, ended: bool) -> StageWorkers:
    """Decide whether a stage has workers. Their number is decided for all stages together."""
    stage, notes = seen.stage, _kept_notes(seen.old)
    bounds = stage["parallelism"]
    if seen.held and not ended and all(pod.finished for pod in seen.pods):
        bound = False  # its times, such as that of reserveTimeoutSeconds, begin with the first pods
        for name in ("boundAt", *RESERVATION):
            notes.pop(name, None)
    elif ended:
        notes.setdefault("finishedAt", rfc3339(seen.now))
        bound = False
    elif stage["kind"] == GPU_STAGE and not seen.old.get("onCPU"):
        bound = _gpu_bound(seen, notes)
    else:
        eager = stage_fields.bind_of(seen.spec, stage) == EAGER
        flows = seen.on_cpus or eager  # rows come at once
        bound = bool(flows or notes.get("boundAt") or seen.ready or seen.before_ended)
    if bound:
        notes.setdefault("boundAt", rfc3339(seen.now))
    if not ended:
        notes.pop("finishedAt", None)
    if any(pod.running for pod in seen.pods):
        notes.setdefault("startedAt", rfc3339(seen.now))
    on_cpu = bool(notes.get("onCPU"))
    return StageWorkers(
        stage["name"], stage["kind"], bounds["min"], bounds["max"], bound, ended, 0, on_cpu, notes
    )


def _kept_notes(old: Json) -> dict[str, Any]:
    names = ("boundAt", "startedAt", "finishedAt", "idleSince", "releasedAt", "requeuedAt", "onCPU")
    return {name: old[name] for name in (*names, *RESERVATION) if old.get(name)}


def _rate(seen: Json, old: Json) -> float:
    """Return the rows per second of a stage: as the driver reports it, or as its workers' time for a row says."""
    each = float(seen.get("secondsPerItem") or 0)
    return float(seen.get("perSecond") or 0) or (int(old.get("ready") or 0) / each if each else 0.0)


def _gpu_bound(seen: _Context, notes: dict[str, Any]) -> bool:
    """Return whether a stage holds GPUs, or asks for them. ``notes`` are changed."""
    bind = stage_fields.bind_of(seen.spec, seen.stage)
    if bind == RESERVE and not (notes.get("releasedAt") or notes.get("claimedAt")):
        return _reserved(seen, notes)
    if not notes.get("boundAt"):
        requeued = stored_time(notes.get("requeuedAt"))
        if requeued and seen.now < requeued + REQUEUE_SECONDS:
            return False
        return bind == EAGER or _fed(seen)
    bound_at = stored_time(notes["boundAt"])
    timeout = seen.seconds("reserveTimeoutSeconds", stage_fields.RESERVE_SECONDS)
    waited = seen.now - bound_at
    if seen.placed or any(pod.running for pod in seen.pods):
        return not _idle_too_long(seen, notes) or _release(seen, notes)
    if waited < timeout:
        return True
    action = seen.progressive.get("onNoGPU")
    if action == CPU_FALLBACK:
        notes["onCPU"] = True
    elif action == REQUEUE:
        notes["requeuedAt"] = rfc3339(seen.now)
        notes.pop("boundAt")
        return False
    return True


def _reserved(seen: _Context, notes: dict[str, Any]) -> bool:
    """Return whether the GPUs of a stage are reserved, or claimed now. ``notes`` are changed."""
    now = rfc3339(seen.now)
    since = stored_time(notes.setdefault("reservedAt", now))
    if _fed(seen):
        notes["claimedAt"] = notes["boundAt"] = now
        return True
    if seen.now >= since + seen.seconds("reserveTimeoutSeconds", stage_fields.RESERVE_SECONDS):
        notes["expiredAt"] = now
        return _release(seen, notes)
    notes["expectedAt"] = rfc3339(_expected(seen, stored_time(notes.get("expectedAt") or now)))
    return True


def _expected(seen: _Context, before: float) -> float:
    """Return when the stage is expected to have enough rows. Small changes of the forecast are left out.

    Without a measured rate it is now: nothing is lent for a time that is not known.
    """
    missing = stage_fields.rows_to_start(seen.spec, seen.index, seen.total) - seen.ready
    if not (seen.rate and seen.rows_read and missing > 0):
        return max(before, seen.now) if seen.rate else before
    left = missing / seen.rate
    close = abs(seen.now + left - before) <= max(MOVE_SECONDS, MOVE_FRACTION * left)
    return before if close and before > seen.now else seen.now + left


def _release(seen: _Context, notes: dict[str, Any]) -> bool:
    """Note that the GPUs are released."""
    notes["releasedAt"] = rfc3339(seen.now)
    notes.pop("boundAt", None)
    notes.pop("idleSince", None)
    return False


def _fed(seen: _Context) -> bool:
    """Return whether enough rows are there to begin (``startWhen``).

    Rows that no stage adds to are enough, and so is a full spool.
    """
    if not seen.rows_read:
        return False
    if seen.index == 0 or seen.before_ended:
        return True
    return seen.ready >= stage_fields.rows_to_start(seen.spec, seen.index, seen.total)


def _idle_too_long(seen: _Context, notes: dict[str, Any]) -> bool:
    """Return whether GPUs without rows are to be released (``releaseIdleGPUSeconds``)."""
    if stage_fields.bind_of(seen.spec, seen.stage) == EAGER or seen.ready or not seen.figures:
        notes.pop("idleSince", None)
        return False
    since = notes.setdefault("idleSince", rfc3339(seen.now))
    limit = seen.seconds("releaseIdleGPUSeconds", stage_fields.RELEASE_IDLE_SECONDS)
    return seen.now - stored_time(since) >= limit


# Number of workers.


def _budget(obj: Json) -> int:
    """Return the number of workers that stages of one kind share; 0: each has its own number."""
    spec = aigc.part(obj, "spec")
    if not scales(spec):
        return stage_fields.budget_of(spec)
    return decided_workers(obj) or aigc.worker_count(spec)


def _with_workers(
    spec: Json,
    status: Json,
    decided: Sequence[tuple[StageWorkers, Json]],
    old: Mapping[str, Json],
    now: float,
    budget: int,
) -> StagePlan:
    """Return the plan with the number of workers of each stage."""
    before = {name: int(one.get("desired") or 0) for name, one in old.items()}
    loads = [_load(stage, seen, before.get(stage.name, 0), decided) for stage, seen in decided if stage.bound]
    budgets = {load.pool: budget or sum(one.most for one in loads if one.pool == load.pool) for load in loads}
    wanted = balance(loads, budgets)
    scaled = str(status.get("scaledTime") or "")
    # A change waits for its interval. Stages that begin or end do not.
    same = all(bool(before.get(stage.name)) == stage.bound for stage, _ in decided)
    early = bool(scaled) and now < stored_time(scaled) + SCALE_SECONDS
    close = all(abs(wanted.get(stage.name, 0) - before.get(stage.name, 0)) <= 1 for stage, _ in decided)
    if same and (early or (close and not _is_slack(decided, before))):
        wanted = before
    stages = tuple(_numbered(stage, wanted.get(stage.name, 0)) for stage, _ in decided)
    if any(stage.workers != before.get(stage.name, 0) for stage in stages):
        scaled = rfc3339(now)
    return StagePlan(stages, scaled)


def _is_slack(decided: Sequence[tuple[StageWorkers, Json]], before: Mapping[str, int]) -> bool:
    """Return whether a stage has so few workers that one more or less is worth a change."""
    return any(stage.bound and before.get(stage.name, 0) < 10 for stage, _ in decided)


def _load(
    stage: StageWorkers, seen: Json, current: int, decided: Sequence[tuple[StageWorkers, Json]]
) -> StageLoad:
    waiting, flying = int(seen.get("waiting") or 0), int(seen.get("inFlight") or 0)
    remaining = waiting + flying + int(seen.get("held") or 0)
    names = [one.name for one, _ in decided]
    full = any(
        other.get("full") for one, other in decided if names.index(one.name) + 1 == names.index(stage.name)
    )
    return StageLoad(
        stage.name,
        GPU_STAGE if stage.is_gpu else stage_fields.CPU_STAGE,
        float(seen.get("secondsPerItem") or 0),
        max(1, remaining),
        waiting,
        full,
        current,
        stage.least,
        stage.most,
        stage.is_gpu,
    )


def _numbered(stage: StageWorkers, workers: int) -> StageWorkers:
    number = max(stage.least, min(stage.most, workers)) if stage.bound else 0
    return replace(stage, workers=number)
