"""Status of an AIGCJob: phase, conditions, items, groups, GPU seconds.

The life cycle of the job core decides; the phase of the status says in addition what an
active job waits for. Figures of items come from the driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api import aigc_fields as fields
from windlass.jobs.aigc.job import AigcJob
from windlass.jobs.decision import LifecycleState
from windlass.jobs.definition import Json
from windlass.jobs.lifecycle import FINAL, JobPhase
from windlass.jobs.lifecycle_records import read_record
from windlass.jobs.members import LossCause, RolePod
from windlass.kits.timestamps import parse_rfc3339, rfc3339, rfc3339_micro

PENDING, QUEUED, PREPROCESSING, WAITING, RUNNING = (
    "Pending",
    "Queued",
    "Preprocessing",
    "WaitingForGPU",
    "Running",
)
SUCCEEDED, FAILED, SUSPENDED, PREEMPTED, RETRYING = (
    "Succeeded",
    "Failed",
    "Suspended",
    "Preempted",
    "Retrying",
)
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
    """

    pods: Sequence[RolePod]
    admitted: bool | None
    batch: Json | None
    now: float
    outputs: str = ""


def read_state(obj: Json) -> LifecycleState:
    """Return the state that the object's status and annotation hold."""
    status = obj.get("status") or {}
    cause, restarts = read_record(obj)
    return LifecycleState(
        phase=_CORE.get(str(status.get("phase") or ""), JobPhase.CREATED),
        started=_seconds(status.get("startTime")),
        completed=_seconds(status.get("completionTime")),
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
    workers = [pod for pod in seen.pods if pod.role == fields.WORKER]
    active = after.phase not in FINAL and after.phase is not JobPhase.SUSPENDED
    held = sum(job.gpus for pod in workers if pod.node and not pod.finished)
    _put(status, "gpus", held if job.gpus else None)
    status["workers"] = {
        "desired": job.worker.replicas if active else 0,
        "running": sum(pod.running for pod in workers),
    }
    for field, seconds in (("startTime", after.started), ("completionTime", after.completed)):
        _put(status, field, rfc3339(seconds) if seconds else None)
    if job.retry:
        status["retried"] = job.retry
    _take_batch(status, seen.batch, active)
    if job.binds_late and after.started and rows_are_read(seen.batch) and "rowsReadSeconds" not in status:
        status["rowsReadSeconds"] = round(seen.now - after.started, 3)
    _take_gpu_time(job, status, old, held, seen)
    if before.phase not in FINAL:  # the words for the end are written once
        _put(status, "message", _message(after, status) or None)
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
    workers = [pod for pod in seen.pods if pod.role == fields.WORKER]
    if any(pod.running or pod.succeeded for pod in workers):
        return RUNNING
    if seen.admitted is None:
        return PENDING
    driving = any(pod.running for pod in seen.pods if pod.role == fields.DRIVER)
    if driving and job.gpus:
        return WAITING if rows_are_read(seen.batch) or not job.binds_late else PREPROCESSING
    return QUEUED


def rows_are_read(batch: Json | None) -> bool:
    """Return whether the driver has admitted the rows, or has ended."""
    if batch is None:
        return False
    return bool(batch.get("finished") or (batch.get("phase") != "Admitting" and batch.get("items")))


def _lost_by_preemption(pods: Sequence[RolePod]) -> bool:
    lost = [pod for pod in pods if pod.failed or pod.deleting]
    return bool(lost) and all(pod.disrupted for pod in lost)


def _message(state: LifecycleState, status: Json) -> str:
    """Return why the job failed, or why its last attempt did."""
    failure = status.get("failure") or {}
    words = f"{failure.get('reason')}: {failure.get('message')}" if failure else ""
    if state.phase is JobPhase.FAILED:
        return f"{words}; {state.message}" if words and state.message else words or state.message
    return words if state.phase is JobPhase.RESTARTING else ""


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
        for field in ("quality", "latency", "failure", "model"):
            found = batch.get(field)
            _put(status, field, dict(found) if found else None)
    if not active and isinstance(status.get("items"), Mapping):
        rest = ("perSecond", "etaSeconds", "inFlight")
        status["items"] = {name: value for name, value in status["items"].items() if name not in rest}


def _take_gpu_time(job: AigcJob, status: dict[str, Any], old: Json, held: int, seen: Observation) -> None:
    """Add the allocated GPU seconds since the last status, and tell how many of them worked on items."""
    before, since = int(old.get("gpus") or 0), _seconds(old.get("observedTime"))
    if before and since and seen.now > since:
        total = float(old.get("gpuSeconds") or 0) + before * (seen.now - since)
        status["gpuSeconds"] = round(total, 3)
    if before or held:
        status["observedTime"] = rfc3339_micro(seen.now)
    if not status.get("gpuSeconds"):
        return
    if seen.batch is not None and seen.batch.get("busySeconds") is not None:
        status["gpuBusySeconds"] = round(float(seen.batch["busySeconds"]) * job.gpus, 3)
    used = float(status.get("gpuBusySeconds") or 0)
    status["gpuIdleSeconds"] = round(max(0.0, status["gpuSeconds"] - used), 3)
    if "rowsReadSeconds" in status:  # binding at once holds the GPUs of the least workers meanwhile
        waited = status["rowsReadSeconds"] * job.gpus * job.minimum
        status["gpuSecondsEager"] = round(status["gpuSeconds"] + waited, 3)


# Conditions.


def _conditions(
    job: AigcJob, present: Sequence[Json], state: LifecycleState, status: Json, seen: Observation
) -> list[dict[str, Any]]:
    workers = [pod for pod in seen.pods if pod.role == fields.WORKER]
    placed = [pod for pod in workers if pod.node and not pod.finished]
    ready = sum(pod.ready for pod in workers)
    final = state.phase in FINAL
    queue = job.definition.gang.queue
    wanted: list[tuple[str, bool, str, str]] = []
    if not final:
        wanted.append(
            ("Admitted", bool(seen.admitted), "Admitted" if seen.admitted else "Queued", f"queue {queue}")
        )
        if job.gpus:
            words = f"{len(placed) * job.gpus} GPUs for {len(placed)} workers"
            wanted.append(("GPUBound", bool(placed), "Bound" if placed else "NotBound", words))
        enough = ready >= job.minimum
        words = f"{ready} of at least {job.minimum} workers are ready"
        wanted.append(("PodsReady", enough, "PodsReady" if enough else "PodsNotReady", words))
    items = status.get("items") or {}
    done = f"{items.get('done', 0)} of {items.get('total', 0)} items are done"
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


def _seconds(text: object) -> float:
    try:
        return parse_rfc3339(text) if isinstance(text, str) and text else 0.0
    except ValueError:
        return 0.0
