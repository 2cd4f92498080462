"""An AIGCJob as a job of the job core: a driver, which keeps the ledger, and elastic workers.

The driver is not part of the gang: it needs no GPU, reads the input at once and reports a
wrong input before a GPU is bound. The PodGroup of the job holds the workers.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.api.fields import aigc
from windlass.api.fields.stages import EAGER, GPU_STAGE, RESERVE_SECONDS, bind_of, normal_stages
from windlass.jobs.aigc.stages import StagePlan, stage_roles
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

DEFAULT_QUEUE = "default"
DRIVER_KEY = "driver"
"""Label :data:`windlass.api.fields.aigc.ROLE` of the driver's pod."""
_FIRST_PORT, _PORTS = 20_000, 10_000


@dataclass(frozen=True, slots=True)
class AigcJob:
    """Job, with its spec in normal form.

    ``level``: its priority, as the label of its pods has it.
    ``least``, ``most``: bounds for the number of workers.
    ``minimum``: number of workers that start together.
    ``retry``: value of the annotation that asks for another run of the dead letters.
    ``plan``: workers of its stages; ``None`` for a job without stages.
    ``shards``: pods of a worker, which start, end and are replaced together.
    """

    definition: JobDefinition
    spec: Json
    level: str
    least: int
    most: int
    minimum: int
    retry: str
    plan: StagePlan | None = None
    shards: int = 1

    @property
    def driver(self) -> Role:
        return self.definition.roles[0]

    @property
    def worker(self) -> Role:
        return self.definition.roles[1]

    @property
    def workers(self) -> tuple[Role, ...]:
        """Roles of the workers: one, or one for each stage."""
        return self.definition.roles[1:]

    @property
    def policy(self) -> Json:
        return self.spec["policy"]

    @property
    def port(self) -> int:
        """Port of the driver. It follows from the job: pods may share the network of a machine."""
        return _FIRST_PORT + zlib.crc32(self.definition.uid.encode()) % _PORTS

    @property
    def driver_host(self) -> str:
        """Name of the driver's Service."""
        return f"{self.definition.name}-driver"

    @property
    def shards_host(self) -> str:
        """Name of the Service that gives the pods of workers their addresses."""
        return f"{self.definition.name}-shards"

    @property
    def objects_name(self) -> str:
        """Name of the ConfigMap and the Secret that driver and workers read."""
        return f"{self.definition.name}-batch"

    @property
    def binds_late(self) -> bool:
        """Return whether workers are created once the driver has read the rows, so that no GPU waits for them."""
        progressive = aigc.part(self.spec, "progressive")
        return (
            self.plan is None
            and bool(self.gpus)
            and progressive.get("gpuBind") != "Eager"
            and progressive.get("enabled") is not False
        )

    @property
    def gpus(self) -> int:
        """Number of whole GPUs of a worker; with stages, of one of the stage with the most of them."""
        return self.shards * max(gpus_of(role.template) for role in self.workers)

    @property
    def has_gpu_stage(self) -> bool:
        """Return whether a stage has GPUs."""
        return any(stage["kind"] == GPU_STAGE for stage in self.spec.get("stages") or ())

    @property
    def model_role(self) -> str:
        """Name of the role with the model: that of the first GPU stage, without GPU stages of the last one."""
        stages = self.spec.get("stages") or ()
        gpus = [stage["name"] for stage in stages if stage["kind"] == GPU_STAGE]
        return gpus[0] if gpus else self.workers[-1].name

    def gpus_of_role(self, name: str) -> int:
        """Return the number of whole GPUs of a pod of a role."""
        role = self.definition.role(name)
        return gpus_of(role.template) if role is not None else 0

    def least_gpus(self, name: str) -> int:
        """Return the number of whole GPUs of the least workers of a stage."""
        least = next(
            (one["parallelism"]["min"] for one in normal_stages(self.spec) if one["name"] == name), 0
        )
        return self.gpus_of_role(name) * int(least)

    def least_gpus_bound_late(self, name: str) -> int:
        """Return the number of whole GPUs of the least workers of a stage; 0 if it binds them at once."""
        stage = next((one for one in normal_stages(self.spec) if one["name"] == name), {})
        return 0 if bind_of(self.spec, stage) == EAGER else self.least_gpus(name)

    def reservation(self, role: Role) -> dict[str, str]:
        """Return the annotations of the PodGroup of a role that reserve its GPUs."""
        if self.plan is None:
            return {}
        limit = aigc.part(self.spec, "progressive").get("reserveTimeoutSeconds")
        return self.plan.reservation(role.name, RESERVE_SECONDS if limit is None else float(limit))

    def group_name(self, role: Role) -> str:
        """Return the name of the PodGroup of a role. That of the first workers has the name of the job."""
        first = role.name == self.workers[0].name and role.key == role.name
        first = first or self.plan is None
        return self.definition.name if first else f"{self.definition.name}-{role.key}"

    def batch_text(self) -> str:
        """Return the document that the driver and the workers read."""
        metadata = {
            "namespace": self.definition.namespace,
            "name": self.definition.name,
            "uid": self.definition.uid,
        }
        return msgspec.json.encode({"metadata": metadata, "spec": self.spec}).decode()


def read_aigc_job(
    obj: Json, desired: int | None = None, plan: StagePlan | None = None, *, retried: bool = True
) -> AigcJob:
    """Read an object that passed validation.

    ``desired``: number of workers that scaling decided. ``plan``: workers of its stages.
    ``retried``: the job is retried if its driver fails; otherwise that fails the job.
    """
    metadata, given = obj["metadata"], obj.get("spec") or {}
    spec, shards = aigc.defaulted(given), aigc.shards_of(given)
    least, most = aigc.worker_bounds(given)
    count = aigc.worker_count(given) if desired is None else min(most, max(least, desired))
    minimum = min(int(given.get("minAvailable") or least), count)
    policy = spec["policy"]
    level = aigc.level_of(given)
    roles = (
        _driver_role(spec, RestartRule.REPLACE if retried else RestartRule.NEVER),
        *_worker_roles(spec, count, minimum, plan, shards),
    )
    if spec.get("stages"):
        minimum = roles[1].minimum
        plan = plan or StagePlan((), "")
    ttl, deadline = policy.get("ttlSecondsAfterFinished"), policy.get("activeDeadlineSeconds")
    annotations = metadata.get("annotations") or {}
    definition = JobDefinition(
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        roles=roles,
        success=(SuccessRule((aigc.DRIVER,)),),
        run=RunPolicy(
            clean_pods=CleanPodPolicy.RUNNING,
            backoff_limit=int(policy["backoffLimit"]),
            deadline_seconds=None if deadline is None else int(deadline),
            ttl_seconds=None if ttl is None else int(ttl),
            suspend=bool((given.get("policy") or {}).get("suspend")),
        ),
        gang=GangPolicy(
            queue=str(given.get("queue") or DEFAULT_QUEUE),
            min_available=minimum * shards,
            priority_class=aigc.priority_class(level),
        ),
        labels=metadata.get("labels") or {},
        annotations=annotations,
    )
    return AigcJob(
        definition,
        spec,
        aigc.label_of(level),
        least,
        most,
        minimum,
        annotations.get(aigc.RETRY) or "",
        plan,
        shards,
    )


def _driver_role(spec: Json, restart: RestartRule) -> Role:
    template = {"spec": {"containers": [_driver_container(spec)]}}
    return Role(aigc.DRIVER, DRIVER_KEY, 1, 1, template, restart, numbered=False)


def _worker_roles(spec: Json, count: int, minimum: int, plan: StagePlan | None, shards: int) -> list[Role]:
    if spec.get("stages"):
        return stage_roles(spec["stages"], plan)
    pods, least, template = count * shards, minimum * shards, worker_template(spec)
    return [Role(aigc.WORKER, "worker", pods, least, template, RestartRule.REPLACE, size=shards)]


def _driver_container(spec: Json) -> dict[str, Any]:
    return {"name": "driver", "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}


def worker_template(spec: Json) -> dict[str, Any]:
    """Return the pod template of the workers: that of the job, or a container ``worker``."""
    template = dict(aigc.part(spec, "template"))
    pod = dict(aigc.part(template, "spec"))
    containers = [dict(one) for one in pod.get("containers") or () if isinstance(one, Mapping)]
    if not containers:
        containers = [{"name": "worker"}]
    if spec.get("resources") and not containers[0].get("resources"):
        containers[0]["resources"] = spec["resources"]
    pod["containers"] = containers
    template["spec"] = pod
    return template


def gpus_of(template: Json) -> int:
    """Return the number of whole GPUs in the limits of a pod template."""
    found = 0
    for container in aigc.part(template, "spec").get("containers") or ():
        amount = str(aigc.part(aigc.part(container, "resources"), "limits").get(aigc.GPU) or "")
        found += int(amount) if amount.isdecimal() else 0
    return found
