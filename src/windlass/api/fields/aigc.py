"""Names, fields and defaults of generation jobs (``kurator.dev/v1alpha1`` AIGCJob)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

Json = Mapping[str, Any]

JOB_NAME = "aigc.kurator.dev/job-name"
ROLE = "aigc.kurator.dev/role"
INDEX = "aigc.kurator.dev/index"
SHARD = "aigc.kurator.dev/shard"
"""Label of a pod of a worker of several pods: its rank in the worker. The label of the index has the worker."""
PRIORITY = "aigc.kurator.dev/priority"
GPU_BIND = "aigc.kurator.dev/gpu-bind"
"""Scheduling gate of GPU pods until there is enough work for them."""
RETRY = "aigc.kurator.dev/retry"
"""Annotation of a job: a new value runs its dead letters again."""
METRICS = "aigc.kurator.dev/metrics"
"""Annotation of a job: metrics for its scaling by name (JSON), which come before measured ones. ``at``: their time."""
DRIVER, WORKER = "Driver", "Worker"

LEVELS = ("urgent", "high", "medium", "low")
DEFAULT_LEVEL = "medium"
DEFAULT_BACKOFF_LIMIT = 3
DEFAULT_GRACE_SECONDS = 30
PODS_LIMIT = 10_000
"""Maximum number of pods of the workers of a job. One with millions would occupy its controller for minutes."""
DEFAULT_MAX_WORKERS = 200
BUILTIN, PROCESS, PYTHON, OPENAI = "builtin-generate", "process", "python", "openai"
HOST_NETWORK = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
"""Fields of a pod that uses the network of its node."""
LLAMA_CPP, NOOP = "llama-cpp", "noop"
LLAMA_CPP_PACKAGE = "xllamacpp"
"""Package with the engine of the runtime ``llama-cpp``. Windlass does not require it."""
RUNTIMES = (BUILTIN, PROCESS, PYTHON, OPENAI, LLAMA_CPP, NOOP)
GPU = "nvidia.com/gpu"
HOST_PATH, ON_FIRST_USE, SHARED_MEMORY = "HostPath", "OnFirstUse", "SharedMemory"
ON_CLAIM, IN_IMAGE = "PVC", "Image"
CLAIM_SCHEME, IMAGE_SCHEME = "pvc://", "oci://"
"""Beginnings of ``model.source`` for models on a volume: ``pvc://CLAIM/PATH``, ``oci://IMAGE``."""
PRELOAD_STRATEGIES = (HOST_PATH, ON_CLAIM, IN_IMAGE, "None")
PRELOAD_MOMENTS = ("Eager", "OnQueue", ON_FIRST_USE)
SERVER = "Server"
SHARING_MODES = ("None", SHARED_MEMORY, SERVER)
INLINE_BYTES = 900_000
"""Maximum length of the inline input in bytes: the job travels in a ConfigMap of at most 1 MiB."""
IMAGE_VARIABLE = "WINDLASS_IMAGE"
"""Environment variable of the controllers in a cluster: their own image, which driver and workers use."""

GROUP_SETTINGS = ("parallelism", "model", "priority", "deadline", "weight")
"""Fields of the settings of a group (``spec.grouping.perGroup``)."""


def part(spec: Json, name: str) -> Json:
    """Return an object of the spec; empty if it is absent or not an object."""
    found = spec.get(name)
    return found if isinstance(found, Mapping) else {}


def level_of(spec: Json) -> str:
    """Return the priority as written: one of :data:`LEVELS`, or the name of a PriorityClass."""
    return str(spec.get("priorityClass") or spec.get("priorityClassName") or DEFAULT_LEVEL)


def priority_class(level: str) -> str:
    """Return the PriorityClass of a level; another name is a PriorityClass itself."""
    return f"aigc-{level}" if level in LEVELS else level


def label_of(level: str) -> str:
    """Return the value of the label :data:`PRIORITY`: ``aigc-high`` is the level ``high``."""
    short = level.removeprefix("aigc-")
    return short if short in LEVELS else level


def main_container(spec: Json) -> Json:
    """Return the container of ``spec.template`` that generates; empty if there is no template."""
    containers = part(part(spec, "template"), "spec").get("containers") or ()
    return containers[0] if containers and isinstance(containers[0], Mapping) else {}


def runtime_of(spec: Json) -> str:
    """Return the name of the runtime; ``""`` if it has to be named.

    Default: ``process`` for a template with a command, ``builtin-generate`` without template
    and model.
    """
    named = part(spec, "runtimeRef").get("name")
    if named:
        return str(named)
    if main_container(spec).get("command") or main_container(spec).get("args"):
        return PROCESS
    return "" if spec.get("model") or spec.get("template") else BUILTIN


def on_loopback(url: str) -> bool:
    """Return whether the server of a URL is on a loopback address: in the network of a pod, the pod itself."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return host in ("localhost", "::1") or host.startswith("127.")


def copied_limits(resources: Json) -> dict[str, Any]:
    """Return the extended resources that stand in requests only. A limit has to equal them."""
    limits = part(resources, "limits")
    return {
        name: amount
        for name, amount in part(resources, "requests").items()
        if "/" in name and name not in limits
    }


def shards_of(spec: Json) -> int:
    """Return the number of pods of a worker."""
    return int(spec.get("shards") or 1)


def worker_bounds(spec: Json) -> tuple[int, int]:
    """Return the least and the greatest number of workers."""
    bounds, scale = part(spec, "parallelism"), part(spec, "autoscale")
    replicas = int(spec.get("replicas") or 1)
    least = int(bounds.get("min") or scale.get("min") or 1)
    if bounds.get("max"):
        most = int(bounds["max"])
    else:
        most = int(scale.get("max") or DEFAULT_MAX_WORKERS) if scale else replicas
    return least, max(least, most)


def worker_count(spec: Json) -> int:
    """Return the number of workers that the spec asks for."""
    least, most = worker_bounds(spec)
    stated = spec.get("replicas")
    if stated is None:
        return least if spec.get("autoscale") else most
    return min(most, max(least, int(stated)))


def defaulted(spec: Json) -> dict[str, Any]:
    """Return the spec as driver and workers read it: with defaults and without alternative spellings."""
    found: dict[str, Any] = copy.deepcopy(dict(spec))
    found.pop("priorityClassName", None)
    found["priorityClass"] = label_of(level_of(spec))
    resources = {name: dict(amounts or {}) for name, amounts in part(spec, "resources").items() if amounts}
    if copied := copied_limits(resources):
        resources["limits"] = {**resources.get("limits", {}), **copied}
    found["resources"] = resources
    if runtime := runtime_of(spec):
        found["runtimeRef"] = {**part(spec, "runtimeRef"), "name": runtime}
    found["policy"] = {
        "backoffLimit": DEFAULT_BACKOFF_LIMIT,
        "preemptible": True,
        "checkpointOnPreempt": True,
        "preemptGraceSeconds": DEFAULT_GRACE_SECONDS,
        "restart": "OnFailure",
        **part(spec, "policy"),
    }
    found["policy"].pop("suspend", None)  # it is the controller's alone
    found["replicas"] = worker_count(spec)
    if spec.get("stages"):
        from windlass.api.fields.stages import normal_stages  # it uses this module

        found["stages"] = normal_stages(spec)
    return found
