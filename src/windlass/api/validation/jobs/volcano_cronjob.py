"""A CronJob of ``batch.volcano.sh``: the rules of Volcano's webhook, each with its remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.validation.collector import Collector, part
from windlass.api.validation.jobs.jobflow import as_job
from windlass.kits.cron import parse_cron, time_zone

Obj = Mapping[str, Any]
_NAME_LIMIT = 52
"""Maximum length of a name: a job's name is eleven characters longer, and 63 are allowed."""


def cron_job(obj: Obj, old: Obj | None, out: Collector) -> None:
    name, spec = part(obj, "metadata").get("name", ""), part(obj, "spec")
    if len(name) > _NAME_LIMIT:
        out.invalid(
            "metadata.name",
            name,
            f"it has {len(name)} characters, {_NAME_LIMIT} are allowed: the names of its jobs are longer",
        )
    check_schedule(spec.get("schedule") or "", out)
    check_time_zone(spec.get("timeZone"), out)
    as_job(f"{name}-00000000", part(part(spec, "jobTemplate"), "spec"), "spec.jobTemplate.spec", out)


def check_schedule(text: str, out: Collector) -> None:
    if not text:
        out.required("spec.schedule", "such as */5 * * * *")
    elif "TZ" in text:
        out.invalid("spec.schedule", text, "a time zone is not part of the schedule: set spec.timeZone")
    else:
        try:
            parse_cron(text)
        except ValueError as problem:
            out.invalid("spec.schedule", text, str(problem))


def check_time_zone(name: str | None, out: Collector) -> None:
    if name is None:
        return
    if not name or name.lower() == "local":
        out.invalid(
            "spec.timeZone", name, "write a time zone such as Europe/Berlin or Etc/UTC, or leave it out"
        )
        return
    try:
        time_zone(name)
    except ValueError as problem:
        out.invalid("spec.timeZone", name, str(problem))
