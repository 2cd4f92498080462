"""Why a share is what it is, and who lends to whom."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_dsl import GPU, Cluster, resources
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.decision import QueueUsage
from windlass.engine.diagnosis.share_messages import LevelAccount, borrowed, explain_shares, lending
from windlass.spi.objects import TaskState
from windlass.spi.shares import ShareCause, SharePart


def usage(name: str = "q", parent: str = "", **rest: Any) -> QueueUsage:
    amounts = {
        which: resources(rest.pop(which, "") or "")
        for which in ("guarantee", "deserved", "capability", "fair_share", "allocated", "requested")
    }
    return QueueUsage(name, parent, *amounts.values(), **rest)


@pytest.mark.parametrize(
    ("figures", "parts", "text"),
    [
        (
            dict(fair_share="gpu=3", requested="gpu=3"),
            (SharePart(ShareCause.DESERVED, 3000),),
            "3: 3 deserved, all that it requests",
        ),
        (
            dict(fair_share="gpu=5", requested="gpu=8"),
            (
                SharePart(ShareCause.DESERVED, 2000),
                SharePart(ShareCause.SURPLUS, 2000, 2.0, 3.0),
                SharePart(ShareCause.ROUNDING, 1000),
            ),
            "5: 2 deserved + 2 of the surplus by weight 2 of 3 + 1 since the rest goes out as a whole device, "
            "it requests 8",
        ),
        (
            dict(fair_share="gpu=5", requested="gpu=8", capability="gpu=5"),
            (SharePart(ShareCause.SURPLUS, 5000, 1.0, 1.0),),
            "5: 5 of the surplus by weight 1 of 1, its limit is 5",
        ),
        (
            dict(fair_share="gpu=37", requested="gpu=72", releasing={GPU: 35000}),
            (SharePart(ShareCause.SURPLUS, 37000, 1.0, 2.0),),
            "37: 37 of the surplus by weight 1 of 2, all that it requests besides the 35 that terminate",
        ),
        (
            dict(fair_share="gpu=30", requested="gpu=72", releasing={GPU: 35000}),
            (SharePart(ShareCause.SURPLUS, 30000, 1.0, 2.0),),
            "30: 30 of the surplus by weight 1 of 2, it requests 37 besides the 35 that terminate",
        ),
        (
            dict(requested="gpu=2", releasing={GPU: 2000}),
            (),
            "0: it requests nothing besides the 2 that terminate",
        ),
        (
            dict(fair_share="gpu=4", requested="gpu=6", capability="gpu=5", releasing={GPU: 2000}),
            (SharePart(ShareCause.SURPLUS, 4000, 1.0, 1.0),),
            "4: 4 of the surplus by weight 1 of 1, all that it requests besides the 2 that terminate",
        ),
        (dict(requested="gpu=2"), (), "0: it requests 2"),
        (
            dict(requested="gpu=2", weightless=(GPU,)),
            (),
            "0: it requests 2, and its weight 0 gives it no part of the surplus",
        ),
        (
            dict(fair_share="gpu=1", requested=""),
            (SharePart(ShareCause.GUARANTEED, 1000),),
            "1: 1 guaranteed, it requests nothing",
        ),
        (
            dict(fair_share="gpu=1", requested="gpu=1.5"),
            (SharePart(ShareCause.SURPLUS, 1000, 1.0, 2.0),),
            "1: 1 of the surplus by weight 1 of 2, it requests 1.5; shares are whole devices",
        ),
        (
            dict(fair_share="gpu=8", requested="gpu=2"),
            (SharePart(ShareCause.REST, 8000),),
            "8: what the queues of the other API leave",
        ),
    ],
)
def test_a_share_explains_itself(figures: dict[str, Any], parts: tuple[SharePart, ...], text: str) -> None:
    assert explain_shares(usage(**figures, parts={GPU: parts})) == {GPU: text}


def test_a_queue_that_neither_asks_nor_is_due_anything_says_nothing() -> None:
    assert explain_shares(usage()) == {}
    assert explain_shares(usage(requested="pods=3")) == {}


def test_what_is_held_beyond_the_due_is_borrowed_of_those_who_leave_most() -> None:
    level = [
        LevelAccount("a", 2, 7),
        LevelAccount("b", 4, 1),
        LevelAccount("c", 2, 1),
        LevelAccount("d", None, 9),
    ]
    assert borrowed(level, 17) == {"a": {"b": 3, "c": 1}}
    assert borrowed(level, 20) == {"a": {"b": 2}}  # three are nobody's due
    assert borrowed(level, 99) == {}


def test_lending_is_told_level_by_level() -> None:
    usages = [
        usage("root", fair_share="gpu=8", allocated="gpu=6"),
        usage("a", "root", deserved="gpu=4", allocated="gpu=6"),
        usage("b", "root", deserved="gpu=4"),
        usage("a1", "a", deserved="gpu=4", allocated="gpu=6"),
    ]
    assert lending(usages) == {"a": {GPU: {"b": 2000}}}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 9)), st.integers(0, 9)), max_size=6),
    st.integers(0, 40),
)
def test_nothing_is_lent_twice_or_out_of_nothing(table: list[tuple[int | None, int]], total: int) -> None:
    accounts = [LevelAccount(f"q{i}", due, held) for i, (due, held) in enumerate(table)]
    found = borrowed(accounts, total)
    by_name = {a.name: a for a in accounts}
    for name, lenders in found.items():
        due = by_name[name].entitlement
        assert due is not None
        assert 0 < sum(lenders.values()) <= by_name[name].held - due
    for lender in by_name:
        out = sum(lenders.get(lender, 0) for lenders in found.values())
        due = by_name[lender].entitlement
        assert out == 0 or (due is not None and out <= due - by_name[lender].held)


def test_what_terminates_is_told_beside_what_the_share_goes_by() -> None:
    """Queue a asks for 6 besides the 5 that go; the words go on being true until they are gone."""
    c = Cluster().queues("root", "a parent=root", "b parent=root").nodes("n1 gpu=12")
    c.gang("going", 0, queue="a").add_tasks("going", 5, "gpu=1")
    for at in range(5):
        c.change_task(f"going-{at}", state=TaskState.RUNNING, node="n1")
    c.gang("b", 6, "gpu=1", queue="b")
    c.cycle()
    for at in range(5):
        c.change_task(f"going-{at}", state=TaskState.RELEASING)
    c.gang("next", 6, "gpu=1", queue="a")
    for words in (
        "6: 6 of the surplus by weight 1 of 2, all that it requests besides the 5 that terminate",
    ) * 2:
        told = {usage.queue: explain_shares(usage) for usage in c.cycle().queues}
        assert told.get("a", {GPU: words})[GPU] == words
    for at in range(5):
        c.remove_task(f"going-{at}")
    told = {usage.queue: explain_shares(usage) for usage in c.cycle().queues}
    assert told["a"][GPU] == "6: 6 of the surplus by weight 1 of 2, all that it requests"
