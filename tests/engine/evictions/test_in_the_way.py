"""Work that has a right to stay, but agreed to be moved, makes way for a claim: ``engine.evictions.in_the_way``."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from arena import Arena
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.evictions import in_the_way
from windlass.plugins.protection import MOVABLE
from windlass.spi.objects import Dialect

AGREED: dict[str, Any] = {"annotations": {MOVABLE: "true"}}
MOVING = ("allocate", "reclaim", "consolidation")


def shared(*actions: str, nodes: int = 2, over: int = 3, within: int = 2) -> Arena:
    """Nodes of four GPUs on which the queue ``over`` holds some each, all of it beyond its share; so many are due to
    ``within``, the rest to ``due``."""
    a = Arena(*(actions or MOVING), dialect=Dialect.VOLCANO)
    a.queue("within", deserved=within).queue("over", deserved=0).queue("due", deserved=4 * nodes - within)
    for at in range(nodes):
        a.node(f"n{at}", 4)
        for card in range(over):
            a.runs(f"over{at}{card}", "over", f"n{at}:1")
    return a


def test_who_is_within_his_share_is_moved_where_those_beyond_theirs_alone_leave_too_little() -> None:
    a = shared()
    for at in range(2):
        a.runs(f"within{at}", "within", f"n{at}:1", **AGREED)
    a.waits("whole", "due", 4).cycle()
    assert a.evicted == {"over00-0", "over01-0", "over02-0", "over12-0", "within0-0"}
    assert a.promised == {"whole-0": "n0", "within0-0": "n1"}
    a.cycle()
    assert a.bound == {"whole-0": "n0", "within0-0": "n1"}


@pytest.mark.parametrize("agreed", [True, False])
@pytest.mark.parametrize("actions", [("allocate", "reclaim"), MOVING])
def test_only_who_agreed_and_only_where_work_is_moved_at_all(actions: tuple[str, ...], agreed: bool) -> None:
    a = shared(*actions)
    for at in range(2):
        a.runs(f"within{at}", "within", f"n{at}:1", **(AGREED if agreed else {}))
    a.waits("whole", "due", 4).cycle()
    assert bool(a.evicted) == (agreed and "consolidation" in actions)


def test_a_gang_has_as_many_nodes_cleared_as_it_needs_those_first_on_which_least_is_moved() -> None:
    a = shared(nodes=4, over=2, within=5)
    for at, gpus in enumerate((1, 2, 1, 1)):
        a.runs(f"within{at}", "within", f"n{at}:{gpus}", **AGREED)
    a.waits("gang", "due", 4, 4, min=2).cycle()
    assert {"within0-0", "within2-0"} <= a.evicted
    assert not {"within1-0", "within3-0"} & a.evicted
    a.cycle()
    assert a.bound.keys() == {"gang-0", "gang-1", "within0-0", "within2-0"}


def test_nobody_goes_where_those_who_would_be_moved_find_no_other_place() -> None:
    a = shared(over=2, within=4)
    for at in range(2):
        a.runs(f"within{at}", "within", f"n{at}:2", **AGREED)
    a.waits("whole", "due", 4).cycle()
    assert len({"within0-0", "within1-0"} & a.evicted) == 1
    b = shared(over=1, within=6)
    for at in range(2):
        b.runs(f"within{at}", "within", f"n{at}:3", **AGREED)
    b.waits("whole", "due", 4).cycle()
    assert b.evicted == set()


def test_no_more_is_taken_than_a_queue_has_beyond_its_share() -> None:
    a = Arena(*MOVING, dialect=Dialect.VOLCANO)
    a.queue("within", deserved=2).queue("over", deserved=4).queue("due", deserved=2)
    for at in range(2):
        a.node(f"n{at}", 4).runs(f"within{at}", "within", f"n{at}:1", **AGREED)
        for card in range(3):
            a.runs(f"over{at}{card}", "over", f"n{at}:1", **AGREED)
    a.waits("half", "due", 2)
    a.rest()
    assert Counter(name[:4] for name, held in a.running().items() if held) == {
        "with": 2,
        "over": 4,
        "half": 1,
    }


def test_work_of_many_groups_is_not_moved_for_one_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    made = in_the_way.InTheWay.__init__

    def noted(self: in_the_way.InTheWay, *given: object) -> None:
        asked.append(given[-1])  # type: ignore[arg-type]
        made(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(in_the_way.InTheWay, "__init__", noted)
    a = Arena(*MOVING, dialect=Dialect.VOLCANO)
    a.queue("within", deserved=34).queue("over", deserved=0).queue("due", deserved=38)
    for at in range(2):
        a.node(f"n{at}", 36)
        for card in range(17):
            a.runs(f"within{at}{card}", "within", f"n{at}:1", **AGREED)
            a.runs(f"over{at}{card}", "over", f"n{at}:1")
    a.waits("whole", "due", 36).cycle()
    assert asked == [16]
    assert a.evicted == set()
    a.waits("less", "due", 34).cycle()
    assert sum(name.startswith("within") for name in a.evicted) == 15


small = st.lists(
    st.tuples(st.sampled_from(["within", "over"]), st.integers(1, 4), st.booleans()), min_size=2, max_size=10
)


@settings(max_examples=60)
@given(jobs=small, asked=st.lists(st.integers(1, 4), min_size=1, max_size=2), share=st.integers(0, 6))
def test_who_has_a_right_to_stay_has_his_room_in_the_end(
    jobs: list[tuple[str, int, bool]], asked: list[int], share: int
) -> None:
    a = Arena(*MOVING, dialect=Dialect.VOLCANO)
    a.queue("within", deserved=12).queue("over", deserved=share).queue("due", deserved=12 - share)
    free = [4, 4, 4]
    for at in range(3):
        a.node(f"n{at}", 4)
    held: Counter[str] = Counter()
    for number, (queue, gpus, agrees) in enumerate(jobs):
        row = next((row for row in range(3) if free[row] >= gpus), None)
        if row is not None:
            free[row] -= gpus
            held[queue] += gpus
            a.runs(f"{queue}{number}", queue, f"n{row}:{gpus}", **(AGREED if agrees else {}))
    a.waits("claims", "due", *asked, min=len(asked))
    a.rest()
    sizes = {f"{queue}{number}": gpus for number, (queue, gpus, _) in enumerate(jobs)}
    now: Counter[str] = Counter()
    for name, tasks in a.running().items():
        if tasks and name in sizes:
            now[name.rstrip("0123456789")] += sizes[name]
    assert now["within"] == held["within"]
