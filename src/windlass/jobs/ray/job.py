"""RayJob: its definition, the cluster and the submitter that it needs, and the table of its deployment states.

The states are those of KubeRay (``jobDeploymentStatus``). A RayJob creates a RayCluster and waits until it is
ready. Then a Job of Kubernetes submits the entrypoint (``K8sJobMode``), or the controller does (``HTTPMode``), and
Ray's dashboard tells the state of the job.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.fields import ray
from windlass.api.owner_references import owner_reference
from windlass.api.resources import RAY_JOBS
from windlass.jobs.ray.naming import suffix_of

Json = Mapping[str, Any]
NEW, INITIALIZING, RUNNING, COMPLETE, FAILED = "", "Initializing", "Running", "Complete", "Failed"
SUSPENDING, SUSPENDED, RETRYING, WAITING = "Suspending", "Suspended", "Retrying", "Waiting"
VALIDATION_FAILED = "ValidationFailed"
ENDED = (COMPLETE, FAILED)
TERMINAL = ("SUCCEEDED", "FAILED", "STOPPED")
"""States of a job in Ray that don't change any more."""


@dataclass(frozen=True, slots=True)
class RayJob:
    """A RayJob. Times are seconds."""

    namespace: str
    name: str
    uid: str
    spec: Json
    entrypoint: str
    mode: str
    runtime_env: str
    shutdown: bool
    ttl_seconds: int
    backoff_limit: int
    suspend: bool
    selector: Mapping[str, str]

    def cluster_name(self, attempt: int) -> str:
        """Return the name of the cluster of an attempt, the same for each look at it."""
        return f"{self.name[:47]}-{suffix_of(f'{self.uid}/cluster/{attempt}')}"

    def job_id(self, attempt: int) -> str:
        """Return the submission id, which the user may fix."""
        given = str(self.spec.get("jobId") or "")
        return given or f"{self.name}-{suffix_of(f'{self.uid}/job/{attempt}')}"


def read_ray_job(obj: Json) -> RayJob:
    """Return the definition. Raises ``ValueError`` or ``KeyError`` for what cannot be run."""
    metadata, spec = obj["metadata"], obj["spec"]
    mode = spec.get("submissionMode") or ray.K8S_JOB_MODE
    selector = {str(key): str(text) for key, text in (spec.get("clusterSelector") or {}).items()}
    if not selector and not spec.get("rayClusterSpec"):
        raise ValueError("one of spec.rayClusterSpec and spec.clusterSelector must be set")
    if selector and ray.CLUSTER not in selector:
        raise ValueError(f"spec.clusterSelector must name the cluster by the key {ray.CLUSTER}")
    entrypoint = str(spec.get("entrypoint") or "").strip()
    if not entrypoint and mode not in (ray.INTERACTIVE_MODE,):
        raise ValueError(f"spec.entrypoint is empty, and {mode} needs one")
    return RayJob(
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        spec=spec,
        entrypoint=entrypoint,
        mode=mode,
        runtime_env=_runtime_env(str(spec.get("runtimeEnvYAML") or "")),
        shutdown=bool(spec.get("shutdownAfterJobFinishes")),
        ttl_seconds=int(spec.get("ttlSecondsAfterFinished") or 0),
        backoff_limit=int(spec.get("backoffLimit") or 0),
        suspend=bool(spec.get("suspend")),
        selector=selector,
    )


def _runtime_env(text: str) -> str:
    """Return the runtime environment as JSON; empty without one. Raises ``ValueError``."""
    if not text.strip():
        return ""
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"spec.runtimeEnvYAML is no YAML: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("spec.runtimeEnvYAML must be a mapping")
    return json.dumps(found)


def build_cluster(
    job: RayJob, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any]:
    """Return the RayCluster of an attempt. It has labels and annotations of the job, so its queue, too."""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": name,
            "namespace": job.namespace,
            "labels": {**labels, ray.ORIGINATED_FROM: job.name, ray.ORIGINATED_KIND: RAY_JOBS.kind},
            "annotations": dict(annotations),
            "ownerReferences": [owner_reference(RAY_JOBS, job.name, job.uid)],
        },
        "spec": dict(job.spec["rayClusterSpec"]),
    }


def submit_command(job: RayJob, job_id: str, address: str) -> str:
    """Return the shell command that submits the entrypoint, or follows it if it was submitted before."""
    where = f"--address http://{address}"
    words = [f"ray job submit {where}"]
    if job.runtime_env:
        words.append(f"--runtime-env-json {shlex.quote(job.runtime_env)}")
    if job.spec.get("metadata"):
        words.append(f"--metadata-json {shlex.quote(json.dumps(job.spec['metadata']))}")
    words.append(f"--submission-id {job_id}")
    for flag, field in (("cpus", "entrypointNumCpus"), ("gpus", "entrypointNumGpus")):
        if job.spec.get(field):
            words.append(f"--entrypoint-num-{flag} {float(job.spec[field]):f}")
    if job.spec.get("entrypointResources"):
        words.append(f"--entrypoint-resources {shlex.quote(str(job.spec['entrypointResources']))}")
    words.append(f"-- {job.entrypoint}")
    return (
        f"if ray job status {where} {job_id} >/dev/null 2>&1 ; "
        f"then ray job logs {where} --follow {job_id} ; else {' '.join(words)} ; fi"
    )


def build_submitter(
    job: RayJob, job_id: str, address: str, head_image: str, head_env: list[Any]
) -> dict[str, Any]:
    """Return the Job that submits the entrypoint. ``head_image``, ``head_env``: of the head's container."""
    template = dict(job.spec.get("submitterPodTemplate") or {})
    pod: dict[str, Any] = dict(template.get("spec") or {})
    if not pod:
        pod = {
            "containers": [
                {
                    "name": "ray-job-submitter",
                    "image": head_image,
                    "env": [entry for entry in head_env if entry.get("name") == "PATH"],
                    "resources": {
                        "limits": {"cpu": "1", "memory": "1Gi"},
                        "requests": {"cpu": "500m", "memory": "200Mi"},
                    },
                }
            ]
        }
    pod.setdefault("restartPolicy", "Never")
    containers = [dict(container) for container in pod["containers"]]
    main = containers[0]
    if not main.get("command"):
        main["command"] = ["/bin/bash", "-ce", "--"]
        main["args"] = [submit_command(job, job_id, address)]
    main["env"] = [
        *(main.get("env") or ()),
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        {"name": "RAY_DASHBOARD_ADDRESS", "value": address},
        {"name": "RAY_JOB_SUBMISSION_ID", "value": job_id},
    ]
    pod["containers"] = containers
    labels = {
        ray.ORIGINATED_FROM: job.name,
        ray.ORIGINATED_KIND: RAY_JOBS.kind,
        "app.kubernetes.io/created-by": "kuberay-operator",
    }
    limit = (job.spec.get("submitterConfig") or {}).get("backoffLimit")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job.name,
            "namespace": job.namespace,
            "labels": labels,
            "annotations": {ray.SUBMISSION_ID: job_id},
            "ownerReferences": [owner_reference(RAY_JOBS, job.name, job.uid)],
        },
        "spec": {
            "backoffLimit": 2 if limit is None else int(limit),
            "template": {"metadata": _submitter_metadata(job, template.get("metadata") or {}), "spec": pod},
        },
    }


def _submitter_metadata(job: RayJob, given: Json) -> dict[str, Any]:
    return {**given, "labels": {**(given.get("labels") or {}), ray.ORIGINATED_FROM: job.name}}
