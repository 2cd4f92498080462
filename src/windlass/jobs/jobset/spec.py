"""Definition of a JobSet, read from an object that passed its validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields import jobset

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Dependency:
    """State that another replicated job must reach first. ``complete``: or else ready."""

    name: str
    complete: bool


@dataclass(frozen=True, slots=True)
class ReplicatedJob:
    """Equal child Jobs. ``template``: JobTemplateSpec of ``batch/v1``."""

    name: str
    group: str
    replicas: int
    template: Json
    depends_on: tuple[Dependency, ...] = ()

    @property
    def job_spec(self) -> Json:
        return self.template.get("spec") or {}

    @property
    def pod_template(self) -> Json:
        return self.job_spec.get("template") or {}

    @property
    def pods(self) -> int:
        """Number of pods of all its Jobs that run at the same time."""
        return self.replicas * jobset.pods_of_job(self.job_spec)


@dataclass(frozen=True, slots=True)
class JobSetFailureRule:
    """Rule of a failure policy. An empty field matches every failed Job."""

    name: str
    action: str
    reasons: tuple[str, ...]
    patterns: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobSetFailurePolicy:
    """Failure policy: the first rule that matches decides."""

    max_restarts: int
    strategy: str
    rules: tuple[JobSetFailureRule, ...]


@dataclass(frozen=True, slots=True)
class JobSetDefinition:
    """A JobSet. Times are seconds; ``None``: not set.

    ``success_any``: one successful Job is enough, instead of all of ``success_targets``.
    ``success_targets``: names of replicated jobs; empty stands for all.
    """

    namespace: str
    name: str
    uid: str
    spec: Json
    replicated: tuple[ReplicatedJob, ...]
    success_any: bool
    success_targets: tuple[str, ...]
    failure: JobSetFailurePolicy | None
    in_order: bool
    suspend: bool
    ttl_seconds: int | None
    deadline_seconds: int | None
    managed_by: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def is_ours(self) -> bool:
        """True if this controller manages the JobSet."""
        return self.managed_by in ("", jobset.CONTROLLER_NAME)

    @property
    def subdomain(self) -> str:
        return jobset.subdomain_of(self.name, self.spec)

    @property
    def has_host_names(self) -> bool:
        return bool((self.spec.get("network") or {}).get("enableDNSHostnames"))

    @property
    def in_place(self) -> bool:
        return self.failure is not None and self.failure.strategy == jobset.IN_PLACE_RESTART

    @property
    def replicas(self) -> int:
        return sum(job.replicas for job in self.replicated)

    def job(self, name: str) -> ReplicatedJob | None:
        return next((job for job in self.replicated if job.name == name), None)

    def decides(self, name: str) -> bool:
        """Return whether the success policy counts the Jobs of this replicated job."""
        return not self.success_targets or name in self.success_targets


@dataclass(frozen=True, slots=True)
class Stage:
    """Replicated jobs that start at the same time, and therefore form one gang.

    ``first``: whether they start with the JobSet.
    """

    jobs: tuple[ReplicatedJob, ...]
    first: bool

    def group_name(self, job_set: str) -> str:
        """Return the name of the gang's PodGroup."""
        return job_set if self.first else f"{job_set}-{self.jobs[0].name}"


def stages(definition: JobSetDefinition) -> tuple[Stage, ...]:
    """Return the stages in the order of their first replicated jobs."""
    found: dict[Any, list[ReplicatedJob]] = {}
    for index, job in enumerate(definition.replicated):
        key: Any = index if definition.in_order else frozenset(job.depends_on)
        found.setdefault(key, []).append(job)
    return tuple(Stage(tuple(jobs), not key) for key, jobs in found.items())


def read_job_set(obj: Json) -> JobSetDefinition:
    """Read an object that passed the validation of its kind."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    success = spec.get("successPolicy") or {}
    return JobSetDefinition(
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        spec=spec,
        replicated=tuple(_replicated(job) for job in spec.get("replicatedJobs") or ()),
        success_any=success.get("operator") == "Any",
        success_targets=tuple(success.get("targetReplicatedJobs") or ()),
        failure=_failure(spec.get("failurePolicy")),
        in_order=(spec.get("startupPolicy") or {}).get("startupPolicyOrder") == jobset.IN_ORDER,
        suspend=bool(spec.get("suspend")),
        ttl_seconds=spec.get("ttlSecondsAfterFinished"),
        deadline_seconds=spec.get("activeDeadlineSeconds"),
        managed_by=spec.get("managedBy") or "",
        labels=metadata.get("labels") or {},
        annotations={
            key: text
            for key, text in (metadata.get("annotations") or {}).items()
            if key != names.LAST_APPLIED
        },
    )


def _replicated(job: Json) -> ReplicatedJob:
    return ReplicatedJob(
        name=job["name"],
        group=job.get("groupName") or "default",
        replicas=jobset.replicas_of(job),
        template=job.get("template") or {},
        depends_on=tuple(
            Dependency(found["name"], found.get("status") == "Complete")
            for found in job.get("dependsOn") or ()
        ),
    )


def restarts_in_place(spec: Json) -> bool:
    """Return whether the pods of a JobSet are restarted instead of replaced."""
    return (spec.get("failurePolicy") or {}).get("restartStrategy") == jobset.IN_PLACE_RESTART


def _failure(policy: Json | None) -> JobSetFailurePolicy | None:
    if not policy:
        return None
    return JobSetFailurePolicy(
        max_restarts=int(policy.get("maxRestarts") or 0),
        strategy=policy.get("restartStrategy") or jobset.RECREATE,
        rules=tuple(
            JobSetFailureRule(
                name=rule.get("name") or f"failurePolicyRule{index}",
                action=rule["action"],
                reasons=tuple(rule.get("onJobFailureReasons") or ()),
                patterns=tuple(rule.get("onJobFailureMessagePatterns") or ()),
                targets=tuple(rule.get("targetReplicatedJobs") or ()),
            )
            for index, rule in enumerate(policy.get("rules") or ())
        ),
    )
