"""Checks of ``job`` templates: the object, its layout and its scheduling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.kits.printable import with_article
from windlass.workflow.checks import parallel
from windlass.workflow.jobs import scheduling
from windlass.workflow.jobs.resource import job_resource, manifest_of
from windlass.workflow.language.errors import EvaluationError

Json = Mapping[str, Any]
_SIZES = (
    "replicas", "parallelism", "numNodes", "size", "resources", "resourcesPerNode", "nprocPerNode", "numProcPerNode",
)  # fmt: skip
"""Fields that decide how many ranks a job has."""


def job_problems(job: Json) -> list[tuple[str, Any, str]]:
    """Return what is wrong with a ``job`` template: field, value, message.

    Numbers that refer to parameters are checked when the job begins.
    """
    try:
        manifest = manifest_of(job)
        if "{{" not in str(dict(job)):
            job_resource(job)
    except EvaluationError as problem:
        return [] if "{{" in str(dict(job)) else [("", job.get("kind"), str(problem))]
    found = list(scheduling.problems_of(job.get("scheduling")))
    found = [(f".scheduling{field}", value, text) for field, value, text in found]
    if (job.get("scheduling") or {}).get("gang") == "None" and not scheduling.dissolves(manifest):
        kind = manifest["kind"]
        text = f"the pods of {with_article(kind)} start as the gang that the kind makes of them: leave it out"
        found.append((".scheduling.gang", "None", text))
    if not undecided(job, manifest):
        found += [(f".{field}", value, text) for field, value, text in parallel.problems_of(job, manifest)]
    return found


def undecided(job: Json, manifest: Json) -> bool:
    """Return whether sizes of a job refer to parameters that are not known yet."""
    return "{{" in str(job.get("parallel")) or "{{" in str(list(_sizes(manifest)))


def _sizes(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name in _SIZES:
                yield item
            else:
                yield from _sizes(item)
    elif isinstance(value, list):
        for item in value:
            yield from _sizes(item)
