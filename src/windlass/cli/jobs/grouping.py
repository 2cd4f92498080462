"""Rule by which the pods of a job were grouped, for ``windlass show`` and ``windlass explain``."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.cli.jobs.jobs import Job

_RULES = {
    "table": "rule of its kind {kind}",
    "declared": "rule declared by the CustomResourceDefinition of {kind}",
    "default": "default: no rule knows {kind}",
}


def grouping_record(job: Job) -> dict[str, Any]:
    """Return ``groupedBy`` of a job that was grouped by its owner; nothing for other jobs."""
    notes = _notes(job)
    try:
        rule = msgspec.json.decode(notes.get(names.GROUPING_RULE, ""), type=dict[str, str])
    except msgspec.DecodeError:
        return {}
    spec = (job.group or {}).get("spec") or {}
    parts = [
        {
            "name": part.get("name", ""),
            "size": part.get("subGroupSize", 1),
            "count": part.get("minSubGroups", 1),
        }
        for part in spec.get("subGroupPolicy") or ()
    ]
    return {"groupedBy": {**rule, "minMember": spec.get("minMember", 1), "subGroups": parts}}


def grouping_rows(job: Job) -> list[tuple[str, str]]:
    """Return the line about the rule for people."""
    record = grouping_record(job).get("groupedBy")
    if record is None:
        return []
    rule = _RULES.get(record.get("rule", ""), "").format(kind=record.get("kind", ""))
    return [("grouped by", f"{_notes(job).get(names.GROUPED_BY, '')} ({rule})")]


def _notes(job: Job) -> dict[str, str]:
    return ((job.group or {}).get("metadata") or {}).get("annotations") or {}
