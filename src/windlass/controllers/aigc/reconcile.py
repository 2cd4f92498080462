"""Reconciliation of an AIGCJob.

Order of the effects: the record of restarts first, then the status if the phase changes,
then deletions, then ConfigMap, Secret, Service, the PodGroup and pods. A controller that
stops in between decides the same again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields import aigc
from windlass.api.fields.stages import GPU_GATE
from windlass.api.resources import (
    AIGC_JOBS,
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
    SECRETS,
    SERVICES,
)
from windlass.controllers.aigc import stages
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
from windlass.controllers.pod_groups import (
    JOB_FIELDS,
    annotate_group,
    is_admitted,
    own_group,
    patch_group,
    spec_patch,
)
from windlass.jobs.aigc import pods as bodies
from windlass.jobs.aigc import status as statuses
from windlass.jobs.aigc.autoscale import decided_workers
from windlass.jobs.aigc.job import AigcJob, read_aigc_job
from windlass.jobs.aigc.pods import BatchPlatform, outputs_file
from windlass.jobs.aigc.removal import LIMIT_SECONDS, build_removal, removes_outputs
from windlass.jobs.aigc.storage import build_claim, needs_claim
from windlass.jobs.aigc.volumes import MissingVolume
from windlass.jobs.decision import SIGNAL_CODES, LifecycleState, NextActions, decide_job
from windlass.jobs.definition import Role
from windlass.jobs.lifecycle import FINAL, JobPhase
from windlass.jobs.members import OUT_OF_MEMORY, RolePod
from windlass.jobs.replicas import WholeReplicas

Json = dict[str, Any]
_RESERVATION = (names.EARLIEST_START, names.RESERVE_UNTIL)
BATCH = 500
"""Maximum number of pods that one reconciliation creates."""
POLL_SECONDS = 1.0
"""Interval between two looks at the driver."""
MISSING_SECONDS = 2.0
"""Interval between two looks for a ConfigMap that is missing."""
IDLE_SECONDS = 5.0
"""Time after its end at which a worker is replaced if there are rows left."""
GROUP_FIELDS = (*JOB_FIELDS, "subGroupPolicy")
"""Fields of the PodGroup that a job with workers of several pods decides."""
_PERMANENT = frozenset(
    {
        "TooManyInvalidRows",
        "InvalidSpec",
        "EmptyInput",
        "OutputIsInput",
        "OutputIsOccupied",
        "ProgramDoesNotStart",
        "ScorerFailed",
    }
)
"""Failures of a driver that a retry of the job repeats."""
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
    ``secret``, ``claim``: whether the job has them. ``services``: names of its Services.
    ``config``: its ConfigMap.
    ``stopped``: the driver writes the rows that are done, as the job has failed.
    ``model``: state of its model on the nodes; empty: none is preloaded.
    ``batch``: status of the driver; ``None``: not read.
    ``token``: new token, for a job without Secret.
    ``stage_groups``: name → PodGroup of a stage behind the first.
    ``priorities``: PriorityClass → value. ``now``: Unix seconds.
    ``missing``: claims and ConfigMaps that pods of the job need.
    ``removal``: pod that removes the outputs before the job is deleted.
    """

    pods: tuple[RolePod, ...]
    group: Json | None
    services: frozenset[str]
    secret: bool
    config: Json | None
    batch: Mapping[str, Any] | None
    token: str
    claim: bool
    priorities: Mapping[str, int]
    now: float
    scheduler: str
    platform: BatchPlatform
    model: str = ""
    stage_groups: Mapping[str, Json] = field(default_factory=dict)
    stopped: bool = False
    removal: RolePod | None = None
    gates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: tuple[MissingVolume, ...] = ()


def reconcile_aigc(obj: Json, observed: AigcSnapshot) -> Effects:
    """Reconcile one job. Pure."""
    if obj["metadata"].get("deletionTimestamp"):
        return NOTHING
    about = reference(AIGC_JOBS, obj)
    try:
        plan = stages.plan_of(obj, observed.batch, observed.pods, observed.now, held=bool(observed.missing))
        failed = ((observed.batch or {}).get("failure") or {}).get("reason") in _PERMANENT
        job = read_aigc_job(obj, decided_workers(obj), plan, retried=not failed)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"the spec cannot be read: {error}"
        return Effects(events=(EmitEvent(about, "Warning", "InvalidJob", message, lasting=True),))
    return _Reconciliation(job, obj, observed, EffectPlan(about=about)).effects()


def by_infrastructure(pod: RolePod) -> RolePod:
    """Return a pod that a signal ended as disrupted: driver and workers end by themselves with a code below 128.

    Such an end is not a failure of the program. Lack of memory is.
    """
    killed = pod.failed and (pod.exit_code or 0) >= SIGNAL_CODES and pod.reason != OUT_OF_MEMORY
    return replace(pod, disrupted=True, killed=not pod.disrupted) if killed else pod


def _is_worker(pod: RolePod) -> bool:
    return bool(pod.role) and pod.role != aigc.DRIVER


class _Reconciliation:
    """State of one reconciliation. Used once."""

    def __init__(
        self,
        job: AigcJob,
        obj: Json,
        observed: AigcSnapshot,
        plan: EffectPlan,
    ) -> None:
        self.job, self.obj, self.observed, self.plan = job, obj, observed, plan
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
            observed.model,
            observed.stopped,
            observed.missing,
        )
        status = statuses.render(self.job, self.obj, self.before, decision.state, seen)
        changed = status != (self.obj.get("status") or {})
        if changed and (decision.trigger is not None or self._again):
            self._write_status(status, self._event(decision))
            changed = False
        self._delete(decision)
        active = decision.state.phase not in FINAL and decision.state.phase is not JobPhase.SUSPENDED
        if active:
            self._create(decision)
            if any(not one.volume.is_claim for one in observed.missing):
                self.plan.requeue(MISSING_SECONDS)  # ConfigMaps of users are not watched
            if any(pod.running or (pod.node and not pod.finished) for pod in self.pods):
                self.plan.requeue(POLL_SECONDS)
        if changed:
            self._write_status(status)
        if decision.expired and self._outputs_are_removed():
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

    def _outputs_are_removed(self) -> bool:
        """Return whether the job may be deleted, and remove its outputs before if it does not retain them."""
        observed, job, run = self.observed, self.job, self.job.definition.run
        if not removes_outputs(job, observed.platform):
            return True
        pod = observed.removal
        if pod is None:
            node = next((one.node for one in self.pods if one.role == aigc.DRIVER), "")
            self.plan.stage(Create(PODS, build_removal(job, observed.scheduler, observed.platform, node)))
            return False
        left = self.before.completed + (run.ttl_seconds or 0) + LIMIT_SECONDS - observed.now
        if not pod.finished and left > 0:
            self.plan.requeue(left)
            return False
        if not pod.succeeded:
            assert self.plan.about is not None
            why = pod.message or pod.reason or f"pod {pod.name} is {pod.phase}"
            text = f"the outputs {outputs_file(job, observed.platform)} are not removed: {why}"
            self.plan.event(EmitEvent(self.plan.about, "Warning", "OutputsNotRemoved", text, lasting=True))
        return True

    def _with_ended(self, decision: NextActions) -> NextActions:
        """Return the decision that also replaces workers that ended before all rows are done."""
        if decision.state.phase in FINAL or decision.state.phase is JobPhase.SUSPENDED:
            return decision
        driver = next((pod for pod in self.pods if pod.role == aigc.DRIVER), None)
        alive = driver is not None and not driver.finished and not driver.deleting
        planned = {pod.uid for pod in decision.delete}
        more = []
        for pod in self.pods:
            if self._again and not pod.deleting and pod.finished:
                more.append(pod)
            elif not _is_worker(pod) or not pod.succeeded or pod.deleting or pod.uid in planned:
                continue
            elif not alive or self._idle(pod):
                more.append(pod)
        create = tuple(
            (role, index)
            for role, index in decision.create
            if self.job.definition.pod_name(role, index) not in {pod.name for pod in self.pods}
        )
        if self.job.shards > 1:
            replicas = WholeReplicas(self.job.definition, self.pods)
            create = replicas.to_create(create)
            more += [pod for pod in replicas.siblings(more) if not pod.deleting and pod.uid not in planned]
        found = replace(decision, delete=(*decision.delete, *more), create=create)
        return stages.with_ended_stages(self.job, found, self.pods, self.observed.now)

    def _idle(self, worker: RolePod) -> bool:
        """Return whether a worker has ended although the driver has rows for it."""
        batch = self.observed.batch
        if batch is None or batch.get("finished") or self.observed.now < worker.ended + IDLE_SECONDS:
            return False
        stage = self.job.plan.stage(worker.role) if self.job.plan is not None else None
        if stage is not None:
            return stage.bound
        items = batch.get("items") or {}
        settled = sum(int(items.get(name) or 0) for name in ("done", "deadLetter"))
        return settled < int(items.get("total") or 0)

    def _write_status(self, status: Json, event: EmitEvent | None = None) -> None:
        self.plan.stage(Update(AIGC_JOBS, {**self.obj, "status": status}, "status", event))

    def _event(self, decision: NextActions) -> EmitEvent:
        """Return the event of a new phase."""
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
        return EmitEvent(self.plan.about, event_type, f"AIGCJob{reason}", message)

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
        for unused in self._unused_stage_groups(decision):
            metadata = unused["metadata"]
            actions.append(Delete(POD_GROUPS, metadata["name"], namespace, metadata.get("uid")))
        self.plan.stage(*actions)

    def _unused_stage_groups(self, decision: NextActions) -> list[Json]:
        """Return the PodGroups of stages that need none now, such as one without its GPUs."""
        uid = self.job.definition.uid
        own = [found for one in self.observed.stage_groups.values() if (found := own_group(one, uid))]
        if self._group_is_unused(decision):
            return own
        if decision.state.phase not in _ACTIVE:
            return []
        needed = stages.needed_groups(self.job)
        return [one for one in own if one["metadata"]["name"] not in needed]

    def _is_needed(self, pod: RolePod) -> bool:
        """Return whether workers that end have rows to give back to this driver."""
        return (
            pod.role == aigc.DRIVER
            and not pod.finished
            and any(_is_worker(other) and not other.finished for other in self.pods)
        )

    def _group_is_unused(self, decision: NextActions) -> bool:
        """Return whether no pod needs the PodGroup any more. That of a finished gang is kept with its pods."""
        if decision.state.phase is JobPhase.SUSPENDED or self._kept_out:
            return True
        return decision.state.phase in FINAL and not decision.delete and not self.pods

    @property
    def _kept_out(self) -> bool:
        """Return whether the job has no PodGroup yet. One that is admitted holds a share of its queue."""
        return bool(self.observed.missing) and not self.pods

    def _own_group(self) -> Json | None:
        return own_group(self.observed.group, self.job.definition.uid)

    # Objects and pods.

    def _create(self, decision: NextActions) -> None:
        group = self._own_group()
        if self.observed.group is not None and group is None:
            self._report_foreign_group(self.observed.group)
            return
        self._create_objects()
        if self._kept_out:
            return
        if group is None:
            self.plan.stage(Create(POD_GROUPS, bodies.build_group(self.job, self.observed.priorities)))
        else:
            wanted = bodies.group_spec(self.job, self.observed.priorities)
            patch = spec_patch(group, wanted, GROUP_FIELDS if self.job.shards > 1 else JOB_FIELDS)
            self._correct_group(group, patch, self.job.workers[0])
        admitted = {self.job.workers[0].name: is_admitted(group)}
        for role in self.job.workers[1:]:
            admitted[role.name] = bool(role.replicas) and self._stage_group(role)
        self._create_pods(decision, admitted)

    def _stage_group(self, role: Role) -> bool:
        """Create or correct the PodGroup of a stage; return whether it is admitted."""
        name = self.job.group_name(role)
        present = self.observed.stage_groups.get(name)
        group = own_group(present, self.job.definition.uid)
        priorities = self.observed.priorities
        if present is not None and group is None:
            self._report_foreign_group(present)
        elif group is None:
            self.plan.stage(Create(POD_GROUPS, bodies.build_group(self.job, priorities, role)))
        else:
            self._correct_group(group, spec_patch(group, bodies.group_spec(self.job, priorities, role)), role)
        return is_admitted(group)

    def _correct_group(self, group: Json, patch: Json, role: Role) -> None:
        """Correct the spec of a PodGroup and its reservation, and open the gates of workers that may start."""
        if patch:
            self.plan.stage(patch_group(group, patch))
        wanted = self.job.reservation(role)
        present = group["metadata"].get("annotations") or {}
        changes = {name: wanted.get(name) for name in _RESERVATION if present.get(name) != wanted.get(name)}
        if changes and not patch:  # after the spec, against its new version
            self.plan.stage(annotate_group(group, changes))
        stage = self.job.plan.stage(role.name) if self.job.plan is not None else None
        if stage is None or not stage.bound or stage.is_reserved:
            return
        for pod in self.pods:
            gates = self.observed.gates.get(pod.name, ())
            if pod.role == role.name and GPU_GATE in gates and not pod.deleting:
                rest = [{"name": gate} for gate in gates if gate != GPU_GATE]
                body = {"spec": {"schedulingGates": rest}}
                self.plan.stage(Patch(PODS, pod.name, body, self.job.definition.namespace))

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
        if job.driver_host not in observed.services:
            actions.append(Create(SERVICES, bodies.build_service(job)))
        if job.shards > 1 and job.shards_host not in observed.services:
            actions.append(Create(SERVICES, bodies.build_shard_service(job)))
        template = observed.platform.claim
        if template is not None and not observed.claim and needs_claim(job):
            actions.append(Create(PERSISTENT_VOLUME_CLAIMS, build_claim(job, template)))
        self.plan.stage(*actions)

    def _create_pods(self, decision: NextActions, admitted: Mapping[str, bool]) -> None:
        observed, job = self.observed, self.job
        if observed.missing:
            return  # A driver that cannot mount them has no rows for workers.
        attempt = statuses.attempt_of(decision.state)
        begins = statuses.has_rows(observed.batch) or not job.binds_late
        wanted = [
            place
            for place in decision.create
            if place[0] is job.driver or (begins and admitted[place[0].name])
        ][:BATCH]
        self.plan.stage(
            *(
                Create(
                    PODS,
                    bodies.build_pod(job, role, index, observed.scheduler, observed.platform, attempt),
                )
                for role, index in wanted
            )
        )

    def _report_foreign_group(self, group: Json) -> None:
        assert self.plan.about is not None
        if group["metadata"].get("deletionTimestamp"):
            return  # The next change brings the job back here.
        name = group["metadata"]["name"]
        message = (
            f"PodGroup {name} exists and does not belong to the job: delete or rename it "
            f"(kubectl delete podgroup {name})"
        )
        self.plan.event(EmitEvent(self.plan.about, "Warning", "PodGroupConflict", message, lasting=True))
