"""Trace files, plain or gzipped, or standard input, with precise errors.

An error raises a :class:`WindlassError` with the file, the line and the column. The
exit status is 2 for an unreadable file, and 65 for invalid contents.
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
from windlass.cli.tables import shorten
from windlass.cli.text import plural
from windlass.kits.timestamps import rfc3339
from windlass.sim.jobs import TraceJob
from windlass.sim.traces import formats, swf
from windlass.sim.traces.recording import Recording
from windlass.sim.traces.rows import TraceError

INPUT_ERROR = "WL-INPUT-465"
SWF = "swf"
_CODES = FileCodes(no_text=INPUT_ERROR)
MAX_SHOWN_CELLS = 100
"""Maximum width of a wrong line that is shown, in cells."""
_GZIP = b"\x1f\x8b"
_UNSUPPORTED: Mapping[bytes, tuple[str, str]] = {
    b"PK\x03\x04": ("a zip archive", "unzip {name}"),
    b"BZh": ("compressed by bzip2", "bunzip2 -k {name}"),
    b"\xfd7zXZ\x00": ("compressed by xz", "unxz -k {name}"),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "unzstd {name}"),
}
"""First bytes of files with unsupported compression → name of the format, command to unpack.
"""
_TAR, _TAR_AT = b"ustar", 257
_LIKE_A_FILE = re.compile(r"/|\.csv|\.gz")
_Found = TypeVar("_Found")


def read_lines(name: str) -> list[str]:
    """Return the lines of a text file, or of standard input for ``-``.

    Raises :class:`WindlassError`.
    """
    source = words_of(name)
    raw = _raw(name)
    try:
        text = gzip.decompress(raw) if raw.startswith(_GZIP) else raw
        _reject_archives(name, text)
        return text.decode("utf-8-sig").splitlines(keepends=True)  # Windows writes a byte order mark
    except EOFError as error:
        raise WindlassError(
            INPUT_ERROR,
            f"{source} is truncated: the gzip data has no end",
            evidence=f"it has {len(raw)} bytes",
            remedies=(f"gzip -t {name}",),
        ) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise WindlassError(
            INPUT_ERROR, f"{source} is damaged gzip", evidence=str(error), remedies=(f"gzip -t {name}",)
        ) from error
    except UnicodeDecodeError as error:
        raise WindlassError(
            INPUT_ERROR,
            f"{source} is not text in UTF-8",
            evidence=str(error),
            remedies=(f"file {name}", f"iconv -f {_encoding(raw)} -t utf-8 {name}"),
        ) from error


def _encoding(raw: bytes) -> str:
    """Return the probable encoding of a text that is not UTF-8, as ``iconv`` names it.

    Spreadsheets and shells of Windows write UTF-16 with a byte order mark.
    """
    return "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "latin1"


def _reject_archives(name: str, text: bytes) -> None:
    """Raise :class:`WindlassError` for a file that must be unpacked first."""
    kind, unpack = next((found for begin, found in _UNSUPPORTED.items() if text.startswith(begin)), ("", ""))
    if text.startswith(_TAR, _TAR_AT):
        kind, unpack = "a tar archive", "tar -xf {name}"
    if kind:
        raise WindlassError(
            INPUT_ERROR,
            f"{words_of(name)} is {kind}: a trace is one text file, plain or gzipped",
            remedies=(unpack.format(name=name),),
        )


def _raw(name: str) -> bytes:
    """Return all bytes, read once, as a pipe can be read only once."""
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
    """Return the result of ``reader`` for a file. Raises :class:`WindlassError`."""
    lines = read_lines(name)
    try:
        return reader(lines, words_of(name))
    except TraceError as error:
        raise trace_error(error, lines, remedy) from error


def read_trace(
    name: str, form: str = "", note: Callable[[str], None] = lambda _: None, procs_per_gpu: int = 0
) -> list[TraceJob]:
    """Return the jobs of a trace. Raises :class:`WindlassError`.

    :param note: receives what is omitted, and what the file says of the machine
    :param procs_per_gpu: number of processors that count as one GPU in logs of
        processors (0: 1)
    """

    def reader(lines: Sequence[str], file: str) -> list[TraceJob]:
        found = formats.form_of(lines, file, form)
        if found.name == SWF:
            return _of_processors(lines, file, note, procs_per_gpu or 1)
        if procs_per_gpu:
            raise WindlassError(
                "WL-USE-400",
                f"--procs-per-gpu is only for logs of processors ({SWF}), but {file} counts GPUs",
                evidence=f"its format is {found.name}",
                remedies=("omit --procs-per-gpu", "windlass sim formats"),
            )
        if found.record is not None:
            return _of_history(found.record(lines, file), file, note)
        jobs = formats.some(found.read(lines, file), file)
        _note_duplicates(jobs, file, note)
        if others := formats.beside(lines, len(jobs), found):
            note(f"omitted: {plural(others, 'row')} of {file} without a job that ran and ended")
        return jobs

    return read_table(name, reader)


def _of_history(recording: Recording, file: str, note: Callable[[str], None]) -> list[TraceJob]:
    """Return the jobs of a recording.

    Raises :class:`~windlass.sim.traces.rows.TraceError`.
    """
    jobs = formats.some(list(recording.jobs), file)
    for line in recording_warnings(recording):
        note(line)
    return jobs


def _note_duplicates(jobs: Sequence[TraceJob], file: str, note: Callable[[str], None]) -> None:
    """Note jobs with equal ids.

    Each is simulated, but the output does not tell them apart.
    """
    duplicates = {name: count for name, count in Counter(job.id for job in jobs).items() if count > 1}
    if duplicates:
        name, count = next(iter(duplicates.items()))
        more = (
            f" (and duplicates of {plural(len(duplicates) - 1, 'other id')})" if len(duplicates) > 1 else ""
        )
        note(f'{file} has {count} jobs with id "{name}"{more}; each is simulated')


def _of_processors(
    lines: Sequence[str], file: str, note: Callable[[str], None], procs_per_gpu: int
) -> list[TraceJob]:
    """Return the jobs of a log of processors.

    Raises :class:`~windlass.sim.traces.rows.TraceError`.
    """
    log = swf.log(lines, file)
    left = (
        (log.unknown, "without a run time, processors or a submission time"),
        (log.never_ran, "cancelled before they ran"),
        (log.unended, "without their last run"),
    )
    jobs = formats.some(swf.in_gpus(log.jobs, procs_per_gpu), file)
    each = (
        "each processor counts as one" if procs_per_gpu == 1 else f"{procs_per_gpu} processors count as one"
    )
    note(f"{file} has no GPUs: {each} (--procs-per-gpu)")
    if log.processors:
        nodes = log.nodes or log.processors
        gpus = -(-log.processors // (nodes * procs_per_gpu))
        note(f"the machine of the log had {plural(log.processors, 'processor')}: --nodes {nodes}x{gpus}")
    for count, why in left:
        if count:
            note(f"omitted: {plural(count, 'job')} {why}")
    if log.chained:
        note(
            f"{plural(log.chained, 'job')} depended on the end of another (fields 17 and 18): "
            "their submission times are used"
        )
    return jobs


def is_shapes(nodes: str) -> bool:
    """Return whether ``--nodes`` holds shapes such as ``4xH100:8`` instead of a file."""
    return not Path(nodes).is_file() and not _LIKE_A_FILE.search(nodes)


def trace_error(
    error: TraceError, lines: Sequence[str] = (), remedy: str = "windlass sim formats"
) -> WindlassError:
    """Return the error with file, line and column, and the line as evidence."""
    line = lines[error.line - 1].strip() if 0 < error.line <= len(lines) else ""
    evidence = f"line {error.line} is: {shorten(line, MAX_SHOWN_CELLS)}" if line else ""
    return WindlassError(INPUT_ERROR, str(error), evidence=evidence, remedies=(remedy,))


def recording_texts(recording: Recording, unfinished: bool = False) -> list[str]:
    """Return texts about a recording: its jobs, and what was omitted.

    ``unfinished``: jobs that have not ended were requested, too.
    """
    texts = [plural(len(recording.jobs), "job")]
    if recording.jobs:
        texts[0] += f" since {rfc3339(recording.first)}"
    if recording.unfinished:
        texts.append(f"{recording.unfinished} of them have not ended: their run time is an estimate")
    return texts + recording_warnings(recording, unfinished)


def recording_warnings(recording: Recording, unfinished: bool = False) -> list[str]:
    """Return texts about possible errors and omissions of a recording."""
    texts: list[str] = []
    if recording.made_anew:
        texts.append(
            f"{recording.made_anew} of them have pods younger than their group, as after a suspension: earlier pods"
            " are unknown, so their run times may be too short"
        )
    unended = ((recording.running, "running"), (recording.waiting, "pending"))
    left = [f"{count} {state}" for count, state in unended if count]
    if left:
        jobs = "job" if recording.running + recording.waiting == 1 else "jobs"
        why = "with unknown run times" if unfinished else "(--unfinished includes them)"
        texts.append(f"omitted: {' and '.join(left)} {jobs} {why}")
    if recording.never_ran:
        texts.append(f"omitted: {plural(recording.never_ran, 'job')} that ended without running")
    if recording.earlier:
        texts.append(f"omitted: {plural(recording.earlier, 'job')} submitted earlier")
    return texts
