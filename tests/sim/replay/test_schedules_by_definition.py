"""Policies against plain simulators of their published definitions, on small traces drawn by chance.

Not one start, end or stop may differ: ``schedule_reference`` and ``timeshare_reference`` share nothing with the engine.
"""

from __future__ import annotations

import pytest
from example_counts import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from schedule_reference import Nodes, OneByOne, Queue
from small_traces import play
from timeshare_reference import Rules, Shared, Slots

from windlass.sim.jobs import TraceJob
from windlass.sim.replay.job_progress import Effort, RestartCost
from windlass.sim.replay.outcome import EndedJob

Sizes = st.SearchStrategy[list[int]]
SEVERAL: Sizes = st.lists(st.integers(1, 3).map(lambda power: 2**power), min_size=1, max_size=4)
ONE: Sizes = st.lists(st.integers(2, 4).map(lambda power: 2**power), min_size=1, max_size=1)
UNIX = 1_700_000_000.0
LAS_BOUND, QUANTUM = 7200.0, 60.0


@st.composite
def scenes(draw: st.DrawFn, sizes: Sizes = SEVERAL) -> tuple[list[int], list[TraceJob]]:
    """Nodes, and jobs that each fit on them."""
    nodes = draw(sizes)
    unit = draw(st.sampled_from((1, 60, 700)))
    jobs = []
    for number in range(draw(st.integers(2, 12))):
        gpus = draw(st.sampled_from((1, 1, 2, 3, 4, 5, 8, 12, 16)).filter(lambda g: Nodes(nodes).gang(g)))
        submit, duration = unit * draw(st.integers(0, 40)), unit * draw(st.integers(1, 30))
        jobs.append(TraceJob(f"{number:02d}", float(submit), float(duration), gpus))
    return nodes, jobs


def plain(jobs: list[TraceJob]) -> list[tuple[float, float, int]]:
    return [(job.submit_seconds, job.duration_seconds, job.gpus) for job in jobs]


def played(nodes: list[int], jobs: list[TraceJob], policy: str) -> tuple[list[EndedJob], float]:
    outcome = play(jobs, ",".join(f"1x{size}" for size in nodes), policy)
    ended = sorted(outcome.jobs, key=lambda one: one.job.id)
    return ended, outcome.partial_gang_gpu_seconds


@settings(max_examples=60, deadline=None)
@given(scenes(), st.sampled_from(("fifo", "fifo-backfill", "sjf")))
def test_gangs_by_age_or_length(scene: tuple[list[int], list[TraceJob]], policy: str) -> None:
    nodes, jobs = scene
    starts = [one.started for one in played(nodes, jobs, policy)[0]]
    assert starts == Queue(plain(jobs), nodes, policy).play()


@settings(max_examples=40, deadline=None)
@given(scenes(ONE))
def test_easy_backfill(scene: tuple[list[int], list[TraceJob]]) -> None:
    nodes, jobs = scene
    starts = [one.started for one in played(nodes, jobs, "easy")[0]]
    assert starts == Queue(plain(jobs), nodes, "easy").play()


@pytest.mark.parametrize(("policy", "most"), [("kube", 0), ("kube-pack", 0), ("kube1", 1)])
@settings(max_examples=15, deadline=None)
@given(scenes())
def test_pods_one_by_one(policy: str, most: int, scene: tuple[list[int], list[TraceJob]]) -> None:
    nodes, jobs = scene
    found = OneByOne(plain(jobs), nodes, most, emptiest=policy != "kube-pack").play(most_failed=40)
    assume(found is not None)
    assert found is not None
    if most:
        # Whether a pod that arrives as another ends is tried before the pods that wait is not defined.
        ends = {start + job.duration_seconds for start, job in zip(found.starts, jobs, strict=True)}
        assume(ends.isdisjoint(job.submit_seconds for job in jobs))
    ended, held = played(nodes, jobs, policy)
    assert [one.started for one in ended] == found.starts
    assert [one.failed_starts for one in ended] == found.failed
    assert held == found.held


@st.composite
def sharing(draw: st.DrawFn) -> tuple[list[tuple[float, float]], int, int]:
    """Jobs, how many run at a time, and the GPUs of each. In whole seconds there are equals among them; where moments
    are such as a clock tells, there are none, as to be equal would be a matter of rounding."""
    unit, begin, apart = draw(
        st.sampled_from(((1.0, 0.0, 0.0), (900.0, 0.0, 0.0), (443.21, UNIX + 0.1, 1e-3)))
    )
    moments = draw(st.lists(st.integers(0, 30), min_size=2, max_size=8))
    lengths = draw(st.lists(st.integers(1, 20), min_size=len(moments), max_size=len(moments)))
    jobs = [
        (begin + unit * at, unit * length + apart * 3**number)
        for number, (at, length) in enumerate(zip(moments, lengths, strict=True))
    ]
    return jobs, draw(st.integers(1, 3)), draw(st.sampled_from((1, 2, 4)))


def same(
    policy: str, jobs: list[tuple[float, float]], slots: int, gpus: int, rules: Rules
) -> tuple[list[EndedJob], list[Shared]]:
    cost = RestartCost(rules.restart, rules.restart, rules.restart)
    trace = [TraceJob(f"{at:02d}", *job, gpus) for at, job in enumerate(jobs)]
    outcome = play(trace, f"1x{slots * gpus}", policy, effort=Effort(cost, rules.every))
    ended = sorted(outcome.jobs, key=lambda one: one.job.id)
    context = Slots(jobs, slots, rules).play()
    assert [one.started for one in ended] == pytest.approx([one.start for one in context], abs=1e-3)
    assert [one.ended for one in ended] == pytest.approx([one.end for one in context], abs=1e-3)
    assert [one.preemptions for one in ended] == [one.stops for one in context]
    return ended, context


@settings(max_examples=40, deadline=None)
@given(sharing())
def test_two_queues_by_attained_service(scene: tuple[list[tuple[float, float]], int, int]) -> None:
    jobs, slots, gpus = scene
    same("las", jobs, slots, gpus, Rules(LAS_BOUND / gpus, QUANTUM))


@settings(max_examples=examples(60), deadline=None)
@given(sharing(), st.sampled_from((0.0, None, 50.0, 700.0)), st.sampled_from((0.0, 30.0)))
def test_the_shortest_remaining_time(
    scene: tuple[list[tuple[float, float]], int, int], every: float | None, restart: float
) -> None:
    """What a stop lost is to be done again, and remains, as does the restart."""
    jobs, slots, gpus = scene
    for policy in ("srtf", "srsf"):
        same(policy, jobs, slots, gpus, Rules(every=every, restart=restart))
