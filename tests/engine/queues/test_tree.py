"""``engine.queues.tree``: a tree whose sums are always those of the subtrees."""

from __future__ import annotations

from cluster_dsl import queue
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.queues.tree import QueueTree

ITEMS = (("cpu", 10), ("gpu", 1))


def tree(*texts: str) -> QueueTree:
    queues = QueueTree({"cpu": 100})
    for text in texts:
        queues.upsert(queue(text))
    return queues


def test_paths_run_to_the_root_whatever_the_order_of_arrival() -> None:
    queues = tree("leaf parent=mid", "mid parent=top", "top")
    assert [q.name for q in queues.get("leaf").path] == ["leaf", "mid", "top"]
    assert not any(q.missing for q in queues)


def test_a_named_queue_is_missing_until_it_comes() -> None:
    queues = tree("leaf parent=top")
    assert queues.get("top").missing
    queues.upsert(queue("top"))
    assert not queues.get("top").missing
    queues.remove("top")
    assert queues.get("top").missing  # the leaf still names it
    queues.remove("leaf")
    assert list(queues) == []


def test_a_tree_of_one_queue_tells_what_is_in_it() -> None:
    """The first change counts as one."""
    queues = tree("a guarantee.cpu=1")
    a = queues.get("a")
    assert a.reserved == a.guarantees == {"cpu": 1000}
    assert a.siblings == [a]
    fresh = tree()
    asked = fresh.get("a")
    fresh.add_pending(asked, ITEMS, 1)
    assert asked.demand == {"cpu": 10, "gpu": 1}


def test_a_queue_is_guaranteed_what_those_below_it_are_together_or_more() -> None:
    queues = tree("top guarantee.cpu=2", "a parent=top guarantee.cpu=1", "b parent=top guarantee.cpu=3")
    assert queues.get("top").reserved == {"cpu": 4000}
    queues.upsert(queue("top guarantee.cpu=5"))
    assert queues.get("top").reserved == {"cpu": 5000}


def test_removing_what_is_not_there_does_nothing() -> None:
    queues = tree("a")
    queues.remove("b")
    assert [q.name for q in queues] == ["a"]


def test_sums_run_up_and_back() -> None:
    queues = tree("top", "a parent=top", "b parent=top")
    a, b, top = queues.get("a"), queues.get("b"), queues.get("top")
    queues.add_pending(a, ITEMS, 3)
    queues.start(a, ITEMS, 2)
    queues.allocate(b, ITEMS, 1)
    queues.release(b, ITEMS, 1)
    assert (a.allocated, a.pending) == ({"cpu": 20, "gpu": 2}, {"cpu": 10, "gpu": 1})
    assert (top.allocated, top.pending) == ({"cpu": 30, "gpu": 3}, {"cpu": 10, "gpu": 1})
    assert (b.releasing, top.releasing) == ({"cpu": 10, "gpu": 1}, {"cpu": 10, "gpu": 1})
    assert top.requested == {"cpu": 40, "gpu": 4}
    queues.start(a, ITEMS, -2)
    assert (a.allocated, a.pending) == ({"cpu": 0, "gpu": 0}, {"cpu": 30, "gpu": 3})


def test_giving_back_is_noted_at_every_level_and_undoing_is_not() -> None:
    queues = tree("top", "a parent=top")
    queues.freed.clear()
    queues.add_pending(queues.get("a"), ITEMS, 1)
    queues.start(queues.get("a"), ITEMS, 1)
    queues.start(queues.get("a"), ITEMS, -1)
    assert queues.freed == {}
    queues.allocate(queues.get("a"), ITEMS, 1)
    assert queues.freed == {}
    queues.allocate(queues.get("a"), ITEMS, -1)
    assert list(queues.freed) == ["a", "top"]


def test_moving_a_queue_takes_its_sums_along() -> None:
    queues = tree("one", "two", "a parent=one")
    queues.allocate(queues.get("a"), ITEMS, 2)
    queues.add_pending(queues.get("a"), ITEMS, 1)
    queues.upsert(queue("a parent=two"))
    assert {n: u for n, u in queues.get("one").allocated.items() if u} == {}
    assert queues.get("two").allocated == {"cpu": 20, "gpu": 2}
    assert queues.get("two").pending == {"cpu": 10, "gpu": 1}
    assert queues.get("one").children == {}


def test_a_change_of_rules_is_noted_for_everything_below() -> None:
    queues = tree("top", "a parent=top", "b parent=a")
    queues.freed.clear()
    queues.rules_changed.clear()
    queues.upsert(queue("top limit.gpu=1"))
    assert set(queues.freed) == set(queues.rules_changed) == {"top", "a", "b"}
    queues.freed.clear()
    queues.upsert(queue("top limit.gpu=1"))
    assert queues.freed == {}


def test_weights_are_summed_among_siblings() -> None:
    queues = tree("top", "a parent=top weight=2", "b parent=top weight=3", "other weight=4")
    assert queues.get("a").sibling_weight == queues.get("b").sibling_weight == 5
    assert queues.get("top").sibling_weight == queues.get("other").sibling_weight == 5
    queues.upsert(queue("b weight=3"))
    assert queues.get("a").sibling_weight == 2
    assert queues.get("b").sibling_weight == 8
    queues.remove("other")
    assert queues.get("b").sibling_weight == 4


def test_a_circle_is_cut() -> None:
    queues = tree("a parent=b", "b parent=a", "self parent=self")
    for name in ("a", "b", "self"):
        assert len(queues.get(name).path) <= 2
    assert queues.get("self").parent is None
    assert {q.name for q in queues if q.parent is None} >= {"self"}


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.just("put"), st.sampled_from("abcde"), st.sampled_from(["", *"abcde"]), st.integers(1, 5)
            ),
            st.tuples(st.just("drop"), st.sampled_from("abcde"), st.just(""), st.just(0)),
            st.tuples(st.just("hold"), st.sampled_from("abcde"), st.just(""), st.integers(-2, 3)),
        ),
        max_size=30,
    )
)
def test_the_sums_of_any_history_are_those_of_the_subtrees(moves: list[tuple[str, str, str, int]]) -> None:
    queues = QueueTree({})
    own: dict[str, int] = {}
    for kind, name, parent, number in moves:
        if kind == "put":
            queues.upsert(queue(f"{name} weight={number}" + (f" parent={parent}" if parent else "")))
        elif kind == "drop":
            queues.remove(name)
            if name not in queues.entries:
                own.pop(name, None)
        else:
            queues.get(name).groups[name] = None  # type: ignore[assignment]  # something still names it
            queues.allocate(queues.get(name), (("x", 1),), number)
            own[name] = own.get(name, 0) + number
    for entry in queues:
        below = [q.name for q in queues if entry in q.path]
        assert entry.allocated.get("x", 0) == sum(own.get(name, 0) for name in below)
        siblings = [q for q in queues if q.parent is entry.parent and not q.missing]
        if not entry.missing:
            assert entry.sibling_weight == sum(q.spec.weight for q in siblings)
