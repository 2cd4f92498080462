"""Generation jobs (``kurator.dev/v1alpha1`` AIGCJob) by themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windlass.api.fields import aigc
from windlass.api.nodes.topology_levels import LEVELS
from windlass.api.validation import names
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.jobs import aigc_stages as stages
from windlass.api.validation.jobs.aigc_scaling import check_autoscale
from windlass.api.validation.scheduling.model_cache import SCHEMES

Obj = Mapping[str, Any]
NAME_LIMIT = 50
"""Maximum length of a name, so that names of pods and Services fit."""
SHARDS_NAME_LIMIT = 45
"""Maximum length of a name with ``spec.shards``, so that names of pods are host names."""
_OBJECTS = ("input", "grouping", "batching", "items", "outputs", "contextCache", "autoscale", "progressive")
_FIXED = (
    "input",
    "grouping",
    "batching",
    "items",
    "outputs",
    "contextCache",
    "runtimeRef",
    "model",
    "stages",
    "shards",
)


def aigc_job(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Check an AIGCJob."""
    spec, name = obj.get("spec"), str(part(obj, "metadata").get("name") or "")
    if len(name) > NAME_LIMIT:
        out.invalid("metadata.name", name, f"an AIGCJob has a name of at most {NAME_LIMIT} characters")
    if not isinstance(spec, Mapping):
        out.required("spec", "describe the job, for example   spec: {input: {path: /data/rows.csv}}")
        return
    for field in _OBJECTS:
        if spec.get(field) is not None and not isinstance(spec[field], Mapping):
            out.invalid(f"spec.{field}", spec[field], "it must be an object")
    if out.errors:
        return
    _priority(spec, out)
    _workers(spec, out)
    _shards(spec, name, out)
    check_autoscale(spec, out)
    if not spec.get("stages"):
        _runtime(spec, out)
    _model(spec, out)
    stages.check_resources(part(spec, "resources"), "spec.resources", out)
    stages.check(spec, name, out)
    inline = part(spec, "input").get("inline")
    if isinstance(inline, str) and len(inline.encode()) > aigc.INLINE_BYTES:
        why = f"has {len(inline.encode())} bytes, and inline rows may have {aigc.INLINE_BYTES}: use source: file"
        out.invalid("spec.input.inline", inline[:20] + "…", why)
    if old is not None:
        _update(spec, part(old, "spec"), out)


def _priority(spec: Obj, out: Collector) -> None:
    both = spec.get("priorityClass"), spec.get("priorityClassName")
    if both[0] and both[1] and both[0] != both[1]:
        why = f"spec.priorityClass says {both[0]}: keep one of them"
        out.invalid("spec.priorityClassName", both[1], why)
    level = aigc.level_of(spec)
    if level not in aigc.LEVELS:
        why = f"use one of {', '.join(aigc.LEVELS)} or the name of a PriorityClass"
        if names.dns_subdomain(level):
            out.invalid("spec.priorityClass", level, why)


def _workers(spec: Obj, out: Collector) -> None:
    for path, bounds in (("parallelism", part(spec, "parallelism")), ("autoscale", part(spec, "autoscale"))):
        least, most = bounds.get("min"), bounds.get("max")
        if isinstance(least, int) and isinstance(most, int) and least > most:
            out.invalid(f"spec.{path}.min", least, f"it must not be above max ({most})")
        for name, count in bounds.items():
            _countable(spec, f"spec.{path}.{name}", count if name in ("min", "max") else 0, out)
    _countable(spec, "spec.replicas", spec.get("replicas"), out)
    most = part(spec, "parallelism").get("max")
    replicas, available = spec.get("replicas"), spec.get("minAvailable")
    if isinstance(most, int) and isinstance(replicas, int) and replicas > most:
        out.invalid("spec.replicas", replicas, f"it must not be above parallelism.max ({most})")
    if isinstance(available, int) and available > aigc.worker_bounds(spec)[1]:
        most = aigc.worker_bounds(spec)[1]
        out.invalid("spec.minAvailable", available, f"the job has at most {most} workers: raise replicas")


def _countable(spec: Obj, path: str, workers: Any, out: Collector) -> None:
    """Check that a number of workers is one that a controller can create."""
    given = spec.get("shards")
    shards = max(1, given) if isinstance(given, int) else 1
    limit = aigc.PODS_LIMIT
    if isinstance(workers, int) and workers * shards > limit:
        of_pods = f" of {shards} pods" if shards > 1 else ""
        why = f"use at most {limit // shards} workers{of_pods}: a job has at most {limit} pods of workers"
        out.invalid(path, workers, why)


def _shards(spec: Obj, name: str, out: Collector) -> None:
    """Check workers of several pods."""
    shards = spec.get("shards")
    if not isinstance(shards, int) or shards <= 1:
        return
    if spec.get("stages"):
        why = "workers of stages have one pod: run the stage as a job of its own, or remove shards"
        out.invalid("spec.shards", shards, why)
    _topology(part(spec, "placement").get("topology"), out)
    if len(name) > SHARDS_NAME_LIMIT:
        why = f"an AIGCJob with shards has a name of at most {SHARDS_NAME_LIMIT} characters"
        out.invalid("metadata.name", name, why)
    if part(part(spec, "model"), "sharing").get("mode") == aigc.SERVER:
        why = (
            "a server of several pods is not shared by a node: run it as the second container of "
            "spec.template, with its rank from RANK"
        )
        out.invalid("spec.model.sharing.mode", aigc.SERVER, why)


def _topology(given: Any, out: Collector) -> None:
    """Check the constraint of each worker."""
    path = "spec.placement.topology"
    if given is None or (isinstance(given, str) and (given in LEVELS or "/" in given)):
        return
    keys = {"mode", "highestTierAllowed", "highestTierName"}
    if not isinstance(given, Mapping) or not given or not given.keys() <= keys:
        why = f"use one of {', '.join(LEVELS)}, a label of nodes, or {{mode: hard, highestTierAllowed: 1}}"
        out.invalid(path, given, why)
    elif given.get("mode") is not None:
        out.choice(f"{path}.mode", given["mode"], ("hard", "soft"))


def _runtime(spec: Obj, out: Collector) -> None:
    runtime = aigc.runtime_of(spec)
    if not runtime:
        words = "a model needs a runtime" if spec.get("model") else "the template has no command"
        why = f"{words}: set name to one of {', '.join(aigc.RUNTIMES)}"
        out.required("spec.runtimeRef.name", why)
    elif not out.choice("spec.runtimeRef.name", runtime, aigc.RUNTIMES):
        return
    elif runtime == aigc.PROCESS:
        main = aigc.main_container(spec)
        if not main.get("command") and not main.get("args"):
            where = "spec.template.spec.containers[0].command"
            out.required(where, "it is the program that reads rows and writes rows, one JSON object a line")
    elif runtime == aigc.LLAMA_CPP and not part(spec, "model").get("source"):
        parameters = part(part(spec, "runtimeRef"), "parameters")
        if not parameters.get("file"):
            out.required("spec.model.source", "the runtime llama-cpp loads a .gguf file from there")


def _model(spec: Obj, out: Collector) -> None:
    model = part(spec, "model")
    source, name = model.get("source"), model.get("name")
    if source is not None and not name:
        out.required("spec.model.name", "the model on the nodes has this name")
    schemes = (*SCHEMES, aigc.CLAIM_SCHEME, aigc.IMAGE_SCHEME)
    if isinstance(source, str) and source != "hf" and not source.startswith(schemes):
        out.invalid("spec.model.source", source, f"must be hf or begin with one of {', '.join(schemes)}")
    preload, sharing = part(model, "preload"), part(model, "sharing")
    _volume(str(source or ""), preload, out)
    for path, value, allowed in (
        ("preload.strategy", preload.get("strategy"), aigc.PRELOAD_STRATEGIES),
        ("preload.when", preload.get("when"), aigc.PRELOAD_MOMENTS),
        ("sharing.mode", sharing.get("mode"), aigc.SHARING_MODES),
    ):
        if value is not None:
            out.choice(f"spec.model.{path}", value, allowed)
    checksum = preload.get("sha256")
    if checksum is not None and not re.fullmatch("[0-9a-f]{64}", str(checksum)):
        out.invalid("spec.model.preload.sha256", checksum, "must be 64 hexadecimal digits")


def _volume(source: str, preload: Obj, out: Collector) -> None:
    """Check models on a volume: a source names it, or a claim keeps what is fetched."""
    strategy, on_claim = preload.get("strategy"), source.startswith(aigc.CLAIM_SCHEME)
    if on_claim and source in (aigc.CLAIM_SCHEME, f"{aigc.CLAIM_SCHEME}/"):
        out.invalid("spec.model.source", source, "must name a claim: pvc://CLAIM/PATH")
    if strategy == aigc.ON_CLAIM and not on_claim and not preload.get("claimName"):
        why = "the PersistentVolumeClaim that keeps the model; or set model.source to pvc://CLAIM/PATH"
        out.required("spec.model.preload.claimName", why)
    if strategy == aigc.IN_IMAGE and not source.startswith(aigc.IMAGE_SCHEME):
        out.invalid("spec.model.source", source, "strategy Image needs the image of the model: oci://IMAGE")


def _update(spec: Obj, before: Obj, out: Collector) -> None:
    if part(before, "policy").get("suspend") or part(spec, "policy").get("suspend"):
        return
    for field in _FIXED:
        if spec.get(field) != before.get(field):
            why = "field is immutable while the job runs: suspend it first (windlass suspend JOB)"
            out.forbidden(f"spec.{field}", why)
