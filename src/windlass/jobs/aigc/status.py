"""Status of an AIGCJob: phase, conditions, items, groups, GPU seconds.

The life cycle of the job core decides; the phase of the status says in addition what an
active job waits for. Figures of items come from the driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.fields import aigc
from windlass.api.fields.model_cache import FETCHING, READY
from windlass.jobs.aigc.job import AigcJob
from windlass.jobs.aigc.stages import (
    gpu_stage_seconds,
    reserved_seconds,
    stage_condition,
    stage_statuses,
    stopped_statuses,
    unbound_seconds,
)
from windlass.jobs.aigc.unstarted import unstarted_text
from windlass.jobs.aigc.volumes import CONDITION as VOLUMES_READY
from windlass.jobs.aigc.volumes import MissingVolume, missing_message
from windlass.jobs.decision import LifecycleState
from windlass.jobs.definition import Json
from windlass.jobs.lifecycle import FINAL, JobPhase
from windlass.jobs.lifecycle_records import read_record
from windlass.jobs.members import LossCause, RolePod
from windlass.kits.timestamps import rfc3339, rfc3339_micro, stored_time

PENDING, QUEUED, PREPROCESSING, WAITING, RUNNING = (
    "Pending",
    "Queued",
    "Preprocessing",
    "WaitingForGPU",
    "Running",
)
PRELOADING = "Preloading"
SUCCEEDED, FAILED, SUSPENDED, PREEMPTED, RETRYING = (
    "Succeeded",
    "Failed",
    "Suspended",
    "Preempted",
    "Retrying",
)
UNSTARTED_SECONDS = 20.0
"""Time after which the status tells that the node has not started the driver (seconds)."""
MAX_GROUPS = 20
"""Maximum number of groups in the status: those with the most items left."""
_CORE = {
    SUCCEEDED: JobPhase.SUCCEEDED,
    FAILED: JobPhase.FAILED,
    SUSPENDED: JobPhase.SUSPENDED,
    PREEMPTED: JobPhase.RESTARTING,
    RETRYING: JobPhase.RESTARTING,
    RUNNING: JobPhase.RUNNING,
    WAITING: JobPhase.RUNNING,
    PREPROCESSING: JobPhase.RUNNING,
}


@dataclass(frozen=True, slots=True)
class Observation:
    """Observed surroundings of a job.

    ``admitted``: its PodGroup was admitted to the queue; ``None``: it has none yet.
    ``batch``: status of the driver; ``None``: not read. ``outputs``: path of the outputs.
    ``stopped``: the driver writes the rows that are done, as the job has failed.
    ``missing``: claims and ConfigMaps that pods of the job need.
    ``model``: ``Ready``, ``Fetching`` or ``Absent`` on the nodes; empty: none is preloaded.
    """

    pods: Sequence[RolePod]
    admitted: bool | None
    batch: Json | None
    now: float
    outputs: str = ""
    model: str = ""
    stopped: bool = False
    missing: Sequence[MissingVolume] = ()


def read_state(obj: Json) -> LifecycleState:
    """Return the state that the object's status and annotation hold."""
    status = obj.get("status") or {}
    cause, restarts = read_record(obj)
    return LifecycleState(
        phase=_CORE.get(str(status.get("phase") or ""), JobPhase.CREATED),
        started=stored_time(status.get("startTime")),
        completed=stored_time(status.get("completionTime")),
        cause=cause,
        restarts=restarts,
    )


def attempt_of(state: LifecycleState) -> int:
    """Return the number of the attempt, from 1 on. Only failures of the program begin a new one."""
    return state.restarts.of(LossCause.PROGRAM) + 1


def render(
    job: AigcJob, obj: Json, before: LifecycleState, after: LifecycleState, seen: Observation
) -> dict[str, Any]:
    """Return the status after a decision. Equal input gives an equal status."""
    old = obj.get("status") or {}
    status: dict[str, Any] = dict(old)
    failed_once_more = after.phase is JobPhase.FAILED and after.cause == "BackoffLimitExceeded"
    status["attempts"] = attempt_of(after) - failed_once_more
    status["priority"] = job.level
    status["queue"] = job.definition.gang.queue
    _put(status, "outputs", seen.outputs or None)
    status["phase"] = phase_of(job, after, seen)
    workers = workers_among(seen.pods)
    active = after.phase not in FINAL and after.phase is not JobPhase.SUSPENDED
    held = sum(job.gpus_of_role(pod.role) for pod in workers if pod.node and not pod.finished)
    _put(status, "gpus", held if job.gpus else None)
    running = [pod for pod in workers if pod.running]
    nodes = len({pod.node for pod in running})
    status["workers"] = {
        "desired": sum(role.replicas // role.size for role in job.workers) if active else 0,
        "running": len(whole_workers(job, running)),
        **({"shards": job.shards} if job.shards > 1 else {}),
        "peakNodes": max(nodes, int((old.get("workers") or {}).get("peakNodes") or 0)),
    }
    for field, seconds in (("startTime", after.started), ("completionTime", after.completed)):
        _put(status, field, rfc3339(seconds) if seconds else None)
    if job.retry:
        status["retried"] = job.retry
    _take_batch(status, seen.batch, active)
    if job.plan is not None:
        before_stages = old.get("stages") or ()
        if active:
            status["stages"] = stage_statuses(job.plan, seen.batch, workers, before_stages)
            _put(status, "scaledTime", job.plan.scaled or None)
        else:
            ended = rfc3339(after.completed) if after.phase is JobPhase.SUCCEEDED else ""
            status["stages"] = stopped_statuses(before_stages, seen.batch, ended)
    if "placedTime" not in status and any(pod.node for pod in seen.pods):
        status["placedTime"] = rfc3339_micro(seen.now)
    placed = stored_time(status.get("placedTime"))
    if job.binds_late and placed and rows_are_read(seen.batch) and "rowsReadSeconds" not in status:
        status["rowsReadSeconds"] = round(max(0.0, seen.now - placed), 3)
    _take_gpu_time(job, status, old, held, seen)
    if before.phase not in FINAL:  # the words for the end are written once
        _put(status, "message", _message(job, after, status, seen) or None)
        status["conditions"] = _conditions(job, old.get("conditions") or [], after, status, seen)
    return status


def _put(status: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        status.pop(name, None)
    else:
        status[name] = value


def phase_of(job: AigcJob, state: LifecycleState, seen: Observation) -> str:
    """Return the phase that users see."""
    if state.phase is JobPhase.RESTARTING:
        last = LossCause.PREEMPTION if _lost_by_preemption(seen.pods) else LossCause.PROGRAM
        return PREEMPTED if last is LossCause.PREEMPTION else RETRYING
    if state.phase in FINAL or state.phase is JobPhase.SUSPENDED:
        return str(state.phase)
    workers = workers_among(seen.pods)
    if job.plan is not None and job.has_gpu_stage:
        workers = [pod for pod in workers if _is_gpu_stage(job, pod.role)]
        if job.plan.gpu_started:
            return RUNNING
    if any(pod.running or pod.succeeded for pod in workers):
        return RUNNING
    if seen.admitted is None:
        return PENDING
    driving = any(pod.running for pod in seen.pods if pod.role == aigc.DRIVER)
    if driving and job.plan is not None and job.has_gpu_stage:
        return WAITING if job.plan.gpu_bound else PREPROCESSING
    if driving and job.gpus:
        if any(pod.node and not pod.finished for pod in workers):
            return RUNNING  # the GPUs are bound: the pods of a worker start, or end to start again
        return WAITING if rows_are_read(seen.batch) or not job.binds_late else PREPROCESSING
    return PRELOADING if seen.model == FETCHING else QUEUED


def workers_among(pods: Sequence[RolePod]) -> list[RolePod]:
    """Return the workers, of whatever stage."""
    return [pod for pod in pods if pod.role and pod.role != aigc.DRIVER]


def whole_workers(job: AigcJob, pods: Sequence[RolePod]) -> list[tuple[str, int]]:
    """Return the workers of which all pods are among these; without shards each pod is one."""
    counts = Counter((pod.role, pod.index // job.shards) for pod in pods)
    return [place for place, count in counts.items() if count >= job.shards]


def _is_gpu_stage(job: AigcJob, role: str) -> bool:
    stage = job.plan.stage(role) if job.plan is not None else None
    return stage is not None and stage.is_gpu


def rows_are_read(batch: Json | None) -> bool:
    """Return whether the driver has admitted the rows, or has ended."""
    if batch is None:
        return False
    return bool(batch.get("finished") or (batch.get("phase") != "Admitting" and batch.get("items")))


def has_rows(batch: Json | None) -> bool:
    """Return whether the driver has rows for workers, so that GPUs may be bound for them."""
    return rows_are_read(batch) and not (batch or {}).get("failure")


def _lost_by_preemption(pods: Sequence[RolePod]) -> bool:
    lost = [pod for pod in pods if pod.failed or pod.deleting]
    return bool(lost) and all(pod.disrupted and not pod.killed for pod in lost)


def _message(job: AigcJob, state: LifecycleState, status: Json, seen: Observation) -> str:
    """Return why the job failed, why its last attempt did, or what its driver waits for."""
    failure = status.get("failure") or {}
    words = f"{failure.get('reason')}: {failure.get('message')}" if failure else _last_words(seen.pods)
    if state.phase is JobPhase.FAILED:
        if failure and state.cause == "PodFailed":
            return words
        return "; ".join(filter(None, (words, state.message, _written(status, seen))))
    if seen.missing and state.phase is not JobPhase.SUSPENDED:
        text = missing_message(seen.missing, job.definition.name, job.definition.namespace)
        return f"{seen.missing[0].reason}: {text}"
    if state.phase is JobPhase.RESTARTING:
        return words
    blocked = (seen.batch or {}).get("blocked") or {}
    if blocked:
        return f"{blocked.get('reason')}: {blocked.get('message')}"
    return _unstarted_driver(state, status, seen) if not status.get("items") else ""


def _written(status: Json, seen: Observation) -> str:
    """Tell how many rows a failed job has written; empty if its driver did not write them."""
    items = status.get("items") or {}
    if not seen.stopped or not items.get("done"):
        return ""
    return f"the outputs have {items['done']} of {items.get('total')} rows"


def _unstarted_driver(state: LifecycleState, status: Json, seen: Observation) -> str:
    """Tell a driver that its node does not start, for example because a folder cannot be created."""
    driver = next((pod for pod in seen.pods if pod.role == aigc.DRIVER), None)
    if driver is None or driver.phase != "Pending" or not driver.node or driver.deleting:
        return ""
    if not state.started or seen.now < state.started + UNSTARTED_SECONDS:
        return ""
    return unstarted_text(driver, seen.outputs)


def _last_words(pods: Sequence[RolePod]) -> str:
    """Return what the last pod said that failed by itself."""
    failed = [pod for pod in pods if pod.failed and not pod.disrupted and (pod.message or pod.exit_code)]
    last = max(failed, key=lambda pod: (bool(pod.message), pod.ended), default=None)
    if last is None or last.message.startswith("{"):
        return ""
    return f"{last.name}: {last.message or f'exit code {last.exit_code}'}"


# Figures of the driver.


def _take_batch(status: dict[str, Any], batch: Json | None, active: bool) -> None:
    """Take the figures of the driver over; keep the last ones while it does not answer."""
    if batch is not None and not (batch.get("phase") == "Admitting" and status.get("items")):
        items = dict(batch.get("items") or status.get("items") or {})
        for field in ("perSecond", "etaSeconds"):
            if items.get(field) is None:
                items.pop(field, None)
        status["items"] = items
        groups = list(batch.get("groups") or ())
        _put(status, "groups", groups[:MAX_GROUPS] or None)
        for field in ("quality", "latency", "failure", "model", "contextCache", "takenOver", "lastError"):
            found = batch.get(field)
            if found or field != "model":  # a driver that was started again may meet no worker any more
                _put(status, field, dict(found) if found else None)
    if not active and isinstance(status.get("items"), Mapping):
        rest = ("perSecond", "etaSeconds", "inFlight")
        status["items"] = {name: value for name, value in status["items"].items() if name not in rest}


def _take_gpu_time(job: AigcJob, status: dict[str, Any], old: Json, held: int, seen: Observation) -> None:
    """Add the allocated GPU seconds since the last status, and tell how many of them worked on items.

    Workers that start and end between two statuses have held GPUs as long as they worked on rows.
    Rows of one worker that are processed at the same time can add up to more than its GPUs are
    allocated for: then all of the allocated time is used. Binding at once would have allocated the
    GPUs of the least workers from the first pod on a node until they were asked for, too.
    """
    before, since = int(old.get("gpus") or 0), stored_time(old.get("observedTime"))
    allocated = float(old.get("gpuSeconds") or 0)
    if before and since and seen.now > since:
        allocated += before * (seen.now - since)
    if job.plan is not None and (reserved := reserved_seconds(job.plan, seen.now, job.least_gpus)):
        status["gpuReservedSeconds"] = round(reserved, 3)
    if before or held:
        status["observedTime"] = rfc3339_micro(seen.now)
    used = _used_gpu_seconds(job, status, seen.batch)
    allocated = round(allocated or used or 0.0, 3)
    if not allocated:
        return
    status["gpuSeconds"] = allocated
    if used is not None:
        status["gpuBusySeconds"] = round(min(used, allocated), 3)
    status["gpuIdleSeconds"] = round(allocated - float(status.get("gpuBusySeconds") or 0), 3)
    if job.plan is not None:
        waited = unbound_seconds(job.plan, stored_time(status.get("placedTime")), job.least_gpus_bound_late)
    else:
        waited = float(status.get("rowsReadSeconds") or 0) * job.gpus * job.minimum
    if not waited and "gpuSecondsEager" in old:  # of a job that has ended, the plan is not known any more
        waited = float(old["gpuSecondsEager"]) - float(old.get("gpuSeconds") or 0)
    _put(status, "gpuSecondsEager", round(allocated + waited, 3) if waited > 0 else None)


def _used_gpu_seconds(job: AigcJob, status: Json, batch: Json | None) -> float | None:
    """Return the GPU seconds that worked on rows; ``None``: the driver does not tell."""
    if job.plan is not None:
        return gpu_stage_seconds(job.plan, status["stages"], job.gpus_of_role)
    if batch is None or batch.get("busySeconds") is None:
        return None
    return float(batch["busySeconds"]) * job.gpus


# Conditions.


def _conditions(
    job: AigcJob, present: Sequence[Json], state: LifecycleState, status: Json, seen: Observation
) -> list[dict[str, Any]]:
    workers = workers_among(seen.pods)
    placed = [pod for pod in workers if pod.node and not pod.finished]
    ready = len(whole_workers(job, [pod for pod in workers if pod.ready]))
    final = state.phase in FINAL
    queue = job.definition.gang.queue
    wanted: list[tuple[str, bool, str, str]] = []
    # Workers that had the model are surer than the labels of nodes, which are written a moment later.
    model = READY if seen.model and any((status.get("model") or {}).values()) else seen.model
    if model and (not final or model == READY):
        words = f"{aigc.part(job.spec, 'model').get('name')}: {model}"
        wanted.append(("ModelReady", model == READY, model, words))
    if not final:
        wanted.append(
            ("Admitted", bool(seen.admitted), "Admitted" if seen.admitted else "Queued", f"queue {queue}")
        )
        if job.gpus:
            bound = [pod for pod in placed if job.gpus_of_role(pod.role)]
            gpus = sum(job.gpus_of_role(pod.role) for pod in bound)
            words = f"{gpus} GPUs for {len(whole_workers(job, bound))} workers"
            wanted.append(("GPUBound", bool(bound), "Bound" if bound else "NotBound", words))
        wanted += [stage_condition(stage) for stage in status.get("stages") or ()]
        least = job.minimum if job.plan is None else max(1, sum(role.minimum for role in job.workers))
        enough = ready >= least
        words = f"{ready} of at least {least} workers are ready"
        wanted.append(("PodsReady", enough, "PodsReady" if enough else "PodsNotReady", words))
    if seen.missing and not final:
        words = missing_message(seen.missing, job.definition.name, job.definition.namespace)
        wanted.append((VOLUMES_READY, False, str(seen.missing[0].reason), words))
    elif any(one.get("type") == VOLUMES_READY for one in present):
        wanted.append((VOLUMES_READY, True, VOLUMES_READY, ""))
    items = status.get("items") or {}
    done = f"{items.get('done', 0)} of {items.get('total', 0)} items are done"
    if "total" not in items and state.phase is JobPhase.SUCCEEDED:
        done = f"the last report of the driver was not read: kubectl logs {job.driver_host}"
    moving = status["phase"] == RUNNING
    wanted.append(
        ("Progressing", moving, str(status["phase"]), "" if final else str(status.get("message") or ""))
    )
    if final:
        succeeded = state.phase is JobPhase.SUCCEEDED
        wanted.append(("Completed", succeeded, str(state.phase), done))
        reason = "Succeeded" if succeeded else state.cause or "Failed"
        wanted.append(
            ("Failed", not succeeded, reason, done if succeeded else str(status.get("message") or done))
        )
    conditions = [dict(one) for one in present if final or one.get("type") not in ("Completed", "Failed")]
    for kind, holds, reason, message in wanted:
        conditions = _with(conditions, kind, "True" if holds else "False", reason, message, seen.now)
    return conditions


def _with(
    conditions: list[dict[str, Any]], kind: str, value: str, reason: str, message: str, now: float
) -> list[dict[str, Any]]:
    new = {"type": kind, "status": value, "reason": reason, "message": message}
    old = next((one for one in conditions if one.get("type") == kind), None)
    changed = old is None or old.get("status") != value
    new["lastTransitionTime"] = rfc3339(now) if changed or old is None else old.get("lastTransitionTime", "")
    if old is None:
        return [*conditions, new]
    return [new if one is old else one for one in conditions]
