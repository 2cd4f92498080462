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

from windlass.api import aigc_fields as fields
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
_FIRST_PORT, _PORTS = 20_000, 10_000


@dataclass(frozen=True, slots=True)
class AigcJob:
    """Job, with its spec in normal form.

    ``level``: its priority, as the label of its pods has it.
    ``least``, ``most``: bounds for the number of workers.
    ``minimum``: number of workers that start together.
    ``retry``: value of the annotation that asks for another run of the dead letters.
    """

    definition: JobDefinition
    spec: Json
    level: str
    least: int
    most: int
    minimum: int
    retry: str

    @property
    def driver(self) -> Role:
        return self.definition.roles[0]

    @property
    def worker(self) -> Role:
        return self.definition.roles[1]

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
    def objects_name(self) -> str:
        """Name of the ConfigMap and the Secret that driver and workers read."""
        return f"{self.definition.name}-batch"

    @property
    def binds_late(self) -> bool:
        """Return whether workers are created once the driver has read the rows, so that no GPU waits for them."""
        progressive = fields.part(self.spec, "progressive")
        return (
            bool(self.gpus)
            and progressive.get("gpuBind") != "Eager"
            and progressive.get("enabled") is not False
        )

    @property
    def gpus(self) -> int:
        """Number of whole GPUs of a worker."""
        return gpus_of(self.worker.template)

    def batch_text(self) -> str:
        """Return the document that the driver and the workers read."""
        metadata = {
            "namespace": self.definition.namespace,
            "name": self.definition.name,
            "uid": self.definition.uid,
        }
        return msgspec.json.encode({"metadata": metadata, "spec": self.spec}).decode()


def read_aigc_job(obj: Json, desired: int | None = None) -> AigcJob:
    """Read an object that passed validation. ``desired``: number of workers that scaling decided."""
    metadata, given = obj["metadata"], obj.get("spec") or {}
    spec = fields.defaulted(given)
    least, most = fields.worker_bounds(given)
    count = fields.worker_count(given) if desired is None else min(most, max(least, desired))
    minimum = min(int(given.get("minAvailable") or least), count)
    policy = spec["policy"]
    level = fields.level_of(given)
    roles = (
        Role(
            fields.DRIVER,
            "driver",
            1,
            1,
            {"spec": {"containers": [_driver_container(spec)]}},
            RestartRule.REPLACE,
            numbered=False,
        ),
        Role(fields.WORKER, "worker", count, minimum, worker_template(spec), RestartRule.REPLACE),
    )
    ttl, deadline = policy.get("ttlSecondsAfterFinished"), policy.get("activeDeadlineSeconds")
    annotations = metadata.get("annotations") or {}
    definition = JobDefinition(
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        roles=roles,
        success=(SuccessRule((fields.DRIVER,)),),
        run=RunPolicy(
            clean_pods=CleanPodPolicy.RUNNING,
            backoff_limit=int(policy["backoffLimit"]),
            deadline_seconds=None if deadline is None else int(deadline),
            ttl_seconds=None if ttl is None else int(ttl),
            suspend=bool((given.get("policy") or {}).get("suspend")),
        ),
        gang=GangPolicy(
            queue=str(given.get("queue") or DEFAULT_QUEUE),
            min_available=minimum,
            priority_class=fields.priority_class(level),
        ),
        labels=metadata.get("labels") or {},
        annotations=annotations,
    )
    return AigcJob(
        definition, spec, fields.label_of(level), least, most, minimum, annotations.get(fields.RETRY) or ""
    )


def _driver_container(spec: Json) -> dict[str, Any]:
    return {"name": "driver", "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}


def worker_template(spec: Json) -> dict[str, Any]:
    """Return the pod template of the workers: that of the job, or a container ``worker``."""
    template = dict(fields.part(spec, "template"))
    pod = dict(fields.part(template, "spec"))
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
    for container in fields.part(template, "spec").get("containers") or ():
        amount = str(fields.part(fields.part(container, "resources"), "limits").get(fields.GPU) or "")
        found += int(amount) if amount.isdecimal() else 0
    return found
