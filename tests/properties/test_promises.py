"""No job starts later than its first predicted start, in random small clusters with
true limits."""

from __future__ import annotations

from random import Random

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from reservation_runs import played


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 1 << 32), queues=st.integers(1, 3))
def test_nobody_starts_later_than_was_promised_to_him(backfill: str, seed: int, queues: int) -> None:
    told = played(Random(seed), backfill, queues)
    assert not told.late(), (told.promised, told.started)


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 1 << 32), queues=st.integers(1, 3))
def test_early_ends_delay_no_start(backfill: str, seed: int, queues: int) -> None:
    """Limits are upper bounds: reservations that are moved forward delay no job."""
    told = played(Random(seed), backfill, queues, early=True)
    assert not told.late(), (told.promised, told.started)


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 1 << 32), queues=st.integers(1, 3))
def test_nobody_starts_much_later_where_all_end_a_second_late(backfill: str, seed: int, queues: int) -> None:
    """At most by as many seconds as jobs have ended one after the other; they run for minutes."""
    told = played(Random(seed), backfill, queues, late=1.0)
    assert not told.late(float(len(told.started))), (told.promised, told.started)


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1 << 32), queues=st.integers(1, 3))
def test_reservations_from_an_earliest_start_on_delay_no_promised_start(
    backfill: str, seed: int, queues: int
) -> None:
    """Neither that of the group itself by jobs that borrow its capacity, nor those of other groups."""
    told = played(Random(seed), backfill, queues, ahead=True)
    assert not told.late(), (told.promised, told.started)


def test_some_are_promised_a_start() -> None:
    assert sum(len(played(Random(seed), "conservative", 1).promised) for seed in range(5)) >= 10
