"""Defaults of ``batch/v1``: Job and CronJob."""

from __future__ import annotations

from typing import Any

from windlass.api.defaults import pod

_DEFAULT_BACKOFF_LIMIT = 6
_UNLIMITED = 2**31 - 1


def job(obj: dict[str, Any]) -> None:
    """A Job. Without labels it takes those of its pod template."""
    spec = obj.setdefault("spec", {})
    template = spec.setdefault("template", {})
    labels = (template.get("metadata") or {}).get("labels")
    metadata = obj.setdefault("metadata", {})
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)
    _job_spec(spec)


def cron_job(obj: dict[str, Any]) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    body = template.setdefault("spec", {})
    body.setdefault("template", {})
    if body["template"]:
        pod.template(body["template"])


def _job_spec(spec: dict[str, Any]) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    _fill(spec, "parallelism", 1)
    limited = spec.get("backoffLimitPerIndex") is not None
    _fill(spec, "backoffLimit", _UNLIMITED if limited else _DEFAULT_BACKOFF_LIMIT)
    _fill(spec, "completionMode", "NonIndexed")
    _fill(spec, "suspend", False)
    policy = spec.get("podFailurePolicy")
    _fill(spec, "podReplacementPolicy", "Failed" if policy is not None else "TerminatingOrFailed")
    _fill(spec, "manualSelector", False)
    for rule in (policy or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            _fill(pattern, "status", "True")
    pod.template(spec["template"])


def _fill(obj: dict[str, Any], field: str, value: object) -> None:
    if obj.get(field) in (None, ""):
        obj[field] = value
