"""The formats of traces by name, and which one a file is in, by its header."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from windlass.sim.jobs import TraceJob
from windlass.sim.traces import azure, genai, helios, kubernetes, muri, openb, philly, sacct, table
from windlass.sim.traces.rows import TraceError


@dataclass(frozen=True, slots=True)
class Format:
    """``columns``: a header that has all of them is of this format; none for what has no header. ``read``: lines
    and the file's name → jobs; raises :class:`~windlass.sim.traces.rows.TraceError`."""

    name: str
    summary: str
    columns: Sequence[str]
    read: Callable[[Iterable[str], str], list[TraceJob]]
    delimiter: str = ","


_ALL = (
    Format("philly", "Philly, submit_s,duration_s,gpus,vc", philly.COLUMNS, philly.read),
    Format("philly-list", "Philly as Pollux and Sia have it", philly.LISTED, philly.read_list),
    Format("muri", "Muri's traces", muri.COLUMNS, muri.read),
    Format("openb", "pods of OpenB, by their times", (*openb.COLUMNS, *openb.TIMES), openb.read),
    Format("helios", "the job log of a Helios cluster", helios.COLUMNS, helios.read),
    Format("genai", "image requests of GenTD26", genai.COLUMNS, genai.read),
    Format("azure", "Azure's inference requests, run times by an assumed speed", azure.COLUMNS, azure.read),
    Format("sacct", "Slurm: sacct -X -P with these fields and AllocTRES", sacct.COLUMNS, sacct.read, "|"),
    Format("kubernetes", "a dump of pods, YAML or JSON", (), kubernetes.read),
    Format("csv", "the simulator's own, see docs/guides/simulator.md", table.COLUMNS, table.read),
)

FORMATS: Mapping[str, Format] = {form.name: form for form in _ALL}


def recognise(header: str) -> Format | None:
    """The format of a file by its first line; ``None`` if it is none of them."""
    if header.startswith(("{", "apiVersion:", "---", "kind:")):
        return FORMATS["kubernetes"]
    for form in FORMATS.values():
        if not form.columns:
            continue
        names = {
            name.strip().strip('"').lstrip("\ufeff") for name in header.rstrip("\r\n").split(form.delimiter)
        }
        if names.issuperset(form.columns):
            return form
    return None


def read(lines: Sequence[str], file: str, name: str = "") -> list[TraceJob]:
    """The jobs of a trace, in the named format or the one that its header tells. Raises
    :class:`~windlass.sim.traces.rows.TraceError`."""
    if not lines:
        raise TraceError(file, 0, "", "the file is empty")
    form = FORMATS[name] if name else recognise(lines[0])
    if form is None:
        raise TraceError(file, 1, "", f"the header is that of no format that is known ({', '.join(FORMATS)})")
    jobs = form.read(lines, file)
    if not jobs:
        raise TraceError(file, 0, "", "there is no job in it (those that have not ended are left out)")
    return jobs
