"""How claims are tried: the parts of experiments, on traces small enough to reckon by hand."""

from __future__ import annotations

import gc
from collections import Counter

import pytest
from small_traces import job, play

from windlass.kits.clock import SystemClock
from windlass.kits.rng import seeded
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.replay.failures import Breakdowns, NodeFailures, Quarantine
from windlass.sim.replay.policies import ReplayPolicy
from windlass.sim.replay.replay import ReplayOptions, replay
from windlass.spi.objects import Queue
from windlass_lab.experiments import packing, registry, report
from windlass_lab.experiments.autoscaling import (
    AutoscalingState,
    Rule,
    SimulatedService,
    doubling,
    square_root,
)
from windlass_lab.experiments.claim import Experiment, ExperimentFinding, ExperimentResult, Figure, Goal, less
from windlass_lab.experiments.configured import MOVING, PREEMPTING, RECLAIMING
from windlass_lab.experiments.lab import OPENB_NODES, OPENB_PODS, Lab
from windlass_lab.experiments.large_gangs import GANGS, GPUS, PRIORITY, waits, with_gangs
from windlass_lab.experiments.pooling import apart, enough, parts, smallest, together
from windlass_lab.experiments.queue_shares import windows
from windlass_lab.experiments.shortfalls import Instant, Shortfall, instants, reason


def lab() -> Lab:
    """One that has no files."""
    return Lab(lambda name: [], SystemClock())


def test_every_experiment_says_what_it_is() -> None:
    assert list(registry.EXPERIMENTS) == [f"E{number}" for number in range(1, 18)]
    for tried in registry.EXPERIMENTS.values():
        assert tried.claim
        assert tried.caveat.endswith(".")
        assert {name.split("/")[0] for name in tried.files} <= set(report.CREDITS)


@pytest.mark.parametrize(
    ("met", "verdict"),
    [((), "measured"), ((True,), "holds"), ((True, False), "holds in part"), ((False,), "does not hold")],
)
def test_a_verdict_follows_from_the_goals(met: tuple[bool, ...], verdict: str) -> None:
    assert ExperimentFinding((), [Goal("g", one) for one in met]).verdict == verdict


def test_an_experiment_without_its_trace_is_told_as_not_run() -> None:
    tried = registry.EXPERIMENTS["E3"]
    result = registry.attempt(tried, lab(), ("muri/trace1.csv.gz",))
    assert result.verdict == "not run"
    assert "muri/trace1.csv.gz not found" in report.markdown([result.document])


def test_the_page_shows_both_sides_and_what_is_not_met() -> None:
    tried = Experiment(
        "E9", "c", "t", "n", "b", "o", "m", ("philly/x",), "A caveat.", lambda _: ExperimentFinding(())
    )
    answer = ExperimentFinding(
        (Figure("wait", 1234.56, 99.0, "s", 1), Figure("part", None, 5.0, "%")), (Goal("g", False),)
    )
    text = report.markdown([ExperimentResult(tried, answer).document])
    assert "| wait | 1,234.6 s | 99.0 s |" in text
    assert "| part | – | 5% |" in text
    assert "* **not met**: g" in text
    assert "| does not hold (0 of 1 goals); not met: g |" in text, "also of who reads the first table alone"
    assert "ATC 2019" in text, "whom the trace is owed to"
    assert "Alibaba" not in text


def test_less_is_in_percent_of_the_baseline() -> None:
    assert less(200.0, 50.0) == 75.0
    assert less(0.0, 50.0) == 0.0


# ---------------------------------------------------------------------- E1


def test_as_many_nodes_as_are_enough() -> None:
    tried: list[int] = []

    def run(nodes: int) -> dict[str, int]:
        tried.append(nodes)
        return {"nodes": nodes}

    assert enough(range(4, 20, 4), run, lambda found: found["nodes"] >= 8) == (8, {"nodes": 8})
    assert tried == [4, 8]
    assert enough(range(4, 20, 4), run, lambda found: False) == (16, {"nodes": 16})


def test_nodes_are_parted_by_work_and_the_largest_job_fits() -> None:
    jobs = [
        job(0, 100, 8, queue="a"),
        job(0, 300, 8, queue="b"),
        job(0, 1, 32, queue="c"),
    ]
    found = parts(jobs, 12)
    assert sum(found.values()) == 12
    assert found["c"] >= 4
    assert found["b"] > found["a"]


def test_the_smallest_count_is_found() -> None:
    seen: list[int] = []

    def run(count: int) -> dict[str, object]:
        seen.append(count)
        wait = 100.0 if count >= 11 else 20_000.0
        return {"queue_seconds": {"mean": wait}, "unfinished_jobs": 0, "count": count}

    count, figures = smallest(range(5, 30, 2), run)
    assert (count, figures["count"]) == (11, 11)
    assert len(seen) <= 5


def test_queues_apart_wait_where_shared_nodes_are_idle() -> None:
    jobs = [job(at * 10, 1000, 8, queue="a" if at < 4 else "b") for at in range(5)]
    parted, shared = apart(lab(), jobs, 2), together(lab(), jobs, 2)
    assert parted["jobs"] == shared["jobs"] == 5
    assert parted["unfinished_jobs"] == shared["unfinished_jobs"] == 0
    assert shared["makespan_seconds"] < parted["makespan_seconds"]


# ---------------------------------------------------------------------- E7


def test_gangs_come_at_the_same_times_again_and_stop_others() -> None:
    jobs = with_gangs([job(0, 100_000, 8, f"f{n}") for n in range(60)] + [job(90_000, 10, 1, "last")])
    again = with_gangs([job(0, 100_000, 8, f"f{n}") for n in range(60)] + [job(90_000, 10, 1, "last")])
    gangs = [one for one in jobs if one.priority == PRIORITY]
    assert len(gangs) == GANGS
    assert {one.gpus for one in gangs} == {GPUS}
    assert [one.submit_seconds for one in jobs] == [one.submit_seconds for one in again]
    outcome = replay(
        [jobs[0], *jobs[1:60], gangs[0]],
        make_nodes(parse("60x8")),
        PREEMPTING,
        ReplayOptions(timeline=False, time_share=False),
    )
    assert waits(outcome) == [90.0]
    assert sum(ended.preemptions for ended in outcome.jobs) == GPUS // 8


# ---------------------------------------------------------------------- E9


def test_a_node_that_fails_often_is_kept_away() -> None:
    rule = NodeFailures(0.0, 100.0, 1, 50.0, Quarantine(3, 1000.0, 5000.0))
    some = Breakdowns(rule, seeded(1))
    bad = some.begin(["a", "b", "c"])
    assert len(bad) == 1
    assert [some.away(bad[0], now) for now in (0.0, 500.0, 900.0, 950.0)] == [100.0, 100.0, 5000.0, 100.0]
    assert [some.away("x", now) for now in (0.0, 1500.0, 3000.0)] == [100.0, 100.0, 100.0]


def test_without_bad_nodes_all_fail_alike() -> None:
    assert Breakdowns(NodeFailures(100.0), seeded(1)).begin(["a", "b"]) == ["a", "b"]
    assert Breakdowns(NodeFailures(), seeded(1)).begin(["a", "b"]) == []


# ---------------------------------------------------------------------- E11


def test_hours_count_only_queues_that_wait_throughout() -> None:
    # One node: "a" holds 6 GPUs and "b" 2 of them for three hours; more of both waits. "c" never waits.
    jobs = [
        job(0, 10_800, 6, "a1", queue="a"),
        job(0, 10_800, 2, "b1", queue="b"),
        job(1, 100, 8, "a2", queue="a"),
        job(1, 100, 8, "b2", queue="b"),
        job(10_801, 1, 1, "c1", queue="c"),
    ]
    hours = windows(play(jobs, "1x8"), {"a": 100, "b": 50, "c": 50})
    assert [sorted(hour.due) for hour in hours] == [["a", "b"], ["a", "b"]]
    assert hours[1].had == {"a": pytest.approx(0.75), "b": pytest.approx(0.25)}
    assert hours[1].deviation == pytest.approx(100 * (0.75 - 2 / 3))
    assert hours[1].lack == 0.0
    assert hours[1].jain == pytest.approx((1.125 + 0.75) ** 2 / (2 * (1.125**2 + 0.75**2)))


def test_a_queue_lacks_what_a_job_of_it_would_have_fitted_into() -> None:
    # "a" holds 7 of 8 GPUs, "b" one of its 2.7; the job of "b" that waits fits into the rest or not.
    for size, lack in ((1, 100 * (1 / 3 - 1 / 8)), (2, 0.0)):
        jobs = [
            job(0, 10_800, 7, "a1", queue="a"),
            job(0, 10_800, 1, "b1", queue="b"),
            job(1, 100, 8, "a2", queue="a"),
            job(1, 100, size, "b2", queue="b"),
            job(10_801, 1, 1, "c1", queue="c"),
        ]
        hours = windows(play(jobs, "1x8"), {"a": 100, "b": 50, "c": 50})
        assert hours[1].deviation == pytest.approx(100 * (1 / 3 - 1 / 8))
        assert hours[1].lack == pytest.approx(lack)


def test_reclaim_gives_weights_their_part() -> None:
    jobs = [job(0, 20_000, 1, f"a{n}", queue="a") for n in range(12)]
    jobs += [job(10, 20_000, 1, f"b{n}", queue="b") for n in range(12)]
    jobs.append(job(9000, 10, 1, "late", queue="b"))
    terms = {"a": Queue("a", weight=100), "b": Queue("b", weight=300)}
    options = ReplayOptions(queues=True, terms=terms, time_share=False)
    outcome = replay(jobs, make_nodes(parse("1x8")), RECLAIMING, options)
    hours = windows(outcome, {"a": 100, "b": 300})
    assert hours[0].deviation < 1.0


@pytest.mark.parametrize(("policy", "start", "moves"), [(RECLAIMING, 1000.0, 0), (MOVING, 200.0, 1)])
def test_work_that_agreed_is_moved_where_nobody_may_be_stopped(
    policy: ReplayPolicy, start: float, moves: int
) -> None:
    """Eight GPUs are idle in parts of two nodes when a job of eight comes, and nobody is above his share."""
    jobs = [
        job(0, 100, 5, "goes", queue="a"),
        job(0, 1000, 5, "here", queue="a"),
        job(1, 5000, 3, "there", queue="b"),
        job(200, 10, 8, "whole", queue="b"),
    ]
    options = ReplayOptions(queues=True, time_share=False)
    outcome = replay(jobs, make_nodes(parse("2x8")), policy, options)
    assert outcome.jobs[3].started == start
    assert sum(ended.preemptions for ended in outcome.jobs) == moves


def held(*nodes: str) -> dict[str, Counter[str]]:
    """A letter a GPU: whose it is; ``.``: idle."""
    return {f"n{at}": Counter(letter for letter in node if letter != ".") for at, node in enumerate(nodes)}


@pytest.mark.parametrize(
    ("nodes", "asked", "waiting", "why"),
    [
        # "a" is due 4 of 8 GPUs and holds none: a whole node of "b", who is above by 4, could go.
        (("bbbb", "bbbb"), {"a": 4, "b": 20}, {"a": {4}}, Shortfall.CLEARABLE),
        # With one GPU of "c" on each, who is due those, three of a node at most.
        (("bbbc", "bbbc"), {"a": 4, "b": 20, "c": 2}, {"a": {4}}, Shortfall.MIXED),
        (("bbbc", "bbbc"), {"a": 4, "b": 20, "c": 2}, {"a": {3}}, Shortfall.CLEARABLE),
        # Four GPUs are idle, two on each node, and all others hold what they ask for.
        (("bb..", "cc.."), {"a": 4, "b": 2, "c": 2}, {"a": {4}}, Shortfall.NONE_ABOVE),
        # Of 8 GPUs 5 are due to "a": two more beside its two it may have, four not.
        (("aabb", "bbbb"), {"a": 6, "b": 20}, {"a": {4}}, Shortfall.TOO_LARGE),
        (("aabb", "bbbb"), {"a": 6, "b": 20}, {"a": {2, 4}}, Shortfall.CLEARABLE),
    ],
)
def test_why_a_queue_lacks_its_share(
    nodes: tuple[str, ...], asked: dict[str, int], waiting: dict[str, set[int]], why: Shortfall
) -> None:
    instant = Instant(held(*nodes), Counter(asked), waiting)
    assert reason(instant, {"a": 2, "b": 1, "c": 1}, 2, 4) is why


def test_the_cluster_at_a_moment_is_read_from_its_runs() -> None:
    jobs = [
        job(0, 10_000, 6, "a1", queue="a"),
        job(0, 5_000, 2, "b1", queue="b"),
        job(100, 100, 4, "b2", queue="b"),
        job(4_900, 100, 8, "a2", queue="a"),
    ]
    early, late = instants(play(jobs, "1x8"), [4_950.0, 9_000.0])
    assert (early.used, early.asked) == ({"a": 6, "b": 2}, {"a": 14, "b": 6})
    assert early.waiting == {"b": {4}}
    assert (late.used, late.waiting) == ({"a": 6}, {"a": {8}, "b": {4}})


def test_a_gang_holds_on_each_node_what_its_pods_there_have() -> None:
    (instant,) = instants(play([job(0, 100, 13, "a1", queue="a")], "2x8"), [50.0])
    assert sorted(queues["a"] for queues in instant.held.values()) == [5, 8]


# ---------------------------------------------------------------------- E13


def test_rules_of_the_number_of_servers() -> None:
    busy = AutoscalingState(4, 0.9, 3, 1.0, 2.0)
    assert doubling(busy) == 8
    assert doubling(AutoscalingState(4, 0.9, 0, 1.0, 2.0)) == 4
    assert doubling(AutoscalingState(5, 0.1, 0, 1.0, 2.0)) == 2
    assert doubling(AutoscalingState(1, 0.0, 0, 0.0, 0.0)) == 1
    assert square_root(0.0)(AutoscalingState(4, 0.9, 0, 2.0, 3.0)) == 6
    assert square_root(1.0)(AutoscalingState(4, 0.9, 11, 2.0, 2.0)) == 7


def _never(count: int) -> Rule:
    return lambda _: count


def test_requests_wait_for_servers_and_servers_are_paid_for() -> None:
    at_once = [job(0, 10, 1, f"r{n}") for n in range(4)]
    one = SimulatedService(at_once, _never(1)).run()
    assert one.missed == 75.0
    assert one.gpu_hours * 3600 == pytest.approx(45.0)
    steady = [job(20.0 * n, 10, 1, f"r{n}") for n in range(30)]
    assert SimulatedService(steady, _never(1)).run().missed == 0.0
    more = SimulatedService(steady, _never(3)).run()
    assert more.gpu_hours > 2.5 * SimulatedService(steady, _never(1)).run().gpu_hours


def test_the_engine_is_timed_as_it_replays_pods_by_their_times() -> None:
    files = {
        OPENB_NODES: ["sn,cpu_milli,memory_mib,gpu,model", "n1,32000,65536,2,T4", "n2,32000,65536,0,"],
        OPENB_PODS: [
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
            "whole,4000,1024,2,1000,,LS,Running,0,50,1",
            "late,4000,1024,1,500,,LS,Running,10,90,12",
            "plain,4000,1024,0,0,,LS,Running,20,40,21",
        ],
    }
    thresholds = gc.get_threshold()
    try:
        answer = packing.speed(Lab(files.__getitem__, SystemClock()))
    finally:  # it sets aside what lives
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    figures = {figure.name: figure.ours or 0.0 for figure in answer.figures}
    assert figures["decisions"] == 3
    assert figures["decisions a second"] > 0
