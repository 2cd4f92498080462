"""Who never ends: that it is seen at once, by whom, and why."""

from __future__ import annotations

import pytest
from small_traces import job, of

from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.failures import NodeFailures
from windlass.sim.replay.job_progress import Effort
from windlass.sim.replay.placements import Witness
from windlass.sim.replay.policies import POLICIES, ReplayPolicy
from windlass.sim.replay.replay import Replay, ReplayOptions
from windlass.sim.replay.termination import PATIENCE
from windlass.sim.replay.unfinished import left

FAILING = NodeFailures(36_000.0, 14_400.0)


def game(jobs: list[TraceJob], nodes: str, policy: str | ReplayPolicy, **options: object) -> Replay:
    made = POLICIES[policy] if isinstance(policy, str) else policy
    play = Replay(jobs, make_nodes(parse(nodes)), made, ReplayOptions(**options))  # type: ignore[arg-type]
    play.run()
    return play


ONE_BY_ONE = ("kube", "kube-pack", "kube1")
"""Under them a gang in part holds what it has, and is given up at last."""


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {*ONE_BY_ONE, "kube-wait"}))
def test_once_only_nodes_fail_and_come_back_it_is_over(policy: str) -> None:
    jobs = [job(0, 10, 900, "never"), job(0, 10, 8, "b", priority=1)]
    play = game(jobs, "10x8", policy, failures=FAILING)
    assert of(play.outcome, "never").ended is None
    assert len(play.outcome.moments) < 30


@pytest.mark.parametrize("policy", ["fifo", "default", "windlass", "easy", "volcano-like"])
def test_who_needs_nodes_that_are_away_waits_for_them(policy: str) -> None:
    """All of three nodes, one of which is away for most of the time."""
    play = game([job(0, 600, 24, "all")], "3x8", policy, failures=NodeFailures(7200.0, 14_400.0), seed=2)
    assert of(play.outcome, "all").ended is not None


@pytest.mark.parametrize("policy", ["default", "windlass", "predicted"])
def test_without_failures_too_it_is_over_soon(policy: str) -> None:
    """Though the engine wants to be asked again and again."""
    play = game([job(0, 10, 900, "never")], "10x8", policy)
    assert len(play.outcome.moments) < PATIENCE / 10


def test_whether_somebody_would_start_is_tried_where_nobody_watches() -> None:
    witness = Witness("all")
    play = game(
        [job(0, 600, 24, "all")],
        "3x8",
        witness.over(POLICIES["fifo"]),
        failures=NodeFailures(7200.0, 14_400.0),
        seed=2,
    )
    assert len(witness.seen) == 1 + of(play.outcome, "all").failures


def test_gangs_larger_than_their_queues_shares_never_run_where_volcano_divides() -> None:
    """Each queue is due four of eight GPUs as long as the other one asks, and each gang needs all."""
    jobs = [job(0, 100, 8, "a", queue="qa"), job(0, 9, 8, "b", queue="qb"), job(2, 9, 1, "c", queue="qb")]
    one, other = left(game(jobs, "1x8", "volcano-like", queues=True))
    assert (one.job, one.queue, one.jobs, one.gpus) == ("a", "qa", 1, 8)
    assert (other.job, other.jobs) == ("b", 1)
    assert "fair share 4 of queue qa" in one.why
    assert "Volcano leaves it so, too" in one.why


def test_who_would_never_run_is_told_with_all_nodes_there() -> None:
    (found,) = left(game([job(0, 10, 9, "a"), job(5, 10, 9, "b")], "1x8", "fifo", failures=FAILING))
    assert (found.job, found.jobs) == ("a", 2)
    assert "all nodes have 8" in found.why


def test_pods_by_themselves_are_explained_too() -> None:
    (found,) = left(game([job(0, 10, 1, "a", gpu_models=("H100",))], "1x8", "kube"))
    assert "H100" in found.why


def test_who_was_given_up_is_told_as_such() -> None:
    options = {"failures": NodeFailures(500.0, 10.0), "seed": 3, "effort": Effort(checkpoint_seconds=None)}
    (found,) = left(game([job(0, 100_000, 8, "endless")], "1x8", "fifo", **options))
    assert (found.job, found.why[:8]) == ("endless", "given up")
    assert left(game([job(0, 10, 8)], "1x8", "fifo")) == []


@pytest.mark.parametrize("policy", ["default", "easy", "conservative"])
def test_who_can_never_run_takes_nobodys_reservation(policy: str) -> None:
    small = [job(100 * n, 4000, 2) for n in range(140)]
    large = job(8000, 500, 16, "large")
    alone = of(game([*small, large], "10x8", policy).outcome, "large").started
    beside = game([job(0, 500, 900, "never"), *small, large], "10x8", policy).outcome
    assert alone is not None
    assert alone <= 11_000
    assert of(beside, "large").started == alone
    assert of(beside, "never").started is None
