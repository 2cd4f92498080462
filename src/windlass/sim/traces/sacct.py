"""Slurm's accounting: what ``sacct -P -X`` prints with the fields of :data:`COMMAND`, in any order.

The partition is the queue. GPUs, CPUs and memory are those of ``AllocTRES`` (``gres/gpu=4``; without it
``gres/gpu:MODEL=``), or of ``ReqTRES``: one of the two must be there. A job ran for ``ElapsedRaw`` seconds, in which it
was not suspended; without that column from ``Start`` to ``End``. Times without a zone, as Slurm writes them, are taken
as UTC: where clocks are changed they are an hour off, and not so with ``SLURM_TIME_FORMAT=%s``. Jobs that never
started, and those that have not ended (one that is requeued has a run behind it, and waits), are left out, as are
steps (``7.batch``) where ``-X`` was forgotten. The parts of a heterogeneous job (``9+0``, ``9+1``) start together:
they are one job. What waits of an array stands in one line (``11_[3-9%2]``), and counts by its tasks. Slurm quotes
nothing: a job's name may have ``|`` in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from math import inf

from windlass.sim.jobs import TraceJob
from windlass.sim.traces.recording import Recording
from windlass.sim.traces.rows import MOST, TraceError, TraceRow, rows
from windlass.sim.traces.times import moment

COLUMNS = ("JobID", "Submit", "Start", "End", "Partition")
ALLOCATED, REQUESTED = RESOURCES = ("AllocTRES", "ReqTRES")
COMMAND = (
    "SLURM_TIME_FORMAT=%s sacct -a -X -P -S 2026-01-01 -E now"
    " -o JobID,JobName,User,Partition,Submit,Start,End,ElapsedRaw,TimelimitRaw,AllocTRES,State > jobs.txt"
)
"""Command that prints a cluster's history in this form."""
NEVER = ("", "Unknown", "None", "N/A")
AGAIN = ("REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
"""States of jobs that have run and wait to run again."""
DIGITS = 6
"""No job has counts of more: of GPUs, or of CPUs."""
_ARRAY = re.compile(r"_\[([^\]%]*)")
"""The tasks that wait of an array, without how many may run at once."""
_TASKS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_PART = re.compile(r"\+0*[1-9][0-9]*$")
_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGTP]?)")
_SCALE = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
"""A number without a letter is in MiB."""


def read(lines: Iterable[str], file: str) -> list[TraceJob]:
    """The jobs that ran and have ended, from the first submission on. Raises
    :class:`~windlass.sim.traces.rows.TraceError`."""
    return list(record(lines, file).jobs)


def record(lines: Iterable[str], file: str, since: float = -inf) -> Recording:
    """The same of those that came since a moment (Unix seconds), and what was left out. Raises
    :class:`~windlass.sim.traces.rows.TraceError`."""
    ran: list[TraceRow] = []
    counts = {"running": 0, "waiting": 0, "earlier": 0, "never_ran": 0}
    for row in rows(lines, file, COLUMNS, "|", free="JobName"):
        if not any(name in row.cells for name in RESOURCES):
            raise TraceError(
                file, 1, " or ".join(RESOURCES), "there is no such column: nothing tells of GPUs"
            )
        job, _, _ = row.text("JobID").partition("[")
        if "." in job:
            continue
        why = "earlier" if moment(row, "Submit") < since else _left_out(row)
        if why:
            counts[why] += _tasks(row.text("JobID"))
        else:
            ran.append(row)
    submitted = [moment(row, "Submit") for row in ran]
    first = min(submitted, default=0.0)
    jobs = _joined(_job(row, at - first) for row, at in zip(ran, submitted, strict=True))
    return Recording(jobs, first, **counts)


def _left_out(row: TraceRow) -> str:
    """As what a job is counted that did not run to an end; empty for one that did."""
    started, ended = row.text("Start") not in NEVER, row.text("End") not in NEVER
    if row.text("State").partition(" ")[0] in AGAIN:
        return "waiting"
    if not ended:
        return "running" if started else "waiting"
    unplaced = not started or (not row.cells.get(ALLOCATED, "-") and not _ran(row))
    return "never_ran" if unplaced else ""


def _tasks(job: str) -> int:
    """Return the number of jobs of a line: the tasks of an array that have not started.

    Of a heterogeneous job only the first component counts. If Slurm truncates a list (``...``), the named tasks
    count.
    """
    if _PART.search(job):
        return 0
    array = _ARRAY.search(job)
    if array is None:
        return 1
    count = 0
    for first, last, step in _TASKS.findall(array[1]):
        count += max(0, int(last or first) - int(first)) // (int(step or 1) or 1) + 1
    return count or 1


def _joined(jobs: Iterable[TraceJob]) -> list[TraceJob]:
    """With the parts of each heterogeneous job as one, which lasts as long as its longest."""
    found: dict[tuple[str, float] | int, TraceJob] = {}
    for number, job in enumerate(jobs):
        whole, of_several, _ = job.id.partition("+")
        key = (whole, job.submit_seconds) if of_several else number
        found[key] = _sum(found[key], job) if key in found else replace(job, id=whole)
    return list(found.values())


def _sum(one: TraceJob, other: TraceJob) -> TraceJob:
    limits = [limit for job in (one, other) if (limit := job.requested_seconds) is not None]
    return replace(
        one,
        duration_seconds=max(one.duration_seconds, other.duration_seconds),
        gpus=one.gpus + other.gpus,
        cpu_milli=one.cpu_milli + other.cpu_milli,
        memory_bytes=one.memory_bytes + other.memory_bytes,
        requested_seconds=max(limits, default=None),
    )


def _job(row: TraceRow, submit: float) -> TraceJob:
    gpus, cpu, memory = _resources(row)
    limit = row.text("TimelimitRaw")
    return TraceJob(
        id=row.text("JobID"),
        submit_seconds=submit,
        duration_seconds=_ran(row),
        gpus=gpus,
        cpu_milli=cpu,
        memory_bytes=memory,
        queue=row.text("Partition", "default"),
        user=row.text("User"),
        name=row.text("JobName"),
        requested_seconds=60.0 * row.number("TimelimitRaw")
        if limit.isascii() and limit.isdecimal()
        else None,
    )


def _ran(row: TraceRow) -> float:
    """Seconds."""
    if row.text("ElapsedRaw"):
        return row.number("ElapsedRaw")
    begun, ended = moment(row, "Start"), moment(row, "End")
    if ended < begun:
        raise row.fail("End", "it ends before it starts")
    return ended - begun


def _resources(row: TraceRow) -> tuple[int, int, int]:
    """GPUs, CPU in milli, memory in bytes."""
    column = ALLOCATED if row.text(ALLOCATED) else REQUESTED
    parts: dict[str, str] = {}
    for part in row.text(column).split(","):
        name, _, amount = part.partition("=")
        parts[name] = amount
    typed = [value for name, value in parts.items() if name.startswith("gres/gpu:")]
    gpus = [parts["gres/gpu"]] if "gres/gpu" in parts else typed
    for text in (*gpus, parts.get("cpu", "0")):
        if not (text.isascii() and text.isdecimal()) or len(text) > DIGITS:
            raise row.fail(column, f"{text!r} is no count")
    found = _MEMORY.fullmatch(parts.get("mem", "0"))
    memory = float(found[1]) * _SCALE[found[2]] if found is not None else inf
    if memory > MOST:
        raise row.fail(column, f"mem={parts['mem']} is no amount of memory")
    return sum(map(int, gpus)), 1000 * int(parts.get("cpu", "0")), int(memory)
