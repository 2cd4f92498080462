"""A state played forward: what runs ends, what waits starts, who is evicted comes again; draws of run times."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from windlass.engine.config import EngineConfig
from windlass.engine.deltas import (
    GroupRemoved,
    NodeRemoved,
    NodeUpserted,
    QueueUpserted,
    TaskRemoved,
    TaskUpserted,
)
from windlass.engine.engine import Engine
from windlass.engine.invariants import check
from windlass.model.cluster.engine_factory import make_engine
from windlass.predict.history import History
from windlass.predict.model import CompletedRun, Traits
from windlass.sim.cluster import GPU, make_nodes, parse
from windlass.sim.whatif.changes import add, drain
from windlass.sim.whatif.compare import Draws, SimulatedCluster, compare
from windlass.sim.whatif.play_forward import Course, Forward, ForwardState, displaced
from windlass.sim.whatif.run_times import SampledRunTimes
from windlass.sim.whatif.state_diff import difference
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import AttainedService, Group, Needs, Queue, Task, TaskState

NOW = 1000.0


def state(nodes: str = "2x8") -> ForwardState:
    found = ForwardState(NOW)
    found.nodes = {node.name: node for node in make_nodes(parse(nodes))}
    found.queues = {"default": Queue("default")}
    return found


def work(
    found: ForwardState,
    name: str,
    gpus: int,
    seconds: float | None,
    *,
    pods: int = 1,
    node: str = "",
    began: float = NOW,
    **more: object,
) -> None:
    """Runs on ``node``, or waits. The later it is added the younger it is."""
    created = 0.0 + len(found.groups)
    key = f"ns/{name}"
    found.groups[key] = Group(
        key,
        min_member=pods,
        created=created,
        admitted=True,
        run_estimate=seconds,
        **more,  # type: ignore[arg-type]
    )
    for at in range(pods):
        place = (
            {"state": TaskState.RUNNING, "node": node, "started": began}
            if node
            else {"state": TaskState.PENDING}
        )
        needs = Needs(((GPU, gpus * 1000),))
        found.tasks[f"{key}-{at}"] = Task(
            f"{key}-{at}", f"u-{name}-{at}", key, needs, created=created, **place
        )  # type: ignore[arg-type]


def engine() -> Engine:
    return make_engine(SchedulerConfig(), base=EngineConfig(reports=False))


def play(found: ForwardState, **more: float) -> dict[str, Course]:
    run_times = SampledRunTimes(History())
    forward = Forward(
        found, engine(), lambda group, elapsed, limit: run_times.draw(group, "s", elapsed, limit), **more
    )
    return {key.partition("/")[2]: course for key, course in forward.run().items()}


def test_what_waits_starts_when_enough_has_ended() -> None:
    found = state()
    work(found, "a", 8, 600.0, node="node-0000", began=NOW - 100)
    work(found, "b", 8, 900.0, node="node-0001", began=NOW - 100)
    work(found, "gang", 8, 50.0, pods=2)
    courses = play(found)
    assert courses["a"] == Course(NOW, NOW + 500)
    assert courses["gang"] == Course(NOW + 800, NOW + 850)


def test_what_has_outlived_its_estimate_runs_on_for_as_long_again() -> None:
    found = state("1x8")
    work(found, "a", 8, 100.0, node="node-0000", began=NOW - 150)
    work(found, "b", 8, 10.0)
    assert play(found)["b"].started == NOW + 50


def test_of_what_nobody_knows_an_end_there_is_none() -> None:
    found = state("1x8")
    work(found, "a", 8, None, node="node-0000")
    work(found, "b", 8, 10.0)
    assert play(found)["b"].started is None


def test_a_run_limit_is_the_latest_end() -> None:
    found = state("1x8")
    work(found, "a", 8, None, node="node-0000", began=NOW - 10)
    found.tasks["ns/a-0"] = altered(found.tasks["ns/a-0"], run_limit=60.0)
    work(found, "b", 8, 10.0)
    group, run_times = found.groups["ns/a"], SampledRunTimes(History())
    drawn = sorted(run_times.draw(group, str(seed), 10.0, 60.0) or 0.0 for seed in range(200))
    assert play(found)["b"].started == NOW - 10 + (run_times.draw(group, "s", 10.0, 60.0) or 0.0)
    assert drawn[0] >= 10
    assert drawn[-1] <= 60
    for tenth in range(1, 10):
        assert drawn[20 * tenth] == pytest.approx(10 + 5 * tenth, abs=5)


def test_a_word_or_earlier_runs_end_before_a_limit_and_a_limit_before_them() -> None:
    found = state("1x8")
    work(found, "a", 8, 40.0)
    stated, run_times = found.groups["ns/a"], SampledRunTimes(History())
    assert run_times.draw(stated, "s", 10.0, 60.0) == 40
    assert run_times.draw(stated, "s", 10.0, 30.0) == 30
    assert (
        SampledRunTimes(History(), unknown=20.0).draw(altered(stated, run_estimate=None), "s", 0.0, 60.0)
        == 20
    )
    assert run_times.draw(altered(stated, run_estimate=None), "s", 90.0, 60.0) == 90


def said(**notes: str) -> dict[str, str]:
    return {f"windlass.dev/{name.replace('_', '-')}": text for name, text in notes.items()}


@pytest.mark.parametrize(
    ("notes", "left"),
    [
        ({}, 1000.0),
        ({"time_share": "true"}, 1000.0),
        ({"checkpoint_every": "0s"}, 600.0),
        ({"checkpoint_every": "150s"}, 700.0),
        ({"checkpoint_every": "150s", "restart_cost": "20s"}, 720.0),
        ({"checkpoint_every": "500s", "time_share": "true"}, 1000.0),
        ({"checkpointed_at": "1970-01-01T00:15:00Z"}, 700.0),
    ],
)
def test_who_is_evicted_goes_on_from_what_it_saved_by_its_own_word(
    notes: dict[str, str], left: float
) -> None:
    found = state("1x8")
    work(found, "low", 8, 1000.0, node="node-0000", began=NOW - 400, annotations=said(**notes))
    work(found, "high", 8, 100.0, priority=10)
    courses = play(found)
    assert courses["high"].started == NOW
    assert courses["low"].stops == 1
    assert courses["low"].ended == NOW + 100.0 + left
    assert courses["low"].started == NOW
    assert courses["low"].anew == (NOW + 100 if left == 1000 else None)


def test_who_is_stopped_twice_loses_of_each_run_what_came_after_its_last_checkpoint() -> None:
    """400 s done, 300 saved; then it restarts for 20 s, works for 180 s more, of which 150 are saved."""
    found = state("2x8")
    notes = said(checkpoint_every="150s", restart_cost="20s")
    work(found, "low", 8, None, node="node-0000", began=NOW - 400, annotations=notes)
    work(found, "firm", 8, None, node="node-0001", began=NOW, preemptible=False)
    work(found, "high", 8, None, priority=10)
    work(found, "both", 8, None, pods=2, priority=20)
    seconds = {"ns/low": 1000.0, "ns/firm": 300.0, "ns/high": 100.0, "ns/both": 50.0}
    courses = Forward(found, engine(), lambda group, *_: seconds[group.key]).run()
    assert courses["ns/high"].started == NOW
    assert courses["ns/both"].started == NOW + 300
    assert courses["ns/low"].stops == 2
    assert courses["ns/low"].ended == NOW + 350 + 20 + 1000 - 450


def test_what_was_suspended_before_has_so_much_behind_it() -> None:
    """Of what runs and of what waits alike; who saves nothing begins anew."""
    found = state("2x8")
    free, nothing = said(checkpoint_every="0s"), said(time_share="true")
    past = AttainedService(600.0, NOW - 500.0, 1)
    work(found, "runs", 8, 1000.0, node="node-0000", began=NOW - 300, annotations=free, past=past)
    work(found, "loses", 8, 1000.0, node="node-0001", began=NOW - 300, annotations=nothing, past=past)
    work(found, "waits", 8, 1000.0, annotations=free, past=past)
    courses = play(found)
    assert courses["runs"].ended == NOW + 100
    assert courses["loses"].ended == NOW + 700
    assert (courses["waits"].started, courses["waits"].ended) == (NOW + 100, NOW + 500)


def test_what_a_drained_node_stops_goes_on_from_what_it_saved() -> None:
    found = state("2x8")
    work(
        found,
        "saves",
        8,
        1000.0,
        node="node-0000",
        began=NOW - 400,
        annotations=said(checkpoint_every="150s"),
    )
    work(found, "other", 8, 200.0, node="node-0001", began=NOW)
    displaced(found, "node-0000")
    assert found.saved == {"ns/saves": 300.0}
    courses = play(found)
    assert (courses["saves"].started, courses["saves"].ended) == (NOW + 200, NOW + 900)


def test_a_displaced_gang_waits_as_a_whole_for_what_it_lost() -> None:
    found = state("3x8")
    work(found, "gang", 8, 500.0, pods=1, node="node-0000", began=NOW - 100)
    work(found, "other", 8, 300.0, node="node-0001", began=NOW)
    work(found, "last", 8, 900.0, node="node-0002", began=NOW)
    displaced(found, "node-0000")
    courses = play(found)
    assert courses["gang"].started == NOW + 300


def test_a_state_is_not_changed_by_a_play() -> None:
    found = state("1x8")
    work(found, "a", 8, 100.0, node="node-0000")
    work(found, "b", 8, 10.0)
    before = found.copy()
    play(found)
    assert found == before


def test_what_starts_after_the_end_of_the_look_ahead_is_not_told() -> None:
    found = state("1x8")
    work(found, "a", 8, 1000.0, node="node-0000")
    work(found, "b", 8, 10.0)
    assert play(found, until=500.0)["b"].started is None


def test_draws_are_of_earlier_runs_that_were_longer() -> None:
    history = History()
    for number in range(20):
        history.observe(CompletedRun(f"w{number}", Traits("ns", "default", "a"), 100.0 * (number + 1)))
    run_times, group = SampledRunTimes(history), Group("ns/a", created=0.0)
    drawn = {run_times.draw(group, str(n)) for n in range(200)}
    assert drawn <= {100.0 * (n + 1) for n in range(20)}
    assert len(drawn) > 10
    assert min(run_times.draw(group, str(n), 1500.0) or 0.0 for n in range(50)) > 1500.0
    assert run_times.draw(group, "0", 2000.0) == 4000.0
    assert run_times.draw(group, "0", 0.0, 50.0) == 50.0
    assert run_times.draw(group, "7") == run_times.draw(group, "7")
    said = altered(group, run_estimate=7.0)
    assert run_times.draw(said, "0") == 7.0
    assert SampledRunTimes(History()).draw(group, "0") is None
    assert SampledRunTimes(History(), 60.0).draw(group, "0") == 60.0


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 500), st.integers(1, 3)),
        min_size=1,
        max_size=12,
    )
)
def test_everybody_who_fits_starts_and_the_books_are_right(jobs: list[tuple[int, int, int]]) -> None:
    found = state("3x8")
    for at, (gpus, seconds, pods) in enumerate(jobs):
        work(found, f"j{at}", gpus, float(seconds), pods=pods)
    made = engine()
    forward = Forward(found, made, lambda group, elapsed, limit: group.run_estimate)
    courses = forward.run()
    assert all(course.started is not None for course in courses.values())
    check(made)


def test_equal_states_have_equal_courses() -> None:
    found = state()
    for at in range(6):
        work(found, f"j{at}", 4 + at % 5, 100.0 + at, pods=1 + at % 2)
    assert play(found) == play(found)


@pytest.mark.parametrize("nodes", ["1x8", "4x8"])
def test_nothing_waits_nothing_is_played(nodes: str) -> None:
    found = state(nodes)
    work(found, "a", 8, 100.0, node="node-0000")
    assert play(found)["a"].started == NOW


def test_a_claim_that_never_fits_is_not_tried_all_day() -> None:
    """Its victims may go, but beside them runs what may not: time alone changes nothing."""
    found = state("20x8")
    for at in range(20):
        node = f"node-{at:04}"
        work(found, f"low{at}", 4, None, node=node, began=0.0)
        ends = 1000.0 + 7.0 * at if at % 2 else None
        work(found, f"firm{at}", 4, ends, node=node, began=0.0, preemptible=False, priority=100)
    work(found, "high", 8, 100.0, pods=20, priority=10)
    cycles = []
    forward = Forward(found, engine(), lambda group, *_: group.run_estimate, pause=lambda: cycles.append(1))
    assert forward.run()["ns/high"].started is None
    assert len(cycles) < 100


def test_what_came_on_top_later_does_not_begin_the_work_anew() -> None:
    found = state("1x8")
    work(found, "elastic", 2, 600.0, pods=4, node="node-0000", began=NOW - 400)
    found.groups["ns/elastic"] = altered(found.groups["ns/elastic"], min_member=2)
    late = found.tasks["ns/elastic-3"]
    found.tasks[late.key] = altered(late, started=NOW - 10)
    work(found, "b", 8, 10.0)
    assert play(found)["b"].started == NOW + 200


def keeping() -> ForwardState:
    """Room of a and b is kept for a gang, which nobody may pass for long."""
    found = state()
    work(found, "a", 8, 600.0, node="node-0000")
    work(found, "b", 8, 100.0, node="node-0001")
    work(found, "gang", 8, 50.0, pods=2)
    work(found, "late", 8, 1000.0)
    return found


def starts(before: SimulatedCluster, after: SimulatedCluster) -> dict[str, tuple[float, float]]:
    found = compare(before, after, Draws(SampledRunTimes(History()), samples=1))
    return {
        shift.group.partition("/")[2]: (shift.before.middle, shift.after.middle) for shift in found.shifts
    }


def test_room_that_is_kept_stays_where_it_is_when_a_node_comes() -> None:
    """As on a cluster: the reservation is of before, so the new node is free for who comes first."""
    before = SimulatedCluster(keeping(), engine)
    after = before.changing()
    add("1x8").make(after.state)
    assert starts(before, after) == {"gang": (600.0, 600.0), "late": (650.0, 0.0)}


def test_who_would_start_now_is_not_placed_before_the_change() -> None:
    found = state("1x8")
    work(found, "a", 8, 600.0)
    before = SimulatedCluster(found, engine)
    after = before.changing()
    add("1x8").make(after.state)
    drain("node-0000").make(after.state)
    assert starts(before, after) == {}
    assert [task.node for task in after.state.tasks.values()] == [""]


def test_the_difference_tells_what_is_gone_then_what_is_new() -> None:
    before = keeping()
    after = before.copy()
    (extra,) = make_nodes(parse("1x4"))
    after.nodes["node-0009"] = extra = replace(extra, name="node-0009")
    del after.nodes["node-0001"]
    after.queues["more"] = Queue("more")
    del after.groups["ns/late"], after.tasks["ns/late-0"]
    anew = altered(after.tasks["ns/b-0"], uid="again", state=TaskState.PENDING, node="")
    after.tasks[anew.key] = anew
    assert difference(before.deltas(), after.deltas()) == [
        TaskRemoved("ns/late-0"),
        TaskRemoved("ns/b-0"),
        GroupRemoved("ns/late"),
        NodeRemoved("node-0001"),
        NodeUpserted(extra),
        QueueUpserted(after.queues["more"]),
        TaskUpserted(anew),
    ]
    assert difference(before.deltas(), before.copy().deltas()) == []
