"""Stages of a generation job (``spec.stages``, ``spec.progressive``): normal form and defaults. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.fields import aigc
from windlass.api.fields.aigc import Json

CPU_STAGE, GPU_STAGE = "cpu", "gpu"
STAGE = "aigc.kurator.dev/stage"
"""Label of a worker: name of its stage."""
GPU_GATE = "aigc.kurator.dev/gpu-bind"
"""Scheduling gate of GPU workers with reserved GPUs, until the stage may bind."""
LATE, RESERVE, EAGER = "Late", "Reserve", "Eager"
WAIT, CPU_FALLBACK, REQUEUE = "Wait", "CPUFallback", "Requeue"
READY_FRACTION = 0.05
READY_BATCHES = 1
RESERVE_SECONDS = 600.0
RELEASE_IDLE_SECONDS = 60.0
MAX_STAGES = 8
NAME_LIMIT = 20
"""Maximum length of the name of a stage, so that names of pods fit."""
BATCH_ITEMS = 64
"""Default of ``spec.batching.size``."""
SPOOL_ITEMS = 10_000
"""Default of ``output.maxItems`` of a stage."""
RESERVED_NAMES = ("driver", "worker", "batch")
_RUNTIME_FIELDS = ("template", "command", "args", "runtimeRef", "runtime")


def normal_stages(spec: Json) -> list[dict[str, Any]]:
    """Return the stages with defaults: each with kind, resources, template, runtime and workers.

    A stage without a program of its own uses that of the job. Resources of the job are those of
    its GPU stages; without GPU stages, of stages without resources.
    """
    stages = [one for one in spec.get("stages") or () if isinstance(one, Mapping)]
    return [_normal(spec, stage) for stage in stages]


def _normal(spec: Json, stage: Json) -> dict[str, Any]:
    inherits = not any(stage.get(name) for name in _RUNTIME_FIELDS)
    kind = str(stage.get("kind") or "")
    resources = _resources(spec, stage, kind)
    if not kind:
        kind = GPU_STAGE if _has_gpu(resources) else CPU_STAGE
    elif kind == GPU_STAGE and not _has_gpu(resources):
        resources.setdefault("limits", {})[aigc.GPU] = 1
    template = _template(spec, stage, inherits)
    runtime = dict(aigc.part(spec if inherits else stage, "runtimeRef"))
    if stage.get("runtime"):
        runtime["name"] = str(stage["runtime"])
    if not runtime.get("name"):
        runtime["name"] = aigc.runtime_of({"template": template} if template else {}) or aigc.PROCESS
    least, most = _bounds(spec, stage, kind)
    return {
        "name": str(stage.get("name") or ""),
        "kind": kind,
        "resources": resources,
        **({"template": template} if template else {}),
        "runtimeRef": runtime,
        "parallelism": {"min": least, "max": most},
        "output": dict(aigc.part(stage, "output")),
        **({"bind": str(stage["bind"])} if stage.get("bind") else {}),
    }


def _resources(spec: Json, stage: Json, kind: str) -> dict[str, Any]:
    given = aigc.part(stage, "resources")
    if not given and kind != CPU_STAGE:
        given = aigc.part(spec, "resources")
    found = {name: dict(amounts) for name, amounts in given.items() if isinstance(amounts, Mapping)}
    if copied := aigc.copied_limits(found):
        found["limits"] = {**found.get("limits", {}), **copied}
    return found


def _has_gpu(resources: Json) -> bool:
    return any("/" in name and "gpu" in name for name in aigc.part(resources, "limits"))


def _template(spec: Json, stage: Json, inherits: bool) -> dict[str, Any]:
    template = dict(aigc.part(spec if inherits else stage, "template"))
    command, arguments = stage.get("command"), stage.get("args")
    if not command and not arguments:
        return template
    pod = dict(aigc.part(template, "spec"))
    containers = [dict(one) for one in pod.get("containers") or () if isinstance(one, Mapping)]
    first: dict[str, Any] = containers[0] if containers else {"name": "worker"}
    if command:
        first["command"] = [command] if isinstance(command, str) else list(command)
    if arguments:
        first["args"] = list(arguments)
    return {**template, "spec": {**pod, "containers": [first, *containers[1:]]}}


def _bounds(spec: Json, stage: Json, kind: str) -> tuple[int, int]:
    """Return the least and the greatest number of workers of a stage.

    A number is both. Without one, CPU stages share ``spec.parallelism.max`` and GPU stages have
    ``spec.replicas``. With ``spec.autoscale`` each stage may have all workers that are decided.
    """
    given = stage.get("parallelism")
    if isinstance(given, int):
        return given, given
    budget = budget_of(spec)
    replicas = int(spec.get("replicas") or 1)
    default = (budget or replicas) if kind == CPU_STAGE else replicas
    if aigc.part(spec, "autoscale"):
        default = aigc.worker_bounds(spec)[1]
    most = int(aigc.part(stage, "parallelism").get("max") or default)
    least = int(aigc.part(stage, "parallelism").get("min") or 1)
    return min(least, most), most


def budget_of(spec: Json) -> int:
    """Return the number of workers that stages of one kind share; 0: each has its own number."""
    return int(aigc.part(spec, "parallelism").get("max") or 0)


def bind_of(spec: Json, stage: Json) -> str:
    """Return when a GPU stage takes its GPUs."""
    progressive = aigc.part(spec, "progressive")
    if stage.get("bind"):
        return str(stage["bind"])
    if progressive.get("enabled") is False:
        return EAGER
    return str(progressive.get("gpuBind") or LATE)


def rows_to_start(spec: Json, index: int, total: int) -> float:
    """Return the number of rows that have to wait before a stage begins (``startWhen``).

    ``total``: rows of the job. A full spool of the stage before is enough.
    """
    when = aigc.part(aigc.part(spec, "progressive"), "startWhen")
    fraction, batches = when.get("readyFraction"), when.get("readyBatches")
    size = int(aigc.part(spec, "batching").get("size") or BATCH_ITEMS)
    wanted = max(
        (READY_FRACTION if fraction is None else float(fraction)) * total,
        (READY_BATCHES if batches is None else int(batches)) * size,
        1,
    )
    spool = int(aigc.part(spec["stages"][index - 1], "output").get("maxItems") or SPOOL_ITEMS)
    return min(wanted, total, spool)
