"""Workflows and their templates: specs that cannot work are refused when they are applied."""

from __future__ import annotations

from typing import Any

from windlass.api import errors
from windlass.api.errors import FieldError
from windlass.api.resources import (
    AIGC_WORKFLOWS,
    CLUSTER_WORKFLOW_TEMPLATES,
    CRON_WORKFLOWS,
    WORKFLOW_TEMPLATES,
    WORKFLOWS,
)
from windlass.kits.cron import parse_cron, time_zone
from windlass.server.admission import workflow_jobs
from windlass.server.admission.plugin import Review
from windlass.workflow.checks.advice import advice
from windlass.workflow.checks.validation import check_spec

_TEMPLATES = (WORKFLOW_TEMPLATES, CLUSTER_WORKFLOW_TEMPLATES)
_KINDS = (WORKFLOWS, AIGC_WORKFLOWS, CRON_WORKFLOWS, *_TEMPLATES)


def check(review: Review) -> None:
    """Refuse a spec with a cycle, an unknown task or a missing input. Warn about what has no effect."""
    if review.resource not in _KINDS or not review.main or not review.changes_spec:
        return
    spec: dict[str, Any] = review.object.get("spec") or {}
    path = "spec"
    problems: list[FieldError] = []
    if review.resource is CRON_WORKFLOWS:
        problems += _schedules(spec)
        spec, path = spec.get("workflowSpec") or {}, "spec.workflowSpec"
    found = check_spec(spec, path, template_only=review.resource in _TEMPLATES)
    problems += [FieldError.invalid(problem.path, problem.value, problem.message) for problem in found]
    problems += workflow_jobs.check(review, spec, path)
    if problems:
        raise errors.invalid(review.resource, review.name, problems[:20])
    for text in advice(spec, path):
        review.warn(f"advice: {text}")


def _schedules(spec: dict[str, Any]) -> list[FieldError]:
    schedules = [*(spec.get("schedules") or ()), *([spec["schedule"]] if spec.get("schedule") else ())]
    if not schedules:
        return [FieldError.required("spec.schedules", "a list of schedules such as '*/5 * * * *'")]
    found = []
    for at, schedule in enumerate(schedules):
        try:
            parse_cron(schedule)
        except ValueError as problem:
            found.append(FieldError.invalid(f"spec.schedules[{at}]", schedule, str(problem)))
    if spec.get("timezone"):
        try:
            time_zone(spec["timezone"])
        except ValueError as problem:
            found.append(FieldError.invalid("spec.timezone", spec["timezone"], str(problem)))
    policy = spec.get("concurrencyPolicy") or "Allow"
    if policy not in ("Allow", "Forbid", "Replace"):
        choices = ("Allow", "Forbid", "Replace")
        found.append(FieldError.not_supported("spec.concurrencyPolicy", policy, choices))
    return found
