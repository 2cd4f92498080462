"""``engine.actions.preempt`` and ``engine.preemption.solver``: room is made by transactions, within the rules."""

from __future__ import annotations

from itertools import pairwise

import pytest
from cluster_dsl import GPU, NAMESPACE, Cluster
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered
from preemption_cluster import Arena

from windlass.engine.actions.registry import make_actions
from windlass.engine.actions.retry_backoff import BURST_SECONDS, LONGEST_PAUSE
from windlass.engine.config import EngineConfig
from windlass.engine.deltas import EvictionFailed, TaskRemoved
from windlass.engine.engine import Engine
from windlass.engine.preemption.solver import PreemptionSolver
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Dialect, TaskState


def preempting(*gpus: int) -> Arena:
    a = Arena("allocate", "preempt").queue("q", deserved=64)
    for at, n in enumerate(gpus):
        a.node(f"n{at}", n)
    return a


# ---------------------------------------------------------------------- what is kept between cycles


def test_what_is_confirmed_after_a_claim_is_known_to_the_next() -> None:
    a = preempting(1, 1).runs("weak", "q", "n1:1", priority=40).waits("low", "q", 1, priority=40)
    a.world.cycle(confirm=False)  # low is bound, and nobody knows yet whether that holds
    a.waits("high", "q", 1, priority=60).cycle(follow=False)
    assert a.evicted == {"weak-0"}
    a.waits("higher", "q", 1, priority=60).cycle(follow=False)
    assert a.evicted == set()
    a.world.confirm()
    a.cycle(follow=False)
    assert a.evicted == {"low-0"}


def test_a_unit_of_which_something_else_is_said_has_another_place() -> None:
    a = Arena("allocate", "preempt", dialect=Dialect.VOLCANO).queue("q", deserved=3).node("n0", 3)
    for name in ("one", "two", "three"):
        a.runs(name, "q", "n0:1", priority=40)
    a.waits("high", "q", 1, priority=60).cycle(follow=False)
    assert a.evicted == {"three-0"}  # the last to start
    a.cycle(follow=False)
    a.world.change_task("one-0", started=a.world.now)  # it was restarted in its place, and loses least now
    a.waits("higher", "q", 1, priority=60).cycle(follow=False)
    assert a.evicted == {"one-0"}


@pytest.mark.parametrize("priority", [60, 59])
def test_what_one_claim_leaves_over_is_promised_to_the_next(priority: int) -> None:
    """Though nobody is left who could go for it, and nobody has claimed on its terms before."""
    a = preempting(4).runs("low", "q", "n0:4", priority=40)
    a.waits("first", "q", 2, priority=60).waits("second", "q", 1, priority=priority)
    a.cycle(follow=False)
    assert a.evicted == {"low-0"}
    assert a.promised == {"first-0": "n0", "second-0": "n0"}


def test_what_is_known_of_earlier_claims_decides_nothing() -> None:
    a = preempting(4, 1).runs("low", "q", "n0:4", priority=40).runs("weak", "q", "n1:1", priority=40)
    a.waits("early", "q", 1, priority=59).cycle(follow=False)
    a.world.remove_task("weak-0")
    a.cycle(follow=False)
    a.waits("first", "q", 2, priority=60).waits("second", "q", 1, priority=59)
    twin = Engine.load(a.world.engine.dump(), default_plugins())
    assert a.cycle(follow=False).nominations == twin.cycle(a.world.now).nominations


# ---------------------------------------------------------------------- transactions


def test_the_claimer_is_promised_what_its_victims_leave_and_gets_it_once_they_are_gone() -> None:
    a = preempting(4).runs("low", "q", "n0:4", priority=40).waits("high", "q", 2, priority=60)
    decision = a.cycle(follow=False)
    assert [(e.task, e.action, e.preemptor) for e in decision.evictions] == [
        ("ns/low-0", "preempt", "ns/high")
    ]
    assert (a.promised, a.bound) == ({"high-0": "n0"}, {})
    assert a.cycle(follow=False).evictions == ()  # it waits for what it was promised
    a.world.remove_task("low-0")
    a.cycle()
    assert a.bound == {"high-0": "n0"}


def test_nobody_else_takes_the_room_that_is_kept() -> None:
    a = preempting(4).runs("low", "q", "n0:4", priority=40).waits("high", "q", 4, priority=60)
    a.cycle(follow=False)
    a.waits("late", "q", 1, priority=50)
    a.world.remove_task("low-0")
    a.cycle()
    assert a.bound == {"high-0": "n0"}


def test_nothing_goes_for_a_gang_that_would_not_fit_even_so() -> None:
    a = preempting(2, 2).runs("low", "q", "n0:2", priority=40).runs("firm", "q", "n1:2", preemptible=False)
    a.waits("gang", "q", 2, 2, min=2, priority=60)
    a.cycle()
    assert a.evicted == set()
    assert a.promised == {}


def test_a_gang_goes_whole_once_its_extras_are_gone() -> None:
    a = preempting(4).runs("low", "q", "n0:1", "n0:1", "n0:1", "n0:1", min=3, priority=40)
    a.waits("high", "q", 1, priority=60).cycle()
    assert a.evicted == {"low-3"}
    b = preempting(4).runs("low", "q", "n0:1", "n0:1", "n0:1", "n0:1", min=3, priority=40)
    b.waits("high", "q", 2, priority=60).cycle()
    assert b.evicted == {"low-0", "low-1", "low-2", "low-3"}


def test_idle_room_counts_and_whoever_does_not_help_stays() -> None:
    a = preempting(4, 4).runs("here", "q", "n0:3", priority=40).runs("there", "q", "n1:3", priority=45)
    a.runs("beside", "q", "n1:1", priority=30)
    a.waits("high", "q", 4, priority=60).cycle()
    assert a.evicted == {"here-0"}


def test_several_small_ones_of_low_priority_before_one_of_higher() -> None:
    a = preempting(2, 2).runs("dear", "q", "n0:2", priority=55)
    a.runs("a", "q", "n1:1", priority=40).runs("b", "q", "n1:1", priority=40)
    a.waits("high", "q", 2, priority=60).cycle()
    assert a.evicted == {"a-0", "b-0"}


def test_equal_priority_and_other_queues_are_not_preempted() -> None:
    a = preempting(2).queue("other", deserved=2).runs("same", "q", "n0:1", priority=60)
    a.runs("foreign", "other", "n0:1", priority=10).waits("high", "q", 1, priority=60)
    assert a.rest() == 0
    assert a.running() == {"same": 1, "foreign": 1}


def test_critical_pods_and_such_as_may_not_be_preempted_stay() -> None:
    a = preempting(2).runs("a", "q", "n0:1", priority=40).runs("b", "q", "n0:1", priority=40)
    a.world.change_task("a-0", critical=True)
    a.world.change_task("b-0", preemptible=False)
    a.waits("high", "q", 1, priority=60).cycle()
    assert a.evicted == set()


def test_who_preempts_nobody_waits() -> None:
    a = preempting(2).runs("low", "q", "n0:2", priority=40)
    a.waits("high", "q", 1, priority=60, never_preempts=True).waits("next", "q", 1, priority=59).cycle()
    assert [e.preemptor for e in a.decision.evictions] == ["ns/next"]


def test_a_failed_eviction_is_made_again_or_another_one() -> None:
    a = preempting(2).runs("low", "q", "n0:2", priority=40).waits("high", "q", 2, priority=60)
    a.cycle(follow=False)
    a.world.engine.apply([EvictionFailed("ns/low-0", "uid-low-0", "no")])
    a.cycle(follow=False)
    a.cycle(follow=False)
    a.world.engine.apply([TaskRemoved("ns/low-0")])
    del a.world.tasks["ns/low-0"]
    a.cycle()
    assert a.running() == {"high": 1}


def test_a_limit_is_kept_while_victims_of_the_queue_leave() -> None:
    """Room is not what is missing here: the quota of a higher queue is."""
    a = Arena("allocate", "preempt").queue("top", deserved=None, limit=2).queue("q", deserved=2, parent="top")
    a.node("n0", 8).runs("low", "q", "n0:1", "n0:1", priority=40)
    a.waits("high", "q", 1, priority=60).cycle()
    assert a.evicted == {"low-1"}
    assert a.promised == {"high-0": "n0"}
    a.cycle()
    assert a.running() == {"low": 1, "high": 1}


# ---------------------------------------------------------------------- when it is tried again


def test_it_is_tried_again_when_a_victim_appears() -> None:
    a = preempting(2).runs("firm", "q", "n0:2", preemptible=False).waits("high", "q", 2, priority=60)
    a.rest()
    a.world.change_group("firm", preemptible=True, priority=10)
    a.world.change_task("firm-0", preemptible=True)
    a.cycle()
    assert a.evicted == {"firm-0"}


def test_it_is_tried_again_when_some_room_comes_free_that_is_not_enough() -> None:
    a = preempting(4).runs("low", "q", "n0:2", priority=40).runs("firm", "q", "n0:1", preemptible=False)
    a.runs("done", "q", "n0:1", preemptible=False).waits("high", "q", 3, priority=60)
    a.rest()
    a.world.finish("done")
    a.cycle()
    assert a.evicted == {"low-0"}


def test_a_delay_is_waited_for_and_asked_to_be_woken_at() -> None:
    a = preempting(2).runs("low", "q", "n0:2", priority=40)
    a.waits("high", "q", 2, priority=60, preemption_delay=100.0, created=1000.0)
    decision = a.cycle()
    assert (decision.evictions, decision.wake_at) == ((), 1100.0)
    a.waits("quick", "q", 1, priority=60).cycle()
    assert {e.preemptor for e in a.decision.evictions} == {"ns/quick"}
    b = preempting(2).runs("low", "q", "n0:2", priority=40)
    b.waits("high", "q", 2, priority=60, preemption_delay=100.0, created=1000.0).cycle()
    b.cycle(seconds=99.0)
    assert b.evicted == {"low-0"}


def test_a_protected_core_is_taken_once_its_time_is_over() -> None:
    a = Arena("allocate", "preempt").node("n0", 3).queue("q", deserved=3, preempt_min_runtime=50.0)
    a.runs("low", "q", "n0:1", "n0:1", min=1, priority=40, started=990.0)
    a.runs("old", "q", "n0:1", priority=45, started=900.0)
    a.waits("high", "q", 1, priority=60).cycle(follow=False)
    assert a.evicted == {"low-1"}  # beyond its minimum, so not protected
    b = Arena("allocate", "preempt").node("n0", 2).queue("q", deserved=2, preempt_min_runtime=50.0)
    b.runs("low", "q", "n0:2", priority=40, started=990.0).waits("high", "q", 1, priority=60)
    decision = b.cycle()
    assert (decision.evictions, decision.wake_at) == ((), 1040.0)
    b.cycle(seconds=40.0)
    assert b.evicted == {"low-0"}


def test_nothing_is_looked_at_twice_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    from windlass.engine.preemption.solver import PreemptionSolver

    calls = []
    solve = PreemptionSolver.solve
    monkeypatch.setattr(PreemptionSolver, "solve", lambda self, *args: calls.append(1) or solve(self, *args))
    a = preempting(2).runs("firm", "q", "n0:2", preemptible=False).runs("low", "q", "n0:0", priority=1)
    for i in range(20):
        a.waits(f"high{i}", "q", 2, priority=60)
    a.cycle()
    first = len(calls)
    assert 1 <= first <= 2
    for _ in range(5):
        a.cycle()
    assert len(calls) <= first + 1


# ---------------------------------------------------------------------- reclaim


def reclaiming(gpus: int, *, busy: int, claims: int) -> Arena:
    a = Arena("allocate", "reclaim").node("n0", gpus)
    return a.queue("busy", deserved=busy).queue("claims", deserved=claims)


def test_a_queue_takes_back_what_it_deserves_and_no_more() -> None:
    a = reclaiming(4, busy=2, claims=2)
    for i in range(4):
        a.runs(f"job{i}", "busy", "n0:1")
    for i in range(4):
        a.waits(f"mine{i}", "claims", 1)
    a.rest()
    assert sum(n for name, n in a.running().items() if name.startswith("mine")) == 2


def test_the_youngest_goes_first_and_what_may_not_go_stays() -> None:
    a = (
        reclaiming(3, busy=1, claims=2)
        .runs("old", "busy", "n0:1")
        .runs("firm", "busy", "n0:1", preemptible=False)
    )
    a.runs("young", "busy", "n0:1").waits("mine", "claims", 1).cycle()
    assert a.evicted == {"young-0"}


def test_a_victim_that_fits_elsewhere_is_moved_and_comes_back_there() -> None:
    a = Arena("allocate", "reclaim").node("n0", 3).node("n1", 2)
    a.queue("busy", deserved=3).queue("claims", deserved=2)
    a.runs("big", "busy", "n0:2").runs("small", "busy", "n1:1").waits("mine", "claims", 2)
    a.cycle()
    assert a.evicted == {"small-0"}
    assert a.promised == {"mine-0": "n1", "small-0": "n0"}
    a.cycle()
    assert a.bound == {"mine-0": "n1", "small-0": "n0"}


def test_a_moved_task_finds_its_place_kept_under_another_name() -> None:
    a = Arena("allocate", "reclaim").node("n0", 3).node("n1", 2)
    a.queue("busy", deserved=3).queue("claims", deserved=2)
    a.runs("big", "busy", "n0:2").runs("small", "busy", "n1:1").waits("mine", "claims", 2)
    a.cycle(follow=False)
    a.world.remove_task("small-0")
    a.waits("thief", "busy", 1, priority=90)
    a.cycle()
    assert a.bound == {"mine-0": "n1"}
    old = a.world.tasks["ns/big-0"].needs
    task = altered(a.world.tasks["ns/thief-0"], key="ns/small-x", uid="x", group="ns/small", needs=old)
    a.world.task(altered(task, needs=a.world.tasks["ns/thief-0"].needs))
    a.cycle()
    assert a.bound == {"small-x": "n0"}


def test_a_place_that_is_kept_for_a_moved_task_is_given_up_after_a_while() -> None:
    a = Arena("allocate", "reclaim").node("n0", 3).node("n1", 2)
    a.queue("busy", deserved=3).queue("claims", deserved=2)
    a.runs("big", "busy", "n0:2").runs("small", "busy", "n1:1").waits("mine", "claims", 2)
    a.cycle(follow=False)
    a.world.remove_task("small-0")
    a.waits("thief", "busy", 1)
    a.cycle()
    assert a.bound == {"mine-0": "n1"}
    a.cycle(seconds=61.0)
    a.cycle()
    assert a.running()["thief"] == 1


def test_a_queue_that_is_not_reclaimable_and_a_guarantee_are_left_alone() -> None:
    for rest in ({"reclaimable": False}, {"guarantee": {GPU: 4000}}):
        a = Arena("allocate", "reclaim").node("n0", 4)
        a.queue("busy", deserved=1, **rest).queue("claims", deserved=3)
        a.runs("job", "busy", "n0:1", "n0:1", "n0:1", "n0:1").waits("mine", "claims", 1)
        a.cycle()
        assert a.evicted == set()


# ---------------------------------------------------------------------- consolidation


def test_all_that_is_moved_gets_a_place_or_nothing_happens() -> None:
    a = Arena("allocate", "consolidation").node("n0", 4).node("n1", 4).queue("q", deserved=8)
    a.runs("a", "q", "n0:2").runs("b", "q", "n1:2").waits("whole", "q", 4)
    a.cycle()
    assert len(a.evicted) == 1
    a.rest()
    assert a.running() == {"a": 1, "b": 1, "whole": 1}
    b = Arena("allocate", "consolidation").node("n0", 4).node("n1", 4).queue("q", deserved=8)
    b.runs("a", "q", "n0:2").runs("b", "q", "n1:3").waits("whole", "q", 4)
    b.rest()
    assert b.running() == {"a": 1, "b": 1}


def test_work_of_other_queues_is_moved_only_if_its_owner_agreed() -> None:
    for notes, moved in (({}, False), ({"windlass.dev/movable": "true"}, True)):
        a = Arena("allocate", "consolidation", dialect=Dialect.VOLCANO).node("n0", 4).node("n1", 4).queue("q")
        a.runs("a", "q", "n0:2", annotations=notes).runs("b", "q", "n1:2", annotations=notes)
        a.waits("whole", "q", 4)
        a.cycle()
        assert bool(a.evicted) is moved


# ---------------------------------------------------------------------- Windlass' own rules


def own(*actions: str) -> Arena:
    return Arena("allocate", *actions, dialect=Dialect.VOLCANO)


def test_own_preemption_takes_whoever_loses_least_work() -> None:
    a = own("preempt").node("n0", 3).queue("q")
    a.runs("long", "q", "n0:1", priority=1).runs(
        "saved", "q", "n0:1", priority=1, annotations={"windlass.dev/checkpointed-at": "1970-01-01T00:16:30Z"}
    )
    a.runs("short", "q", "n0:1", priority=1)
    a.world.change_task("short-0", started=900.0)
    a.waits("high", "q", 1, priority=5).cycle()
    assert a.evicted == {"saved-0"}
    a = own("preempt").node("n0", 2).queue("q").runs("long", "q", "n0:1", priority=1)
    a.runs("short", "q", "n0:1", priority=1)
    a.world.change_task("long-0", started=950.0)
    a.world.change_task("short-0", started=900.0)
    a.waits("high", "q", 1, priority=5).cycle()
    assert a.evicted == {"long-0"}


def test_own_reclaim_spares_a_large_gang_where_a_small_one_will_do() -> None:
    a = own("reclaim").node("n0", 16).node("n1", 2).queue("a").queue("b")
    a.runs("large", "a", "n0:8", "n0:8", min=2).runs("small", "a", "n1:2").waits("one", "b", 1)
    for task, started in (("large-0", 900.0), ("large-1", 900.0), ("small-0", 700.0)):
        a.world.change_task(task, started=started)
    a.cycle()
    assert a.evicted == {"small-0"}


def test_own_reclaim_follows_the_shares() -> None:
    a = own("reclaim").node("n0", 4).queue("a").queue("b")
    for i in range(4):
        a.runs(f"job{i}", "a", "n0:1")
    for i in range(4):
        a.waits(f"mine{i}", "b", 1)
    a.rest()
    assert sum(n for name, n in a.running().items() if name.startswith("mine")) == 2


def test_cooldown_and_disruption_budgets() -> None:
    a = own("preempt").node("n0", 2).queue("q")
    a.runs("low", "q", "n0:1", "n0:1", annotations={"volcano.sh/jdb-min-available": "50%"})
    a.waits("high", "q", 1, 1, min=2, priority=90).cycle()
    assert a.evicted == set()
    b = own("preempt").node("n0", 2).queue("q")
    b.runs("low", "q", "n0:1", "n0:1", annotations={"volcano.sh/jdb-min-available": "50%"})
    b.waits("high", "q", 1, priority=90).cycle()
    assert b.evicted == {"low-1"}
    c = own("preempt").node("n0", 1).queue("q")
    c.runs("low", "q", "n0:1", annotations={"volcano.sh/cooldown-time": "20m"})
    decision = c.waits("high", "q", 1, priority=90).cycle()
    assert (c.evicted, decision.wake_at) == (set(), 1202.0)
    c.cycle(seconds=201.0)
    assert c.evicted == {"low-0"}


# ---------------------------------------------------------------------- the cycle


def test_an_action_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no action 'dance'"):
        Engine(EngineConfig(actions=("dance",)), default_plugins())
    assert make_actions((), Cluster().engine._context) == ()


def test_without_allocate_what_waits_is_told_why() -> None:
    a = Arena("reclaim").node("n0", 1).queue("q", deserved=1).waits("job", "q", 2)
    a.cycle()
    assert a.bound == {}
    assert a.world.code("job")
    assert a.world.engine.scheduling_queue.pending_classes
    assert all(
        pending_class.parked for pending_class in a.world.engine.scheduling_queue.pending_classes.values()
    )


def test_an_engine_that_was_written_down_goes_on_as_it_would_have() -> None:
    a = preempting(2).runs("low", "q", "n0:2", priority=40).waits("high", "q", 2, priority=60)
    copy = Engine.load(a.world.engine.dump(), default_plugins())
    assert copy.cycle(1001.0) == a.cycle(follow=False)
    assert a.evicted == {"low-0"}
    assert copy.state.tasks["ns/low-0"].state is TaskState.RELEASING
    assert f"{NAMESPACE}/high" in copy.state.groups


def test_more_claims_than_one_cycle_serves_go_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    from windlass.engine.actions import preempt

    monkeypatch.setattr(preempt, "MAX_PREEMPTIONS", 2)
    a = preempting(8)
    for i in range(5):
        a.runs(f"low{i}", "q", "n0:1", priority=40)
    a.runs("rest", "q", "n0:3", priority=90)
    for i in range(5):
        a.waits(f"high{i}", "q", 1, priority=60 + i)
    counts = []
    for _ in range(3):
        decision = a.cycle(follow=False)
        counts.append(len(decision.evictions))
        assert (decision.wake_at == a.world.now) is (len(counts) < 3)
    assert counts == [2, 2, 1]


def test_victims_that_came_while_nobody_claimed_are_known() -> None:
    a = preempting(4).waits("first", "q", 9, priority=60)
    a.cycle()
    a.world.remove("first")
    a.cycle()
    a.runs("low", "q", "n0:4", priority=40).cycle()
    a.waits("high", "q", 2, priority=60).cycle()
    assert a.evicted == {"low-0"}


def test_trials_in_vain_do_not_set_off_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of several classes are placed to be judged; that disturbs nobody, however many there are."""
    from windlass.engine.actions import preempt
    from windlass.engine.preemption.solver import PreemptionSolver

    monkeypatch.setattr(preempt, "MAX_REPEATED", 2)
    calls = []
    solve = PreemptionSolver.solve
    monkeypatch.setattr(PreemptionSolver, "solve", lambda self, *args: calls.append(1) or solve(self, *args))
    a = Arena().node("n0", 2).queue("q", deserved=9).queue("o", deserved=0)
    a.runs("firm", "q", "n0:1", preemptible=False).runs("low", "o", "n0:1", priority=1)
    for i in range(5):
        a.waits(f"high{i}", "q", 1, 2, min=2, priority=60 + i)
    a.cycle()
    woken = 0
    while a.decision.wake_at == a.world.now:
        woken += 1
        assert woken < 9
        a.cycle(seconds=0.0)
    a.cycle()
    before = len(calls)
    a.cycle()
    assert len(calls) == before
    a.world.finish("firm")
    for _ in range(9):
        a.cycle()
    assert len(calls) > before


def test_the_first_few_of_a_bucket_are_asked_for_one_that_may_claim() -> None:
    from windlass.engine.actions.preempt import MAX_MEMBERS, _first_members

    a = preempting(1).runs("low", "q", "n0:1", priority=40)
    for i in range(MAX_MEMBERS + 3):
        a.waits(f"high{i:02}", "q", 1, priority=60, never_preempts=True)
    a.cycle()
    (pending_class,) = a.world.engine.scheduling_queue.pending_classes.values()
    assert [group.key for group in _first_members(pending_class)] == [
        f"ns/high{i:02}" for i in range(MAX_MEMBERS)
    ]
    a.world.remove("high01")
    a.world.change_group("high05", priority=60, never_preempts=False)
    a.cycle()
    assert [e.preemptor for e in a.decision.evictions] == ["ns/high05"]


def test_a_share_that_is_used_up_is_found_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from windlass.plugins.kai.victims import KaiPreemptionPolicy

    asked = []
    terms_of = KaiPreemptionPolicy.preemption_terms
    monkeypatch.setattr(
        KaiPreemptionPolicy, "preemption_terms", lambda self, claim: asked.append(1) or terms_of(self, claim)
    )
    a = reclaiming(2, busy=2, claims=0).runs("job", "busy", "n0:2")
    for i in range(9):
        a.waits(f"mine{i}", "claims", 1)
    a.cycle()
    assert len(asked) == 1


def test_the_explanation_says_why_nobody_is_asked_to_go() -> None:
    a = Arena().node("n0", 2).queue("busy", deserved=2).queue("claims", deserved=0)
    a.runs("job", "busy", "n0:2").waits("mine", "claims", 1, preemptible=False, never_preempts=False).cycle()
    assert a.world.explain("mine").extra == {
        "no consolidation": "only preemptible work may have other work relocated",
        "no reclaim": "work that is not preemptible stays within quota",
        "no preempt": "work that is not preemptible stays within quota",
    }
    a.waits("yours", "claims", 1).waits("ours", "busy", 1).cycle()
    assert a.world.explain("yours").extra == {"no reclaim": "it would exceed its queue's fair share"}
    b = preempting(1).runs("low", "q", "n0:1", priority=1).waits("high", "q", 1, priority=9)
    b.cycle(follow=False)
    assert b.world.explain("high").extra == {}


def test_a_moment_is_noted_once_however_often_it_is_tried() -> None:
    a = Arena("allocate", "preempt").node("n0", 2).queue("q", deserved=9, preempt_min_runtime=500.0)
    a.runs("low", "q", "n0:2", priority=40, started=990.0).waits("high", "q", 2, priority=60)
    for i in range(5):
        a.waits(f"cpu{i}", "q", 0, priority=99).cycle()  # something changes each time
    action = a.world.engine._actions[1]
    assert [moment for moment, _, _ in action.retries.times] == [1490.0]
    a.cycle(seconds=1490.0 - a.world.now)
    assert a.evicted == {"low-0"}
    assert action.retries.times == []


# ---------------------------------------------------------------------- patience


def in_vain(pause: float) -> tuple[Cluster, Arena]:
    """A cluster in which ``high`` claims room that nobody gives; on ``n1`` others come and go."""
    config = EngineConfig(actions=("allocate", "preempt"), claim_pause_seconds=pause)
    world = Cluster(config, default_plugins())
    a = Arena()
    a.world = world
    a.queue("q", deserved=64).node("n0", 4).node("n1", 1)
    a.runs("firm", "q", "n0:4", preemptible=False, priority=40).waits("high", "q", 4, priority=60)
    return world, a


def bustle(world: Cluster, a: Arena, cycles: int, seconds: float) -> None:
    """Others come and go, one with each cycle."""
    for _ in range(cycles):
        name = f"small-{world.now:.6f}-{world.engine.cycles}"
        a.runs(name, "q", "n1:1", priority=70)
        world.cycle(seconds)
        world.remove(name)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When room was looked for, on the clock of the cluster that ``in_vain`` made."""
    found: list[float] = []
    solve = PreemptionSolver.solve
    monkeypatch.setattr(PreemptionSolver, "solve", lambda *a: found.append(a[0].time) or solve(*a))
    return found


@pytest.mark.parametrize(("pause", "least", "most"), [(0.0, 50, 60), (0.25, 4, 9)])
def test_who_claims_in_vain_pauses(pause: float, least: int, most: int, tried: list[float]) -> None:
    """Something else changes all the time; the claim stays in vain, until it does not."""
    world, a = in_vain(pause)
    bustle(world, a, 60, 0.05)
    assert least <= len(tried) <= most
    world.change_group("firm", preemptible=True)
    world.change_task("firm-0", preemptible=True)
    world.cycle(9.0)
    assert world.engine.state.tasks["ns/high-0"].nominated_row >= 0


def test_pauses_last_as_long_as_it_was_in_vain_so_far(tried: list[float]) -> None:
    world, a = in_vain(1.0)
    bustle(world, a, 300, 0.5)
    pauses = [round(after - before, 3) for before, after in pairwise(tried)]
    assert pauses == [1.0, *[min(2.0**n, LONGEST_PAUSE) for n in range(len(pauses) - 1)]]
    assert pauses.count(LONGEST_PAUSE) > 1


@given(bursts=st.lists(st.integers(1, 12), min_size=12, max_size=12))
@settings(max_examples=examples(15), deadline=None)
def test_pauses_do_not_depend_on_how_many_cycles_there_were(bursts: list[int]) -> None:
    """What happens at one moment may be heard of in one cycle or in many."""

    def told(cycles: list[int]) -> list[tuple[float, float]]:
        """The time after each burst, and when the pause is over."""
        world, a = in_vain(1.0)
        found: list[tuple[float, float]] = []
        for many in cycles:
            bustle(world, a, many, 0.0)
            (record,) = world.engine.plain_preempt_actions["preempt"].as_record().pending_classes
            assert record.backoff is not None
            found.append((world.now, record.backoff.ends))
            world.cycle(0.75)
        return found

    assert told(bursts) == told([1] * len(bursts))


def test_what_is_heard_of_bit_by_bit_is_one_event(tried: list[float]) -> None:
    """The claim is tried with each bit of what follows from an event, and pauses from the first on."""
    world, a = in_vain(1.0)
    bustle(world, a, 1, 10.0)
    tried.clear()
    bustle(world, a, 5, BURST_SECONDS / 8)
    assert len(tried) == 5
    bustle(world, a, 5, BURST_SECONDS)
    assert len(tried) <= 6


def test_a_copy_pauses_as_long_as_the_original(tried: list[float]) -> None:
    world, a = in_vain(1.0)
    bustle(world, a, 9, 0.5)
    original = world.engine
    copy = Engine.load(original.dump(), default_plugins())
    assert (
        copy.plain_preempt_actions["preempt"].as_record()
        == original.plain_preempt_actions["preempt"].as_record()
    )
    (record,) = copy.plain_preempt_actions["preempt"].as_record().pending_classes
    assert (record.group, record.until) == ("ns/high", None)
    assert record.backoff is not None
    assert record.backoff.ends > world.now
    begun = world.now
    tried.clear()
    assert copy.cycle(world.now + 0.1).wake_at == record.backoff.ends
    assert tried == []
    world.engine = copy
    world.cycle(record.backoff.ends - begun)
    assert len(tried) == 1


def test_the_end_of_a_pause_is_no_reason_to_try_again_while_nothing_changes(tried: list[float]) -> None:
    """Else a claim that never fits would be tried, and the engine woken, every few seconds for ever."""
    world, a = in_vain(1.0)
    bustle(world, a, 9, 0.5)
    world.cycle(LONGEST_PAUSE)
    tried.clear()
    ends: list[float] = []
    while (wake := world.engine.cycle(ends[-1] if ends else world.now).wake_at) is not None:
        ends.append(wake)
        assert len(ends) < 4
    assert not tried


def test_who_is_preempted_is_promised_no_other_place() -> None:
    """It goes back to its queue, though another node has room for it."""
    a = preempting(2, 1)
    a.runs("low", "q", "n0:1", priority=40).waits("high", "q", 2, priority=60).cycle()
    assert (a.evicted, a.promised) == ({"low-0"}, {"high-0": "n0"})


def test_after_a_restart_every_claim_is_tried_again() -> None:
    """When to look again is not in the dump: the new engine finds out by itself."""
    a = Arena("allocate", "preempt").node("n0", 2).queue("q", deserved=9, preempt_min_runtime=500.0)
    a.runs("low", "q", "n0:2", priority=40, started=990.0).waits("high", "q", 2, priority=60).cycle()
    assert a.evicted == set()
    twin = Engine.load(a.world.engine.dump(), default_plugins())
    assert twin.cycle(1400.0).wake_at == 1490.0
    assert [e.task for e in twin.cycle(1490.0).evictions] == [f"{NAMESPACE}/low-0"]
