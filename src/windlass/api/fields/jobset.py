"""Fields and names of ``jobset.x-k8s.io/v1alpha2``, as in JobSet 0.11."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PREFIX = "jobset.sigs.k8s.io"
JOB_SET_NAME = f"{_PREFIX}/jobset-name"
JOB_SET_UID = f"{_PREFIX}/jobset-uid"
REPLICATED_JOB_NAME = f"{_PREFIX}/replicatedjob-name"
REPLICATED_JOB_REPLICAS = f"{_PREFIX}/replicatedjob-replicas"
GLOBAL_REPLICAS = f"{_PREFIX}/global-replicas"
JOB_INDEX = f"{_PREFIX}/job-index"
JOB_GLOBAL_INDEX = f"{_PREFIX}/job-global-index"
JOB_KEY = f"{_PREFIX}/job-key"
GROUP_NAME = f"{_PREFIX}/group-name"
GROUP_REPLICAS = f"{_PREFIX}/group-replicas"
JOB_GROUP_INDEX = f"{_PREFIX}/job-group-index"
RESTART_ATTEMPT = f"{_PREFIX}/restart-attempt"
JOB_RESTART_ATTEMPT = f"{_PREFIX}/job-restart-attempt"
COORDINATOR = f"{_PREFIX}/coordinator"
IN_PLACE_ATTEMPT = f"{_PREFIX}/in-place-restart-attempt"
"""On a pod: the in-place restart attempt that its agent has reached."""
DISABLE_IN_PLACE = f"{_PREFIX}/disable-in-place-restart"
"""On a JobSet: its pods start without waiting for one another, and restart by their own policy."""
IN_PLACE_AGENT = "in-place-restart-agent"
"""Name of JobSet's agent: of its image, and of its container in the published manifests."""
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR_STRATEGY = "alpha.jobset.sigs.k8s.io/node-selector"
NAMESPACED_JOB = "alpha.jobset.sigs.k8s.io/namespaced-job"
NO_SCHEDULE_TAINT = "alpha.jobset.sigs.k8s.io/no-schedule"
CONTROLLER_NAME = f"{_PREFIX}/jobset-controller"
"""Value of ``managedBy`` that means: this controller."""

IN_ORDER = "InOrder"
RECREATE, BLOCKING_RECREATE, IN_PLACE_RESTART = "Recreate", "BlockingRecreate", "InPlaceRestart"
FAIL_JOB_SET = "FailJobSet"
RESTART_JOB_SET = "RestartJobSet"
RESTART_JOB_SET_UNCOUNTED = "RestartJobSetAndIgnoreMaxRestarts"
RESTART_JOB = "RestartJob"
RESTART_JOB_UNCOUNTED = "RestartJobAndIgnoreMaxRestarts"
JOB_FAILURE_REASONS = (
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "PodFailurePolicy",
)

Json = Mapping[str, Any]


def job_name(job_set: str, replicated_job: str, index: int) -> str:
    """Return the name of a child Job."""
    return f"{job_set}-{replicated_job}-{index}"


def subdomain_of(name: str, spec: Json) -> str:
    """Return the name of the headless Service of a JobSet."""
    return (spec.get("network") or {}).get("subdomain") or name


def coordinator_endpoint(name: str, spec: Json) -> str:
    """Return the host name of the coordinator pod; empty if the JobSet has none."""
    found = spec.get("coordinator")
    if not found:
        return ""
    job = job_name(name, found.get("replicatedJob") or "", found.get("jobIndex") or 0)
    return f"{job}-{found.get('podIndex') or 0}.{subdomain_of(name, spec)}"


def replicas_of(replicated_job: Json) -> int:
    """Return the number of child Jobs of a replicated job; 1 if it is not set."""
    replicas = replicated_job.get("replicas")
    return 1 if replicas is None else int(replicas)


def job_spec(replicated_job: Json) -> Json:
    """Return the spec of its child Jobs."""
    return (replicated_job.get("template") or {}).get("spec") or {}


def pod_spec(replicated_job: Json) -> Json:
    """Return the spec of the pods of its child Jobs."""
    return (job_spec(replicated_job).get("template") or {}).get("spec") or {}


def pods_of_job(spec: Json) -> int:
    """Return the number of pods of a child Job that run at the same time."""
    parallelism = spec.get("parallelism")
    count = 1 if parallelism is None else int(parallelism)
    completions = spec.get("completions")
    return count if completions is None else min(count, int(completions))


def mounts(pod: Json, volume: str) -> bool:
    """Return whether a container of a pod mounts a volume."""
    containers = [*(pod.get("containers") or ()), *(pod.get("initContainers") or ())]
    return any(
        mount.get("name") == volume
        for container in containers
        for mount in container.get("volumeMounts") or ()
    )
