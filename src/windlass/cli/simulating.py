"""What ``windlass sim run`` reads and prints: files → jobs, outcomes → a table, a document or CSV.

Whatever is wrong with a trace ends in a :class:`WindlassError` with exit status 65, which names the file, the
line and the column.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from windlass.api.errors import WindlassError
from windlass.cli import tables
from windlass.cli.invocation import Invocation
from windlass.kits import durations, garbage, memory
from windlass.sim import cluster
from windlass.sim.batches import batches
from windlass.sim.estimates import RUN_TIMES
from windlass.sim.failures import NodeFailures
from windlass.sim.jobs import TraceJob
from windlass.sim.metrics import Metrics, measure
from windlass.sim.outcome import Outcome
from windlass.sim.policies import POLICIES, Policy
from windlass.sim.progress import Effort, RestartCost
from windlass.sim.replay import Options, replay
from windlass.sim.synthetic import Profile, generate
from windlass.sim.traces import formats, openb, table
from windlass.sim.traces.rows import TraceError
from windlass.spi.objects import Node

INPUT_ERROR = "WL-INPUT-465"


def read_lines(name: str) -> list[str]:
    """The lines of a text file, packed by gzip or not. Raises :class:`WindlassError`."""
    path = Path(name)
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        if packed:
            with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
                return lines.read().splitlines(keepends=True)
        return path.read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        raise WindlassError(
            "WL-USE-400", f"{name} does not exist", evidence=f"looked in {Path.cwd()}"
        ) from None
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise WindlassError(INPUT_ERROR, f"{name} is not text in UTF-8", evidence=str(error)) from error
    except OSError as error:
        raise WindlassError("WL-USE-400", f"{name} cannot be read", evidence=error.strerror or "") from error


def read_trace(name: str, form: str = "") -> list[TraceJob]:
    """The jobs of a trace. Raises :class:`WindlassError`."""
    lines = read_lines(name)
    try:
        return formats.read(lines, name, form)
    except TraceError as error:
        raise wrong_trace(error) from error


def put_together(jobs: list[TraceJob], text: str) -> list[TraceJob]:
    """Jobs of one AI model in batches of that length; as they are for an empty one. Raises :class:`WindlassError`."""
    if not text:
        return jobs
    try:
        return batches(jobs, _seconds_of(text))
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim run --help",)) from None


def wrong_trace(error: TraceError) -> WindlassError:
    """With the file, the line and the column."""
    return WindlassError(
        INPUT_ERROR,
        str(error),
        evidence=f"file {error.file}, line {error.line}, column {error.column or '-'}",
        remedies=("windlass sim formats",),
    )


def chosen_policies(given: Sequence[str], run_times: str = "") -> list[Policy]:
    """The policies of ``--policy``, by comma or repeated; those that go by run times, by each kind of ``run_times``
    (by comma; empty: by the truth, as they are). Raises :class:`WindlassError`."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    for name in names:
        if name not in POLICIES:
            raise WindlassError(
                "WL-USE-400",
                f'there is no policy "{name}"',
                evidence="policies: " + ", ".join(POLICIES),
                remedies=("windlass sim policies",),
            )
    chosen = [POLICIES[name] for name in dict.fromkeys(names)]
    kinds = list(dict.fromkeys(kind.strip() for kind in run_times.split(",") if kind.strip()))
    for kind in kinds:
        if kind not in RUN_TIMES:
            raise WindlassError(
                "WL-USE-400",
                f'there are no run times "{kind}"',
                evidence="run times: " + ", ".join(RUN_TIMES),
                remedies=("windlass sim run --help",),
            )
    if not kinds:
        return chosen
    return [made for one in chosen for made in dict.fromkeys(one.by(kind) for kind in kinds)]


def check_format(name: str | None) -> None:
    """Raises :class:`WindlassError` for a format that there is not."""
    if name and name not in formats.FORMATS:
        raise WindlassError(
            "WL-USE-400",
            f'there is no format "{name}"',
            evidence="formats: " + ", ".join(formats.FORMATS),
            remedies=("windlass sim formats",),
        )


# ---------------------------------------------------------------------- running


@dataclass(frozen=True, slots=True)
class Setup:
    """The cluster and how jobs run on it. ``said``: the same for people."""

    nodes: Sequence[Node]
    options: Options
    said: str


def setup(given: Mapping[str, Any]) -> Setup:
    """From the options of the command line. Raises :class:`WindlassError`."""
    try:
        nodes = read_nodes(given["nodes"])
        models = {cluster.model_of(node) for node in nodes}
        effort = Effort(
            restart=RestartCost.parse(given["restart_cost"]),
            checkpoint_seconds=None if given["checkpoint"] == "never" else _seconds_of(given["checkpoint"]),
            speeds=dict(_speed(text, models) for text in given["speeds"]),
            spread_slowdown=given["spread_slowdown"],
            model_load_seconds=_seconds_of(given["model_load"]),
        )
        mean = _seconds_of(given["mtbf"]) if given["mtbf"] else 0.0
        failures = NodeFailures(mean, _seconds_of(given["repair"]))
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim run --help",)) from None
    options = Options(
        effort=effort,
        failures=failures,
        pod_gpus=given["pod_gpus"],
        seed=given["seed"],
        time_share=given["time_share"],
        queues=given["by_queue"],
    )
    said = f"{given['nodes']}; a restart costs {effort.restart} s; seed {given['seed']}"
    return Setup(nodes, options, said + ("" if given["time_share"] else "; no time-sharing"))


def read_nodes(text: str) -> Sequence[Node]:
    """Of shapes, or of the file that has this name. Raises ``ValueError`` or :class:`WindlassError`."""
    if not Path(text).is_file():
        return cluster.make_nodes(cluster.parse(text))
    try:
        listed = openb.read_nodes(read_lines(text), text)
    except TraceError as error:
        raise wrong_trace(error) from error
    shapes = [
        cluster.NodeShape(1, host.gpus, host.model, host.cpu_milli, host.memory_mib * openb.MIB)
        for host in listed
    ]
    return cluster.make_nodes(shapes)


def _seconds_of(text: str) -> float:
    seconds = durations.parse(text)
    if seconds < 0:
        raise ValueError(f"{text!r} is less than nothing")
    return seconds


def _speed(text: str, models: set[str]) -> tuple[str, float]:
    model, _, factor = text.partition("=")
    try:
        speed = float(factor)
    except ValueError:
        speed = 0.0
    if not 0 < speed < inf:
        raise ValueError(f"{text!r} is no speed of a card, such as H100=2.5")
    if model not in models:
        raise ValueError(f"no node has cards {model!r}; there are {', '.join(sorted(models)) or 'none'}")
    return model, speed


def play(
    invocation: Invocation,
    jobs: Sequence[TraceJob],
    policy: Policy,
    setup: Setup,
    look: Callable[[Metrics, Outcome], None] | None = None,
) -> Metrics:
    """One policy, timed. ``look`` sees the whole outcome before it goes."""
    garbage.expect_long_lives()
    begun = invocation.clock.monotonic()
    with progress(invocation, policy.name, len(jobs)) as tell:
        outcome = replay(jobs, setup.nodes, policy, setup.options, tell)
    outcome.seconds = invocation.clock.monotonic() - begun
    outcome.memory_bytes = memory.peak_bytes()
    metrics = measure(policy.name, outcome)
    if look is not None:
        look(metrics, outcome)
    return metrics


def drawn(jobs: int, days: float, median: str, seed: int) -> str:
    """A trace of the project's own as text. Raises :class:`WindlassError`."""
    try:
        profile = Profile(jobs=jobs, days=days, median_seconds=_seconds_of(median))
        return "".join(table.write(generate(profile, seed)))
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim generate --help",)) from None


# ---------------------------------------------------------------------- progress

BAR = 24


@contextmanager
def progress(invocation: Invocation, title: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error as long as somebody watches; nothing otherwise."""
    terminal = invocation.err
    if not terminal.interactive:
        yield None
        return
    shown = -1

    def tell(done: int) -> None:
        nonlocal shown
        part = done * 100 // max(total, 1)
        if part != shown:
            shown = part
            full = part * BAR // 100
            terminal.write(f"\r{title:14} [{'#' * full}{'.' * (BAR - full)}] {part:3}%")

    try:
        yield tell
    finally:
        terminal.write("\r\x1b[K")


# ---------------------------------------------------------------------- printing

_Show = Callable[[dict[str, Any]], str]


def _time(key: str, part: str) -> _Show:
    return lambda figures: _seconds(figures[key][part])


def _seconds(value: float) -> str:
    return f"{value:,.0f}s"


_LINES: Sequence[tuple[str, _Show]] = (
    ("queue mean", _time("queue_seconds", "mean")),
    ("queue p50", _time("queue_seconds", "p50")),
    ("queue p90", _time("queue_seconds", "p90")),
    ("queue p99", _time("queue_seconds", "p99")),
    ("queue >=8 GPUs", _time("queue_seconds_ge8_gpus", "mean")),
    ("queue >=32 GPUs", _time("queue_seconds_ge32_gpus", "mean")),
    ("completion mean", _time("completion_seconds", "mean")),
    ("completion p50", _time("completion_seconds", "p50")),
    ("completion p90", _time("completion_seconds", "p90")),
    ("completion p99", _time("completion_seconds", "p99")),
    ("makespan", lambda f: _seconds(f["makespan_seconds"])),
    ("allocation", lambda f: f"{f['allocation_percent']:.1f}%"),
    ("idle while jobs wait", lambda f: f"{f['fragmented_percent']:.1f}%"),
    ("preemptions", lambda f: str(f["preemptions"])),
    ("preemptions per job", lambda f: f"{f['preemptions_per_job']:.3f}"),
    ("lost GPU-hours", lambda f: f"{f['lost_gpu_seconds'] / 3600:.1f}"),
    ("GPU-hours held", lambda f: f"{f['gpu_hours']:,.1f}"),
    ("model loads", lambda f: str(f["model_loads"])),
    ("failed gang starts", lambda f: str(f["failed_gang_starts"])),
    ("GPU-hours of partial gangs", lambda f: f"{f['partial_gang_gpu_seconds'] / 3600:.1f}"),
    ("fairness (Jain)", lambda f: f"{f['fairness_jain']:.3f}"),
    ("jobs that never ended", lambda f: str(f["unfinished_jobs"])),
    ("took", lambda f: f"{f['seconds']:.1f}s"),
    ("memory", lambda f: f"{f['memory_mib']:.0f}MiB"),
)


def side_by_side(results: Sequence[Metrics]) -> tuple[list[str], list[list[str]]]:
    """The header and the lines of a table with one column per policy."""
    header = ["", *[result.policy for result in results]]
    return header, [[title, *[show(result.figures) for result in results]] for title, show in _LINES]


def as_table(results: Sequence[Metrics]) -> str:
    """The figures side by side, one column per policy."""
    header, rows = side_by_side(results)
    return tables.render(header, rows, right=frozenset(range(1, len(header))))


def as_csv(results: Sequence[Metrics]) -> str:
    """One line per policy; nested figures as ``queue_seconds.mean``."""
    flat = [_flat(result.figures) for result in results]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(figures: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in figures.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found
