"""Who stands first in a bucket, and who first among those that end soon enough."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.pending_class import OrderedGroups, PendingClass
from windlass.engine.queues.tree import QueueTree
from windlass.spi.objects import Group

MEMBERS = st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(1, 9))), max_size=80)


def test_the_first_is_the_one_with_the_least_key() -> None:
    line = OrderedGroups()
    line.add((2,), "b", None)
    line.add((1,), "a", None)
    assert (line.head(), list(line)) == ("a", ["a", "b"])


def test_only_those_that_end_in_time_are_found() -> None:
    line = OrderedGroups()
    line.add((1,), "long", 100.0)
    line.add((2,), "unknown", None)
    line.add((3,), "short", 10.0)
    assert (line.first_within(5.0), line.first_within(10.0), line.first_within(100.0)) == (
        None,
        "short",
        "long",
    )


def test_what_was_known_of_a_run_time_is_forgotten_with_it() -> None:
    line = OrderedGroups()
    line.add((1,), "a", 10.0)
    line.set_time("a", 50.0)
    assert (line.first_within(20.0), line.first_within(50.0)) == (None, "a")
    line.set_time("a", None)
    assert line.first_within(1000.0) is None


def test_who_does_not_stand_in_it_cannot_leave() -> None:
    with pytest.raises(KeyError):
        OrderedGroups().remove("a")


@given(MEMBERS, st.lists(st.integers(0, 79), max_size=80), st.integers(0, 10))
@settings(max_examples=100, deadline=None)
def test_it_agrees_with_a_sorted_list(members: list, leaving: list[int], limit: int) -> None:
    line = OrderedGroups()
    there = {}
    for number, (place, time) in enumerate(members):
        line.add((place,), f"{number:02}", time)
        there[f"{number:02}"] = (place, time)
    for number in leaving:
        if there.pop(f"{number:02}", None) is not None:
            line.remove(f"{number:02}")
    ordered = sorted(there, key=lambda key: (there[key][0], key))
    assert list(line) == ordered
    assert line.head() == (ordered[0] if ordered else None)
    soon = [key for key in ordered if (there[key][1] or 99) <= limit]
    assert line.first_within(float(limit)) == (soon[0] if soon else None)


def test_a_bucket_knows_its_members_by_rank_as_they_come_and_go_and_change() -> None:
    """Here the order of the queue is that of the names, whatever their priorities."""

    def member(name: str, priority: int) -> GroupEntry:
        group = GroupEntry(name, lambda task: (task.key,))
        group.set_group(Group(name, priority=priority))
        group.order_key = (name,)
        return group

    pending_class = PendingClass(("queue", "what"), QueueTree({}).get("queue"))
    a, b, c, d = (member(name, priority) for name, priority in (("a", 1), ("b", 2), ("c", 3), ("d", 2)))
    for group in (a, b, c):
        pending_class.add(group)
    assert list(pending_class.by_rank()) == ["c", "b", "a"]
    pending_class.add(d)
    pending_class.drop(c)
    assert list(pending_class.by_rank()) == ["b", "d", "a"]
    a.set_group(Group("a", priority=9))
    assert not pending_class.update_member(a)
    assert list(pending_class.by_rank()) == ["a", "b", "d"]
    assert list(pending_class.order) == ["a", "b", "d"]
    assert b.pending_class is pending_class
    assert c.pending_class is None
