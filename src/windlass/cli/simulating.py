"""What ``windlass sim run`` reads, and how it plays: files and options → jobs, policies, a cluster → figures.

Whatever is wrong with a trace ends in a :class:`WindlassError` with exit status 65, which names the file, the
line and the column.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from windlass.api.errors import WindlassError
from windlass.cli.invocation import Invocation
from windlass.cli.progress import progress
from windlass.cli.tables import shorten
from windlass.cli.words import plural
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
from windlass.sim.waitbound import least_mean_queue
from windlass.spi.objects import Node

INPUT_ERROR = "WL-INPUT-465"
_LIKE_A_FILE = re.compile(r"/|\.csv|\.gz")
_Found = TypeVar("_Found")
SHOWN = 100
"""Cells of a wrong line that are shown."""


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
    except EOFError as error:
        raise WindlassError(INPUT_ERROR, f"{name} is cut short: its gzip has no end") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise WindlassError(INPUT_ERROR, f"{name} is damaged gzip", evidence=str(error)) from error
    except UnicodeDecodeError as error:
        raise WindlassError(INPUT_ERROR, f"{name} is not text in UTF-8", evidence=str(error)) from error
    except OSError as error:
        raise WindlassError("WL-USE-400", f"{name} cannot be read", evidence=error.strerror or "") from error


def read_table(
    name: str, reader: Callable[[Sequence[str], str], _Found], remedy: str = "windlass sim formats"
) -> _Found:
    """What a reader makes of a file. Raises :class:`WindlassError`."""
    lines = read_lines(name)
    try:
        return reader(lines, name)
    except TraceError as error:
        raise wrong_trace(error, lines, remedy) from error


def read_trace(name: str, form: str = "") -> list[TraceJob]:
    """The jobs of a trace. Raises :class:`WindlassError`."""
    return read_table(name, lambda lines, file: formats.read(lines, file, form))


def put_together(jobs: list[TraceJob], text: str) -> list[TraceJob]:
    """Jobs of one AI model in batches of that length; as they are for an empty one. Raises :class:`WindlassError`."""
    if not text:
        return jobs
    try:
        return batches(jobs, _seconds_of(text))
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim run --help",)) from None


def wrong_trace(
    error: TraceError, lines: Sequence[str] = (), remedy: str = "windlass sim formats"
) -> WindlassError:
    """With the file, the line and the column; the line itself is the evidence."""
    found = lines[error.line - 1].strip() if 0 < error.line <= len(lines) else ""
    evidence = f"line {error.line} is: {shorten(found, SHOWN)}" if found else ""
    return WindlassError(INPUT_ERROR, str(error), evidence=evidence, remedies=(remedy,))


def chosen_policies(given: Sequence[str], run_times: str = "", *, both: bool = False) -> list[Policy]:
    """The policies of ``--policy``, by comma or repeated; those that go by run times, by each kind of ``run_times``
    (by comma; empty: by the truth, as they are); with ``both``, those that share time also as if nobody had agreed.
    Raises :class:`WindlassError`."""
    names, kinds = _parts(given), _parts([run_times])
    _check("policy", names, POLICIES, "windlass sim policies")
    _check("kind of run times", kinds, RUN_TIMES, "windlass sim run --help")
    if not names:
        raise WindlassError(
            "WL-USE-400", "--policy names no policy", evidence="policy: " + ", ".join(POLICIES)
        )
    chosen = [POLICIES[name] for name in names]
    if kinds:
        chosen = [made for one in chosen for made in dict.fromkeys(one.by(kind) for kind in kinds)]
    if both:
        chosen = [made for one in chosen for made in ([one, one.unshared()] if one.shares else [one])]
    return chosen


def _parts(given: Iterable[str]) -> list[str]:
    """By comma or repeated, each once."""
    return list(dict.fromkeys(part.strip() for text in given for part in text.split(",") if part.strip()))


def _check(what: str, names: Iterable[str], known: Iterable[str], remedy: str) -> None:
    for name in names:
        if name not in known:
            raise WindlassError(
                "WL-USE-400",
                f'there is no {what} "{name}"',
                evidence=f"{what}: {', '.join(known)}",
                remedies=(remedy,),
            )


def check_format(name: str | None) -> None:
    """Raises :class:`WindlassError` for a format that there is not."""
    _check("format", [name] if name else [], formats.FORMATS, "windlass sim formats")


# ---------------------------------------------------------------------- running


@dataclass(frozen=True, slots=True)
class Setup:
    """The cluster and how jobs run on it. ``said``: the same for people. ``power``: the speeds of all cards in sum;
    ``fastest``: of one."""

    nodes: Sequence[Node]
    options: Options
    said: str
    power: float
    fastest: float


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
        time_share=given["time_share"] != "no",
        queues=given["by_queue"],
    )
    said = f"{given['nodes']}; a restart costs {effort.restart} s; seed {given['seed']}"
    said += "" if options.time_share else "; no time-sharing"
    speeds = [(cluster.gpus_of(node), effort.speeds.get(cluster.model_of(node), 1.0)) for node in nodes]
    power = sum(cards * speed for cards, speed in speeds)
    return Setup(nodes, options, said, power, max((speed for _, speed in speeds), default=1.0))


def read_nodes(text: str) -> Sequence[Node]:
    """Of shapes, or of the file that has this name. Raises ``ValueError`` or :class:`WindlassError`."""
    if not Path(text).is_file() and not _LIKE_A_FILE.search(text):
        return cluster.make_nodes(cluster.parse(text))
    return cluster.make_nodes(
        [
            cluster.NodeShape(1, host.gpus, host.model, host.cpu_milli, host.memory_mib * openb.MIB)
            for host in read_table(text, openb.read_nodes, "windlass sim run --help")
        ]
    )


def _seconds_of(text: str) -> float:
    seconds = durations.parse_long(text)
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


def play_all(
    invocation: Invocation,
    jobs: Sequence[TraceJob],
    policies: Sequence[Policy],
    setup: Setup,
    look: Callable[[Metrics, Outcome], None] | None = None,
) -> list[Metrics]:
    """Every policy, with the least wait that there is. ``look`` sees each whole outcome before it goes."""
    garbage.expect_long_lives()
    least = round(least_mean_queue(jobs, setup.power, setup.fastest), 1)
    results: list[Metrics] = []
    for policy in policies:
        metrics, outcome = _play(invocation, jobs, policy, setup)
        metrics.figures["queue_bound_seconds"] = least
        if look is not None:
            look(metrics, outcome)
        results.append(metrics)
    return results


def _play(
    invocation: Invocation, jobs: Sequence[TraceJob], policy: Policy, setup: Setup
) -> tuple[Metrics, Outcome]:
    begun = invocation.clock.monotonic()
    with progress(invocation, policy.name, len(jobs)) as tell:
        outcome = replay(jobs, setup.nodes, policy, setup.options, tell)
    outcome.seconds = invocation.clock.monotonic() - begun
    outcome.memory_bytes = memory.peak_bytes()
    return measure(policy.name, outcome), outcome


def doubts(
    jobs: Sequence[TraceJob], policies: Sequence[Policy], setup: Setup, given: Mapping[str, Any]
) -> Iterator[str]:
    """What was asked for and changes nothing here, and jobs that can run nowhere: for people, before the work."""
    if given["run_times"] and not any(policy.oracle for policy in policies):
        yield "none of these policies goes by run times that could be chosen: --run-times changes nothing"
    if given["time_share"] == "both" and not any(policy.shares for policy in policies):
        yield "none of these policies shares time: there is but one column of each"
    if setup.options.effort.model_load_seconds and not any(job.model for job in jobs):
        yield "no job names an AI model: --model-load changes nothing"
    cards = sum(map(cluster.gpus_of, setup.nodes))
    large = sum(1 for job in jobs if (job.min_gpus or job.gpus) > cards)
    if large:
        there = plural(cards, "GPU")
        yield f"{large} of {plural(len(jobs), 'job')} can never run: they need more than the {there} there are"


def drawn(jobs: int, days: float, median: str, seed: int) -> str:
    """A trace of the project's own as text. Raises :class:`WindlassError`."""
    try:
        profile = Profile(jobs=jobs, days=days, median_seconds=_seconds_of(median))
        return "".join(table.write(generate(profile, seed)))
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim generate --help",)) from None
