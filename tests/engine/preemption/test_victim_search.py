"""Which units make room, and how hard is looked for them: ``engine.preemption.victim_search``,
``engine.preemption.solver``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_cluster import Arena

from windlass.engine.preemption import solver, victim_search
from windlass.engine.preemption.relocation import Relocator
from windlass.engine.preemption.victim_search import VictimSearch
from windlass.spi.objects import Dialect


def preempting(*gpus: int) -> Arena:
    a = Arena("allocate", "preempt").queue("q", deserved=64)
    for at, n in enumerate(gpus):
        a.node(f"n{at}", n)
    return a


def trials(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many units each trial evicted."""
    found: list[int] = []
    carry_out = VictimSearch._execute

    def counted(self: VictimSearch, units: list[object]) -> bool:
        found.append(len(units))
        return carry_out(self, units)

    monkeypatch.setattr(VictimSearch, "_execute", counted)
    return found


def test_a_step_of_one_class_is_counted_and_placed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = trials(monkeypatch)
    a = preempting(8)
    for i in range(8):
        a.runs(f"low{i}", "q", "n0:1", priority=40)
    a.waits("high", "q", 2, 2, min=2, priority=60).cycle()
    assert made == [0, 4]
    assert a.evicted == {"low7-0", "low6-0", "low5-0", "low4-0"}


def test_a_step_of_several_classes_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    made = trials(monkeypatch)
    a = preempting(8)
    for i in range(8):
        a.runs(f"low{i}", "q", "n0:1", priority=40)
    a.waits("high", "q", 1, 2, min=2, priority=60).cycle()
    assert a.evicted == {"low7-0", "low6-0", "low5-0"}
    assert made[:4] == [0, 1, 2, 4]
    assert 3 in made


def test_several_classes_spare_whoever_does_not_help() -> None:
    a = preempting(4, 4).runs("firm", "q", "n0:2", preemptible=False).runs("a", "q", "n0:2", priority=30)
    a.runs("b", "q", "n1:1", priority=20).runs("c", "q", "n1:3", priority=40)
    a.waits("high", "q", 1, 3, min=2, priority=60).cycle()
    assert a.evicted == {"b-0", "c-0"}


def test_trying_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victim_search, "MAX_TRIALS", 3)
    made = trials(monkeypatch)
    a = preempting(8)
    for i in range(8):
        a.runs(f"low{i}", "q", "n0:1", priority=40)
    a.waits("high", "q", 3, 4, min=2, priority=60).cycle()
    assert a.evicted == set()
    assert len(made) == 3


def test_whether_a_claim_can_succeed_is_asked_before_sorting_and_in_a_long_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    possible = solver.PreemptionSolver._possible

    def noted(self: solver.PreemptionSolver, *about: Any, **more: Any) -> bool:
        asked.append(1)
        return possible(self, *about, **more)

    monkeypatch.setattr(solver.PreemptionSolver, "_possible", noted)
    for eager, times in ((64, 1), (1, 3)):
        monkeypatch.setattr(victim_search, "CHECK_AFTER", eager)
        asked.clear()
        a = preempting(8)
        for i in range(8):
            a.runs(f"low{i}", "q", "n0:1", priority=40)
        a.waits("one", "q", 2, priority=60).waits("two", "q", 2, priority=60).cycle()
        assert (len(a.evicted), len(asked)) == (4, times)
    asked.clear()
    b = (
        preempting(4, 4)
        .runs("firm", "q", "n0:1", preemptible=False)
        .runs("rock", "q", "n1:1", preemptible=False)
    )
    for i in range(6):
        b.runs(f"low{i}", "q", f"n{i % 2}:1", priority=40)
    b.waits("high", "q", 4, priority=60).cycle()
    assert (b.evicted, len(asked)) == (set(), 1)


def test_quota_is_made_room_in_by_as_few_as_it_takes() -> None:
    a = Arena("allocate", "preempt").queue("top", deserved=None, limit=4).queue("q", deserved=4, parent="top")
    a.node("n0", 16)
    for i in range(4):
        a.runs(f"low{i}", "q", "n0:1", priority=40 + i)
    a.waits("high", "q", 2, priority=60).cycle()
    assert a.evicted == {"low0-0", "low1-0"}
    a.rest()
    assert a.running() == {"low2": 1, "low3": 1, "high": 1}


def test_others_go_where_the_rules_forbid_the_first_ones_together() -> None:
    """The queue may lose one GPU of the extras, or two at once: only those do."""
    a = Arena("allocate", "reclaim").node("n0", 2).node("n1", 1).node("n2", 1)
    a.queue("claims", deserved=3).queue("busy", deserved=3)
    a.runs("pair", "busy", "n1:1", "n2:1", min=2, priority=40).runs(
        "elastic", "busy", "n0:1", "n0:1", priority=30
    )
    a.waits("mine", "claims", 1, 1, min=2).cycle()
    assert a.evicted == {"pair-0", "pair-1"}


def test_work_is_moved_out_of_the_way_of_what_moves() -> None:
    a = Arena("allocate", "consolidation").node("n0", 2).node("n1", 3).node("n2", 4).queue("q", deserved=9)
    a.runs("a", "q", "n0:1").runs("b", "q", "n1:1", "n1:1").runs("c", "q", "n2:2").waits("whole", "q", 4)
    a.cycle()
    assert {"c-0"} < a.evicted
    a.rest()
    assert a.running() == {"a": 1, "b": 2, "c": 1, "whole": 1}


def test_work_is_moved_from_the_nodes_that_lack_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MAX_NODES", 0)
    a = Arena("allocate", "consolidation").queue("q", deserved=64)
    for at, used in enumerate((3, 2, 1, 3)):
        a.node(f"n{at}", 4).runs(f"r{at}", "q", *[f"n{at}:1"] * used, min=used)
    a.waits("whole", "q", 4).cycle()
    assert a.evicted == {"r2-0"}


def test_no_more_groups_are_moved_than_the_terms_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    from windlass.plugins.kai import victims

    for most, moved in ((1, False), (2, True)):
        monkeypatch.setattr(victims, "CONSOLIDATED_GROUPS", most)
        a = Arena("allocate", "consolidation").node("n0", 4).node("n1", 4).queue("q", deserved=64)
        a.runs("a", "q", "n0:1").runs("b", "q", "n0:1").runs("c", "q", "n1:2", preemptible=False)
        a.waits("whole", "q", 4).cycle()
        assert bool(a.evicted) is moved


def test_two_apis_take_back_from_one_another_what_is_theirs() -> None:
    """The roots of both APIs are siblings: a KAI queue below its share reclaims from Volcano's."""
    a = Arena("allocate", "reclaim").node("n0", 4).queue("kai", deserved=2)
    a.dialect = Dialect.VOLCANO
    a.queue("root", deserved=None).queue("team", deserved=2, parent="root")
    for i in range(4):
        a.runs(f"job{i}", "team", "n0:1")
    a.dialect = Dialect.KAI
    for i in range(4):
        a.waits(f"mine{i}", "kai", 1)
    a.rest()
    assert sum(n for name, n in a.running().items() if name.startswith("mine")) == 2


def test_nobody_moves_for_room_that_others_leave_anyway() -> None:
    """What a gang can do without would go first and does not suffice; with the others gone it is not needed."""
    a = Arena("allocate", "reclaim", dialect=Dialect.VOLCANO).node("n0", 4).node("n1", 6)
    a.queue("over", deserved=3).queue("ours", deserved=7).runs("own", "ours", "n0:1")
    a.runs("elastic", "over", *["n0:1"] * 3, min=1).runs("big", "over", "n1:3", "n1:3", min=2)
    decision = a.waits("claimer", "ours", 2, 2, min=2).cycle(follow=False)
    assert sorted(e.task for e in decision.evictions) == ["ns/big-0", "ns/big-1"]
    assert set(a.promised) == {"claimer-0", "claimer-1"}


def to_the_end(spare: Callable[..., object]) -> Callable[..., object]:
    """Who has a place is looked at to the end, whether or not that matters."""

    def spares(*args: object, whole: bool = False, **rest: object) -> object:
        return spare(*args, **rest)

    return spares


@given(
    st.lists(st.sampled_from([2, 4, 8]), min_size=2, max_size=5),
    st.lists(st.sampled_from([1, 1, 2, 3, 4]), min_size=1, max_size=14),
    st.lists(st.sampled_from([1, 2, 4, 6, 8]), min_size=1, max_size=3),
    st.integers(1, 3),
)
@settings(max_examples=examples(150), deadline=None)
def test_that_somebody_would_have_no_place_is_seen_before_all_are_placed(
    nodes: list[int], running: list[int], asked: list[int], members: int
) -> None:
    """Who moves, and where to, is as if every order of giving places had been tried."""

    def decided() -> list[object]:
        a = Arena("allocate", "consolidation").queue("q", deserved=8).queue("r", deserved=None)
        left = list(nodes)
        for at, gpus in enumerate(nodes):
            a.node(f"n{at}", gpus)
        for at, gpus in enumerate(running):
            home = (at * 7) % len(nodes)
            if left[home] >= gpus:
                left[home] -= gpus
                a.runs(f"run-{at}", "qr"[at % 2], f"n{home}:{gpus}")
        a.cycle()
        found: list[object] = []
        for at, gpus in enumerate(asked):
            a.waits(f"new-{at}", "q", *[gpus] * members, min=members)
            decision = a.cycle()
            found += [
                [(e.task, e.preemptor) for e in decision.evictions],
                a.promised,
                [(b.task, b.node) for b in decision.binds],
            ]
        return found

    seen = decided()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver.PreemptionSolver, "_could_repack_with", lambda *_: True)
        patch.setattr(Relocator, "find_places", to_the_end(Relocator.find_places))
        assert decided() == seen
