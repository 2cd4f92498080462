"""AIGCJobs: alternative spellings, defaults that are told, and fields without effect."""

from __future__ import annotations

from typing import Any

from windlass.api import aigc_fields as fields
from windlass.api import errors
from windlass.api.errors import FieldError
from windlass.api.resources import AIGC_JOBS
from windlass.jobs.aigc.advice import advice
from windlass.server.admission.plugin import Review
from windlass.server.admission.volcano import queue_problem

DEFAULT_RUNTIME = "default: no template, command or model given -> built-in runtime builtin-generate is used"


def normalise(review: Review) -> None:
    """Write the spec in its first spelling, with a warning for each change."""
    spec = _spec(review)
    if spec is None:
        return
    level = spec.pop("priorityClassName", None)
    if level and spec.get("priorityClass") in (None, level):
        spec["priorityClass"] = level
        review.warn("alias: priorityClassName -> priorityClass")
    elif level:
        spec["priorityClassName"] = level  # validation names the contradiction
    if fields.runtime_of(spec) == fields.BUILTIN and not fields.part(spec, "runtimeRef").get("name"):
        spec["runtimeRef"] = {**fields.part(spec, "runtimeRef"), "name": fields.BUILTIN}
        review.warn(DEFAULT_RUNTIME)
    resources = spec.get("resources")
    if not isinstance(resources, dict):
        return
    copied = fields.copied_limits(resources)
    if copied:
        resources["limits"] = {**(resources.get("limits") or {}), **copied}
    for name, amount in copied.items():
        review.warn(f"alias: {name} stands in requests only -> copied to limits ({amount})")


def check(review: Review) -> None:
    """Reject a job for a queue that takes no work, and warn about what has no effect."""
    spec = _spec(review)
    if spec is None or (review.old or {}).get("spec") == spec:
        return
    queue = spec.get("queue")
    if queue and queue != ((review.old or {}).get("spec") or {}).get("queue"):
        problem = queue_problem(review, str(queue))
        if problem is not None:
            raise errors.invalid(review.resource, review.name, [problem])
    problems = [FieldError(path, text, _cause(text)) for path, text in _rows_and_outputs(review, spec)]
    if problems:
        raise errors.invalid(review.resource, review.name, problems)
    for text in advice(spec):
        review.warn(text)


def _rows_and_outputs(review: Review, spec: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the item engine finds wrong: inline rows, prompt, expressions, runtime, outputs."""
    from windlass.items import spec as items  # imported on use: most servers see no such job

    metadata = {"namespace": review.namespace, "name": review.name, "uid": ""}
    return items.check({"metadata": metadata, "spec": fields.defaulted(spec)})


def _cause(text: str) -> str:
    words = {"Required": "FieldValueRequired", "Unsupported": "FieldValueNotSupported"}
    return words.get(text.partition(" ")[0], "FieldValueInvalid")


def _spec(review: Review) -> dict[str, Any] | None:
    spec = review.object.get("spec") if review.resource is AIGC_JOBS and review.main else None
    return spec if isinstance(spec, dict) else None
