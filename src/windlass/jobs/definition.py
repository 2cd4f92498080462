"""Definition of a job, whatever its kind: roles, run policy, gang, success rule.

A translator of a kind (``jobs.kubeflow``) reads an object of the API into a
:class:`JobDefinition`. The life cycle, the restarts and the pods depend on this
definition only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

Json = Mapping[str, Any]


class RestartRule(StrEnum):
    """Rule for failed pods of a role."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"
    """Exit codes from 128 restart the pod, 1 to 127 fail the job."""
    REPLACE = "Replace"
    """Failed pods are replaced until ``backoff_limit`` is exceeded, as those of a ``batch/v1`` Job."""


class CleanPodPolicy(StrEnum):
    """Pods that are deleted when the job has finished."""

    NONE = "None"
    RUNNING = "Running"
    """Pods that have not finished."""
    ALL = "All"


class Quorum(StrEnum):
    """Number of pods of the deciding roles that have to succeed."""

    ALL = "all"
    ANY = "any"
    FIRST = "first"
    """The pod with index 0."""


@dataclass(frozen=True, slots=True)
class SuccessRule:
    """The job has succeeded when ``quorum`` of the pods of ``roles`` have succeeded."""

    roles: tuple[str, ...]
    quorum: Quorum = Quorum.ALL


@dataclass(frozen=True, slots=True)
class Role:
    """Equal pods of a job.

    ``name``: as in the spec and the status (``Worker``).
    ``key``: part of the names of pods (``worker``).
    ``minimum``: number of pods without which the job does not run; ``replicas`` unless
        the role is elastic.
    ``counts``: whether a failure of its pods fails the job.
    ``numbered``: whether names of pods end with the index; a single pod may have none.
    ``size``: pods of one replica, which have consecutive indices and are replaced together.
        ``replicas`` and ``minimum`` are numbers of pods, multiples of it.
    """

    name: str
    key: str
    replicas: int
    minimum: int
    template: Json
    restart: RestartRule
    counts: bool = True
    numbered: bool = True
    size: int = 1

    @property
    def pod_spec(self) -> Json:
        return self.template.get("spec") or {}

    def place_of(self, index: int) -> tuple[int, int]:
        """Return the replica of a pod, and its rank in there."""
        return divmod(index, self.size)


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """``None`` means: not set. Times are seconds.

    ``backoff_limit``: number of restarts after which the next failure fails the job.
    ``deadline_seconds``: counted from the start, and again after a resume.
    ``ttl_seconds``: how long a finished job is retained.
    """

    clean_pods: CleanPodPolicy = CleanPodPolicy.NONE
    backoff_limit: int | None = None
    deadline_seconds: int | None = None
    ttl_seconds: int | None = None
    suspend: bool = False


@dataclass(frozen=True, slots=True)
class GangPolicy:
    """Gang scheduling of the pods.

    ``min_available``: ``None`` is the sum over the minimums of the roles.
    ``min_resources``: ``None`` is computed from the requests.
    ``timeout_seconds``: how long the gang may wait for its resources.
    """

    queue: str
    min_available: int | None = None
    min_resources: Json | None = None
    priority_class: str = ""
    timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class JobDefinition:
    """A job of any kind.

    ``success``: the first rule that holds decides.
    """

    namespace: str
    name: str
    uid: str
    roles: tuple[Role, ...]
    success: tuple[SuccessRule, ...]
    run: RunPolicy
    gang: GangPolicy
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def role(self, name: str) -> Role | None:
        return next((role for role in self.roles if role.name == name), None)

    @property
    def replicas(self) -> int:
        return sum(role.replicas for role in self.roles)

    @property
    def min_available(self) -> int:
        """Number of pods that start together."""
        if self.gang.min_available is not None:
            return self.gang.min_available
        return sum(role.minimum for role in self.roles)

    def pod_name(self, role: Role, index: int) -> str:
        """Return the name of a pod. The first pod of a replica has the name of the replica."""
        if not role.numbered:
            return f"{self.name}-{role.key}"
        replica, rank = role.place_of(index)
        return f"{self.name}-{role.key}-{replica}" + (f"-{rank}" if rank else "")

    def pods(self) -> list[tuple[Role, int]]:
        """Return the role and index of each pod, in the order of the roles."""
        return [(role, index) for role in self.roles for index in range(role.replicas)]
