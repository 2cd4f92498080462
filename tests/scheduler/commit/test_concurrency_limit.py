"""Additive increase, multiplicative decrease."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windlass.scheduler.commit.concurrency_limit import AdaptiveLimit


def test_a_window_of_successes_raises_by_one() -> None:
    limit = AdaptiveLimit(4, ceiling=6)
    for _ in range(4):
        limit.succeeded()
    assert limit.limit == 5
    for _ in range(100):
        limit.succeeded()
    assert limit.limit == 6


def test_overload_halves_once_per_window() -> None:
    limit = AdaptiveLimit(32)
    for _ in range(8):  # answers to requests sent before the cut
        limit.overloaded(0.0)
    assert limit.limit == 16
    for _ in range(30):
        limit.succeeded()
    limit.overloaded(0.0)
    assert limit.limit <= 9


def test_retry_after_stops_new_requests() -> None:
    limit = AdaptiveLimit(8)
    limit.overloaded(10.0, 3)
    assert not limit.may_start(0, 12.9)
    assert limit.may_start(0, 13.0)
    assert not limit.may_start(4, 13.0)


@given(st.lists(st.sampled_from(["ok", "busy", "retry"]), max_size=300))
def test_the_limit_stays_in_its_bounds(answers: list[str]) -> None:
    limit = AdaptiveLimit(8, floor=2, ceiling=16)
    for now, answer in enumerate(answers):
        if answer == "ok":
            limit.succeeded()
        else:
            limit.overloaded(now, 1 if answer == "retry" else None)
        assert 2 <= limit.limit <= 16
