"""Reader of the Standard Workload Format (Feitelson et al., version 2.2) of the Parallel Workloads Archive.

A line is a job: 18 numbers between blanks (:data:`FIELDS`), -1 for what is not known. Lines that begin with ``;`` are
comments; those of the header say what the log is of, as ``MaxProcs: 1152``. Processors are what the machine has and
nothing is said of GPUs: here a processor is a device, unless :func:`in_gpus` puts several together. A job has the
processors that it was given, else those that it asked for. It ran for its run time; the requested time is its
owner's estimate. The memory asked for (in KiB a processor) is the job's, the executable's number is its name, the
queue's number its queue. Of CPU nothing is said: it is what the devices stand for.

A job that was checkpointed or swapped out has a line for each of its runs (status 2 to 4), by its number, mostly behind
one line for the whole. Of those the whole counts; without it, the sum of its runs if the last is there.

Left out, and counted: jobs with an unknown run time, processor count or submission, or cancelled before they ran.
Dependencies on earlier jobs (fields 17 and 18) are not simulated: a job arrives at its submission time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from windlass.sim.jobs import TraceJob
from windlass.sim.traces.rows import MOST, MOST_GPUS, TraceError, TraceRow

_NAMES = (
    "job number",
    "submit time",
    "wait time",
    "run time",
    "allocated processors",
    "average CPU time used",
    "used memory",
    "requested processors",
    "requested time",
    "requested memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding job",
    "think time",
)
FIELDS = tuple(f"{number} ({name})" for number, name in enumerate(_NAMES, 1))
"""The fields of a line, in their order."""
(NUMBER, SUBMIT, _, RUN, ALLOCATED, _, _, REQUESTED, REQUESTED_TIME, MEMORY, STATUS) = FIELDS[:11]
USER, EXECUTABLE, QUEUE, PRECEDING = FIELDS[11], FIELDS[13], FIELDS[14], FIELDS[16]
COMMENT = ";"
CONTINUED, LAST_COMPLETED, LAST_FAILED, CANCELLED = 2, 3, 4, 5
PARTS = (CONTINUED, LAST_COMPLETED, LAST_FAILED)
"""Status of one run of a job that had several."""
STATUSES = (-1, 0, 1, *PARTS, CANCELLED)
KIB = 1 << 10
NEAR = 5
"""Minimum number of fields by which a line is recognised as this format."""
_HEADER = re.compile(r";\s*(MaxProcs|MaxNodes)\s*:\s*([0-9]{1,12})")


@dataclass(slots=True)
class Log:
    """``jobs``: from the first submission on. ``processors``, ``nodes``: of the machine by the header, 0: it does not
    say; a header without ``MaxProcs`` counts processors as nodes. Of the jobs in it were left out ``unknown``
    (something is not known without which none can be played), ``never_ran`` and ``unended`` (runs of which the last
    is not there); ``chained`` of those that are played came once another had ended."""

    jobs: list[TraceJob] = field(default_factory=list)
    processors: int = 0
    nodes: int = 0
    unknown: int = 0
    never_ran: int = 0
    unended: int = 0
    chained: int = 0


def is_line(text: str) -> bool:
    """Return whether the first line of a file is one of this format, or means to be."""
    parts = text.split()
    return text.lstrip("\ufeff \t").startswith(COMMENT) or (
        len(parts) >= NEAR and all(map(_is_number, parts))
    )


def read(lines: Iterable[str], file: str) -> list[TraceJob]:
    """The jobs that ran. Raises :class:`~windlass.sim.traces.rows.TraceError`."""
    return log(lines, file).jobs


def log(lines: Iterable[str], file: str) -> Log:
    """The same, with what the header says and what was left out. Raises
    :class:`~windlass.sim.traces.rows.TraceError`."""
    found = Log()
    whole: list[TraceRow] = []
    parts: dict[str, list[TraceRow]] = {}
    for row in _rows(lines, file, found):
        if _status(row) in PARTS:
            parts.setdefault(row.cells[NUMBER], []).append(row)
        else:
            whole.append(row)
    for row in whole:
        parts.pop(row.cells[NUMBER], None)
    jobs = [job for row in whole if (job := _job(row, found)) is not None]
    jobs += [job for runs in parts.values() if (job := _joined(runs, found)) is not None]
    jobs.sort(key=lambda job: job.submit_seconds)
    first = jobs[0].submit_seconds if jobs else 0.0
    found.processors = found.processors or found.nodes
    found.jobs = [replace(job, submit_seconds=job.submit_seconds - first) for job in jobs]
    return found


def in_gpus(jobs: Sequence[TraceJob], processors: int) -> list[TraceJob]:
    """The jobs, so many processors to a device; of the last device a job may need but a part, and has it whole."""
    return [replace(job, gpus=-(-job.gpus // processors)) for job in jobs]


def _rows(lines: Iterable[str], file: str, found: Log) -> Iterator[TraceRow]:
    """The lines that are jobs; what the header says goes to ``found``."""
    for number, line in enumerate(lines, 1):
        text = line.strip("\ufeff \t\r\n")
        if text.startswith(COMMENT):
            _header(text, found)
            continue
        cells = text.split()
        if not cells:
            continue
        if len(cells) != len(FIELDS):
            raise TraceError(file, number, "", f"{len(cells)} fields, a job of SWF has {len(FIELDS)}")
        yield TraceRow(file, number, dict(zip(FIELDS, cells, strict=True)))


def _header(text: str, found: Log) -> None:
    told = _HEADER.match(text)
    if told is None:
        return
    if told[1] == "MaxProcs":
        found.processors = int(told[2])
    else:
        found.nodes = int(told[2])


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _known(row: TraceRow, name: str) -> float | None:
    """A number of at least 0; ``None`` for -1. Raises :class:`~windlass.sim.traces.rows.TraceError`."""
    value = row.number(name, least=-1)
    if -1 < value < 0:
        raise row.fail(
            name, f"{row.cells[name]!r} is neither a number of at least 0 nor -1, for what is not known"
        )
    return None if value < 0 else value


def _status(row: TraceRow) -> int:
    status = row.whole(STATUS, least=-1)
    if status not in STATUSES:
        raise row.fail(STATUS, f"{row.cells[STATUS]!r} is no status: those are -1 to {CANCELLED}")
    return status


def _processors(row: TraceRow) -> int:
    """Return the allocated processors, else the requested ones; 0 if unknown."""
    for name in (ALLOCATED, REQUESTED):
        count = row.whole(name, least=-1)
        if count > MOST_GPUS:
            raise row.fail(name, f"{count} is more than the {MOST_GPUS} processors that a job may have")
        if count > 0:
            return count
    return 0


def _job(row: TraceRow, found: Log) -> TraceJob | None:
    """``None``, and counted, where it cannot be played."""
    submit, run, processors = _known(row, SUBMIT), _known(row, RUN), _processors(row)
    if _status(row) == CANCELLED and not run:
        found.never_ran += 1
        return None
    if submit is None or run is None or not processors:
        found.unknown += 1
        return None
    found.chained += row.whole(PRECEDING, least=-1) > 0
    requested, memory = _known(row, REQUESTED_TIME), _known(row, MEMORY)
    asked = int(memory or 0) * KIB * processors
    if asked > MOST:
        raise row.fail(
            MEMORY, f"{row.cells[MEMORY]} KiB for each of {processors} processors is no amount of memory"
        )
    return TraceJob(
        id=row.cells[NUMBER],
        submit_seconds=submit,
        duration_seconds=run,
        gpus=processors,
        memory_bytes=asked,
        queue=_label(row, QUEUE) or "default",
        user=_label(row, USER),
        name=_label(row, EXECUTABLE),
        requested_seconds=requested or None,
    )


def _label(row: TraceRow, name: str) -> str:
    """Return a numeric identifier as text; empty if unknown."""
    number = row.whole(name, least=-1)
    return "" if number < 0 else str(number)


def _joined(runs: Sequence[TraceRow], found: Log) -> TraceJob | None:
    """The runs of a job of which no line tells the whole; only the first tells when it came."""
    if _status(runs[-1]) == CONTINUED:
        found.unended += 1
        return None
    first = _job(runs[0], found)
    if first is None:
        return None
    lengths = [_known(row, RUN) for row in runs]
    known = [seconds for seconds in lengths if seconds is not None]
    if len(known) < len(lengths):
        found.unknown += 1
        return None
    return replace(first, duration_seconds=sum(known))
