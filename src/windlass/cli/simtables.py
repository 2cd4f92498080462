"""What ``windlass sim run`` and ``sim pack`` print: figures side by side for people, lines of CSV for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from windlass.cli import tables
from windlass.cli.words import plural
from windlass.sim.metrics import Metrics

WIDE = 100
"""Cells that a table may always take."""
NOTHING = "-"
_Show = Callable[[dict[str, Any]], str]


def _time(key: str, part: str) -> _Show:
    return lambda figures: _seconds(figures[key][part])


def _of_large(key: str) -> _Show:
    """The mean of jobs of that size, if there are any."""
    return lambda figures: _seconds(figures[key]["mean"]) if figures[key]["jobs"] else NOTHING


def _seconds(value: float) -> str:
    return f"{value:,.0f}s"


def _hours(value: float) -> str:
    return f"{value / 3600:,.1f}"


def _above_bound(figures: dict[str, Any]) -> str:
    """How far the mean wait is above what no schedule gets below; nothing where not all jobs are in that mean."""
    if figures["unfinished_jobs"]:
        return NOTHING
    return _seconds(figures["queue_seconds"]["mean"] - figures["queue_bound_seconds"])


_LINES: Sequence[tuple[str, _Show]] = (
    ("queue mean", _time("queue_seconds", "mean")),
    ("  above the bound", _above_bound),
    ("queue p50", _time("queue_seconds", "p50")),
    ("queue p90", _time("queue_seconds", "p90")),
    ("queue p99", _time("queue_seconds", "p99")),
    ("queue >=8 GPUs", _of_large("queue_seconds_ge8_gpus")),
    ("queue >=32 GPUs", _of_large("queue_seconds_ge32_gpus")),
    ("completion mean", _time("completion_seconds", "mean")),
    ("completion p50", _time("completion_seconds", "p50")),
    ("completion p90", _time("completion_seconds", "p90")),
    ("completion p99", _time("completion_seconds", "p99")),
    ("makespan", lambda f: _seconds(f["makespan_seconds"])),
    ("allocation", lambda f: f"{f['allocation_percent']:.1f}%"),
    ("idle while jobs wait", lambda f: f"{f['fragmented_percent']:.1f}%"),
    ("preemptions", lambda f: f"{f['preemptions']:,}"),
    ("preemptions per job", lambda f: f"{f['preemptions_per_job']:.3f}"),
    ("stops by failed nodes", lambda f: f"{f['node_failures_hit']:,}"),
    ("lost GPU-hours", lambda f: _hours(f["lost_gpu_seconds"])),
    ("GPU-hours held", lambda f: f"{f['gpu_hours']:,.1f}"),
    ("model loads", lambda f: f"{f['model_loads']:,}"),
    ("failed gang starts", lambda f: f"{f['failed_gang_starts']:,}"),
    ("GPU-hours of partial gangs", lambda f: _hours(f["partial_gang_gpu_seconds"])),
    ("fairness (Jain)", lambda f: f"{f['fairness_jain']:.3f}"),
    ("jobs that never ended", lambda f: f"{f['unfinished_jobs']:,}"),
    ("took", lambda f: f"{f['seconds']:.1f}s"),
    ("memory", lambda f: f"{f['memory_mib']:.0f}MiB"),
)
_WHERE_ANY = {"stops by failed nodes": "node_failures_hit", "model loads": "model_loads"}
"""Lines that are left out where they are 0 of all."""


def side_by_side(results: Sequence[Metrics]) -> tuple[list[str], list[list[str]]]:
    """The header and the lines of a table with one column per policy."""
    header = ["", *[result.policy for result in results]]
    figures = [result.figures for result in results]
    shown = [
        line
        for line in _LINES
        if line[0] not in _WHERE_ANY or any(one[_WHERE_ANY[line[0]]] for one in figures)
    ]
    return header, [[title, *[show(one) for one in figures]] for title, show in shown]


def as_table(results: Sequence[Metrics], width: int) -> str:
    """The figures side by side, one column per policy; one table below the other where they are wider than
    ``width`` (and :data:`WIDE`)."""
    header, rows = side_by_side(results)
    wide = [max(tables.cells(line[at]) for line in [header, *rows]) + 2 for at in range(len(header))]
    room = max(width, WIDE) - (wide[0] - 2)
    parts: list[list[int]] = []
    for at in range(1, len(header)):
        if not parts or sum(wide[other] for other in [*parts[-1], at]) > room:
            parts.append([])
        parts[-1].append(at)
    return "\n".join(
        tables.render(
            [header[at] for at in [0, *part]],
            [[row[at] for at in [0, *part]] for row in rows],
            right=frozenset(range(1, len(part) + 1)),
        )
        for part in parts
    )


def as_csv(documents: Sequence[Mapping[str, Any]]) -> str:
    """One line per document; nested figures as ``queue_seconds.mean``, empty where a document has none."""
    flat = [_flat(document) for document in documents]
    text = io.StringIO()
    names = list(dict.fromkeys(name for one in flat for name in one))
    writer = csv.DictWriter(text, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(figures: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def left_over(results: Sequence[Metrics]) -> Iterator[str]:
    """Which means are not of all jobs: for people, after the work."""
    for result in results:
        never, jobs = result.figures["unfinished_jobs"], result.figures["jobs"]
        if never:
            yield f"{result.policy}: {never} of {plural(jobs, 'job')} never ended; its times are of the others alone"
