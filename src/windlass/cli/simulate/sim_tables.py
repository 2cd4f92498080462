"""Output of ``windlass sim run`` and ``sim pack``: metrics side by side, or as CSV."""

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
"""Minimum width of a table in cells."""
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
    """Return seconds as text; ``-`` if no job ended, with several seeds in some run."""
    return NOTHING if value is None else f"{round(value):,}s"


def _above_bound(figures: dict[str, Any]) -> str:
    """Return the mean wait above its lower bound; ``-`` if the mean does not cover all jobs."""
    if figures["unfinished_jobs"]:
        return NOTHING
    return _seconds(figures["queue_seconds"]["mean"] - figures["queue_bound_seconds"])


def _fairness(figures: dict[str, Any]) -> str:
    return NOTHING if figures["fairness_jain"] is None else f"{figures['fairness_jain']:.3f}"


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the table: title, explanation, value.

    ``where``: metric without which, in all columns, the line is omitted.
    """

    title: str
    what: str
    show: _Show
    where: str = ""


_LINES: Sequence[_Line] = (
    _Line(
        "queue mean",
        "Seconds from submission to end, less the job's duration: restarts and slow nodes count as waiting.",
        _time("queue_seconds", "mean"),
    ),
    _Line(
        "  above the bound",
        "Mean wait above the lower bound that no schedule can beat.",
        _above_bound,
    ),
    _Line("queue p50", "Half of the jobs wait no longer.", _time("queue_seconds", "p50")),
    _Line("queue p90", "90 % of the jobs wait no longer.", _time("queue_seconds", "p90")),
    _Line("queue p99", "99 % of the jobs wait no longer.", _time("queue_seconds", "p99")),
    _Line("queue >=8 GPUs", "Mean of jobs with this many GPUs.", _time("queue_seconds_ge8_gpus", "mean")),
    _Line("queue >=32 GPUs", "Mean of jobs with this many GPUs.", _time("queue_seconds_ge32_gpus", "mean")),
    _Line("completion mean", "Seconds from submission to end.", _time("completion_seconds", "mean")),
    _Line("completion p50", "Half of the jobs take no longer.", _time("completion_seconds", "p50")),
    _Line("completion p90", "90 % of the jobs take no longer.", _time("completion_seconds", "p90")),
    _Line("completion p99", "99 % of the jobs take no longer.", _time("completion_seconds", "p99")),
    _Line(
        "slowdown mean",
        "Completion by duration (at least ten seconds); 1 if no job waits (bounded slowdown).",
        _factor("bounded_slowdown", "mean"),
    ),
    _Line("slowdown p90", "90 % of the jobs have no larger slowdown.", _factor("bounded_slowdown", "p90")),
    _Line(
        "makespan", "From the first submission to the last end.", lambda f: _seconds(f["makespan_seconds"])
    ),
    _Line(
        "allocation",
        "Running GPU time between the 5th and the 95th percentile of submissions, as part of the capacity.",
        _percent("allocation_percent"),
    ),
    _Line(
        "idle while jobs wait",
        "GPUs that are idle while at least one job waits, over the same time (fragmentation).",
        _percent("fragmented_percent"),
    ),
    _Line("preemptions", "Number of times that jobs were stopped for others.", _count("preemptions")),
    _Line(
        "preemptions per job",
        "Preemptions divided by the number of jobs.",
        lambda f: f"{f['preemptions_per_job']:.3f}",
    ),
    _Line(
        "stops by failed nodes",
        "Number of times that jobs lost a node.",
        _count("node_failures_hit"),
        "node_failures_hit",
    ),
    _Line(
        "spot interruptions",
        "Number of times that a spot machine of a job was to end.",
        _count("spot_interruptions"),
        "spot_interruptions",
    ),
    _Line(
        "moves off slow nodes",
        "Number of times that a job of high priority left a node that had become slow.",
        _count("degraded_moves"),
        "degraded_moves",
    ),
    _Line(
        "lost GPU-hours", "Work that is repeated, and the time of restarts.", _gpu_hours("lost_gpu_seconds")
    ),
    _Line(
        "GPU-hours held",
        "GPU time held by jobs, including restarts and partial gangs.",
        lambda f: f"{f['gpu_hours']:,.1f}",
    ),
    _Line(
        "model loads",
        "Number of times that a GPU loaded another AI model.",
        _count("model_loads"),
        "model_loads",
    ),
    _Line(
        "failed gang starts",
        "Number of times that part of a gang held GPUs and was given up.",
        _count("failed_gang_starts"),
    ),
    _Line(
        "GPU-hours of partial gangs",
        "Held by gangs of which only a part had nodes.",
        _gpu_hours("partial_gang_gpu_seconds"),
    ),
    _Line(
        "fairness (Jain)",
        "1 if all queues of the trace wait in proportion to their work; less if some wait longer.",
        _fairness,
    ),
    _Line(
        "finished jobs",
        "Jobs that ended; a gang is one job.",
        lambda f: f"{f['jobs'] - f['unfinished_jobs']:,g}",
    ),
    _Line("jobs that never ended", "They are not included in the times above.", _count("unfinished_jobs")),
    _Line(
        "scheduling pass p99",
        "99 % of the passes of the scheduler (changes taken in, and one cycle) take no longer.",
        lambda f: f"{f['pass_milliseconds']['p99']:,.1f}ms",
    ),
    _Line("took", "Time that the simulation took.", lambda f: f"{f['seconds']:.1f}s"),
    _Line("memory", "Peak memory of the process so far.", lambda f: f"{f['memory_mib']:.0f}MiB"),
)


def explained(results: Sequence[Metrics]) -> dict[str, str]:
    """Return the explanation of each line of :func:`side_by_side`."""
    return {line.title.strip(): line.what for line in _shown(results)}


def _shown(results: Sequence[Metrics]) -> list[_Line]:
    """Return the lines, without rare ones that are 0 in all columns."""
    return [
        line for line in _LINES if not line.where or any(result.figures[line.where] for result in results)
    ]


def side_by_side(results: Sequence[Metrics]) -> tuple[list[str], list[list[str]]]:
    """Return header and lines of a table with one column per policy."""
    header = ["", *[result.policy for result in results]]
    rows = [[line.title, *[_cell(line, one.figures) for one in results]] for line in _shown(results)]
    return header, rows


def _cell(line: _Line, figures: dict[str, Any]) -> str:
    """Return a value; with several seeds with its spread, if that is not 0."""
    text = line.show(figures)
    if SPREAD not in figures or text == NOTHING:
        return text
    spread = line.show(figures[SPREAD])
    return f"{text} ±{spread}" if any(digit in spread for digit in "123456789") else text


def as_table(results: Sequence[Metrics], width: int) -> str:
    """Return the metrics side by side, one column per policy.

    Columns beyond ``width`` (at least :data:`WIDE`) go to another table below.
    """
    header, rows = side_by_side(results)
    wide = [max(tables.cells(line[column]) for line in [header, *rows]) + 2 for column in range(len(header))]
    room = max(width, WIDE) - (wide[0] - 2)
    parts: list[list[int]] = []
    for column in range(1, len(header)):
        if not parts or sum(wide[other] for other in [*parts[-1], column]) > room:
            parts.append([])
        parts[-1].append(column)
    return "\n".join(
        tables.render(
            [header[column] for column in [0, *part]],
            [[row[column] for column in [0, *part]] for row in rows],
            right=frozenset(range(1, len(part) + 1)),
        )
        for part in parts
    )


def as_csv(documents: Sequence[Mapping[str, Any]]) -> str:
    """Return one line per document.

    Nested values have names such as ``queue_seconds.mean``; missing ones are empty.
    """
    flat = [_flat(document) for document in documents]
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in flat for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(figures: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, list):
            flat[prefix + name] = " ".join(map(str, value))
        elif isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def unfinished_notes(results: Sequence[Metrics]) -> Iterator[str]:
    """Yield which means do not cover all jobs, for people."""
    for result in results:
        unfinished, jobs = result.figures["unfinished_jobs"], result.figures["jobs"]
        if unfinished:
            times = "the times cover only the others" if unfinished < jobs else "there are no times"
            yield f"{result.policy}: {unfinished:g} of {plural(jobs, 'job')} never ended; {times}"
        for group in result.left:
            others = f" (and {plural(group.jobs - 1, 'other')})" if group.jobs > 1 else ""
            yield f"{result.policy}: job {group.job} of {plural(group.gpus, 'GPU')}{others} never ended: {group.why}"
