"""Decisions about the number of workers of a generation job, for ``show`` and ``explain``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.kits.timestamps import parse_rfc3339, rfc3339

Object = Mapping[str, Any]
_SHOWN_CHANGES = 5


def facts(status: Object) -> list[tuple[str, str]]:
    """Return the last decision and the changes before it; empty without ``spec.autoscale``."""
    record = status.get("scaling") or {}
    if not record:
        return []
    changes = [_change(one) for one in (record.get("changes") or ())[-_SHOWN_CHANGES:]]
    return [
        ("Scaling", str(record.get("arithmetic") or "")),
        ("Scaled", "\n".join(reversed(changes))),
    ]


def explained(status: Object) -> list[tuple[str, str]]:
    """Return the last decision with its inputs, limits and alternatives."""
    record = status.get("scaling") or {}
    if not record:
        return []
    bounds = f"{record.get('minimum')} to {record.get('maximum')} workers"
    quota = f", quota for {record['quota']}" if record.get("quota") is not None else ""
    by = str(record.get("plugin") or record.get("metric") or "")
    changes = [_change(one) for one in (record.get("changes") or ())[-_SHOWN_CHANGES:]]
    return [
        ("scaling", f"{record.get('arithmetic')} (at {record.get('time')})"),
        ("scaled by", f"{by}, {bounds}{quota}"),
        ("metrics", "\n".join(_input(one) for one in record.get("inputs") or ())),
        ("since then", _since_then(status)),
        ("overridden by", "\n".join(record.get("overrides") or ())),
        ("would be", "\n".join(record.get("alternatives") or ())),
        ("changes", "\n".join(reversed(changes))),
    ]


def _since_then(status: Object) -> str:
    """Return the workers that run now if the metrics of the last decision had another number; else nothing."""
    record, running = status.get("scaling") or {}, (status.get("workers") or {}).get("running")
    counts = [one.get("value") for one in record.get("inputs") or () if one.get("name") == "workersRunning"]
    if running is None or not counts or counts[0] in (None, running):
        return ""
    return (
        f"workersRunning is {running} now: the metrics are those of the decision at {_second(record.get('time'))}, "
        "and the next decision follows within 15 s"
    )


def _change(one: Object) -> str:
    return f"{_second(one.get('time'))} {one.get('arithmetic')}"


def _second(text: Any) -> str:
    try:
        return rfc3339(parse_rfc3339(text)) if isinstance(text, str) else ""
    except ValueError:
        return str(text)


def _input(one: Object) -> str:
    if one.get("value") is None:
        return f"{one.get('name')}: no value ({one.get('problem')})"
    age = one.get("ageSeconds")
    old = f", {age:g} s old" if age else ""
    return f"{one.get('name')} {one['value']:g} ({one.get('source')}{old})"
