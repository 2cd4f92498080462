"""Gangs between their first bind and their minimum."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windlass.model.groups.member_counts import Members
from windlass.scheduler.commit.gang_timeout import GangWatch


def held(bound: int, finished: int = 0) -> Members:
    return Members(bound=bound, succeeded=finished)


def test_progress_extends_the_timeout() -> None:
    watch = GangWatch(30.0)
    watch.observe("g", False, 4, held(1), 0.0)
    watch.observe("g", False, 4, held(1), 20.0)
    assert watch.next_deadline() == 30.0
    watch.observe("g", False, 4, held(2), 25.0)
    assert watch.take_overdue(54.9) == []
    assert watch.take_overdue(55.0) == ["g"]
    assert watch.take_overdue(56.0) == []
    assert watch.take_overdue(85.0) == ["g"]  # still incomplete: once more


def test_a_complete_gang_is_not_watched() -> None:
    watch = GangWatch(30.0)
    watch.observe("g", False, 2, held(1), 0.0)
    watch.observe("g", False, 2, held(2), 1.0)
    assert watch.next_deadline() is None


def test_a_gang_that_ran_is_not_watched_when_it_loses_a_member() -> None:
    watch = GangWatch(30.0)
    watch.observe("g", True, 2, held(1), 0.0)
    watch.observe("h", False, 2, held(1), 0.0)
    watch.observe("h", True, 2, held(1), 1.0)
    assert watch.take_overdue(1000.0) == []


def test_a_doubted_minimum_counts_without_terminating_members() -> None:
    """The gang was reported as running while its evicted member was still there."""
    watch = GangWatch(30.0)
    watch.doubt("g", 0.0)
    watch.observe("g", True, 3, held(3), 0.0)
    assert watch.next_deadline() is None
    watch.observe("g", True, 3, Members(bound=2, releasing=1), 1.0)
    watch.observe("g", True, 3, held(2), 29.0)
    assert watch.take_overdue(30.9) == []
    assert watch.take_overdue(31.0) == ["g"]
    assert watch.take_overdue(61.0) == ["g"]
    watch.observe("g", True, 3, Members(releasing=2), 62.0)
    assert watch.next_deadline() is None


def test_a_minimum_reached_again_is_not_doubted_any_more() -> None:
    watch = GangWatch(30.0)
    watch.doubt("g", 0.0)
    watch.observe("g", True, 3, held(2), 1.0)
    watch.observe("g", True, 3, held(3), 20.0)
    watch.observe("g", True, 3, held(2), 30.0)
    assert watch.take_overdue(1000.0) == []


def test_a_gang_that_holds_nothing_is_not_watched() -> None:
    watch = GangWatch(30.0)
    watch.observe("g", False, 2, held(0, 1), 0.0)  # its one member has finished
    assert watch.next_deadline() is None


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 20)), min_size=1, max_size=20))
def test_no_gang_is_overdue_before_the_timeout_since_its_last_progress(
    steps: list[tuple[int, float]],
) -> None:
    watch = GangWatch(30.0)
    now, progress, best = 0.0, None, 0
    for scheduled, pause in steps:
        now += pause
        watch.observe("g", False, 4, held(scheduled), now)
        if not scheduled or scheduled >= 4:
            progress, best = None, 0
        elif progress is None or scheduled > best:
            progress, best = now, scheduled
        else:
            best = scheduled
    overdue = watch.take_overdue(now + 15.0)
    assert bool(overdue) == (progress is not None and now + 15.0 >= progress + 30.0)
