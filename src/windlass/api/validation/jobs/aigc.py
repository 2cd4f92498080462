"""Generation jobs (``kurator.dev/v1alpha1`` AIGCJob) by themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windlass.api import aigc_fields as fields
from windlass.api.annotations import DEVICE_MEMORY
from windlass.api.quantities import QuantityError, parse
from windlass.api.validation import names
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.scheduling.model_cache import SCHEMES

Obj = Mapping[str, Any]
NAME_LIMIT = 50
"""Maximum length of a name, so that names of pods and Services fit."""
INLINE_BYTES = 900_000
"""Maximum length of the inline input in bytes: the job travels in a ConfigMap of at most 1 MiB."""
_OBJECTS = ("input", "grouping", "batching", "items", "outputs", "contextCache", "autoscale", "progressive")
_FIXED = ("input", "grouping", "batching", "items", "outputs", "runtimeRef", "model", "stages")


def aigc_job(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Check an AIGCJob."""
    spec, name = obj.get("spec"), str(part(obj, "metadata").get("name") or "")
    if len(name) > NAME_LIMIT:
        out.invalid("metadata.name", name, f"an AIGCJob has a name of at most {NAME_LIMIT} characters")
    if not isinstance(spec, Mapping):
        out.required("spec", "describe the job, for example   spec: {input: {source: file, file: rows.csv}}")
        return
    for field in _OBJECTS:
        if spec.get(field) is not None and not isinstance(spec[field], Mapping):
            out.invalid(f"spec.{field}", spec[field], "it must be an object")
    if out.errors:
        return
    _priority(spec, out)
    _workers(spec, out)
    _runtime(spec, out)
    _model(spec, out)
    _resources(spec, out)
    _stages(spec, out)
    inline = part(spec, "input").get("inline")
    if isinstance(inline, str) and len(inline.encode()) > INLINE_BYTES:
        why = f"has {len(inline.encode())} bytes, and inline rows may have {INLINE_BYTES}: use source: file"
        out.invalid("spec.input.inline", inline[:20] + "…", why)
    if old is not None:
        _update(spec, part(old, "spec"), out)


def _priority(spec: Obj, out: Collector) -> None:
    both = spec.get("priorityClass"), spec.get("priorityClassName")
    if both[0] and both[1] and both[0] != both[1]:
        why = f"spec.priorityClass says {both[0]}: keep one of them"
        out.invalid("spec.priorityClassName", both[1], why)
    level = fields.level_of(spec)
    if level not in fields.LEVELS:
        why = f"use one of {', '.join(fields.LEVELS)} or the name of a PriorityClass"
        if names.dns_subdomain(level):
            out.invalid("spec.priorityClass", level, why)


def _workers(spec: Obj, out: Collector) -> None:
    if (spec.get("shards") or 1) != 1:
        out.invalid("spec.shards", spec["shards"], "workers of several pods are not supported: use 1")
    for path, bounds in (("parallelism", part(spec, "parallelism")), ("autoscale", part(spec, "autoscale"))):
        least, most = bounds.get("min"), bounds.get("max")
        if isinstance(least, int) and isinstance(most, int) and least > most:
            out.invalid(f"spec.{path}.min", least, f"it must not be above max ({most})")
    most = part(spec, "parallelism").get("max")
    replicas, available = spec.get("replicas"), spec.get("minAvailable")
    if isinstance(most, int) and isinstance(replicas, int) and replicas > most:
        out.invalid("spec.replicas", replicas, f"it must not be above parallelism.max ({most})")
    if isinstance(available, int) and available > fields.worker_bounds(spec)[1]:
        most = fields.worker_bounds(spec)[1]
        out.invalid("spec.minAvailable", available, f"the job has at most {most} workers: raise replicas")


def _runtime(spec: Obj, out: Collector) -> None:
    runtime = fields.runtime_of(spec)
    if not runtime:
        words = "a model needs a runtime" if spec.get("model") else "the template has no command"
        why = f"{words}: set name to one of {', '.join(fields.RUNTIMES)}"
        out.required("spec.runtimeRef.name", why)
    elif out.choice("spec.runtimeRef.name", runtime, fields.RUNTIMES) and runtime == fields.PROCESS:
        main = fields.main_container(spec)
        if not main.get("command") and not main.get("args"):
            where = "spec.template.spec.containers[0].command"
            out.required(where, "it is the program that reads rows and writes rows, one JSON object a line")


def _model(spec: Obj, out: Collector) -> None:
    model = part(spec, "model")
    source, name = model.get("source"), model.get("name")
    if source is not None and not name:
        out.required("spec.model.name", "the model on the nodes has this name")
    if isinstance(source, str) and source != "hf" and not source.startswith(SCHEMES):
        out.invalid("spec.model.source", source, f"must be hf or begin with one of {', '.join(SCHEMES)}")
    preload, sharing = part(model, "preload"), part(model, "sharing")
    for path, value, allowed in (
        ("preload.strategy", preload.get("strategy"), fields.PRELOAD_STRATEGIES),
        ("preload.when", preload.get("when"), fields.PRELOAD_MOMENTS),
        ("sharing.mode", sharing.get("mode"), fields.SHARING_MODES),
    ):
        if value is not None:
            out.choice(f"spec.model.{path}", value, allowed)
    checksum = preload.get("sha256")
    if checksum is not None and not re.fullmatch("[0-9a-f]{64}", str(checksum)):
        out.invalid("spec.model.preload.sha256", checksum, "must be 64 hexadecimal digits")


def _resources(spec: Obj, out: Collector) -> None:
    resources = part(spec, "resources")
    for kind in ("requests", "limits"):
        for name, amount in part(resources, kind).items():
            try:
                number = parse(str(amount))
            except QuantityError as error:
                out.invalid(f"spec.resources.{kind}.{name}", amount, str(error))
                continue
            if "/" in name and number.denominator != 1:
                why = "must be an integer; for a part of a GPU annotate spec.template with " + DEVICE_MEMORY
                out.invalid(f"spec.resources.{kind}.{name}", amount, why)
    for name, amount in part(resources, "limits").items():
        requested = part(resources, "requests").get(name)
        if "/" in name and requested is not None and str(requested) != str(amount):
            out.invalid(f"spec.resources.requests.{name}", requested, f"must equal {name} limit ({amount})")


def _stages(spec: Obj, out: Collector) -> None:
    seen: set[str] = set()
    for index, stage in enumerate(spec.get("stages") or ()):
        name = str(part({"stage": stage}, "stage").get("name") or "")
        if name in seen:
            out.duplicate(f"spec.stages[{index}].name", name)
        seen.add(name)


def _update(spec: Obj, before: Obj, out: Collector) -> None:
    if part(before, "policy").get("suspend") or part(spec, "policy").get("suspend"):
        return
    for field in _FIXED:
        if spec.get(field) != before.get(field):
            why = "field is immutable while the job runs: suspend it first (windlass suspend JOB)"
            out.forbidden(f"spec.{field}", why)
