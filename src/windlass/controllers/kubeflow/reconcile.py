"""Reconciliation of a ``kubeflow.org/v1`` job.

Order of the effects: the record of restarts first, then the status if the phase
changes, then deletions, then Services, the PodGroup and pods. A controller that stops
in between decides the same again: a lost pod is counted by its uid, and a final phase
is stored before its pods are deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields.kubeflow import WORKER
from windlass.api.rbac_resources import ROLE_BINDINGS, ROLES
from windlass.api.resources import (
    CONFIG_MAPS,
    POD_GROUPS,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
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
from windlass.jobs.decision import NextActions, decide_job
from windlass.jobs.definition import Role
from windlass.jobs.kubeflow import pods as bodies
from windlass.jobs.kubeflow import status as statuses
from windlass.jobs.kubeflow.job import KubeflowJob, KubeflowKind, read_job
from windlass.jobs.lifecycle import FINAL, JobPhase
from windlass.jobs.members import RolePod
from windlass.jobs.rendezvous.announce import MASTER, world_text
from windlass.kits.ssh_keys import SshKeyPair

Json = dict[str, Any]
BATCH = 500
"""Maximum number of pods that one reconciliation creates."""
_OBJECTS = {kind.kind: kind for kind in (CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)}
"""Kinds of the objects around the pods of a job."""


@dataclass(frozen=True, slots=True)
class KubeflowSnapshot:
    """Observed surroundings of a job.

    ``group``: PodGroup with the name of the job, of any owner.
    ``services``: names of the Services that the job controls → uid.
    ``priorities``: PriorityClass → value.
    ``now``: Unix seconds.
    ``scheduler``: default scheduler of pods.
    ``keys``: new SSH keys, for a job that needs them.
    """

    pods: tuple[RolePod, ...]
    group: Json | None
    services: Mapping[str, str]
    priorities: Mapping[str, int]
    now: float
    scheduler: str
    keys: SshKeyPair | None = None


def reconcile_kubeflow(kind: KubeflowKind, obj: Json, observed: KubeflowSnapshot) -> Effects:
    """Reconcile one job. Pure."""
    if obj["metadata"].get("deletionTimestamp"):
        return NOTHING
    about = reference(kind.resource, obj)
    try:
        job = read_job(kind, obj)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"the spec cannot be read: {error}"
        return Effects(events=(EmitEvent(about, "Warning", "InvalidJob", message, lasting=True),))
    return _KubeflowReconciliation(job, obj, observed, EffectPlan(about=about)).effects()


class _KubeflowReconciliation:
    """State of one reconciliation. Used once."""

    def __init__(self, job: KubeflowJob, obj: Json, observed: KubeflowSnapshot, plan: EffectPlan) -> None:
        self.job, self.obj, self.observed, self.plan = job, obj, observed, plan
        self.before = statuses.read_state(obj)

    def effects(self) -> Effects:
        observed = self.observed
        decision = decide_job(self.job.definition, self.before, observed.pods, observed.now)
        if decision.due_seconds is not None:
            self.plan.requeue(decision.due_seconds)
        record = record_patch(self.job.kind.resource, self.obj, decision.state)
        if record is not None:
            self.plan.stage(record)
            return self.plan.done()  # The status is written against the new version.
        status = statuses.render(self.job, self.obj, self.before, decision.state, observed.pods, observed.now)
        changed = status != (self.obj.get("status") or {})
        if changed and decision.trigger is not None:
            self._write_status(status)
            self._report(decision)
            changed = False
        self._delete(decision)
        if decision.state.phase not in FINAL and decision.state.phase is not JobPhase.SUSPENDED:
            self._create(decision)
            self._announce()
        if changed:
            self._write_status(status)
        if decision.expired:
            definition = self.job.definition
            self.plan.stage(
                Delete(
                    self.job.kind.resource,
                    definition.name,
                    definition.namespace,
                    definition.uid,
                    propagation="Background",
                )
            )
        return self.plan.done()

    def _write_status(self, status: Json) -> None:
        self.plan.stage(Update(self.job.kind.resource, {**self.obj, "status": status}, "status"))

    def _report(self, decision: NextActions) -> None:
        state, kind = decision.state, self.job.kind.resource.kind
        resumed = self.before.phase is JobPhase.SUSPENDED and state.phase is JobPhase.CREATED
        verb = "is resumed" if resumed else statuses.VERBS[state.phase]
        message = f"{kind} {self.job.definition.name} {verb}"
        if state.message:
            message = f"{message}: {state.message}"
        event_type = "Warning" if state.phase in (JobPhase.FAILED, JobPhase.RESTARTING) else "Normal"
        assert self.plan.about is not None
        self.plan.event(
            EmitEvent(self.plan.about, event_type, f"{kind}{'Resumed' if resumed else state.phase}", message)
        )

    # Deletions.

    def _delete(self, decision: NextActions) -> None:
        namespace = self.job.definition.namespace
        final = decision.state.phase in FINAL
        actions: list[Any] = []
        for pod in decision.delete:
            actions.append(Delete(PODS, pod.name, namespace, pod.uid))
            if final and pod.name in self.observed.services:
                actions.append(Delete(SERVICES, pod.name, namespace, self.observed.services[pod.name]))
        group = self._own_group()
        if group is not None and self._group_is_unused(decision):
            metadata = group["metadata"]
            actions.append(Delete(POD_GROUPS, metadata["name"], namespace, metadata.get("uid")))
        self.plan.stage(*actions)

    def _group_is_unused(self, decision: NextActions) -> bool:
        """Return whether no pod needs the PodGroup any more.

        The group of a finished gang is kept as a record of how it ended if its pods are.
        """
        if decision.state.phase is JobPhase.SUSPENDED:
            return True
        if decision.state.phase not in FINAL or decision.delete:
            return False
        return not self.observed.pods

    def _own_group(self) -> Json | None:
        return own_group(self.observed.group, self.job.definition.uid)

    # Services, PodGroup and pods.

    def _create(self, decision: NextActions) -> None:
        services = [
            Create(SERVICES, body)
            for body in bodies.build_services(self.job)
            if body["metadata"]["name"] not in self.observed.services
        ]
        group = self._own_group()
        if self.observed.group is None:
            self.plan.stage(Create(POD_GROUPS, bodies.build_group(self.job, self.observed.priorities)))
        elif group is None:
            self._report_foreign_group()
            return
        else:
            self._update_group(group)
        self.plan.stage(*services[:BATCH])
        if is_admitted(group):
            self._create_pods(decision)

    def _create_pods(self, decision: NextActions) -> None:
        extras, pods = self.job.kind.extras, self.observed.pods
        allowed = (
            (role, index)
            for role, index in decision.create
            if extras is None or extras.may_create(self.job, role, pods)
        )
        wanted: list[tuple[Role, int]] = list(islice(allowed, BATCH))
        if wanted:
            self.plan.stage(
                *(
                    Create(_OBJECTS[body["kind"]], body)
                    for body in bodies.build_objects(self.job, self.observed.keys)
                )
            )
        self.plan.stage(
            *(
                Create(PODS, bodies.build_pod(self.job, role, index, self.observed.scheduler))
                for role, index in wanted
            )
        )

    def _announce(self) -> None:
        """Write the world on the pod that holds the rendezvous. Its node tells ``torchrun``."""
        held = self.job.kind.rendezvous(self.job)
        if held is None:
            return
        place = (held.role, held.index)
        holder = next((pod for pod in self.observed.pods if (pod.role, pod.index) == place), None)
        world = self.job.kind.world(self.job, self.observed.pods)
        if holder is None or (held.index if held.role == WORKER else MASTER) not in world:
            return
        text = world_text(world)
        if text != holder.world:
            patch = {"metadata": {"annotations": {names.WORLD: text}}}
            self.plan.stage(Patch(PODS, holder.name, patch, self.job.definition.namespace, uid=holder.uid))

    def _update_group(self, group: Json) -> None:
        patch = spec_patch(group, bodies.group_spec(self.job, self.observed.priorities))
        if patch:
            self.plan.stage(patch_group(group, patch))

    def _report_foreign_group(self) -> None:
        assert self.plan.about is not None
        assert self.observed.group is not None
        if self.observed.group["metadata"].get("deletionTimestamp"):
            return  # The next change brings the job back here.
        message = (
            f"PodGroup {self.job.definition.name} exists and does not belong to the job: delete or rename it"
        )
        self.plan.event(EmitEvent(self.plan.about, "Warning", "PodGroupConflict", message, lasting=True))
