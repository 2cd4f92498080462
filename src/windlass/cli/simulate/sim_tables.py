"""What ``windlass sim run`` and ``sim pack`` print: figures side by side for people, lines of CSV for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.cli import tables
from windlass.cli.text import plural
from windlass.sim.replay.metrics import Metrics
from windlass.sim.replay.seed_statistics import SPREAD

WIDE = 100
"""Cells that a table may always take."""
NOTHING = "-"
_Show = Callable[[dict[str, Any]], str]


def _time(key: str, part: str) -> _Show:
    return lambda figures: _seconds(figures[key][part])


def _factor(key: str, part: str) -> _Show:
    return lambda figures: NOTHING if figures[key][part] is None else f"{figures[key][part]:,.2f}"


def _percent(key: str) -> _Show:
    return lambda figures: NOTHING if figures[key] is None else f"{figures[key]:.1f}%"


def _count(key: str) -> _Show:
    return lambda figures: f"{round(figures[key], 1):,}"


def _gpu_hours(key: str) -> _Show:
    return lambda figures: f"{figures[key] / 3600:,.1f}"


def _seconds(value: float | None) -> str:
    """Nothing where no job ended, of several seeds in some run: there is no mean of none."""
    return NOTHING if value is None else f"{round(value):,}s"


def _above_bound(figures: dict[str, Any]) -> str:
    """How far the mean wait is above what no schedule gets below; nothing where not all jobs are in that mean."""
    if figures["unfinished_jobs"]:
        return NOTHING
    return _seconds(figures["queue_seconds"]["mean"] - figures["queue_bound_seconds"])


def _fairness(figures: dict[str, Any]) -> str:
    return NOTHING if figures["fairness_jain"] is None else f"{figures['fairness_jain']:.3f}"


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the table: its title, what it is, what stands in it. ``where``: a figure without which in all columns
    the line is left out."""

    title: str
    what: str
    show: _Show
    where: str = ""


_LINES: Sequence[_Line] = (
    _Line(
        "queue mean",
        "Seconds from submission to end, less the job's duration: restarts and slow places count as waiting.",
        _time("queue_seconds", "mean"),
    ),
    _Line(
        "  above the bound",
        "The same, less what no schedule gets below, whatever it knows.",
        _above_bound,
    ),
    _Line("queue p50", "Half of the jobs wait no longer.", _time("queue_seconds", "p50")),
    _Line("queue p90", "90 % of the jobs wait no longer.", _time("queue_seconds", "p90")),
    _Line("queue p99", "99 % of the jobs wait no longer.", _time("queue_seconds", "p99")),
    _Line("queue >=8 GPUs", "The mean of jobs with so many GPUs.", _time("queue_seconds_ge8_gpus", "mean")),
    _Line("queue >=32 GPUs", "The mean of jobs with so many GPUs.", _time("queue_seconds_ge32_gpus", "mean")),
    _Line("completion mean", "Seconds from submission to end.", _time("completion_seconds", "mean")),
    _Line("completion p50", "Half of the jobs take no longer.", _time("completion_seconds", "p50")),
    _Line("completion p90", "90 % of the jobs take no longer.", _time("completion_seconds", "p90")),
    _Line("completion p99", "99 % of the jobs take no longer.", _time("completion_seconds", "p99")),
    _Line(
        "slowdown mean",
        "Completion by duration, of jobs below ten seconds by ten; 1 where nobody waits (bounded slowdown).",
        _factor("bounded_slowdown", "mean"),
    ),
    _Line("slowdown p90", "90 % of the jobs have no greater one.", _factor("bounded_slowdown", "p90")),
    _Line(
        "makespan", "From the first submission to the last end.", lambda f: _seconds(f["makespan_seconds"])
    ),
    _Line(
        "allocation",
        "Running GPU time between the 5th and the 95th percentile of submissions, as part of what there is.",
        _percent("allocation_percent"),
    ),
    _Line(
        "idle while jobs wait",
        "GPUs that nobody has while at least one job waits, over the same time (fragmentation).",
        _percent("fragmented_percent"),
    ),
    _Line("preemptions", "How often jobs were stopped for others.", _count("preemptions")),
    _Line("preemptions per job", "The same per job.", lambda f: f"{f['preemptions_per_job']:.3f}"),
    _Line(
        "stops by failed nodes",
        "How often jobs lost a node.",
        _count("node_failures_hit"),
        "node_failures_hit",
    ),
    _Line(
        "lost GPU-hours", "Work that is done again, and the time of restarts.", _gpu_hours("lost_gpu_seconds")
    ),
    _Line(
        "GPU-hours held",
        "What jobs had, restarts and gangs in part included.",
        lambda f: f"{f['gpu_hours']:,.1f}",
    ),
    _Line("model loads", "How often a card loaded another AI model.", _count("model_loads"), "model_loads"),
    _Line(
        "failed gang starts",
        "How often a part of a gang held GPUs in vain and was given up.",
        _count("failed_gang_starts"),
    ),
    _Line(
        "GPU-hours of partial gangs",
        "Held by gangs of which not all pods had their place.",
        _gpu_hours("partial_gang_gpu_seconds"),
    ),
    _Line(
        "fairness (Jain)",
        "1 where all queues of the trace wait alike, in proportion to their work; less where some wait longer.",
        _fairness,
    ),
    _Line("jobs that never ended", "They are in none of the times above.", _count("unfinished_jobs")),
    _Line("took", "What the simulation took.", lambda f: f"{f['seconds']:.1f}s"),
    _Line("memory", "The most that the process has had so far.", lambda f: f"{f['memory_mib']:.0f}MiB"),
)


def explained(results: Sequence[Metrics]) -> dict[str, str]:
    """What each line of :func:`side_by_side` is."""
    return {line.title.strip(): line.what for line in _shown(results)}


def _shown(results: Sequence[Metrics]) -> list[_Line]:
    """Without those that are 0 of all and rarely meant."""
    return [
        line for line in _LINES if not line.where or any(result.figures[line.where] for result in results)
    ]


def side_by_side(results: Sequence[Metrics]) -> tuple[list[str], list[list[str]]]:
    """The header and the lines of a table with one column per policy."""
    header = ["", *[result.policy for result in results]]
    rows = [[line.title, *[_cell(line, one.figures) for one in results]] for line in _shown(results)]
    return header, rows


def _cell(line: _Line, figures: dict[str, Any]) -> str:
    """A figure; of several seeds with the spread between them, where there is one."""
    said = line.show(figures)
    if SPREAD not in figures or said == NOTHING:
        return said
    apart = line.show(figures[SPREAD])
    return f"{said} ±{apart}" if any(digit in apart for digit in "123456789") else said


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
        if isinstance(value, list):
            found[prefix + name] = " ".join(map(str, value))
        elif isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def left_over(results: Sequence[Metrics]) -> Iterator[str]:
    """Which means are not of all jobs: for people, after the work."""
    for result in results:
        never, jobs = result.figures["unfinished_jobs"], result.figures["jobs"]
        if never:
            times = "its times are of the others alone" if never < jobs else "there are no times"
            yield f"{result.policy}: {never:g} of {plural(jobs, 'job')} never ended; {times}"
        for one in result.left:
            others = f" (and {plural(one.jobs - 1, 'other')})" if one.jobs > 1 else ""
            yield f"{result.policy}: job {one.job} of {plural(one.gpus, 'GPU')}{others} never ended: {one.why}"
