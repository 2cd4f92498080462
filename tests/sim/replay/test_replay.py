"""Jobs through the engine: who starts when, what a stop costs, what nodes that fail do."""

from __future__ import annotations

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered
from small_traces import ends, job, of, play, started

from windlass.engine.invariants import check
from windlass.model.cluster.engine_factory import make_engine
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob, pod_sizes
from windlass.sim.policy_list import OF_RUN
from windlass.sim.replay.failures import NodeFailures
from windlass.sim.replay.job_progress import Effort, RestartCost
from windlass.sim.replay.metrics import measure
from windlass.sim.replay.outcome import ClusterMoment, EndedJob, ReplayOutcome
from windlass.sim.replay.policies import POLICIES, ReplayEngine, ReplayPolicy
from windlass.sim.replay.replay import Replay, ReplayOptions, replay
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Group

GANGS = ("fifo", "fifo-backfill", "easy", "conservative", "sjf", "volcano-like", "kai-like")


def test_a_job_runs_at_once_where_there_is_room_and_as_long_as_it_takes() -> None:
    outcome = play([job(5, 100, 8, "a")])
    assert (of(outcome, "a").started, of(outcome, "a").ended) == (5.0, 105.0)


def test_what_does_not_fit_starts_at_the_moment_room_is_given_back() -> None:
    assert started(play([job(0, 100, 6, "a"), job(1, 10, 4, "b")])) == {"a": 0.0, "b": 100.0}


def test_strict_order_lets_nobody_pass_and_backfill_does() -> None:
    jobs = [job(0, 100, 6, "a"), job(1, 10, 4, "b"), job(2, 10, 2, "c")]
    assert started(play(jobs, policy="fifo"))["c"] == 100.0
    assert started(play(jobs, policy="fifo-backfill"))["c"] == 2.0


def test_with_reservations_only_those_pass_who_end_in_time() -> None:
    jobs = [job(0, 100, 6, "a"), job(1, 10, 8, "b"), job(2, 50, 2, "short"), job(3, 300, 2, "long")]
    assert started(play(jobs, policy="easy")) == {"a": 0.0, "b": 100.0, "short": 2.0, "long": 110.0}
    assert started(play(jobs, policy="fifo-backfill"))["b"] == 303.0 + 49.0


def test_the_shortest_goes_first() -> None:
    jobs = [job(0, 100, 8, "a"), job(1, 50, 8, "b"), job(2, 10, 8, "c")]
    assert started(play(jobs, policy="sjf")) == {"a": 0.0, "c": 100.0, "b": 110.0}


def test_a_gang_of_more_than_a_node_takes_whole_nodes() -> None:
    outcome = play([job(0, 100, 20, "a")], "3x8")
    assert sorted(set(outcome.spans[0].nodes)) == ["node-0000", "node-0001", "node-0002"]


def test_what_fits_nowhere_waits_for_ever_and_is_counted() -> None:
    outcome = play([job(0, 10, 9, "a"), job(0, 10, 1, "b")])
    assert ends(outcome) == {"a": None, "b": 10.0}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_run_ends_though_a_job_never_can(policy: str) -> None:
    failures = NodeFailures(5000.0, 100.0)
    outcome = play([job(0, 10, 64, "a"), job(0, 10, 1, "b")], "2x8", policy, failures=failures)
    assert ends(outcome)["a"] is None
    assert (ends(outcome)["b"] is not None) == (policy != "fifo")


# ---------------------------------------------------------------------- pod by pod


def test_a_job_in_part_holds_what_it_has_is_given_up_and_comes_again() -> None:
    """Of sixteen GPUs it gets eight; half an hour later it lets go of them, and tries again in five minutes."""
    jobs = [job(0, 10_000, 8, "a"), job(1, 100, 16, "b"), job(2, 50, 8, "c")]
    outcome = play(jobs, "2x8", "kube")
    assert of(outcome, "b").failed_starts > 0
    assert of(outcome, "c").started == 1 + 1800.0
    assert of(outcome, "b").started == 10_000.0
    held = sum(span.gpus * (span.end - span.start) for span in outcome.spans if span.held)
    assert held == pytest.approx(outcome.partial_gang_gpu_seconds)
    assert held > 8 * 1800 - 1


def test_the_half_hours_of_a_job_in_part_count_from_when_it_came() -> None:
    jobs = [job(0, 10_000, 8, "a"), job(0, 1000, 8, "x"), job(10, 100, 16, "b"), job(1001, 50, 8, "c")]
    outcome = play(jobs, "2x8", "kube")
    held = next(span for span in outcome.spans if span.held)
    assert (held.start, held.end) == (1000.0, 1810.0)
    assert of(outcome, "c").started == 1810.0


def test_no_gang_is_ever_held_in_part() -> None:
    jobs = [job(0, 10_000, 8, "a"), job(1, 100, 16, "b"), job(2, 50, 8, "c")]
    for policy in GANGS:
        outcome = play(jobs, "2x8", policy)
        assert outcome.partial_gang_gpu_seconds == 0.0
        assert of(outcome, "b").failed_starts == 0


# ---------------------------------------------------------------------- how jobs run


def test_a_slow_card_takes_longer_and_a_fast_one_shorter() -> None:
    outcome = play(
        [job(0, 100, 8, "a", gpu_models=("H100",)), job(0, 100, 8, "b", gpu_models=("V100",))],
        "1xH100:8,1xV100:8",
        effort=Effort(speeds={"H100": 2.0, "V100": 0.5}),
    )
    assert ends(outcome) == {"a": 50.0, "b": 200.0}


def test_a_job_is_as_fast_as_its_slowest_card() -> None:
    outcome = play([job(0, 100, 16, "a")], "1xH100:8,1xV100:8", effort=Effort(speeds={"H100": 2.0}))
    assert ends(outcome) == {"a": 100.0}


def test_a_job_on_more_nodes_than_it_needs_takes_longer() -> None:
    jobs = [job(0, 1000, 6, "a"), job(0, 1000, 6, "b"), job(1, 100, 4, "c")]
    together = play(jobs, "2x8", effort=Effort(spread_slowdown=1.5))
    assert ends(together) == {"a": 1000.0, "b": 1000.0, "c": 1100.0}
    apart = play(jobs, "2x8", pod_gpus=1, effort=Effort(spread_slowdown=1.5))
    assert ends(apart) == {"a": 1000.0, "b": 1500.0, "c": 101.0}  # b: two here, four there


def test_an_elastic_job_runs_with_less_and_takes_longer() -> None:
    jobs = [job(0, 100, 6, "a"), job(1, 80, 8, "b", min_gpus=2)]
    outcome = play(jobs)
    assert of(outcome, "b").started == 1.0
    # Two of eight GPUs for 99 s are 24.75 s of its 80; the rest with all eight.
    assert of(outcome, "b").ended == pytest.approx(100 + 80 - 24.75)


def test_a_job_has_pods_of_so_many_gpus_as_the_trace_says() -> None:
    """Three nodes of four: pods of two stand beside others where one of four would have to wait."""
    first = [job(0, 100, 2, name) for name in "abc"]
    alone = play([*first, job(1, 10, 4, "d")], "3x4", policy="kube")
    apart = play([*first, job(1, 10, 4, "d", pod_gpus=2)], "3x4", policy="kube")
    assert (of(alone, "d").started, of(apart, "d").started) == (100.0, 1.0)


def test_an_elastic_job_has_pods_of_so_many_gpus_as_the_trace_says() -> None:
    jobs = [job(0, 100, 3, "a"), job(1, 80, 8, "b", min_gpus=3, pod_gpus=2)]
    outcome = play(jobs)
    assert of(outcome, "b").started == 1.0
    assert {span.gpus for span in outcome.spans if outcome.jobs[span.job].job.id == "b"} == {4.0, 8.0}


# ---------------------------------------------------------------------- nodes fail


def failing(**effort: object) -> ReplayOutcome:
    jobs = [job(0, 20_000, 8, "a", checkpoint_seconds=None)]
    options = {"failures": NodeFailures(8000.0, 600.0), "seed": 3}
    return play(jobs, "1x8", effort=Effort(**effort), **options)  # type: ignore[arg-type]


def test_work_goes_on_from_the_last_checkpoint() -> None:
    free, costly = failing(), failing(checkpoint_seconds=1000.0)
    never = failing(checkpoint_seconds=None)
    assert of(free, "a").failures > 0
    assert of(free, "a").lost_gpu_seconds == 0.0
    assert 0 < of(costly, "a").lost_gpu_seconds <= 8 * 1000 * of(costly, "a").failures
    assert (of(never, "a").ended or 0) > (of(costly, "a").ended or 0) > (of(free, "a").ended or 0)


def test_a_restart_costs_what_it_costs() -> None:
    free, paid = failing(), failing(restart=RestartCost(7, 30, 60))
    stops = of(paid, "a").failures
    assert stops > 0
    assert of(paid, "a").lost_gpu_seconds == pytest.approx(30 * 8 * stops)
    assert (of(paid, "a").ended or 0) >= (of(free, "a").ended or 0) + 30


def test_a_job_may_say_itself_what_its_restart_costs() -> None:
    def failed(restart: float | None) -> ReplayOutcome:
        one = job(0, 10_000, 8, "a", restart_seconds=restart)
        effort = Effort(restart=RestartCost(7, 30, 60))
        return play([one], "1x8", effort=effort, failures=NodeFailures(8000.0, 600.0), seed=3)

    stops = of(failed(None), "a").failures
    assert stops > 0
    assert of(failed(None), "a").lost_gpu_seconds == pytest.approx(30 * 8 * stops)
    assert of(failed(500.0), "a").lost_gpu_seconds >= 8 * 500 * of(failed(500.0), "a").failures - 8 * 500
    assert of(failed(0.0), "a").lost_gpu_seconds == 0


def test_who_is_stopped_at_the_moment_of_its_start_has_nothing_to_restart() -> None:
    """By hand, on one node of eight, the shortest remaining time first: c stops a as it comes, d stops c, and a runs
    beside d; e waits. As d ends, e is started where four are free, and stopped with a at the same moment, as c has
    least left. Once c has ended e runs, and restarts nothing; a does, for the second time."""
    jobs = [
        job(0, 10_000, 4, "a", time_share=True),
        job(2000, 5000, 8, "c", time_share=True),
        job(3000, 1000, 1, "d", time_share=True),
        job(3500, 20_000, 4, "e", time_share=True),
    ]
    outcome = play(jobs, "1x8", "srtf", effort=Effort(restart=RestartCost.parse("100")))
    assert [one.preemptions for one in outcome.jobs] == [2, 1, 0, 1]
    assert [one.lost_gpu_seconds for one in outcome.jobs] == [2 * 4 * 100, 8 * 100, 0, 0]
    assert (of(outcome, "c").ended, of(outcome, "e").ended) == (8100, 28_100)


def test_costs_are_read_and_refused() -> None:
    assert RestartCost.parse("7/30/60") == RestartCost(7, 30, 60)
    cost = RestartCost.parse("7/30/60")
    assert [cost.of(job(0, 10, gpus)) for gpus in (1, 8, 9)] == [7, 30, 60]
    assert cost.of(job(0, 10, 9, restart_seconds=0.0)) == 0
    assert str(RestartCost.parse("5")) == "5/5/5"
    for text in ("", "1/2", "a/b/c", "-1/0/0", "inf"):
        with pytest.raises(ValueError, match="cost of a restart"):
            RestartCost.parse(text)


# ---------------------------------------------------------------------- in any history

JOBS = st.lists(
    st.builds(
        lambda submit, duration, gpus: (float(submit), float(duration), gpus),
        st.integers(0, 200),
        st.integers(1, 120),
        st.sampled_from((1, 1, 2, 3, 4, 8, 12, 16)),
    ),
    min_size=1,
    max_size=25,
)
PATIENT = ReplayOptions(failures=NodeFailures(400.0, 50.0), seed=5)


def drawn(found: list[tuple[float, float, int]]) -> list[TraceJob]:
    return [TraceJob(str(n), submit, duration, gpus) for n, (submit, duration, gpus) in enumerate(found)]


def checked(jobs: list[TraceJob], policy: str, options: ReplayOptions) -> ReplayOutcome:
    run = Replay(jobs, make_nodes(parse("2x8")), POLICIES[policy], options)
    outcome = run.run()
    check(run.deciding.engine)
    assert not run.deciding.engine.state.tasks
    return outcome


@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(found=JOBS)
@settings(max_examples=8, deadline=None)
def test_every_job_ends_once_and_the_books_add_up(policy: str, found: list[tuple[float, float, int]]) -> None:
    jobs = drawn(found)
    outcome = checked(jobs, policy, ReplayOptions())
    assert [ended.job for ended in outcome.jobs] == sorted(jobs, key=lambda one: one.submit_seconds)
    ran: dict[int, float] = {}
    for span in outcome.spans:
        if not span.held:
            ran[span.job] = ran.get(span.job, 0.0) + span.gpus * (span.end - span.start)
    for index, ended in enumerate(outcome.jobs):
        assert ended.ended is not None
        assert ended.started is not None
        assert ended.started >= ended.job.submit_seconds
        assert ran[index] == pytest.approx(ended.job.gpu_seconds + ended.lost_gpu_seconds)
    assert outcome.moments[-1][1:] == (0.0, 0, 0.0, 0.0)
    _nobody_has_more_than_there_is(outcome, each=1 if policy == "kube1" else 8)


@given(found=JOBS)
@settings(max_examples=25, deadline=None)
def test_the_books_add_up_where_nodes_fail(found: list[tuple[float, float, int]]) -> None:
    outcome = checked(drawn(found), "fifo-backfill", PATIENT)
    ran = sum(span.gpus * (span.end - span.start) for span in outcome.spans if not span.held)
    work = sum(ended.job.gpu_seconds + ended.lost_gpu_seconds for ended in outcome.jobs)
    assert ran == pytest.approx(work)
    _nobody_has_more_than_there_is(outcome)


@given(found=JOBS)
@settings(max_examples=examples(15), deadline=None)
def test_equal_inputs_give_equal_outcomes(found: list[tuple[float, float, int]]) -> None:
    for policy, options in (("fifo-backfill", PATIENT), ("easy", PATIENT), ("kube", ReplayOptions())):
        first, again = (checked(drawn(found), policy, options) for _ in range(2))
        assert (first.jobs, first.spans, first.moments) == (again.jobs, again.spans, again.moments)


def _nobody_has_more_than_there_is(outcome: ReplayOutcome, each: int = 8) -> None:
    """By the spans alone: on no node more than its GPUs at any moment. ``each``: the most of one pod."""
    changes: list[tuple[float, int, str, int]] = []
    for span in outcome.spans:
        sizes = pod_sizes(outcome.jobs[span.job].job, each)
        if span.held or len(sizes) != len(span.nodes):
            continue
        for node, size in zip(span.nodes, sizes, strict=True):
            changes += [(span.start, 1, node, size), (span.end, 0, node, -size)]
    held: dict[str, int] = {}
    for _, _, node, change in sorted(changes):
        held[node] = held.get(node, 0) + change
        assert held[node] <= 8


def test_nobody_is_evicted_for_room_that_the_evicting_group_may_not_have() -> None:
    """The head, of 16 GPUs, starts when the urgent job on the other node has ended; until then the low one may run. An
    urgent job that would run longer may not have that room: were the low one evicted for it, the low one would take it
    again, being short, and be evicted again, at the same moment and for ever."""
    jobs = [
        job(0, 400, 8, "low"),
        job(1, 1000, 8, "busy", priority=10),
        job(2, 500, 16, "head", priority=10),
        job(3, 5000, 4, "long", priority=10),
    ]
    policy = ReplayPolicy(
        "installed", "", lambda _: ReplayEngine(make_engine(SchedulerConfig()), confirms=True, dress=_stated)
    )
    outcome = replay(jobs, make_nodes(parse("2x8")), policy, ReplayOptions(time_share=False))
    assert of(outcome, "low").preemptions == 0
    assert started(outcome) == {"low": 0.0, "busy": 1.0, "head": 1001.0, "long": 1501.0}


def _stated(group: Group, job: TraceJob) -> Group:
    return altered(group, run_estimate=job.duration_seconds)


# ---------------------------------------------------------------------- what is counted where nodes fail


def test_a_restart_that_was_stopped_halfway_counts_for_as_long_as_it_took() -> None:
    """The node fails every few seconds: of each restart of 1 000 s only what passed of it is lost."""
    options = {"failures": NodeFailures(50.0, 10.0), "seed": 3}
    outcome = play([job(0, 5, 8, "a")], "1x8", effort=Effort(restart=RestartCost(0, 1000, 0)), **options)  # type: ignore[arg-type]
    failing_, ran = of(outcome, "a"), sum(span.gpus * (span.end - span.start) for span in outcome.spans)
    assert (
        failing_.ended is None
        or failing_.failures == 0
        or failing_.lost_gpu_seconds < 8 * 1000 * failing_.failures
    )
    assert failing_.lost_gpu_seconds + 8 * (5 if failing_.ended else 0) == pytest.approx(ran)


def test_a_job_that_nothing_is_saved_of_is_given_up_where_its_nodes_never_last_as_long() -> None:
    """Else the replay had no end. Others go on."""
    options = {"failures": NodeFailures(500.0, 10.0), "seed": 3}
    jobs = [job(0, 100_000, 8, "endless"), job(10, 20, 8, "b"), job(20, 20, 8, "c")]
    outcome = play(jobs, "1x8", effort=Effort(checkpoint_seconds=None), **options)  # type: ignore[arg-type]
    assert ends(outcome)["endless"] is None
    assert of(outcome, "endless").failures == 100
    assert ends(outcome)["b"] is not None
    assert ends(outcome)["c"] is not None
    assert outcome.moments[-1].waiting_jobs == 0


def test_a_run_of_parts_of_cards_ends_though_nodes_fail_and_a_job_never_can() -> None:
    """Parts add up to nothing again once all have ended; else something would always seem to run."""
    jobs = [job(0, 1000, 1, f"j{at}", gpu_milli=part) for at, part in enumerate((500, 500, 500, 100))]
    begun = Replay(
        [*jobs, job(30, 100, 5, "large")],
        make_nodes(parse("1x1")),
        POLICIES["fifo-backfill"],
        ReplayOptions(failures=NodeFailures(36_000.0, 600.0), seed=1),
    )
    told = 0

    def seen(_: int) -> None:
        nonlocal told
        told += 1
        assert told < 20_000, "it goes on for ever"

    outcome = begun.run(seen)
    assert [ended.job.id for ended in outcome.jobs if ended.ended is None] == ["large"]
    assert outcome.moments[-1].used_gpus == 0.0


def test_parts_of_cards_are_waited_for_as_parts() -> None:
    parts = [job(at, 100, 1, f"j{at}", gpu_milli=part) for at, part in enumerate((900, 500, 100, 300))]
    moments = play(parts, "1x1", "fifo").moments
    assert [(one.time, one.used_gpus, one.waiting_gpus) for one in moments] == [
        (0.0, 0.9, 0.0),
        (1.0, 0.9, 0.5),
        (2.0, 0.9, 0.6),
        (3.0, 0.9, 0.9),
        (100.0, 0.9, 0.0),
        (200.0, 0.0, 0.0),
    ]


def test_nodes_fail_from_the_day_of_the_first_job_on() -> None:
    """A trace may count from 1970; the failures of half a century before it are nobody's."""
    options = {"failures": NodeFailures(40_000.0, 600.0), "seed": 3}
    early = play([job(45, 90_000, 8, "a")], "2x8", **options)  # type: ignore[arg-type]
    late = play([job(86_400.0 * 20_000 + 45, 90_000, 8, "a")], "2x8", **options)  # type: ignore[arg-type]
    assert of(early, "a").failures > 0
    assert [one.time + 86_400.0 * 20_000 for one in early.moments] == pytest.approx(
        [m.time for m in late.moments]
    )


def test_cards_of_nodes_that_are_away_are_not_idle() -> None:
    options = {"failures": NodeFailures(8000.0, 600.0), "seed": 3}
    jobs = [job(at, 20_000, 8, f"j{at}") for at in range(3)]
    moments = play(jobs, "2x8", **options).moments  # type: ignore[arg-type]
    assert {moment.away_gpus for moment in moments} >= {0.0, 8.0}
    assert all(moment.used_gpus + moment.away_gpus <= 16 for moment in moments)
    known = [EndedJob(job(0.0, 10)), EndedJob(job(100.0, 10))]
    there = ReplayOutcome(
        known, moments=[ClusterMoment(0.0, 8, 1, 8, 0.0), ClusterMoment(100.0, 8, 1, 8)], capacity_gpus=16
    )
    away = ReplayOutcome(
        known, moments=[ClusterMoment(0.0, 8, 1, 8, 8.0), ClusterMoment(100.0, 8, 1, 8)], capacity_gpus=16
    )
    assert measure("p", there).figures["fragmented_percent"] == 50.0
    assert measure("p", away).figures["fragmented_percent"] == 0.0


def test_the_list_of_policies_says_which_know_the_future() -> None:
    """It is written apart from them: to list what there is starts no engine."""
    assert {name: policy.oracle for name, policy in POLICIES.items()} == {
        name: listed.oracle for name, listed in OF_RUN.items()
    }
