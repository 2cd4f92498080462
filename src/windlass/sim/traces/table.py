"""The simulator's own format: CSV with a header, one job a line.

``id,submit_seconds,duration_seconds,gpus`` are needed; any other field of
:class:`~windlass.sim.jobs.TraceJob` may follow under its name, in any order. Empty cells mean its default.
``gpu_models`` are separated by ``|``; ``time_share`` is ``true`` or ``false``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

from windlass.sim.jobs import WHOLE, TraceJob
from windlass.sim.traces.rows import TraceError, TraceRow, rows

COLUMNS = ("id", "submit_seconds", "duration_seconds", "gpus")
FIELDS = tuple(field.name for field in fields(TraceJob))
_TRUTH = {"true": True, "false": False, "": None}


def read(lines: Iterable[str], file: str) -> list[TraceJob]:
    """The jobs. Raises :class:`~windlass.sim.traces.rows.TraceError`, also for unknown columns."""
    found: list[TraceJob] = []
    for row in rows(lines, file, COLUMNS):
        if not found:
            for name in row.cells:
                if name not in FIELDS:
                    raise TraceError(file, 1, name, f"there is no such column; there are {', '.join(FIELDS)}")
        found.append(_job(row))
    return found


def write(jobs: Sequence[TraceJob]) -> Iterator[str]:
    """The lines of a file that :func:`read` reads back as it was, each with its line feed. Columns of which all
    jobs have the default are left out."""
    plain = TraceJob("", 0.0, 0.0, 0)
    used = [
        name
        for name in FIELDS
        if name in COLUMNS or any(getattr(job, name) != getattr(plain, name) for job in jobs)
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(used)
    for job in jobs:
        writer.writerow([_cell(getattr(job, name)) for name in used])
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    if not jobs:
        yield text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "|".join(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _job(row: TraceRow) -> TraceJob:
    if not row.text("id"):
        raise row.fail("id", "it is empty")
    gpus, least = row.gpus("gpus"), row.whole("min_gpus", default=0)
    if least > gpus:
        raise row.fail("min_gpus", f"{least} is more than the {gpus} GPUs of the job")
    milli = row.whole("gpu_milli", least=1, default=WHOLE)
    if milli > WHOLE:
        raise row.fail("gpu_milli", f"{milli} is no part of a GPU: it is from 1 to {WHOLE} of each")
    share = row.text("time_share").lower()
    if share not in _TRUTH:
        raise row.fail("time_share", f"{share!r} is neither true nor false")
    return TraceJob(
        id=row.text("id"),
        submit_seconds=row.number("submit_seconds"),
        duration_seconds=row.number("duration_seconds"),
        gpus=gpus,
        gpu_milli=milli,
        cpu_milli=row.whole("cpu_milli", default=0),
        memory_bytes=row.whole("memory_bytes", default=0),
        queue=row.text("queue", "default"),
        user=row.text("user"),
        name=row.text("name"),
        priority=row.whole("priority", least=-(1 << 31), default=0),
        model=row.text("model"),
        min_gpus=least,
        requested_seconds=_maybe(row, "requested_seconds"),
        checkpoint_seconds=_maybe(row, "checkpoint_seconds"),
        restart_seconds=_maybe(row, "restart_seconds"),
        gpu_models=tuple(filter(None, row.text("gpu_models").split("|"))),
        time_share=_TRUTH[share],
        pod_gpus=row.whole("pod_gpus", default=0),
    )


def _maybe(row: TraceRow, column: str) -> float | None:
    return row.number(column) if row.text(column) else None
