"""Files of traces and tables, packed by gzip or not, or standard input: read whole, and told of where they are wrong.

Whatever is wrong with one ends in a :class:`WindlassError` that names the file, the line and the column: with exit
status 2 where it cannot be read, 65 where its text is not what it should be.
"""

from __future__ import annotations

import gzip
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from windlass.api.errors import WindlassError
from windlass.api.text_files import STDIN, FileCodes, check_stdin, unread, words_of
from windlass.cli.simulate import record_summary
from windlass.cli.tables import shorten
from windlass.cli.text import plural
from windlass.sim.jobs import TraceJob
from windlass.sim.traces import formats, swf
from windlass.sim.traces.recording import Recording
from windlass.sim.traces.rows import TraceError

INPUT_ERROR = "WL-INPUT-465"
SWF = "swf"
_CODES = FileCodes(no_text=INPUT_ERROR)
SHOWN = 100
"""Cells of a wrong line that are shown."""
_GZIP = b"\x1f\x8b"
_OTHERWISE: Mapping[bytes, tuple[str, str]] = {
    b"PK\x03\x04": ("a zip archive", "unzip {name}"),
    b"BZh": ("packed by bzip2", "bunzip2 -k {name}"),
    b"\xfd7zXZ\x00": ("packed by xz", "unxz -k {name}"),
    b"\x28\xb5\x2f\xfd": ("packed by zstd", "unzstd {name}"),
}
"""How files begin that are packed in a way which is not read → what such a file is, and what unpacks it."""
_TAR, _TAR_AT = b"ustar", 257
_LIKE_A_FILE = re.compile(r"/|\.csv|\.gz")
_Found = TypeVar("_Found")


def read_lines(name: str) -> list[str]:
    """The lines of a text file; of standard input for ``-``. Raises :class:`WindlassError`."""
    said = words_of(name)
    raw = _raw(name)
    try:
        text = gzip.decompress(raw) if raw.startswith(_GZIP) else raw
        _refuse_archives(name, text)
        return text.decode("utf-8-sig").splitlines(keepends=True)  # Windows puts a mark in front
    except EOFError as error:
        raise WindlassError(
            INPUT_ERROR,
            f"{said} is cut short: its gzip has no end",
            evidence=f"{len(raw)} bytes are there",
            remedies=(f"gzip -t {name}",),
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise WindlassError(
            INPUT_ERROR, f"{said} is damaged gzip", evidence=str(error), remedies=(f"gzip -t {name}",)
        ) from error
    except UnicodeDecodeError as error:
        raise WindlassError(
            INPUT_ERROR,
            f"{said} is not text in UTF-8",
            evidence=str(error),
            remedies=(f"file {name}", f"iconv -f {_encoding(raw)} -t utf-8 {name}"),
        ) from error


def _encoding(raw: bytes) -> str:
    """What a text that is not in UTF-8 is likely to be in, as ``iconv`` names it: spreadsheets and Windows' shells
    write UTF-16 with its mark in front."""
    return "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "latin1"


def _refuse_archives(name: str, text: bytes) -> None:
    """Raises :class:`WindlassError` for what has to be unpacked first."""
    kind, unpack = next((found for begin, found in _OTHERWISE.items() if text.startswith(begin)), ("", ""))
    if text.startswith(_TAR, _TAR_AT):
        kind, unpack = "a tar archive", "tar -xf {name}"
    if kind:
        raise WindlassError(
            INPUT_ERROR,
            f"{words_of(name)} is {kind}: a trace is one file of text, packed by gzip or not",
            remedies=(unpack.format(name=name),),
        )


def _raw(name: str) -> bytes:
    """All bytes, read once: a pipe can be read but once."""
    if name == STDIN:
        check_stdin(_CODES)
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise unread(name, error, _CODES) from error


def read_table(
    name: str, reader: Callable[[Sequence[str], str], _Found], remedy: str = "windlass sim formats"
) -> _Found:
    """What a reader makes of a file. Raises :class:`WindlassError`."""
    lines = read_lines(name)
    try:
        return reader(lines, words_of(name))
    except TraceError as error:
        raise wrong_trace(error, lines, remedy) from error


def read_trace(
    name: str, form: str = "", note: Callable[[str], None] = lambda _: None, procs_per_gpu: int = 0
) -> list[TraceJob]:
    """The jobs of a trace. ``note`` is told what is left out, and what the file says of the machine.
    ``procs_per_gpu``: of a log that counts processors, so many are a card (0: one). Raises :class:`WindlassError`."""

    def reader(lines: Sequence[str], file: str) -> list[TraceJob]:
        found = formats.form_of(lines, file, form)
        if found.name == SWF:
            return _of_processors(lines, file, note, procs_per_gpu or 1)
        if procs_per_gpu:
            raise WindlassError(
                "WL-USE-400",
                f"--procs-per-gpu is for logs that count processors ({SWF}): {file} counts GPUs",
                evidence=f"its format is {found.name}",
                remedies=("leave out --procs-per-gpu", "windlass sim formats"),
            )
        if found.record is not None:
            return _of_history(found.record(lines, file), file, note)
        jobs = formats.some(found.read(lines, file), file)
        _tell_twins(jobs, file, note)
        if others := formats.beside(lines, len(jobs), found):
            note(f"left out: {plural(others, 'row')} of {file}: no job that ran and ended")
        return jobs

    return read_table(name, reader)


def _of_history(recording: Recording, file: str, note: Callable[[str], None]) -> list[TraceJob]:
    """Raises :class:`~windlass.sim.traces.rows.TraceError`."""
    jobs = formats.some(list(recording.jobs), file)
    for line in record_summary.doubts(recording):
        note(line)
    return jobs


def _tell_twins(jobs: Sequence[TraceJob], file: str, note: Callable[[str], None]) -> None:
    """Jobs of one id are played each for itself, but nobody can tell them apart in what is written of each."""
    twins = {name: count for name, count in Counter(job.id for job in jobs).items() if count > 1}
    if twins:
        name, count = next(iter(twins.items()))
        more = f", and {plural(len(twins) - 1, 'other id')} likewise" if len(twins) > 1 else ""
        note(f'{file} has {count} jobs of the id "{name}"{more}: each is played')


def _of_processors(
    lines: Sequence[str], file: str, note: Callable[[str], None], procs_per_gpu: int
) -> list[TraceJob]:
    """Raises :class:`~windlass.sim.traces.rows.TraceError`."""
    log = swf.log(lines, file)
    left = (
        (log.unknown, "of which run time, processors or submission is not known"),
        (log.never_ran, "cancelled before they ran"),
        (log.unended, "of which the last run is not there"),
    )
    jobs = formats.some(swf.in_gpus(log.jobs, procs_per_gpu), file)
    each = "each processor is one" if procs_per_gpu == 1 else f"{procs_per_gpu} processors are one"
    note(f"{file} knows no GPUs: {each} here (--procs-per-gpu)")
    if log.processors:
        nodes = log.nodes or log.processors
        cards = -(-log.processors // (nodes * procs_per_gpu))
        note(f"its machine had {plural(log.processors, 'processor')}: --nodes {nodes}x{cards}")
    for count, why in left:
        if count:
            note(f"left out: {plural(count, 'job')} {why}")
    if log.chained:
        note(
            f"{plural(log.chained, 'job')} came once another had ended (fields 17 and 18): played as they came"
        )
    return jobs


def is_shapes(nodes: str) -> bool:
    """Whether what is given for nodes is no file, but shapes such as ``4xH100:8`` (or means to be)."""
    return not Path(nodes).is_file() and not _LIKE_A_FILE.search(nodes)


def wrong_trace(
    error: TraceError, lines: Sequence[str] = (), remedy: str = "windlass sim formats"
) -> WindlassError:
    """With the file, the line and the column; the line itself is the evidence."""
    found = lines[error.line - 1].strip() if 0 < error.line <= len(lines) else ""
    evidence = f"line {error.line} is: {shorten(found, SHOWN)}" if found else ""
    return WindlassError(INPUT_ERROR, str(error), evidence=evidence, remedies=(remedy,))
