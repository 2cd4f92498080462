"""Validation of ``batch/v1`` CronJobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.validation.collector import Collector, part
from windlass.api.validation.workloads.batch import job_spec
from windlass.kits.cron import parse_cron, time_zone

Obj = Mapping[str, Any]
_NAME_LIMIT = 52
_POLICIES = ("Allow", "Forbid", "Replace")
_ZONE_HINT = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"


def cron_job(obj: Obj, old: Obj | None, out: Collector) -> None:
    name, spec = part(obj, "metadata").get("name", ""), part(obj, "spec")
    if old is None and len(name) > _NAME_LIMIT:
        out.invalid("metadata.name", name, f"must be no more than {_NAME_LIMIT} characters")
    before = part(old, "spec") if old is not None else None
    _schedule(spec, before, out)
    out.at_least("spec.startingDeadlineSeconds", spec.get("startingDeadlineSeconds"))
    if before is None or before.get("timeZone") != spec.get("timeZone"):
        _zone(spec.get("timeZone"), out)
    policy = spec.get("concurrencyPolicy")
    if not policy:
        out.required("spec.concurrencyPolicy")
    else:
        out.choice("spec.concurrencyPolicy", policy, _POLICIES)
    _template(part(part(spec, "jobTemplate"), "spec"), "spec.jobTemplate.spec", out)
    for field in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        out.at_least(f"spec.{field}", spec.get(field))


def _schedule(spec: Obj, before: Obj | None, out: Collector) -> None:
    text = spec.get("schedule") or ""
    if not text:
        out.required("spec.schedule")
        return
    had_zone = "TZ" in ((before or {}).get("schedule") or "")
    try:
        parse_cron(text)
    except ValueError as problem:
        out.invalid("spec.schedule", text, str(problem))
    if "TZ" not in text:
        return
    if not had_zone:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        out.invalid("spec.schedule", text, why)
    elif spec.get("timeZone") is not None:
        why = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        out.invalid("spec.schedule", text, why)


def _zone(name: str | None, out: Collector) -> None:
    if name is None:
        return
    if not name:
        out.invalid("spec.timeZone", name, "timeZone must be nil or non-empty string")
    elif name.lower() == "local":
        out.invalid("spec.timeZone", name, _ZONE_HINT)
    else:
        try:
            time_zone(name)
        except ValueError:
            out.invalid("spec.timeZone", name, f"unknown time zone {name}")


def _template(spec: Obj, path: str, out: Collector) -> None:
    job_spec(spec, path, out)
    if spec.get("selector") is not None:
        out.invalid(f"{path}.selector", spec["selector"], "`selector` will be auto-generated")
    if spec.get("manualSelector"):
        out.choice(f"{path}.manualSelector", spec["manualSelector"], ("nil", "false"))
