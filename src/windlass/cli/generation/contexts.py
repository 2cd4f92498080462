"""Contexts of the segments of a generation job: from its driver, from its outputs afterwards."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from windlass.api.errors import WindlassError
from windlass.api.fields import aigc
from windlass.api.resources import AIGC_JOBS
from windlass.cli.errors import remedy_with_target
from windlass.cli.generation import letters
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.jobs import Job
from windlass.cli.output import wide_tables
from windlass.client.batch_driver import DriverUnreachable

HEADER = ["SEGMENT", "STREAM", "START", "END", "CONTEXT", "FROM", "STATE"]
SHOWN = 20
"""Maximum number of segments that ``windlass show`` lists."""
_SHOWN_IDS = 4
"""Maximum number of segments of one context that a line names."""


def has_contexts(obj: dict[str, Any]) -> bool:
    """Return whether the rows of an object get contexts."""
    given = aigc.part(obj.get("spec") or {}, "contextCache")
    return obj.get("kind") == AIGC_JOBS.kind and bool(given) and given.get("enabled", True) is not False


def contexts(invocation: Invocation, job: Job, limit: int, wanted: str = "") -> list[dict[str, Any]]:
    """Return the segments with their contexts. Raises :class:`WindlassError`."""
    if not has_contexts(job.obj):
        raise WindlassError(
            "WL-ITEMS-400",
            f"the rows of {job.name} get no context",
            evidence="spec.contextCache is not set, or its enabled is false",
            remedies=("kubectl explain aigcjob.spec.contextCache",),
        )
    found = None if letters.has_ended(job) else letters.driver(invocation, job)
    if found is not None:
        try:
            query = urlencode({"limit": limit, "id": wanted})
            return list(found.get(f"/v1/contexts?{query}")["items"])
        except DriverUnreachable:
            pass
    records = _of_outputs(invocation, job)
    chosen = [one for one in records if not wanted or str(one.get("id")) == wanted]
    return chosen[:limit]


def _of_outputs(invocation: Invocation, job: Job) -> Iterator[dict[str, Any]]:
    path = str((job.obj.get("status") or {}).get("outputs") or "")
    if not letters.has_ended(job):
        raise letters.not_reached(invocation, job)
    output = Path(path)
    places = (output.parent / f".{output.name}.windlass", output.parent / ".windlass")
    for place in places:
        if path and os.path.isfile(place / "contexts.jsonl"):
            with open(place / "contexts.jsonl", encoding="utf-8") as stream:
                for line in stream:
                    yield json.loads(line)
            return
    raise WindlassError(
        "WL-ITEMS-404",
        f"the contexts of {job.name} are not on this machine",
        evidence=f"the job has ended; they are next to its outputs at {path}"
        if path
        else "it has no outputs",
        remedies=(remedy_with_target(f"windlass show {job.name}", invocation.context.target_flags),),
    )


def rows(records: list[dict[str, Any]]) -> list[list[str]]:
    """Return the table of segments: a segment at 120 s has the context ``90-120 s``."""
    return [
        [
            str(one["id"]),
            str(one["stream"]),
            f"{one['start']} s",
            f"{one['end']} s" if one.get("end") is not None else "-",
            _range(one["context"]),
            _sources(one["context"]),
            str(one["state"]),
        ]
        for one in records
    ]


def _range(context: dict[str, Any]) -> str:
    start, end = context["start"], context["end"]
    return f"{start}-{end} s" if start != end else "-"


def _sources(context: dict[str, Any]) -> str:
    ids = [str(name) for name in context.get("segments") or ()]
    text = ", ".join(ids[-_SHOWN_IDS:]) or "-"
    if len(ids) > _SHOWN_IDS:
        text = f"{len(ids) - _SHOWN_IDS} more, {text}"
    missing = [str(name) for name in context.get("missing") or ()]
    return f"{text} (without {', '.join(missing)})" if missing else text


def show(invocation: Invocation, job: Job) -> None:
    """Print the first segments of a job below its figures, if they can be read."""
    if not has_contexts(job.obj):
        return
    try:
        found = contexts(invocation, job, SHOWN + 1)
    except WindlassError:
        return  # the figures of the cache are in the status, and the job is shown without segments
    if not found:
        return
    invocation.out.line("\nContext")
    wide_tables.show(invocation, HEADER, rows(found[:SHOWN]), optional=("END",))
    if len(found) > SHOWN:
        invocation.out.line(f"… more segments: windlass items context {job.name}")
