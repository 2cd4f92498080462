"""Backfill: room kept for the first that finds none, and who may pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cluster_dsl import Cluster
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.engine.groups.run_times import runs_are_alike
from windlass.engine.state.statement import Outbox
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import TaskState
from windlass.spi.views import GroupView


def cluster(backfill: str = "easy", nodes: int = 1) -> Cluster:
    found = Cluster(EngineConfig(backfill=backfill)).queues("default")
    return found.nodes(*(f"n{i + 1} gpu=8 cpu=64" for i in range(nodes)))


def submit(c: Cluster, name: str, n: int, seconds: float | None, priority: int = 0) -> None:
    c.gang(name, n, "gpu=1", priority=priority)
    c.change_group(name, run_estimate=None if seconds is None else float(seconds))


def run(c: Cluster, seconds: float = 0.0) -> None:
    """A cycle; what was bound runs from now on."""
    for bind in c.cycle(seconds).binds:
        c.change_task(bind.task.removeprefix("ns/"), state=TaskState.RUNNING, started=c.now)


@pytest.fixture
def scene() -> Cluster:
    """Five GPUs run for 100 s, three are free, and a gang of six waits for them."""
    c = cluster()
    submit(c, "first", 5, 100)
    run(c)
    submit(c, "head", 6, 500)
    run(c)
    return c


def test_who_ends_before_the_head_starts_may_pass(scene: Cluster) -> None:
    submit(scene, "short", 3, 90)
    run(scene)
    assert scene.placed("short") == 3


def test_who_would_delay_the_head_waits_though_there_is_room(scene: Cluster) -> None:
    submit(scene, "long", 3, 200)
    run(scene)
    assert scene.placed("long") == 0
    assert scene.code("long") == "BehindInQueue"
    assert "reserved for ns/head" in scene.explain("long").message
    assert "might not have ended by then" in scene.explain("long").message


def test_two_of_the_three_free_are_not_needed_by_the_head(scene: Cluster) -> None:
    """At its start the head needs one of the three that are free now beside the five."""
    submit(scene, "long", 2, 10_000)
    run(scene)
    assert scene.placed("long") == 2


def test_without_an_estimate_it_cannot_pass_and_is_told_so(scene: Cluster) -> None:
    submit(scene, "unknown", 3, None)
    run(scene)
    assert scene.placed("unknown") == 0
    assert "the run time of this group is unknown" in scene.explain("unknown").message
    assert any("State how long it runs" in remedy for remedy in scene.explain("unknown").remedies)


def test_a_higher_priority_is_not_kept_back(scene: Cluster) -> None:
    submit(scene, "urgent", 3, None, priority=10)
    run(scene)
    assert scene.placed("urgent") == 3


def test_the_head_starts_when_it_was_forecast_to(scene: Cluster) -> None:
    submit(scene, "long", 3, 200)
    run(scene)
    run(scene, 99.0)
    assert scene.placed("head") == 0
    scene.finish("first")
    run(scene, 1.0)
    assert scene.placed("head") == 6
    assert scene.placed("long") == 0


def test_who_waited_for_the_reservation_goes_when_it_is_gone(scene: Cluster) -> None:
    submit(scene, "long", 3, 200)
    run(scene)
    assert scene.placed("long") == 0
    scene.remove("head")
    run(scene)
    run(scene)
    assert scene.placed("long") == 3


def test_room_that_frees_before_is_kept_too() -> None:
    c = cluster(nodes=2)
    submit(c, "a", 8, 100)
    submit(c, "b", 8, 200)
    run(c)
    submit(c, "head", 16, 500)
    run(c)
    c.finish("a")
    submit(c, "long", 8, 300)
    submit(c, "short", 8, 150)
    run(c, 10.0)
    assert (c.placed("long"), c.placed("short"), c.placed("head")) == (0, 8, 0)


def test_without_any_run_time_nothing_is_kept() -> None:
    c = cluster()
    submit(c, "first", 5, None)
    run(c)
    submit(c, "head", 6, 500)
    submit(c, "small", 3, None)
    run(c)
    assert c.placed("small") == 3


def test_none_switches_it_off() -> None:
    c = cluster("none")
    submit(c, "first", 5, 100)
    run(c)
    submit(c, "head", 6, 500)
    submit(c, "long", 3, 200)
    run(c)
    assert c.placed("long") == 3


def test_conservative_keeps_room_for_the_second_too() -> None:
    for backfill, placed in (("easy", 1), ("conservative", 0)):
        c = cluster(backfill)
        submit(c, "first", 7, 100)
        run(c)
        submit(c, "head", 7, 100)
        submit(c, "second", 8, 100)
        run(c)
        submit(c, "long", 1, 1000)
        run(c)
        assert c.placed("long") == placed, backfill


def test_a_reservation_that_came_due_too_early_is_made_anew(scene: Cluster) -> None:
    """The five run on, longer than an end may take: their estimate is doubled, and the head is expected a hundred
    seconds after it was."""
    run(scene, 100.0)
    run(scene, 30.0)
    submit(scene, "short", 3, 65)
    run(scene)
    assert scene.placed("short") == 3
    assert scene.explain("head").estimate_seconds == 70.0


@pytest.mark.parametrize("late", [0.001, 3.0, 29.0])
def test_an_end_that_comes_a_moment_late_costs_nobody_his_room(scene: Cluster, late: float) -> None:
    """Somebody who would end before the five have run on for as long again does not pass meanwhile."""
    run(scene, 100.0)
    submit(scene, "long", 3, 60)
    run(scene, late)
    assert scene.placed("long") == 0
    scene.finish("first")
    run(scene)
    assert scene.placed("head") == 6
    assert scene.placed("long") == 0


def test_whom_his_queue_refuses_when_his_time_has_come_asks_for_no_more_cycles() -> None:
    c = Cluster(EngineConfig(backfill="easy")).queues("a", "d capability.gpu=12").nodes("n1 gpu=16 cpu=64")
    for name, queue, n, seconds in (("first", "a", 12, 100), ("head", "d", 12, 50), ("short", "d", 4, 50)):
        c.gang(name, n, "gpu=1", queue=queue)
        c.change_group(name, run_estimate=float(seconds))
        run(c)
    assert c.placed("short") == 4  # and it overruns
    c.finish("first")
    run(c, 100)
    run(c)
    assert c.code("head") == "WaitingForQuota"
    assert (c.cycle().wake_at or 1e9) > c.now


def test_who_ends_within_the_grace_may_pass(scene: Cluster) -> None:
    run(scene, 100.0)
    assert scene.explain("head").estimate_seconds == 30.0
    submit(scene, "short", 3, 20)
    run(scene)
    assert scene.placed("short") == 3


def test_a_short_estimate_has_no_grace() -> None:
    """As much again is less than that."""
    c = cluster()
    submit(c, "first", 5, 20)
    run(c)
    submit(c, "head", 6, 500)
    run(c)
    run(c, 20.0)
    assert c.explain("head").estimate_seconds == 20.0


def test_the_engine_asks_to_be_woken_when_a_reservation_is_due(scene: Cluster) -> None:
    assert scene.cycle(0.0).wake_at == scene.now + 100.0


def test_a_dump_keeps_reservations(scene: Cluster) -> None:
    submit(scene, "long", 3, 200)
    run(scene)
    twin = Engine.load(scene.engine.dump(), default_plugins())
    assert twin.reservations.as_records() == scene.engine.reservations.as_records()
    assert twin.dump() == scene.engine.dump()
    assert twin.explain("ns/long", scene.now) == scene.engine.explain("ns/long", scene.now)


@pytest.mark.parametrize("linger", [False, True])
def test_a_node_that_goes_takes_the_reservation_with_it(linger: bool) -> None:
    """Its pods are there for a while, as nobody has collected them yet; or they are gone already."""
    c = cluster(nodes=2)
    submit(c, "first", 16, 100)
    run(c)
    submit(c, "head", 10, 500)
    run(c)
    assert c.engine.reservations.by_group
    there = [f"first-{i}" for i in range(16) if c.node_of(f"first-{i}") == "n2"]
    for name in () if linger else there:
        c.remove_task(name)
    c.overcommitted = linger
    c.remove_node("n2")
    run(c)
    assert c.code("head") == "ExceedsCluster"
    assert not c.engine.reservations.by_group


jobs = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 40), st.integers(0, 30)), min_size=2, max_size=9)


@settings(max_examples=examples(60), deadline=None)
@given(jobs, st.sampled_from(["easy", "conservative"]))
def test_with_true_estimates_the_first_is_never_delayed(
    drawn: list[tuple[int, int, int]], backfill: str
) -> None:
    """Who is first in rank starts no later than it was forecast to when it first had to wait."""
    c = cluster(backfill, nodes=2)
    begin = c.now
    arrivals = [(begin + at, f"j{i}", size, seconds) for i, (size, seconds, at) in enumerate(drawn)]
    sizes = {name: (size, seconds) for _, name, size, seconds in arrivals}
    ends: dict[str, float] = {}
    forecast: dict[str, float] = {}
    started: set[str] = set()
    while len(started) < len(drawn):
        moment = min([at for at, *_ in arrivals] + list(ends.values()))
        for name in [name for name, end in ends.items() if end <= moment]:
            c.finish(name)
            del ends[name]
        for arrival in sorted(a for a in arrivals if a[0] <= moment):
            arrivals.remove(arrival)
            submit(c, arrival[1], arrival[2], arrival[3])
        run(c, moment - c.now)
        for name, (size, seconds) in sizes.items():
            if f"ns/{name}" in c.groups and name not in started and c.placed(name) == size:
                started.add(name)
                ends[name] = moment + seconds
                assert moment <= forecast.get(name, moment), (name, forecast)
        slots = c.engine.reservations.by_group.values()
        if slots:
            first = min(slots, key=lambda slot: slot.group.spec.created)
            forecast.setdefault(first.group.key.removeprefix("ns/"), first.start)


# ---------------------------------------------------------------------- learned run times


def learned(seconds: float, bound: float) -> dict[str, Any]:
    return {"run_estimate": seconds, "run_bound": bound, "learned": "by 12 earlier runs of this name"}


@pytest.mark.parametrize(
    ("bound", "limit", "passes"), [(90, None, True), (200, None, False), (90, 150, False), (200, 95, True)]
)
def test_what_is_learned_passes_only_if_the_longest_run_fits(
    bound: float, limit: int | None, passes: bool
) -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4", "n2 gpu=4")
    c.gang("old", 4, "gpu=1")
    c.change_group("old", run_estimate=100.0)
    c.cycle()
    for number in range(4):
        c.change_task(f"old-{number}", state=TaskState.RUNNING, started=c.now)
    c.gang("big", 8, "gpu=1")
    c.cycle()
    c.gang("small", 1, "gpu=1")
    c.change_group("small", **learned(50, bound))
    c.change_task("small-0", run_limit=limit)
    c.cycle()
    assert (c.where("small") != {}) is passes
    if not passes:
        told = c.explain("small").message
        assert "by 12 earlier runs of this name" in told
        assert f"may run for {limit or bound} s" in told


def test_an_end_that_is_learned_is_told_as_such_and_an_overrun_extends_the_reservation() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4")
    c.gang("old", 4, "gpu=1")
    c.change_group("old", **learned(100, 120))
    c.cycle()
    for number in range(4):
        c.change_task(f"old-{number}", state=TaskState.RUNNING, started=c.now)
    c.gang("big", 4, "gpu=1")
    c.cycle()
    told = c.explain("big")
    assert told.estimate_seconds == pytest.approx(99, abs=1)
    assert told.estimate_basis == "when ns/old ends, as learned by 12 earlier runs of this name"
    c.cycle(seconds=100)
    assert c.where("old") == {"n1": 4}
    assert c.explain("big").estimate_seconds == pytest.approx(99, abs=2)


ALIKE, FAR_APART = (40.0, 55.0, 60.0, 90.0, 100.0), (4.0, 20.0, 60.0, 1300.0, 100000.0)


@pytest.mark.parametrize(("runs", "kept"), [(ALIKE, True), (FAR_APART, False), ((), True)])
def test_room_is_kept_by_what_is_learned_where_earlier_runs_were_alike(
    runs: tuple[float, ...], kept: bool
) -> None:
    c = cluster()
    c.gang("old", 5, "gpu=1")
    c.change_group("old", **learned(100, 120), runs=runs)
    run(c)
    submit(c, "head", 6, 500)
    run(c)
    found = c.explain("head")
    assert (found.estimate_seconds is not None) is kept
    why = "it is unknown when ns/old ends: fewer than half of the earlier runs"
    assert found.extra.get("no reservation", "").startswith(why) is not kept
    submit(c, "other", 3, None)
    run(c)
    assert c.placed("other") == (0 if kept else 3)


def test_who_runs_like_no_earlier_one_does_not_pass() -> None:
    c = cluster()
    submit(c, "first", 5, 100)
    run(c)
    submit(c, "head", 6, 500)
    run(c)
    c.gang("new", 3, "gpu=1")
    c.change_group("new", **learned(10, 20), runs=(1.0, 2.0, 10.0, 20.0, 90.0))
    run(c)
    assert c.placed("new") == 0
    assert "the run time of this group is unknown" in c.explain("new").message


@pytest.mark.parametrize(
    ("runs", "found"),
    [((7.0,), True), ((1.0, 7.0, 99.0), False), ((4.0, 7.0, 99.0), True), ((1.0, 4.0, 7.0, 14.0), True)],
)
def test_earlier_runs_are_alike_where_half_are_within_a_factor_of_two(
    runs: tuple[float, ...], found: bool
) -> None:
    assert runs_are_alike(runs) is found


def test_owners_and_what_is_learned_are_told_apart() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4")
    for name, changes in (("a", {"run_estimate": 50.0}), ("b", learned(100, 120))):
        c.gang(name, 2, "gpu=1")
        c.change_group(name, **changes)
    c.cycle()
    for name in ("a-0", "a-1", "b-0", "b-1"):
        c.change_task(name, state=TaskState.RUNNING, started=c.now)
    c.gang("big", 4, "gpu=1")
    c.cycle()
    basis = "when ns/a and ns/b end, as learned and their owners estimate"
    assert c.explain("big").estimate_basis == f"{basis} (of ns/b by 12 earlier runs of this name)"


def test_conservative_backfill_keeps_room_for_the_first_sixteen() -> None:
    c = cluster("conservative")
    submit(c, "first", 8, 100)
    run(c)
    for number in range(18):
        submit(c, f"g{number:02}", 8, 100)
    for _ in range(20):
        c.cycle(0.1)
    assert sorted(c.engine.reservations.by_group) == [f"ns/g{number:02}" for number in range(16)]


def test_who_comes_in_the_place_of_one_that_has_begun_is_planned_at_once() -> None:
    """No other cycle is asked for before the next of them is to start."""
    c = cluster("conservative")
    submit(c, "first", 8, 100)
    run(c)
    for number in range(17):
        submit(c, f"g{number:02}", 8, 100)
    run(c)
    c.finish("first")
    decision = c.cycle(100.0)
    assert c.placed("g00") == 8
    assert sorted(c.engine.reservations.by_group) == [f"ns/g{number:02}" for number in range(1, 17)]
    assert decision.wake_at == pytest.approx(c.now + 100)


def conservative_pair() -> Cluster:
    """Two full nodes until 100 s, and two gangs of eight with room kept for them from then on."""
    c = cluster("conservative", nodes=2)
    for name in ("left", "right"):
        submit(c, name, 8, 100)
    run(c)
    for name in ("one", "two"):
        submit(c, name, 8, 50)
    run(c)
    assert sorted(c.engine.reservations.by_group) == ["ns/one", "ns/two"]
    return c


def test_who_has_a_reservation_keeps_it_when_another_joins() -> None:
    c = conservative_pair()
    before = dict(c.engine.reservations.by_group)
    submit(c, "three", 4, 50)
    run(c)
    after = c.engine.reservations.by_group
    assert all(after[key] is kept for key, kept in before.items())
    assert after["ns/three"].start == pytest.approx(before["ns/one"].start + 50)


def test_a_reservation_that_cannot_be_is_planned_anew_when_another_joins() -> None:
    c = conservative_pair()
    (row,) = c.engine.reservations.by_group["ns/one"].rows
    node = c.engine.state.table.nodes[row]
    assert node is not None
    c.nodes(replace(node, unschedulable=True))
    submit(c, "three", 4, 50)
    run(c)
    starts = {key: kept.start for key, kept in c.engine.reservations.by_group.items()}
    assert sorted(starts) == ["ns/one", "ns/three", "ns/two"]
    assert starts["ns/two"] == pytest.approx(starts["ns/one"] + 50)
    assert all(row not in kept.rows for kept in c.engine.reservations.by_group.values())


@pytest.mark.parametrize("action", ["consolidation", "reclaim", "preempt"])
def test_no_claim_places_a_group_in_room_that_is_kept_from_it(action: str) -> None:
    c = Cluster(EngineConfig(backfill="easy", actions=("allocate", action))).queues("default")
    c.nodes("n1 gpu=8 cpu=64", "n2 gpu=8 cpu=64")
    submit(c, "a", 6, 7200)
    submit(c, "b", 8, 18000)
    run(c)
    submit(c, "head", 8, 3600)
    run(c)
    submit(c, "long", 2, 86400)
    run(c)
    run(c, 60.0)
    assert c.placed("long") == 0
    assert c.code("long") == "BehindInQueue"
    submit(c, "urgent", 2, 86400, priority=5)
    run(c)
    assert c.placed("urgent") == 2


def kept_for(c: Cluster) -> dict[str, float]:
    """Who has a reservation, and in how many seconds it starts."""
    return {key.removeprefix("ns/"): r.start - c.now for key, r in c.engine.reservations.by_group.items()}


def test_whom_others_leave_for_is_reckoned_with_before_they_have_gone() -> None:
    """Two nodes; one is left for a group that runs for 300 s, then it is the turn of one that needs both."""
    c = cluster(nodes=2)
    c.gang("first", 1, "gpu=8")
    run(c)
    submit(c, "beside", 5, 400)
    run(c)
    c.change_task("first-0", state=TaskState.RELEASING)
    c.gang("next", 1, "gpu=8")
    c.change_group("next", run_estimate=300.0)
    run(c)
    assert c.engine.state.groups["ns/next"].nominations == 1
    c.gang("head", 2, "gpu=8")
    c.change_group("head", run_estimate=500.0)
    run(c)
    assert kept_for(c) == {"head": 400.0}
    submit(c, "long", 3, 2000)
    submit(c, "short", 3, 350)
    run(c)
    assert (c.placed("long"), c.placed("short")) == (0, 3)
    run(c, 10.0)
    assert kept_for(c) == {"head": 390.0}
    c.remove_task("first-0")
    run(c, 10.0)
    assert c.placed("next") == 1
    assert kept_for(c) == {"head": 380.0}


def test_who_comes_back_and_was_there_before_has_the_reservation(scene: Cluster) -> None:
    """He asks for what there is no room for, so he is not tried; the reservation is the first one's all the same."""
    assert kept_for(scene) == {"head": 100.0}
    scene.gang("back", 6, "gpu=1")
    scene.change_group("back", created=0.5, run_estimate=50.0)
    run(scene)
    assert kept_for(scene) == {"back": 100.0}


def test_who_is_promised_room_by_a_claim_leaves_the_reservation_to_the_next(scene: Cluster) -> None:
    submit(scene, "third", 6, 700)
    run(scene)
    assert kept_for(scene) == {"head": 100.0}
    for at in range(5):
        scene.change_task(f"first-{at}", state=TaskState.RELEASING)
    engine, row = scene.engine, scene.engine.state.table.row("n1")
    for entry in list(engine.state.groups["ns/head"].pending.values()):
        engine._statement.pipeline(entry, row)
    engine._statement.commit(Outbox.empty())
    run(scene)
    assert kept_for(scene) == {"third": 500.0}


def test_behind_one_who_begins_where_others_leave_room_is_kept_for_the_next() -> None:
    """Who was next had his room at once and no reservation; nobody looked who comes after him. Others passed the one
    that needs both nodes until he had waited too long."""
    c = cluster(nodes=2)
    submit(c, "leaves", 16, 1000)
    run(c)
    for name, nodes, seconds in (("first", 1, 300.0), ("second", 1, 400.0), ("both", 2, 500.0)):
        c.gang(name, nodes, "gpu=8")
        c.change_group(name, run_estimate=seconds)
    run(c)
    assert kept_for(c) == {"first": 1000.0}
    for at in range(16):
        c.change_task(f"leaves-{at}", state=TaskState.RELEASING)
    engine, row = c.engine, c.engine.state.table.row("n1")
    for entry in list(engine.state.groups["ns/first"].pending.values()):
        engine._statement.pipeline(entry, row)
    engine._statement.commit(Outbox.empty())
    run(c)
    assert engine.state.groups["ns/second"].nominations == 1
    run(c)
    assert kept_for(c) == {"both": 400.0}


class ByName:
    """Groups of a queue go by name, not by age, as reservations do."""

    name = "by-name"

    def group_key(self, group: GroupView) -> str:
        return group.spec.key


def test_for_whom_room_is_kept_begins_though_others_of_his_queue_go_before_him() -> None:
    """Who stands before him may not take that room; nobody else would have him tried."""
    c = Cluster(EngineConfig(backfill="easy"), [ByName(), *default_plugins()]).queues("default")
    c.nodes("n1 gpu=8 cpu=64")
    submit(c, "first", 8, 100)
    run(c)
    submit(c, "z", 8, 500)
    run(c)
    submit(c, "a", 8, 5000)
    submit(c, "b", 8, 5000)
    run(c)
    for i in range(8):
        c.remove_task(f"first-{i}")  # sooner than was said
    run(c, 50)
    assert (c.placed("z"), c.placed("a")) == (8, 0)
    for i in range(8):
        c.remove_task(f"z-{i}")
    run(c, 400)
    assert (c.placed("a"), c.placed("b")) == (8, 0)


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_who_comes_back_behind_others_of_his_queue_and_was_there_before_has_the_reservation(
    backfill: str,
) -> None:
    """Only the first of those who ask for the same is tried, by the order of their queue; he came after who has a
    reservation, and nobody looked at who stands behind him. Live it was looked at when his group was told of again."""
    c = Cluster(EngineConfig(backfill=backfill), [ByName(), *default_plugins()]).queues("default")
    c.nodes("n1 gpu=8 cpu=64")
    submit(c, "first", 8, 100)
    run(c)
    submit(c, "m", 6, 500)
    run(c)
    assert kept_for(c) == {"m": 100.0}
    for name in ("a", "z"):
        submit(c, name, 7, 50)
    c.change_group("z", created=0.5)
    run(c)
    assert kept_for(c)["z"] == 100.0
    assert list(kept_for(c)) == (["z"] if backfill == "easy" else ["z", "m", "a"])


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_who_is_told_of_again_and_can_never_run_takes_no_reservations_from_others(backfill: str) -> None:
    """Nobody can be told when it starts, so that whoever comes after it had none any more, until it was looked for
    again."""
    c = cluster(backfill)
    submit(c, "first", 8, 100)
    run(c)
    submit(c, "never", 9, 100, priority=5)
    run(c)
    submit(c, "head", 8, 500)
    run(c)
    run(c)
    before = kept_for(c)
    c.change_group("never", admitted=True, annotations={"any": "thing"})
    run(c)
    assert kept_for(c) == before == {"head": 100.0}


@pytest.mark.parametrize("beyond", [True, False])
def test_when_a_node_is_back_room_is_kept_again(beyond: bool) -> None:
    """The start of who waits for two nodes cannot be told while one of them is gone: the cluster is too small for it
    (``beyond``), or the third is had by somebody who ends nobody knows when."""
    c = cluster(nodes=2 if beyond else 3)
    runners = {"first": 100.0} if beyond else {"first": 100.0, "endless": None}
    for name, seconds in runners.items():
        submit(c, name, 8, seconds)
    run(c)
    submit(c, "head", 16, 500)
    run(c)
    assert set(c.engine.reservations.by_group) == {"ns/head"}
    (left,) = {"n1", "n2", "n3"} & c.engine.state.table.rows.keys() - {n for r in runners for n in c.where(r)}
    c.remove_node(left)
    c.settle()
    assert (c.code("head") == "ExceedsCluster") is beyond
    assert not c.engine.reservations.by_group
    c.nodes(f"{left} gpu=8 cpu=64")
    loaded = Engine.load(c.engine.dump(), default_plugins())
    c.settle()
    again = loaded.cycle(c.now)
    while again.wake_at is not None and again.wake_at <= c.now:
        again = loaded.cycle(c.now)
    submit(c, "other", 8, None)
    run(c)
    assert c.placed("other") == 0
    assert set(c.engine.reservations.by_group) == set(loaded.reservations.by_group) == {"ns/head"}
