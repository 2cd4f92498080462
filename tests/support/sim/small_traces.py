"""Small traces for the simulator, and where the published ones lie."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.outcome import EndedJob, ReplayOutcome
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import ReplayOptions, replay
from windlass.sim.traces import formats

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces"


def job(submit: float, duration: float, gpus: int = 1, name: str = "", **rest: object) -> TraceJob:
    return TraceJob(name or f"j{submit:g}-{duration:g}-{gpus}", submit, duration, gpus, **rest)  # type: ignore[arg-type]


def play(
    jobs: Sequence[TraceJob], nodes: str = "1x8", policy: str = "fifo-backfill", **options: object
) -> ReplayOutcome:
    return replay(jobs, make_nodes(parse(nodes)), POLICIES[policy], ReplayOptions(**options))  # type: ignore[arg-type]


def started(outcome: ReplayOutcome) -> dict[str, float | None]:
    return {ended.job.id: ended.started for ended in outcome.jobs}


def ends(outcome: ReplayOutcome) -> dict[str, float | None]:
    return {ended.job.id: ended.ended for ended in outcome.jobs}


def of(outcome: ReplayOutcome, name: str) -> EndedJob:
    return next(ended for ended in outcome.jobs if ended.job.id == name)


def published(name: str) -> list[TraceJob]:
    """A published trace; the test is skipped where it is not there."""
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"the published trace {name} is not here")
    with gzip.open(path, "rt", newline="") as lines:
        return formats.read(list(lines), name)
