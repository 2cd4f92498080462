"""What a replay tells of run times: models of those that have ended, an engine that reserves of those that run."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from small_traces import job, started

from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.failures import Breakdowns, NodeFailures
from windlass.sim.replay.job_progress import Effort, RestartCost
from windlass.sim.replay.policies import POLICIES, PolicyContext, ReplayEngine
from windlass.sim.replay.replay import ReplayOptions, replay

RESTART = RestartCost(5, 5, 5)


def learned(
    jobs: list[TraceJob], policy: str, options: ReplayOptions, nodes: str = "1x8"
) -> dict[str, float]:
    """Job → the seconds of which a model of run times is told."""
    found: dict[str, float] = {}
    plain = POLICIES[policy]

    def make(setting: PolicyContext) -> ReplayEngine:
        return replace(plain.make(setting), ended=lambda _, one, seconds: found.__setitem__(one.id, seconds))

    replay(jobs, make_nodes(parse(nodes)), replace(plain, make=make), options)
    return found


def once(monkeypatch: pytest.MonkeyPatch, moment: float) -> None:
    """Every node fails at a moment, and never again."""
    monkeypatch.setattr(Breakdowns, "next", lambda _, name, now: moment if now < moment else inf)


@pytest.mark.parametrize("every", [0.0, 30.0, None])
def test_neither_suspensions_nor_restarts_nor_lost_work_are_run_time(every: float | None) -> None:
    """``a`` is stopped at 50 for ``b`` and runs on, or anew, from 70: as on a cluster it ran for a hundred seconds."""
    options = ReplayOptions(Effort(RESTART, every))
    assert learned([job(0, 100, 8, "a"), job(50, 20, 8, "b")], "srtf", options) == {"a": 100.0, "b": 20.0}


@pytest.mark.parametrize("every", [0.0, 30.0, None])
def test_what_a_failed_node_took_is_no_run_time(every: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    once(monkeypatch, 50.0)
    options = ReplayOptions(Effort(RESTART, every, {"V100": 0.5}), NodeFailures(1.0, 300.0))
    assert learned([job(0, 100, 8, "a")], "fifo-backfill", options, "1xV100:8") == {"a": 200.0}


FAST = [job(0, 200, 4, "a"), job(1, 20, 6, "b"), job(2, 197, 4, "c"), job(3, 190, 2, "d")]
"""On eight cards twice as fast: ``b`` is due 100, when ``a`` ends. ``c`` would run until 100.5, ``d`` until 98."""


def test_an_oracle_knows_how_long_work_takes_on_the_cards_that_there_are() -> None:
    made = replay(
        FAST, make_nodes(parse("1xH100:8")), POLICIES["easy"], ReplayOptions(Effort(speeds={"H100": 2.0}))
    )
    assert started(made) == {"a": 0, "b": 100, "c": 110, "d": 3}


def test_an_oracle_knows_what_is_left_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node is away from 90 to 100. ``a`` has ten seconds left then and a restart of five before it, so ``b`` is due
    115; ``c`` would be over at 120, ``d`` is at 113. By its whole length ``a`` would end at 200 only."""
    once(monkeypatch, 90.0)
    jobs = [job(0, 100, 4, "a"), job(91, 20, 6, "b"), job(92, 20, 4, "c"), job(93, 13, 4, "d")]
    options = ReplayOptions(Effort(RESTART), NodeFailures(1.0, 10.0))
    made = replay(jobs, make_nodes(parse("1x8")), POLICIES["easy"], options)
    assert started(made) == {"a": 0, "b": 115, "c": 135, "d": 100}


def test_an_oracle_reckons_with_the_slowest_cards_until_it_knows_which_they_are() -> None:
    """``b`` needs both nodes and is due 100, when ``a`` ends on the slow one. Beside it there is room for ``c``, whose
    minute of work would be over at 122 there, and for ``d``, which is at 93."""
    jobs = [job(0, 50, 4, "a", gpu_models=("slow",)), job(0, 60, 8, "x", gpu_models=("fast",))]
    jobs += [job(1, 10, 16, "b"), job(2, 60, 4, "c"), job(3, 45, 4, "d")]
    options = ReplayOptions(Effort(speeds={"slow": 0.5}))
    made = replay(jobs, make_nodes(parse("1xfast:8,1xslow:8")), POLICIES["easy"], options)
    assert (started(made)["b"], started(made)["d"]) == (100, 3)
