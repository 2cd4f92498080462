"""Starts of random jobs on one node under ``conservative`` and ``easy`` equal the definition.

Many jobs end before their limit. The definition is played by an implementation that is
independent of the engine. Some histories have few kinds of jobs, so that many requests
are equal, and ends, arrivals and starts coincide.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from backfill_reference import Asked, Easy, Naive
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traces import job, started

from windlass.sim.cluster import make_nodes, parse
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import ReplayOptions, replay

CARDS = 8
MOST = 16
"""No more jobs than have reservations at once."""


def drawn(rng: Random) -> list[Asked]:
    """All of them different, mostly."""
    moments = sorted(rng.randint(0, 60) for _ in range(rng.randint(3, MOST)))
    jobs = []
    for at, comes in enumerate(moments):
        limit = rng.randint(2, 60)
        runs = rng.randint(1, limit) if rng.random() < 0.7 else limit
        jobs.append(Asked(f"j{at:02}", comes, rng.randint(1, CARDS), limit, runs))
    return jobs


def drawn_alike(rng: Random) -> tuple[int, list[Asked]]:
    """Return jobs of few sizes, lengths and times, and the number of devices."""
    cards, lengths = rng.choice((2, 3, 4, 8)), (1, 5, 10, 20, 50)
    moments = sorted(rng.choice((0, 5, 10, 20, 25, 30, 40)) for _ in range(rng.randint(6, MOST)))
    jobs = []
    for at, comes in enumerate(moments):
        limit = rng.choice(lengths)
        runs = rng.choice([seconds for seconds in lengths if seconds <= limit])
        jobs.append(Asked(f"j{at:02}", comes, rng.randint(1, cards), limit, rng.choice((limit, runs))))
    return cards, jobs


def played(jobs: list[Asked], cards: int = CARDS, backfill: str = "conservative") -> dict[str, float | None]:
    trace = [
        job(one.comes, one.runs, one.cards, one.name, requested_seconds=float(one.limit)) for one in jobs
    ]
    policy = POLICIES[backfill].by("user")
    return started(replay(trace, make_nodes(parse(f"1x{cards}")), policy, ReplayOptions()))


def check(jobs: list[Asked], cards: int = CARDS) -> None:
    told = Naive(cards).play(jobs)
    begun = played(jobs, cards)
    assert begun == told.started, jobs
    assert all(told.started[name] <= start for name, start in told.promised.items())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_conservative_is_conservative_backfilling_with_compression(seed: int) -> None:
    check(drawn(Random(seed)))


@settings(max_examples=examples(80), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_so_it_is_where_many_are_of_the_same_kind(seed: int) -> None:
    cards, jobs = drawn_alike(Random(seed))
    check(jobs, cards)


def test_equal_request_does_not_overtake_another_job() -> None:
    """The fourth job waits at 45, and the last one with the same request could start.

    But the fifth precedes it and leaves no capacity for it.
    """
    said = [(20, 50, 2), (20, 5, 4), (25, 20, 2), (25, 50, 2), (25, 1, 1), (30, 10, 2)]
    jobs = [Asked(f"j{at}", comes, cards, runs, runs) for at, (comes, runs, cards) in enumerate(said, 1)]
    begun = played(jobs, 4)
    assert (begun["j5"], begun["j6"]) == (45, 46)
    check(jobs, 4)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 1 << 32), alike=st.booleans())
def test_easy_keeps_room_for_the_first_that_waits(seed: int, alike: bool) -> None:
    """All jobs end at their limit; otherwise the cycle of a reservation matters."""
    cards, jobs = drawn_alike(Random(seed)) if alike else (CARDS, drawn(Random(seed)))
    jobs = [replace(job, runs=job.limit) for job in jobs]
    told = Easy(cards).play(jobs)
    assert played(jobs, cards, "easy") == told.started, jobs
    assert all(told.started[name] <= start for name, start in told.promised.items())


EASY = [(10, 50, 1), (20, 50, 3), (25, 20, 1), (25, 5, 2), (25, 50, 4), (40, 50, 1)]
"""Jobs that show the reservation for the first in the queue.

The fourth starts at 70, when its reserved capacity is free. The fifth is next, due at
80, and the last would delay it.
"""
EASY_EARLY = [
    (5, 55, 1, 55),
    (12, 40, 3, 20),
    (13, 27, 1, 27),
    (15, 33, 1, 28),
    (16, 10, 4, 10),
    (20, 47, 1, 47),
]
"""The third and the fourth begin at 32; the fifth is next, due 65, and the last would be in its way."""


@pytest.mark.parametrize(
    ("said", "starts"),
    [
        ([(comes, runs, cards, runs) for comes, runs, cards in EASY], [10, 20, 60, 70, 80, 130]),
        (EASY_EARLY, [5, 12, 32, 32, 60, 70]),
    ],
    ids=["one-begins", "two-begin"],
)
def test_who_comes_next_has_room_kept_before_others_behind_him_are_tried(
    said: list[tuple[int, int, int, int]], starts: list[int]
) -> None:
    jobs = [Asked(f"j{at}", comes, n, limit, runs) for at, (comes, limit, n, runs) in enumerate(said)]
    begun = played(jobs, 4, "easy")
    assert [begun[job.name] for job in jobs] == starts


def test_many_are_promised_a_start_and_many_promises_are_moved_forward() -> None:
    told = [Naive(CARDS).play(drawn(Random(seed))) for seed in range(20)]
    assert sum(len(one.promised) for one in told) >= 80
    assert sum(one.moved for one in told) >= 80
