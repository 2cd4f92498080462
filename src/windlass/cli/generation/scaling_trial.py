"""Decision about the number of workers that other metrics would have led to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.errors import WindlassError
from windlass.api.resources import AIGC_JOBS
from windlass.cli.generation.letters import driver
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.jobs import Job
from windlass.cli.output.formats import emit
from windlass.client.batch_driver import DriverUnreachable
from windlass.controllers.aigc_scaling.inputs import FED, MEASURED, fed_values
from windlass.controllers.aigc_scaling.reconcile import ScalingSnapshot, decided, record_of, replicas_of
from windlass.jobs.aigc.autoscale import autoscale_of, scales
from windlass.scaling.measurement import Measurement, values_of
from windlass.scaling.recommendation import Recommendation

_EXAMPLE = "windlass explain JOB --with nvidia_gpu_utilization=0.9 --with pending_aigc_jobs=1"


def show(invocation: Invocation, job: Job, metrics: Sequence[str]) -> int:
    """Print the decision."""
    values = dict(map(_pair, metrics))
    record = trial(invocation, job, values)
    if invocation.structured:
        emit(invocation, record, names=[f"job/{job.name}"])
        return 0
    given = ", ".join(f"{name} {value:g}" for name, value in values.items())
    invocation.out.line(f"{job.name} with {given}: {record['arithmetic']}")
    return 0


def trial(invocation: Invocation, job: Job, values: Mapping[str, float]) -> dict[str, Any]:
    """Return the record of a decision by the metrics of the last one, with other values for some."""
    obj = job.obj
    scale = autoscale_of(obj.get("spec") or {})
    if job.resource is not AIGC_JOBS or scale is None or not scales(obj.get("spec") or {}):
        raise WindlassError(
            "WL-USE-400",
            f"{job.name} does not scale: --with needs an AIGCJob with spec.autoscale",
            remedies=("kubectl explain aigcjob.spec.autoscale",),
        )
    now, record = invocation.clock.now(), record_of(obj)
    known: dict[str, dict[str, Any]] = {str(one.get("name")): one for one in record.get("inputs") or ()}
    names = {*known, *MEASURED, *scale.queries, *fed_values(obj)} - {"at"}
    _check_names(invocation, values, names, has_class=scale.plugin is not None)
    measured = [
        Measurement(name, one.get("value"), str(one.get("source")), now, str(one.get("problem") or ""))
        for name, one in known.items()
        if name not in values
    ]
    measured += [Measurement(name, value, FED, now) for name, value in values.items()]
    custom = _custom(invocation, job, measured) if scale.plugin is not None else None
    observed = ScalingSnapshot((), measured, custom, record.get("quota"), "quota of the queue", False, now)
    return decided(obj, scale, observed)


def _check_names(
    invocation: Invocation, values: Mapping[str, float], known: set[str], *, has_class: bool
) -> None:
    """Reject metrics that no rule reads. A class of the user may read any, which is told."""
    shown = ", ".join(sorted(known))
    for name in sorted(set(values) - known):
        if not has_class:
            message = f"--with {name}: the job has no such metric; it has {shown}"
            raise WindlassError("WL-USE-400", message, remedies=(_EXAMPLE,))
        invocation.note(f"nothing reports {name}: only the class may read it; the job has {shown}")


def _custom(invocation: Invocation, job: Job, measured: list[Measurement]) -> Recommendation:
    """Return the answer of a new object of the job's class."""
    replicas = replicas_of(job.obj)
    bounds = {"current": replicas.current, "minimum": replicas.minimum, "maximum": replicas.maximum}
    body = {"metrics": values_of(measured), "replicas": bounds, "trial": True}
    link = driver(invocation, job)
    answer: dict[str, Any] = {}
    try:
        answer = link.post("/v1/scaling", body) if link is not None else {}
    except DriverUnreachable as error:
        answer = {"error": f"the driver did not answer: {error}"}
    if "source" in answer:
        return Recommendation(
            answer["source"], answer["replicas"], answer["arithmetic"], answer.get("error") or ""
        )
    why = str(answer.get("error") or f"the driver of {job.name} does not run")
    return Recommendation("plug-in", replicas.current, f"plug-in: {why}", why)


def _pair(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not name or not math.isfinite(number):
        raise WindlassError(
            "WL-USE-400", f"--with {text!r} is not METRIC=VALUE with a number", remedies=(_EXAMPLE,)
        )
    return name, number
