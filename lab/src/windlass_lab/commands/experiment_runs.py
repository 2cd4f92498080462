"""Input and output of ``windlass sim claims``: a directory of traces → experiments → table, document or page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.api.errors import WindlassError
from windlass.cli import tables
from windlass.cli.invocation import Invocation
from windlass.cli.output.progress import progress, until_interrupted
from windlass.cli.simulate.trace_files import read_lines, trace_error
from windlass.cli.text import plural
from windlass.kits import gc_tuning
from windlass.kits.clock import ProcessorClock, SystemClock
from windlass.kits.process_pool import map_in_processes
from windlass.sim.traces.rows import TraceError
from windlass_lab.experiments import generated_traces, requirement_numbers
from windlass_lab.experiments.claim import Experiment, ExperimentResult
from windlass_lab.experiments.lab import Lab, Tell
from windlass_lab.experiments.registry import EXPERIMENTS, attempt
from windlass_lab.experiments.report import sides


@dataclass(frozen=True, slots=True)
class ExperimentWork:
    """One experiment for a process of its own."""

    folder: str | None
    id: str


def chosen(given: Sequence[str]) -> list[Experiment]:
    """The experiments that are asked for, by their own names or by the numbers of claims; all for none. Raises
    :class:`WindlassError`."""
    names = [name.strip().upper() for text in given for name in text.split(",") if name.strip()]
    if given and not names:
        raise WindlassError("WL-USE-400", "no experiment is named", remedies=("windlass sim claims E2 E5",))
    asked = {experiment for name in names for experiment in _tried(name)}
    return [tried for key, tried in EXPERIMENTS.items() if not names or key in asked]


def _tried(name: str) -> tuple[str, ...]:
    """The experiments that a name means. Raises :class:`WindlassError`."""
    if name in EXPERIMENTS:
        return (name,)
    if name in requirement_numbers.TRIED:
        return requirement_numbers.TRIED[name]
    if name in requirement_numbers.UNTRIED:
        raise WindlassError(
            "WL-USE-400",
            f"no experiment can try {name}",
            evidence=requirement_numbers.UNTRIED[name],
            remedies=("windlass sim claims, for what can be tried",),
        )
    raise WindlassError(
        "WL-USE-400",
        f'there is no experiment "{name}"',
        evidence=f"experiments: {', '.join(EXPERIMENTS)}; claims: {', '.join(requirement_numbers.TRIED)}",
        remedies=("windlass sim claims E2 E5",),
    )


def check_folder(folder: str | None) -> None:
    """Raise :class:`WindlassError` for a directory that does not exist. None: generated traces."""
    if folder is not None and not Path(folder).is_dir():
        raise WindlassError(
            "WL-USE-400",
            f"{folder} is not a directory",
            evidence=f"looked in {Path.cwd()}",
            remedies=("windlass sim claims   (with generated traces)", "windlass sim claims --traces DIR"),
        )


def missing(folder: str | None, tried: Experiment) -> tuple[str, ...]:
    """Return the traces of an experiment that the directory does not have; generated ones are always there."""
    if folder is None:
        return ()
    return tuple(name for name in tried.files if not (Path(folder) / name).is_file())


def check_all_run(folder: str | None, results: Sequence[ExperimentResult]) -> None:
    """Raise :class:`WindlassError` if an experiment was not run, since its traces are missing."""
    absent = [result for result in results if result.answer is None]
    if not absent:
        return
    ids = [result.experiment.id for result in absent]
    names = dict.fromkeys(name for result in absent for name in result.missing)
    raise WindlassError(
        "WL-USE-400",
        f"{len(absent)} of {plural(len(results), 'experiment')} not run: {', '.join(ids)}",
        evidence=f"{folder} does not contain {', '.join(names)}",
        remedies=(
            f"windlass sim claims {' '.join(ids)}   (with small generated traces)",
            "windlass sim claims --traces DIR   (a directory with these files)",
        ),
    )


def laboratory(folder: str | None, *, brief: bool = False) -> Lab:
    """Return a laboratory with the traces of a directory, or with generated ones."""
    gc_tuning.tune_for_long_lived_objects()

    def read(name: str) -> Sequence[str]:
        return generated_traces.lines(name) if folder is None else read_lines(str(Path(folder) / name))

    return Lab(read, SystemClock(), brief=brief, processor=ProcessorClock())


def one(tried: Experiment, lab: Lab, folder: str | None) -> ExperimentResult:
    """One experiment. Raises :class:`WindlassError`."""
    try:
        return attempt(tried, lab, missing(folder, tried))
    except TraceError as error:
        raise trace_error(error) from None


def alone(work: ExperimentWork) -> ExperimentResult:
    """One experiment, in a process that makes nothing else."""
    return one(EXPERIMENTS[work.id], laboratory(work.folder), work.folder)


def run(
    invocation: Invocation, folder: str | None, experiments: Sequence[Experiment], jobs: int
) -> list[ExperimentResult]:
    """All of them, or what Ctrl-C left; says on standard error how far it is. Raises :class:`WindlassError`."""
    results = until_interrupted(_told(invocation, folder, experiments, jobs))
    done = {result.experiment.id: result for result in results}
    return [done[tried.id] for tried in experiments if tried.id in done]


def _told(
    invocation: Invocation, folder: str | None, experiments: Sequence[Experiment], jobs: int
) -> Iterator[ExperimentResult]:
    for number, result in enumerate(_each(invocation, folder, experiments, jobs), 1):
        told = f"{result.experiment.id}: {result.verdict}, {result.seconds:.0f} s"
        invocation.err.line(f"{number}/{len(experiments)} {told}")
        yield result


def _each(
    invocation: Invocation, folder: str | None, experiments: Sequence[Experiment], jobs: int
) -> Iterator[ExperimentResult]:
    if jobs > 1:
        for _, result in map_in_processes(
            alone, [ExperimentWork(folder, tried.id) for tried in experiments], jobs
        ):
            yield result
        return
    lab = laboratory(folder)
    for tried in experiments:
        with _bars(invocation, tried.id) as lab.tell:
            result = one(tried, lab, folder)
        yield result


@contextmanager
def _bars(invocation: Invocation, title: str) -> Iterator[Tell]:
    """Show a progress bar for each part of an experiment in turn, on a terminal."""
    with ExitStack() as stack:
        shown: dict[str, Callable[[int], None] | None] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in shown:
                stack.close()
                shown.clear()
                shown[what] = stack.enter_context(progress(invocation, f"{title} {what}", total))
            bar = shown[what]
            if bar is not None:
                bar(done)

        yield tell


# ---------------------------------------------------------------------- printing


def as_table(results: Sequence[ExperimentResult], folder: str | None) -> str:
    """Return the claims, then one line per figure, then the goals, each reached or not reached."""
    claims: list[list[str]] = []
    rows: list[list[str]] = []
    goals: list[list[str]] = []
    for result in results:
        tried = result.document
        source = "none" if not tried["traces"] else folder or generated_traces.NAME
        claims.append([tried["id"], ",".join(tried["numbers"]), source, tried["claim"]])
        head = [tried["id"], result.verdict]
        if result.answer is None:
            rows.append([*head, "not found: " + ", ".join(result.missing), "", ""])
            continue
        for figure in tried["figures"]:
            rows.append([*head, figure["name"], *sides(figure)])
            head = ["", ""]
        goals += [
            [tried["id"], "reached" if goal["met"] else "not reached", goal["goal"]]
            for goal in tried["goals"]
        ]
        if tried["note"]:
            goals.append([tried["id"], "note", tried["note"]])
    parts = [
        tables.render(["ID", "NUMBERS", "TRACES", "CLAIM"], claims),
        tables.render(["ID", "VERDICT", "FIGURE", "BASELINE", "WINDLASS"], rows, right=frozenset((3, 4))),
        *([tables.render(["ID", "RESULT", "GOAL"], goals)] if goals else []),
    ]
    return "\n".join(parts)


def document(results: Sequence[ExperimentResult], folder: str | None) -> dict[str, Any]:
    """Return the document of ``-o json``. ``source``: directory of the traces, or how they were made."""
    source = folder or generated_traces.NAME
    return {"source": source, "claims": [result.document for result in results]}
