"""Files that ``windlass sim run`` writes: reports, pictures, lists of jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from errno import EACCES, EDQUOT, EISDIR, ENOSPC, ENOTDIR
from pathlib import Path
from typing import NamedTuple

from windlass.api.errors import WindlassError
from windlass.api.text_files import STDIN
from windlass.cli.invocation import Invocation
from windlass.cli.simulate import sim_tables
from windlass.cli.text import plural
from windlass.kits.files import is_stream, write_named
from windlass.kits.installation import extra_command
from windlass.sim.replay.metrics import Metrics
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.report import charts, joblist
from windlass.sim.report.page import Text, page
from windlass.sim.report.study import Study, study

_ANOTHER = "windlass sim run --report report.html --plots plots --per-job jobs.csv"


@dataclass(frozen=True, slots=True)
class WantedReports:
    """Records to keep of every replay: data for pictures, and a line per job."""

    drawn: bool = False
    listed: bool = False


class ReplayRecord(NamedTuple):
    """Records of one replay."""

    study: Study | None
    lines: Sequence[str]


def record_of(wanted: WantedReports, metrics: Metrics, outcome: ReplayOutcome, seed: int) -> ReplayRecord:
    """Return the requested records of a replay, which can be freed afterwards."""
    return ReplayRecord(
        study(metrics, outcome) if wanted.drawn else None,
        list(joblist.lines(metrics.policy, outcome, seed)) if wanted.listed else (),
    )


class Reports:
    """Files to write.

    Raises :class:`WindlassError` at once if one could not be written later.
    """

    def __init__(
        self, report: str | None, plots: str | None, per_job: str | None = None, read: Sequence[str] = ()
    ) -> None:
        """``read``: input files, none of which may be overwritten."""
        if STDIN in (report, plots, per_job):
            raise WindlassError(
                "WL-USE-400",
                "- is not a valid file name for output",
                remedies=("/dev/stdout", "./-   (for a file of this name)"),
            )
        _reject_duplicates([name for name in (report, per_job) if name], read)
        self._report = Path(report) if report else None
        self._plots = Path(plots) if plots else None
        self._per_job = Path(per_job) if per_job else None
        self._studies: list[Study] = []
        self._jobs: list[str] = []
        self._draws = self._report is not None or self._plots is not None
        self.wanted = WantedReports(self._draws, self._per_job is not None)
        if self._draws:
            _require_pictures()
        try:
            if self._plots is not None:
                if self._plots.exists() and not self._plots.is_dir():
                    raise NotADirectoryError(ENOTDIR, "it is a file, not a directory", str(self._plots))
                self._plots.mkdir(parents=True, exist_ok=True)
                _check_writable(self._plots)
            for path in (self._report, self._per_job):
                if path is not None:
                    _prepare(path)
        except OSError as error:
            raise _unwritable(str(error.filename), error) from error

    def add(self, kept: ReplayRecord) -> None:
        """Add the records of a replay, in the order of the report."""
        if kept.study is not None:
            self._studies.append(kept.study)
        self._jobs += kept.lines

    def write(
        self,
        title: str,
        about: Sequence[str],
        results: Sequence[Metrics],
        policies: Mapping[str, str],
        invocation: Invocation,
    ) -> None:
        """Write all files, each completely or not at all, and print where they are.

        ``policies``: name → summary.
        """
        pictures = charts.pictures(self._studies) if self._draws else []
        if self._plots is not None:
            for picture in pictures:
                for form in ("svg", "png"):
                    _write(self._plots / f"{picture.name}.{form}", picture.render(form))
            invocation.err.line(f"{2 * len(pictures)} pictures in {self._plots}")
        if self._report is not None:
            header, rows = sim_tables.side_by_side(results)
            text = Text(title, about, header, rows, policies, sim_tables.explained(results))
            _write(self._report, page(text, pictures))
            invocation.err.line(f"report in {self._report}")
        if self._per_job is not None:
            _write(self._per_job, "".join([joblist.header(), *self._jobs]))
            invocation.err.line(f"{plural(len(self._jobs), 'line')} in {self._per_job}")


def _reject_duplicates(written: Sequence[str], read: Sequence[str]) -> None:
    """Raise :class:`WindlassError` if one file would overwrite another, or an input."""
    taken = {os.path.realpath(name): f"it is the input file {name}" for name in read}
    for name in written:
        path = os.path.realpath(name)
        if path in taken and not is_stream(Path(name)):
            raise WindlassError(
                "WL-USE-400", f"{name} cannot be written", evidence=taken[path], remedies=(_ANOTHER,)
            )
        taken[path] = "two outputs have this name"


def _require_pictures() -> None:
    """Raise :class:`WindlassError` if pictures cannot be drawn."""
    try:
        charts.require()
    except charts.PlotsMissing as error:
        raise WindlassError(
            "WL-USE-400", str(error), evidence="import matplotlib", remedies=(extra_command("plots"),)
        ) from None


def _write(path: Path, what: str | bytes) -> None:
    try:
        write_named(path, what)
    except OSError as error:
        raise _unwritable(str(path), error) from error


def _unwritable(name: str, error: OSError) -> WindlassError:
    full = error.errno in (ENOSPC, EDQUOT)
    return WindlassError(
        "WL-USE-400",
        f"{name} cannot be written",
        evidence=error.strerror or "",
        remedies=(f"df -h {Path(name).parent}" if full else _ANOTHER,),
    )


def _prepare(path: Path) -> None:
    """Raise ``OSError`` if nothing can be written to this path."""
    if path.is_dir():
        raise IsADirectoryError(EISDIR, "it is a directory", str(path))
    if not is_stream(path):
        directory = Path(os.path.realpath(path)).parent
        directory.mkdir(parents=True, exist_ok=True)
        _check_writable(directory)
    elif not os.access(path, os.W_OK):
        raise PermissionError(EACCES, "it is not writable", str(path))


def _check_writable(directory: Path) -> None:
    """Raise ``OSError`` if no file can be created in a directory, before hours of work."""
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(EACCES, "no file can be created in it", str(directory))
