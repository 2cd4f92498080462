"""A ``kubeflow.org/v1`` job: replica specs, run policy, and what its kind adds.

Keys of replica specs are compared without regard to case, as the training operator
does. A pod's main container is the one with the name of the kind, or else its only one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.fields.kubeflow import WORKER, KubeflowFields, replicas_of
from windlass.api.resources import Resource
from windlass.jobs.definition import (
    CleanPodPolicy,
    GangPolicy,
    JobDefinition,
    Json,
    RestartRule,
    Role,
    RunPolicy,
    SuccessRule,
)
from windlass.jobs.members import RolePod
from windlass.kits.ssh_keys import SshKeyPair

DEFAULT_QUEUE = "default"
Environment = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class KubeflowJob:
    """Job of one of the kinds.

    ``spec``: of the object. ``replica_specs``: name of the role → its replica spec.
    """

    kind: KubeflowKind
    definition: JobDefinition
    spec: Json
    replica_specs: Mapping[str, Json]

    def role(self, name: str) -> Role | None:
        return self.definition.role(name)

    def port(self, role: Role) -> int:
        """Return the port of a role: the main container's port with the kind's name for it, or the default."""
        fields = self.kind.fields
        main = fields.main_container(role.pod_spec)
        for port in main.get("ports") or ():
            if port.get("name") == fields.port_name:
                return int(port.get("containerPort") or fields.port)
        return fields.port

    def host(self, role: Role, index: int) -> str:
        """Return the name under which the other pods find this one: that of its Service."""
        return self.definition.pod_name(role, index)


@dataclass(frozen=True, slots=True)
class HeldRendezvous:
    """Rendezvous of ``torchrun`` that a pod of the job holds: that of ``role`` and ``index``."""

    port: int
    run_id: str = ""
    role: str = WORKER
    index: int = 0


@dataclass(frozen=True, slots=True)
class KindExtras:
    """Additions of one kind to the pods and the objects around them.

    ``operator``: value of the label with the operator's name.
    ``complete_pod``: changes the pod of a role and index.
    ``services``: Services of the job, instead of one for each pod.
    ``needs_keys``: whether the job needs a pair of SSH keys.
    ``objects``: ConfigMaps and Secrets of the job, without owner.
    ``may_create``: whether the pods of a role may be created, seeing the present ones.
    """

    operator: Callable[[KubeflowJob], str]
    complete_pod: Callable[[KubeflowJob, Role, int, dict[str, Any]], None]
    services: Callable[[KubeflowJob], list[dict[str, Any]]]
    needs_keys: Callable[[KubeflowJob], bool]
    objects: Callable[[KubeflowJob, SshKeyPair | None], list[dict[str, Any]]]
    may_create: Callable[[KubeflowJob, Role, Sequence[RolePod]], bool]


@dataclass(frozen=True, slots=True)
class KubeflowKind:
    """Additions of one kind to the fields that all have.

    ``success``: success rules of a job, most specific first.
    ``environment``: variables of the pod of a role and index.
    ``every_container``: whether all containers get the variables, or only the main one.
    ``minimum``: least number of pods of a role with which the job runs.
    ``counts``: whether failed pods of a role fail the job.
    ``rendezvous``: the rendezvous that is told the world; ``None``: there is none.
    ``world``: members that take part, by the indices of workers.
    ``adjust``: changes of the definition that the kind makes.
    ``extras``: what pods and surroundings need in addition; ``None``: nothing.
    """

    fields: KubeflowFields
    success: Callable[[Mapping[str, Role], Json], tuple[SuccessRule, ...]]
    environment: Callable[[KubeflowJob, Role, int], Environment]
    every_container: bool = True
    minimum: Callable[[str, int, Json], int] = lambda _role, replicas, _spec: replicas
    counts: Callable[[str, Json], bool] = lambda _role, _spec: True
    rendezvous: Callable[[KubeflowJob], HeldRendezvous | None] = lambda _job: None
    world: Callable[[KubeflowJob, Sequence[RolePod]], frozenset[int]] = lambda _job, _pods: frozenset()
    adjust: Callable[[JobDefinition, Json], JobDefinition] = lambda definition, _spec: definition
    extras: KindExtras | None = None

    @property
    def resource(self) -> Resource:
        return self.fields.resource


def read_job(kind: KubeflowKind, obj: Json) -> KubeflowJob:
    """Read an object that passed the validation of its kind."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    replica_specs = kind.fields.replica_specs(spec)
    roles = tuple(_role(kind, name, found, spec) for name, found in replica_specs.items())
    run = spec.get("runPolicy") or {}
    definition = JobDefinition(
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        roles=roles,
        success=kind.success({role.name: role for role in roles}, spec),
        run=_run_policy(run),
        gang=_gang(run.get("schedulingPolicy") or {}),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
    )
    return KubeflowJob(kind, kind.adjust(definition, spec), spec, replica_specs)


def _role(kind: KubeflowKind, name: str, replica_spec: Json, spec: Json) -> Role:
    count = replicas_of(replica_spec)
    return Role(
        name=name,
        key=name.lower(),
        replicas=count,
        minimum=kind.minimum(name, count, spec),
        template=replica_spec.get("template") or {},
        restart=RestartRule(replica_spec.get("restartPolicy") or kind.fields.restart),
        counts=kind.counts(name, spec),
    )


def _run_policy(run: Json) -> RunPolicy:
    return RunPolicy(
        clean_pods=CleanPodPolicy(run.get("cleanPodPolicy") or CleanPodPolicy.NONE),
        backoff_limit=run.get("backoffLimit"),
        deadline_seconds=run.get("activeDeadlineSeconds"),
        ttl_seconds=run.get("ttlSecondsAfterFinished"),
        suspend=bool(run.get("suspend")),
    )


def _gang(policy: Json) -> GangPolicy:
    return GangPolicy(
        queue=policy.get("queue") or DEFAULT_QUEUE,
        min_available=policy.get("minAvailable"),
        min_resources=policy.get("minResources"),
        priority_class=policy.get("priorityClass") or "",
        timeout_seconds=policy.get("scheduleTimeoutSeconds"),
    )


def rank_of(job: KubeflowJob, role: Role, index: int) -> int:
    """Return the rank: masters first, then workers by their index."""
    before = 0
    for other in job.definition.roles:
        if other.name == role.name:
            return before + index
        before += other.replicas
    raise ValueError(f"{role.name} is no role of {job.definition.name}")
