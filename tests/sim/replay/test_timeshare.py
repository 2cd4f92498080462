"""Time-sharing through whole replays: it ends, it touches nobody who did not agree, and it is worth it."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.groups.entries import GroupEntry, NextTasks
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.state.statement import Statement
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay import metrics
from windlass.sim.replay.failures import NodeFailures
from windlass.sim.replay.job_progress import Effort, RestartCost
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import ReplayOptions, replay
from windlass.sim.synthetic import Profile, generate
from windlass.sim.traces import formats

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces"
COST = RestartCost(7, 30, 60)
SHARING = ("windlass", "las", "srtf", "srsf", "predicted")


def jobs_of(draw: st.DrawFn) -> list[TraceJob]:
    count = draw(st.integers(2, 16))
    found, at = [], 0.0
    for number in range(count):
        at += draw(st.sampled_from((0.0, 30.0, 400.0, 2000.0)))
        found.append(
            TraceJob(
                str(number),
                at,
                draw(st.sampled_from((10.0, 300.0, 1500.0, 9000.0, 50_000.0))),
                draw(st.sampled_from((1, 1, 2, 4, 6, 8))),
                time_share=draw(st.booleans()),
            )
        )
    return found


workloads = st.composite(jobs_of)()


def played(jobs: list[TraceJob], policy: str, cost: RestartCost = COST, shape: str = "2x4") -> ReplayOutcome:
    nodes = make_nodes(parse(shape))
    return replay(jobs, nodes, POLICIES[policy], ReplayOptions(effort=Effort(restart=cost), timeline=False))


@settings(max_examples=25, deadline=None)
@given(workloads, st.sampled_from(SHARING))
def test_all_ends_nobody_else_is_touched_and_the_same_happens_again(
    jobs: list[TraceJob], policy: str
) -> None:
    outcome = played(jobs, policy)
    assert all(one.ended is not None for one in outcome.jobs)
    for one in outcome.jobs:
        assert one.job.time_share or one.preemptions == 0
        assert one.failed_starts == 0
    assert outcome.partial_gang_gpu_seconds == 0
    again = played(jobs, policy)
    assert [(a.started, a.ended, a.preemptions) for a in outcome.jobs] == [
        (b.started, b.ended, b.preemptions) for b in again.jobs
    ]


@settings(max_examples=25, deadline=None)
@given(workloads)
def test_suspensions_are_bounded_by_arrivals_and_ranks(jobs: list[TraceJob]) -> None:
    """A job claims when it comes and when ranks have changed; of those each has a dozen in its life, and a claim
    stops no more groups than the cluster has cards."""
    outcome = played(jobs, "windlass")
    ranks = len(jobs) * 12
    assert sum(one.preemptions for one in outcome.jobs) <= ranks * 8


@settings(max_examples=10, deadline=None)
@given(workloads)
def test_without_consent_it_is_plain_backfill(jobs: list[TraceJob]) -> None:
    firm = [TraceJob(j.id, j.submit_seconds, j.duration_seconds, j.gpus, time_share=False) for j in jobs]
    shared, plain = played(firm, "windlass"), played(firm, "fifo-backfill")
    assert [(a.started, a.ended) for a in shared.jobs] == [(b.started, b.ended) for b in plain.jobs]


@settings(max_examples=15, deadline=None)
@given(workloads)
def test_nobody_is_suspended_where_a_restart_costs_more_than_anything_is_worth(jobs: list[TraceJob]) -> None:
    outcome = played(jobs, "windlass", RestartCost.parse("1e9"))
    assert sum(one.preemptions for one in outcome.jobs) == 0


def generated(seed: int, policy: str, effort: Effort, **more: Any) -> dict[str, Any]:
    """A day of jobs of which more is asked for than there is, as ``sim generate`` draws them."""
    jobs = generate(Profile(jobs=1500, days=1.0, median_seconds=600.0), seed)
    options = ReplayOptions(effort=effort, timeline=False, **more)
    outcome = replay(jobs, make_nodes(parse("4xH100:8,6xV100:4")), POLICIES[policy], options)
    return metrics.measure(policy, outcome).figures


@pytest.mark.parametrize(
    ("effort", "more", "part", "lost"),
    [
        (Effort(checkpoint_seconds=1800.0), {}, 0.6, 0.15),
        (Effort(checkpoint_seconds=None), {}, 0.9, 0.15),
        (Effort(RestartCost.parse("600")), {}, 0.6, 0.15),
        (
            Effort(checkpoint_seconds=1800.0, speeds={"V100": 0.5}),
            {"failures": NodeFailures(360_000.0, 14_400.0), "queues": True},
            0.8,
            0.15,
        ),
    ],
    ids=["checkpoints of half an hour", "nothing saved", "restarts of ten minutes", "all at once"],
)
def test_time_sharing_is_worth_what_it_loses(
    effort: Effort, more: dict[str, Any], part: float, lost: float
) -> None:
    """Against backfill, which suspends nobody: the mean wait over several traces is at most this part of its. (Before
    a suspension had to be worth what it loses it was 1.7 times as long where nothing is saved.)"""
    ours = [generated(seed, "windlass", effort, **more) for seed in (1, 2)]
    plain = [generated(seed, "fifo-backfill", effort, **more) for seed in (1, 2)]
    assert waits(ours) <= part * waits(plain)
    assert all(f["lost_gpu_seconds"] <= lost * 3600.0 * f["gpu_hours"] for f in ours)


def waits(figures: list[dict[str, Any]]) -> float:
    return sum(one["queue_seconds"]["mean"] for one in figures)


def test_who_was_only_just_started_makes_way_as_soon_as_that_is_known() -> None:
    """By hand, on one node of eight, the shortest remaining time first. c stops a and b as it comes, d stops c; a runs
    beside d, b does not fit. As d ends, b is started where four are free, and stopped with a at the same moment, as
    c has least left: it does not wait for whatever happens next."""
    jobs = [
        TraceJob("a", 0.0, 10_000.0, 4),
        TraceJob("b", 1000.0, 10_000.0, 4),
        TraceJob("c", 2000.0, 5000.0, 8),
        TraceJob("d", 3000.0, 1000.0, 1),
    ]
    outcome = played(jobs, "srtf", RestartCost(), "1x8")
    assert [one.ended for one in outcome.jobs] == [15_000.0, 17_000.0, 8000.0, 4000.0]
    assert [one.preemptions for one in outcome.jobs] == [2, 2, 1, 0]


# ---------------------------------------------------------------------- published traces


@cache
@pytest.mark.parametrize("policy", ["windlass", "srtf"])
def test_one_task_is_promised_room_without_ceremony_where_it_would_be_with_it(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    promise_at, promised = GangAllocator.nominate_at, list[int]()

    def both(self: GangAllocator, statement: Statement, group: GroupEntry, step: NextTasks, row: int) -> bool:
        mark = statement.checkpoint()
        attempt = self.try_group(statement, group, step, future=True)
        there = statement.placements(mark)
        statement.rollback(mark)
        done = promise_at(self, statement, group, step, row)
        if done:
            assert attempt.done
            assert attempt.pipelined
            assert statement.placements(mark) == there
            promised.append(row)
        return done

    monkeypatch.setattr(GangAllocator, "nominate_at", both)
    played(generate(Profile(jobs=150, days=0.1), seed=3), policy, shape="3x8")
    assert len(promised) > 20


def trace(name: str) -> list[TraceJob]:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"needs {name} of ../shared/traces")
    with gzip.open(path, "rt") as lines:
        return formats.read(lines.read().splitlines(), name)


def completion(jobs: list[TraceJob], policy: str, cost: RestartCost) -> float:
    figures = metrics.measure(policy, played(jobs, policy, cost, "8x8")).figures
    return figures["completion_seconds"]["mean"]


@cache
def backfilled(name: str) -> float:
    """Nobody is stopped, so what a restart costs does not matter."""
    return completion(trace(f"muri/{name}.csv.gz"), "fifo-backfill", RestartCost())


@pytest.mark.parametrize(
    ("name", "tiresias", "cost"),
    [("trace1", 3_330_371, COST), ("trace3", 347_213, COST), ("trace3", 347_213, RestartCost())],
)
def test_muri_s_traces_end_sooner_than_published_without_knowing_run_times(
    name: str, tiresias: int, cost: RestartCost
) -> None:
    jobs = trace(f"muri/{name}.csv.gz")
    ours = completion(jobs, "windlass", cost)
    assert ours <= 1.1 * tiresias
    assert ours <= 0.7 * backfilled(name)


@pytest.mark.parametrize(("name", "published"), [("trace1", 980_141), ("trace3", 185_022)])
def test_the_oracle_comes_out_as_published(name: str, published: int) -> None:
    assert completion(trace(f"muri/{name}.csv.gz"), "srsf", RestartCost()) == pytest.approx(
        published, rel=0.07
    )
