"""The formats of traces by name, and which one a file is in, by its header."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from windlass.sim.jobs import TraceJob
from windlass.sim.traces import azure, genai, helios, muri, openb, philly, sacct, swf, table
from windlass.sim.traces.recording import Recording
from windlass.sim.traces.rows import TraceError


@dataclass(frozen=True, slots=True)
class Format:
    """``columns``: a header that has all of them is of this format; none for what has no header. ``read``: lines
    and the file's name → jobs; raises :class:`~windlass.sim.traces.rows.TraceError`. ``record``: the same of a history
    that tells what it leaves out."""

    name: str
    summary: str
    columns: Sequence[str]
    read: Callable[[Iterable[str], str], list[TraceJob]]
    delimiter: str = ","
    record: Callable[[Iterable[str], str], Recording] | None = None


def _record_dump(lines: Iterable[str], file: str) -> Recording:
    from windlass.sim.traces import kubernetes  # the model of a cluster: much, for nothing else here

    return kubernetes.dumped(lines, file)


def _read_dump(lines: Iterable[str], file: str) -> list[TraceJob]:
    return list(_record_dump(lines, file).jobs)


_ALL = (
    Format("philly", "Philly, in seconds from its first day", philly.COLUMNS, philly.read),
    Format("philly-list", "Philly as Pollux and Sia have it", philly.LISTED, philly.read_list),
    Format("muri", "Muri's traces", muri.COLUMNS, muri.read),
    Format("openb", "pods of OpenB, by their times", (*openb.COLUMNS, *openb.TIMES), openb.read),
    Format("helios", "the job log of a Helios cluster", helios.COLUMNS, helios.read),
    Format("genai", "image requests of GenTD26", genai.COLUMNS, genai.read),
    Format("azure", "Azure's inference requests, run times by an assumed speed", azure.COLUMNS, azure.read),
    Format(
        "sacct",
        "Slurm: sacct -X -P with these fields and AllocTRES",
        sacct.COLUMNS,
        sacct.read,
        "|",
        sacct.record,
    ),
    Format(
        "swf", "Standard Workload Format of the Parallel Workloads Archive: 18 numbers a line", (), swf.read
    ),
    Format("kubernetes", "a dump of pods, YAML or JSON", (), _read_dump, record=_record_dump),
    Format("csv", "the simulator's own, see docs/guides/simulator.md", table.COLUMNS, table.read),
)

FORMATS: Mapping[str, Format] = {form.name: form for form in _ALL}
DELIMITERS = (",", ";", "|", "\t")
NEAR = 0.5
"""A header that lacks no greater part of a format's columns is taken to have been meant for it."""


def recognise(header: str) -> Format | None:
    """The format of a file by its first line; ``None`` if it is none of them."""
    if header.startswith(("{", "apiVersion:", "---", "kind:")):
        return FORMATS["kubernetes"]
    if swf.is_line(header):
        return FORMATS["swf"]
    for form in FORMATS.values():
        if form.columns and _names(header, form.delimiter).issuperset(form.columns):
            return form
    return None


def _names(header: str, delimiter: str) -> set[str]:
    return {name.strip().strip('"').lstrip("\ufeff") for name in header.rstrip("\r\n").split(delimiter)}


def _unknown(header: str) -> str:
    """Return the error text for an unknown header, with the missing columns of the most similar format."""
    if not header.strip():
        return "it is empty, and should be the header"
    if _names(header, ",").issuperset(openb.NODE_COLUMNS):
        return "that is a list of nodes (for --nodes), not of jobs"
    said = f"the header is that of no format that is known ({', '.join(FORMATS)})"
    near: list[tuple[float, str]] = []
    for form in FORMATS.values():
        for delimiter in {form.delimiter, *DELIMITERS} if form.columns else ():
            names = _names(header, delimiter)
            alike = {name.lower(): f" (there is {name})" for name in names}
            lacking = sorted(set(form.columns) - names)
            columns = ", ".join(name + alike.get(name.lower(), "") for name in lacking)
            words = [f"column {columns}"] if lacking else []
            words += [f"{form.delimiter!r} between columns"] if delimiter != form.delimiter else []
            part = sum(name.lower() not in alike for name in lacking) / len(form.columns)
            if part <= NEAR:
                near.append((part, f"; {form.name} is near, but lacks {' and '.join(words)}"))
    return said + (min(near)[1] if near else "")


def beside(lines: Sequence[str], jobs: int, form: Format) -> int:
    """Return the number of rows without a job; 0 if a job is not a row.

    A quoted cell may span several lines.
    """
    if not form.columns:
        return 0
    return max(sum(1 for cells in csv.reader(lines, delimiter=form.delimiter) if cells) - 1 - jobs, 0)


def form_of(lines: Sequence[str], file: str, name: str = "") -> Format:
    """The named format, or the one that the header tells. Raises :class:`~windlass.sim.traces.rows.TraceError`."""
    if not lines:
        raise TraceError(file, 0, "", "the file is empty")
    form = FORMATS[name] if name else recognise(lines[0])
    if form is None:
        raise TraceError(file, 1, "", _unknown(lines[0]))
    return form


def read(lines: Sequence[str], file: str, name: str = "") -> list[TraceJob]:
    """The jobs of a trace, in the named format or the one that its header tells. Raises
    :class:`~windlass.sim.traces.rows.TraceError`."""
    return some(form_of(lines, file, name).read(lines, file), file)


def some(jobs: list[TraceJob], file: str) -> list[TraceJob]:
    """The jobs. Raises :class:`~windlass.sim.traces.rows.TraceError` where there is none."""
    if not jobs:
        raise TraceError(file, 0, "", "there is no job in it (those that have not ended are left out)")
    return jobs
