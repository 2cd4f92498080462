"""Progress of a generation job in one line, and its figures in ``windlass show``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.resources import AIGC_JOBS
from windlass.cli.text import plural
from windlass.kits import durations

Object = Mapping[str, Any]
_SHOWN_GROUPS = 3
ENDED = ("Succeeded", "Failed")


def line(obj: Object) -> str:
    """Return the progress in one line: ``Running  1200 of 100000 items  56/s  29m left``."""
    status = obj.get("status") or {}
    items = status.get("items") or {}
    parts = [str(status.get("phase") or "Pending")]
    if items.get("total"):
        parts.append(f"{items.get('done', 0)} of {items['total']} items")
    elif items.get("admitted"):
        parts.append(f"{items['admitted']} rows read")
    if items.get("perSecond") and status.get("phase") not in ENDED:
        parts.append(f"{_rate(items['perSecond'])}/s")
    if items.get("etaSeconds") and status.get("phase") not in ENDED:
        parts.append(f"{durations.write(items['etaSeconds'])} left")
    if items.get("failed"):
        parts.append(f"{items['failed']} failed")
    left = [group for group in status.get("groups") or () if group.get("remaining")]
    if len(status.get("groups") or ()) > 1 and left:
        named = [f"{group['name']} {group['done']}/{group['total']}" for group in left[:_SHOWN_GROUPS]]
        more = len(left) - len(named)
        parts.append(", ".join(named) + (f" and {plural(more, 'further group')}" if more > 0 else ""))
    return "  ".join(parts)


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def facts(obj: Object) -> list[tuple[str, str]]:
    """Return the figures of an AIGCJob for ``windlass show``; empty for other kinds."""
    if obj.get("kind") != AIGC_JOBS.kind:
        return []
    status = obj.get("status") or {}
    items, quality = status.get("items") or {}, status.get("quality") or {}
    workers = status.get("workers") or {}
    found = [
        ("Phase", str(status.get("phase") or "")),
        ("Message", str(status.get("message") or "")),
        ("Items", _items(items)),
        (
            "Quality",
            f"mean {quality['mean']}, {quality.get('below', 0)} below the minimum" if quality else "",
        ),
        ("Latency", _latency(status.get("latency") or {})),
        ("Workers", f"{workers.get('running', 0)} of {workers.get('desired', 0)} run" if workers else ""),
        ("GPU time", gpu_time(status)),
        (
            "Retries",
            str(int(status.get("attempts") or 1) - 1) if int(status.get("attempts") or 1) > 1 else "",
        ),
        ("Outputs", str(status.get("outputs") or "")),
    ]
    return [(name, text) for name, text in found if text]


def _items(items: Object) -> str:
    if not items:
        return ""
    text = f"{items.get('done', 0)} of {items.get('total', 0)} done"
    for name, word in (("failed", "failed"), ("inFlight", "in progress")):
        if items.get(name):
            text += f", {items[name]} {word}"
    if items.get("deadLetter"):
        text += f", {plural(items['deadLetter'], 'dead letter')}"
    if items.get("perSecond"):
        text += f", {_rate(items['perSecond'])}/s"
    if items.get("etaSeconds"):
        text += f", {durations.write(items['etaSeconds'])} left"
    return text


def _latency(latency: Object) -> str:
    return ", ".join(f"{name} {latency[name]:.3g} s" for name in ("p50", "p95") if latency.get(name))


def gpu_time(status: Object) -> str:
    """Return the GPU seconds: allocated, used and idle, and what binding at once would have cost."""
    allocated = status.get("gpuSeconds")
    if allocated is None:
        return ""
    idle = float(status.get("gpuIdleSeconds") or 0)
    text = f"{allocated:.1f} s allocated, {allocated - idle:.1f} s used, {idle:.1f} s idle"
    eager = status.get("gpuSecondsEager")
    return f"{text} ({eager:.1f} s if bound at once)" if eager is not None else text


def group_rows(obj: Object) -> list[list[str]]:
    """Return the table of groups: name, total, done, failed, left."""
    groups = (obj.get("status") or {}).get("groups") or ()
    columns = ("name", "total", "done", "failed", "remaining")
    return [[str(group.get(column, "")) for column in columns] for group in groups]


GROUP_HEADER = ["GROUP", "TOTAL", "DONE", "FAILED", "LEFT"]
