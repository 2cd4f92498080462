"""Stages of a generation job by themselves, and when its GPUs are bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.annotations import DEVICE_MEMORY
from windlass.api.fields import aigc, stages
from windlass.api.quantities import QuantityError, parse
from windlass.api.validation import names
from windlass.api.validation.collector import Collector, part

Obj = Mapping[str, Any]
_BINDS = (stages.LATE, stages.RESERVE, stages.EAGER)


def check(spec: Obj, job: str, out: Collector) -> None:
    """Check ``spec.stages`` and ``spec.progressive``. ``job``: name of the job."""
    given = spec.get("stages") or ()
    if len(given) > stages.MAX_STAGES:
        out.invalid("spec.stages", len(given), f"a job has at most {stages.MAX_STAGES} stages")
    seen: set[str] = set()
    for index, stage in enumerate(given):
        path = f"spec.stages[{index}]"
        if not isinstance(stage, Mapping):
            out.invalid(path, stage, "it must be an object with a name")
            continue
        name = str(stage.get("name") or "")
        if name in seen:
            out.duplicate(f"{path}.name", name)
        seen.add(name)
        _name(name, job, path, out)
        check_resources(part(stage, "resources"), f"{path}.resources", out)
        _workers(stage, path, out)
        if stage.get("kind") is not None:
            out.choice(f"{path}.kind", stage["kind"], (stages.CPU_STAGE, stages.GPU_STAGE))
        if stage.get("bind") is not None:
            out.choice(f"{path}.bind", stage["bind"], _BINDS)
    if not out.errors and given:
        _kinds(spec, out)
    context = spec.get("contextCache")
    if given and isinstance(context, Mapping) and context and context.get("enabled") is not False:
        why = "rows of a job with stages get no context: run the stages as jobs of their own, or remove it"
        out.invalid("spec.contextCache", "…", why)
    _progressive(part(spec, "progressive"), out)


def _name(name: str, job: str, path: str, out: Collector) -> None:
    if problems := names.dns_label(name):
        out.invalid(f"{path}.name", name, "; ".join(problems))
    elif name in stages.RESERVED_NAMES:
        out.invalid(f"{path}.name", name, "pods and objects of the job have this name: choose another one")
    elif len(name) > stages.NAME_LIMIT:
        out.invalid(f"{path}.name", name, f"a stage has a name of at most {stages.NAME_LIMIT} characters")
    elif len(job) + len(name) > 57:
        why = f"it and the name of the job have {len(job) + len(name)} characters, and 57 are allowed"
        out.invalid(f"{path}.name", name, why)


def _workers(stage: Obj, path: str, out: Collector) -> None:
    bounds = stage.get("parallelism")
    if isinstance(bounds, int) and not isinstance(bounds, bool):
        if bounds < 1:
            out.invalid(f"{path}.parallelism", bounds, "must be greater than or equal to 1")
        if bounds > aigc.PODS_LIMIT:
            out.invalid(f"{path}.parallelism", bounds, f"must be at most {aigc.PODS_LIMIT}")
        return
    if bounds is not None and not isinstance(bounds, Mapping):
        out.invalid(f"{path}.parallelism", bounds, "must be a number, or an object {min, max}")
        return
    least, most = part(stage, "parallelism").get("min"), part(stage, "parallelism").get("max")
    for name, value in (("min", least), ("max", most)):
        if value is not None and (not isinstance(value, int) or value < 1):
            out.invalid(f"{path}.parallelism.{name}", value, "must be an integer of at least 1")
        elif value is not None and value > aigc.PODS_LIMIT:
            out.invalid(f"{path}.parallelism.{name}", value, f"must be at most {aigc.PODS_LIMIT}")
    if isinstance(least, int) and isinstance(most, int) and least > most:
        out.invalid(f"{path}.parallelism.min", least, f"it must not be above max ({most})")


def _kinds(spec: Obj, out: Collector) -> None:
    """Reject a cpu stage that asks for a GPU."""
    for index, stage in enumerate(stages.normal_stages(spec)):
        limits = part(stage["resources"], "limits")
        gpus = [name for name in limits if "/" in name and "gpu" in name]
        if stage["kind"] == stages.CPU_STAGE and gpus:
            why = f"the stage has the kind cpu: remove {gpus[0]}, or set   kind: gpu"
            out.invalid(f"spec.stages[{index}].resources.limits.{gpus[0]}", limits[gpus[0]], why)


def _progressive(given: Obj, out: Collector) -> None:
    for name, allowed in (
        ("gpuBind", _BINDS),
        ("onNoGPU", (stages.WAIT, stages.CPU_FALLBACK, stages.REQUEUE)),
    ):
        if given.get(name) is not None:
            out.choice(f"spec.progressive.{name}", given[name], allowed)
    for name in ("reserveTimeoutSeconds", "releaseIdleGPUSeconds"):
        _number(f"spec.progressive.{name}", given.get(name), out)
    when = given.get("startWhen")
    if when is not None and not isinstance(when, Mapping):
        out.invalid("spec.progressive.startWhen", when, "it must be an object {readyFraction, readyBatches}")
        return
    _number("spec.progressive.startWhen.readyBatches", part(given, "startWhen").get("readyBatches"), out)
    _number("spec.progressive.startWhen.readyFraction", part(given, "startWhen").get("readyFraction"), out, 1)


def _number(path: str, value: object, out: Collector, most: float | None = None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        out.invalid(path, value, "must be a number of at least 0")
    elif most is not None and value > most:
        out.invalid(path, value, f"must be at most {most:g}: it is a part of all rows")


def check_resources(resources: Obj, path: str, out: Collector) -> None:
    """Check the resources of a worker."""
    for kind in ("requests", "limits"):
        for name, amount in part(resources, kind).items():
            try:
                number = parse(str(amount))
            except QuantityError as error:
                out.invalid(f"{path}.{kind}.{name}", amount, str(error))
                continue
            if "/" in name and number.denominator != 1:
                why = "must be an integer; for a part of a GPU annotate spec.template with " + DEVICE_MEMORY
                out.invalid(f"{path}.{kind}.{name}", amount, why)
    for name, amount in part(resources, "limits").items():
        requested = part(resources, "requests").get(name)
        if "/" in name and requested is not None and str(requested) != str(amount):
            out.invalid(f"{path}.requests.{name}", requested, f"must equal {name} limit ({amount})")
