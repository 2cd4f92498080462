"""Reconciliation of an AIGCJob.

Order of the effects: the record of restarts first, then the status if the phase changes,
then deletions, then ConfigMap, Secret, Service, the PodGroup and pods. A controller that
stops in between decides the same again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from windlass.api import aigc_fields as fields
from windlass.api.resources import AIGC_JOBS, CONFIG_MAPS, POD_GROUPS, PODS, SECRETS, SERVICES
from windlass.controllers.aigc.scaling import workers_of
from windlass.controllers.effects import (
    NOTHING,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Patch,
    Update,
    reference,
)
from windlass.controllers.job_records import record_patch
from windlass.controllers.pod_groups import is_admitted, own_group, patch_group, spec_patch
from windlass.jobs.aigc import pods as bodies
from windlass.jobs.aigc import status as statuses
from windlass.jobs.aigc.job import AigcJob, read_aigc_job
from windlass.jobs.aigc.pods import BatchPlatform
from windlass.jobs.decision import SIGNAL_CODES, LifecycleState, NextActions, decide_job
from windlass.jobs.lifecycle import FINAL, JobPhase
from windlass.jobs.members import RolePod
from windlass.kits.timestamps import rfc3339
from windlass.scaling.decision import ScalingDecision

Json = dict[str, Any]
BATCH = 500
"""Maximum number of pods that one reconciliation creates."""
POLL_SECONDS = 1.0
"""Interval between two looks at the driver."""
IDLE_SECONDS = 5.0
"""Time after its end at which a worker is replaced if there are rows left."""
OUT_OF_MEMORY = "OOMKilled"
_ACTIVE = frozenset({JobPhase.CREATED, JobPhase.RUNNING, JobPhase.RESTARTING})
VERBS = {
    JobPhase.CREATED: "is created",
    JobPhase.RUNNING: "is running",
    JobPhase.RESTARTING: "is restarting",
    JobPhase.SUSPENDED: "is suspended",
    JobPhase.SUCCEEDED: "successfully completed",
    JobPhase.FAILED: "has failed",
}


@dataclass(frozen=True, slots=True)
class AigcSnapshot:
    """Observed surroundings of a job.

    ``group``: PodGroup with the name of the job, of any owner.
    ``service``, ``secret``: whether the job has them. ``config``: its ConfigMap.
    ``batch``: status of the driver; ``None``: not read.
    ``token``: new token, for a job without Secret.
    ``priorities``: PriorityClass → value. ``now``: Unix seconds.
    """

    pods: tuple[RolePod, ...]
    group: Json | None
    service: bool
    secret: bool
    config: Json | None
    batch: Mapping[str, Any] | None
    token: str
    priorities: Mapping[str, int]
    now: float
    scheduler: str
    platform: BatchPlatform


def reconcile_aigc(obj: Json, observed: AigcSnapshot) -> Effects:
    """Reconcile one job. Pure."""
    if obj["metadata"].get("deletionTimestamp"):
        return NOTHING
    about = reference(AIGC_JOBS, obj)
    try:
        scaled = workers_of(obj, observed.batch, observed.now)
        job = read_aigc_job(obj, scaled.after if scaled is not None else None)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"the spec cannot be read: {error}"
        return Effects(events=(EmitEvent(about, "Warning", "InvalidJob", message, lasting=True),))
    return _Reconciliation(job, obj, observed, EffectPlan(about=about), scaled).effects()


def by_infrastructure(pod: RolePod) -> RolePod:
    """Return a pod that a signal ended as disrupted: driver and workers end by themselves with a code below 128.

    Such an end is not a failure of the program. Lack of memory is.
    """
    killed = pod.failed and (pod.exit_code or 0) >= SIGNAL_CODES and pod.reason != OUT_OF_MEMORY
    return replace(pod, disrupted=True) if killed else pod


class _Reconciliation:
    """State of one reconciliation. Used once."""

    def __init__(
        self,
        job: AigcJob,
        obj: Json,
        observed: AigcSnapshot,
        plan: EffectPlan,
        scaled: ScalingDecision | None,
    ) -> None:
        self.job, self.obj, self.observed, self.plan = job, obj, observed, plan
        self.scaled = scaled
        self.pods = tuple(map(by_infrastructure, observed.pods))
        self.before = self._started_again(statuses.read_state(obj))

    def _started_again(self, state: LifecycleState) -> LifecycleState:
        """Return a finished job as a new one if its dead letters are to run again."""
        retried = (self.obj.get("status") or {}).get("retried") or ""
        if state.phase not in FINAL or not self.job.retry or self.job.retry == retried:
            return state
        return LifecycleState()

    @property
    def _again(self) -> bool:
        """Return whether this reconciliation starts a finished job again."""
        return self.before == LifecycleState() and statuses.read_state(self.obj).phase in FINAL

    def effects(self) -> Effects:
        observed = self.observed
        pods = () if self._again else self.pods  # the finished ones say nothing about the new run
        decision = decide_job(self.job.definition, self.before, pods, observed.now)
        decision = self._with_ended(decision)
        if decision.due_seconds is not None:
            self.plan.requeue(decision.due_seconds)
        record = record_patch(AIGC_JOBS, self.obj, decision.state)
        if record is not None:
            self.plan.stage(record)
            return self.plan.done()  # The status is written against the new version.
        seen = statuses.Observation(
            self.pods,
            is_admitted(observed.group) if observed.group is not None else None,
            observed.batch,
            observed.now,
            bodies.outputs_file(self.job, observed.platform),
        )
        status = statuses.render(self.job, self.obj, self.before, decision.state, seen)
        self._report_scaling(status, decision)
        changed = status != (self.obj.get("status") or {})
        if changed and (decision.trigger is not None or self._again):
            self._write_status(status)
            self._report(decision)
            changed = False
        self._delete(decision)
        active = decision.state.phase not in FINAL and decision.state.phase is not JobPhase.SUSPENDED
        if active:
            self._create(decision)
            if any(pod.running for pod in self.pods):
                self.plan.requeue(POLL_SECONDS)
        if changed:
            self._write_status(status)
        if decision.expired:
            definition = self.job.definition
            self.plan.stage(
                Delete(
                    AIGC_JOBS,
                    definition.name,
                    definition.namespace,
                    definition.uid,
                    propagation="Background",
                )
            )
        return self.plan.done()

    def _with_ended(self, decision: NextActions) -> NextActions:
        """Return the decision that also replaces workers that ended before all rows are done."""
        if decision.state.phase in FINAL or decision.state.phase is JobPhase.SUSPENDED:
            return decision
        driver = next((pod for pod in self.pods if pod.role == fields.DRIVER), None)
        alive = driver is not None and not driver.finished and not driver.deleting
        planned = {pod.uid for pod in decision.delete}
        more = []
        for pod in self.pods:
            if self._again and not pod.deleting and pod.finished:
                more.append(pod)
            elif pod.role != fields.WORKER or not pod.succeeded or pod.deleting or pod.uid in planned:
                continue
            elif not alive or self._idle(pod):
                more.append(pod)
        create = tuple(
            (role, index)
            for role, index in decision.create
            if self.job.definition.pod_name(role, index) not in {pod.name for pod in self.pods}
        )
        return replace(decision, delete=(*decision.delete, *more), create=create)

    def _idle(self, worker: RolePod) -> bool:
        """Return whether a worker has ended although the driver has rows for it."""
        batch = self.observed.batch
        if batch is None or batch.get("finished") or self.observed.now < worker.ended + IDLE_SECONDS:
            return False
        items = batch.get("items") or {}
        settled = sum(int(items.get(name) or 0) for name in ("done", "deadLetter"))
        return settled < int(items.get("total") or 0)

    def _write_status(self, status: Json) -> None:
        self.plan.stage(Update(AIGC_JOBS, {**self.obj, "status": status}, "status"))

    def _report_scaling(self, status: Json, decision: NextActions) -> None:
        """Write the time of a change of the number of workers, and emit the arithmetic."""
        scaled = self.scaled
        if scaled is None or not scaled.changes or decision.state.phase not in _ACTIVE:
            return
        status["lastScaleTime"] = rfc3339(self.observed.now)
        assert self.plan.about is not None
        self.plan.event(EmitEvent(self.plan.about, "Normal", "AIGCJobScaled", scaled.arithmetic))

    def _report(self, decision: NextActions) -> None:
        state = decision.state
        resumed = self.before.phase is JobPhase.SUSPENDED and state.phase is JobPhase.CREATED
        verb = (
            "is resumed" if resumed else "runs its dead letters again" if self._again else VERBS[state.phase]
        )
        message = f"AIGCJob {self.job.definition.name} {verb}"
        if state.message:
            message = f"{message}: {state.message}"
        event_type = "Warning" if state.phase in (JobPhase.FAILED, JobPhase.RESTARTING) else "Normal"
        reason = "Resumed" if resumed else "Retried" if self._again else str(state.phase)
        assert self.plan.about is not None
        self.plan.event(EmitEvent(self.plan.about, event_type, f"AIGCJob{reason}", message))

    # Deletions.

    def _delete(self, decision: NextActions) -> None:
        namespace = self.job.definition.namespace
        actions: list[Any] = [
            Delete(PODS, pod.name, namespace, pod.uid) for pod in decision.delete if not self._is_needed(pod)
        ]
        group = self._own_group()
        if group is not None and self._group_is_unused(decision):
            metadata = group["metadata"]
            actions.append(Delete(POD_GROUPS, metadata["name"], namespace, metadata.get("uid")))
        self.plan.stage(*actions)

    def _is_needed(self, pod: RolePod) -> bool:
        """Return whether workers that end have rows to give back to this driver."""
        return (
            pod.role == fields.DRIVER
            and not pod.finished
            and any(other.role == fields.WORKER and not other.finished for other in self.pods)
        )

    def _group_is_unused(self, decision: NextActions) -> bool:
        """Return whether no pod needs the PodGroup any more. That of a finished gang is kept with its pods."""
        if decision.state.phase is JobPhase.SUSPENDED:
            return True
        return decision.state.phase in FINAL and not decision.delete and not self.pods

    def _own_group(self) -> Json | None:
        return own_group(self.observed.group, self.job.definition.uid)

    # Objects and pods.

    def _create(self, decision: NextActions) -> None:
        group = self._own_group()
        if self.observed.group is not None and group is None:
            self._report_foreign_group()
            return
        self._create_objects()
        if group is None:
            self.plan.stage(Create(POD_GROUPS, bodies.build_group(self.job, self.observed.priorities)))
        else:
            patch = spec_patch(group, bodies.group_spec(self.job, self.observed.priorities))
            if patch:
                self.plan.stage(patch_group(group, patch))
        self._create_pods(decision, is_admitted(group))

    def _create_objects(self) -> None:
        observed, job = self.observed, self.job
        actions: list[Any] = []
        config = bodies.build_config_map(job)
        if observed.config is None:
            actions.append(Create(CONFIG_MAPS, config))
        elif observed.config.get("data") != config["data"]:
            namespace = job.definition.namespace
            actions.append(Patch(CONFIG_MAPS, job.objects_name, {"data": config["data"]}, namespace))
        if not observed.secret:
            actions.append(Create(SECRETS, bodies.build_secret(job, observed.token)))
        if not observed.service:
            actions.append(Create(SERVICES, bodies.build_service(job)))
        self.plan.stage(*actions)

    def _create_pods(self, decision: NextActions, admitted: bool) -> None:
        observed, job = self.observed, self.job
        attempt = statuses.attempt_of(decision.state)
        workers = admitted and (statuses.rows_are_read(observed.batch) or not job.binds_late)
        wanted = [place for place in decision.create if workers or place[0] is job.driver][:BATCH]
        self.plan.stage(
            *(
                Create(
                    PODS,
                    bodies.build_pod(job, role, index, observed.scheduler, observed.platform, attempt),
                )
                for role, index in wanted
            )
        )

    def _report_foreign_group(self) -> None:
        assert self.plan.about is not None
        assert self.observed.group is not None
        if self.observed.group["metadata"].get("deletionTimestamp"):
            return  # The next change brings the job back here.
        name = self.job.definition.name
        message = (
            f"PodGroup {name} exists and does not belong to the job: delete or rename it "
            f"(kubectl delete podgroup {name})"
        )
        self.plan.event(EmitEvent(self.plan.about, "Warning", "PodGroupConflict", message, lasting=True))
