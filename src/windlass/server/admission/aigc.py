"""AIGCJobs: alternative spellings, defaults that are told, and fields without effect."""

from __future__ import annotations

from typing import Any

from windlass.api import errors
from windlass.api.errors import FieldError
from windlass.api.fields import aigc
from windlass.api.resources import AIGC_JOBS, NODES, PRIORITY_CLASSES
from windlass.jobs.aigc.advice import advice
from windlass.jobs.aigc.node_capacity import asks_for_gpus, capacity_problem
from windlass.server.admission.plugin import Review
from windlass.server.admission.priority import SYSTEM_CLASSES
from windlass.server.admission.volcano import queue_problem

DEFAULT_RUNTIME = "default: no template, command or model given -> built-in runtime builtin-generate is used"

_SHOWN_CLASSES = 12
"""Maximum number of PriorityClasses in a message."""


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
    staged = bool(spec.get("stages"))
    if not staged and aigc.runtime_of(spec) == aigc.BUILTIN and not aigc.part(spec, "runtimeRef").get("name"):
        spec["runtimeRef"] = {**aigc.part(spec, "runtimeRef"), "name": aigc.BUILTIN}
        review.warn(DEFAULT_RUNTIME)
    resources = spec.get("resources")
    if not isinstance(resources, dict):
        return
    copied = aigc.copied_limits(resources)
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
    _check_priority(review, spec)
    problems = [FieldError(path, text, _cause(text)) for path, text in _rows_and_outputs(review, spec)]
    if problems:
        raise errors.invalid(review.resource, review.name, problems)
    for text in advice(spec):
        review.warn(text)
    if review.creating and (aigc.shards_of(spec) > 1 or asks_for_gpus(spec)):
        problem = capacity_problem(spec, review.objects.list(NODES))
        if problem:
            review.warn(problem)


def _check_priority(review: Review, spec: dict[str, Any]) -> None:
    """Reject a PriorityClass that does not exist: Kubernetes forbids the pods of such a job."""
    level = aigc.level_of(spec)
    old = (review.old or {}).get("spec")
    if level in aigc.LEVELS or (old is not None and aigc.level_of(old) == level):
        return
    if level in SYSTEM_CLASSES or review.objects.get(PRIORITY_CLASSES, "", level) is not None:
        return
    present = sorted(one["metadata"]["name"] for one in review.objects.list(PRIORITY_CLASSES))
    known = [*aigc.LEVELS, *(name for name in present if name.removeprefix("aigc-") not in aigc.LEVELS)]
    shown = ", ".join(known[:_SHOWN_CLASSES]) + (", …" if len(known) > _SHOWN_CLASSES else "")
    text = f'Not found: "{level}": PriorityClass {level} does not exist: create it, or use one of: {shown}'
    problem = FieldError("spec.priorityClass", text, "FieldValueNotFound")
    raise errors.invalid(review.resource, review.name, [problem])


def _rows_and_outputs(review: Review, spec: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the item engine finds wrong: inline rows, prompt, expressions, runtime, outputs."""
    from windlass.items import spec as items  # imported on use: most servers see no such job

    metadata = {"namespace": review.namespace, "name": review.name, "uid": ""}
    return items.check({"metadata": metadata, "spec": aigc.defaulted(spec)})


def _cause(text: str) -> str:
    words = {"Required": "FieldValueRequired", "Unsupported": "FieldValueNotSupported"}
    return words.get(text.partition(" ")[0], "FieldValueInvalid")


def _spec(review: Review) -> dict[str, Any] | None:
    spec = review.object.get("spec") if review.resource is AIGC_JOBS and review.main else None
    return spec if isinstance(spec, dict) else None
