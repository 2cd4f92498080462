"""Random jobs on one node, many of which end before their limit: who starts when under ``conservative`` is what the
definition says, played by an implementation that has nothing of the engine."""

from __future__ import annotations

from random import Random

from compressed import Asked, Naive
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import job, started

from windlass.sim.cluster import make_nodes, parse
from windlass.sim.policies import POLICIES
from windlass.sim.replay import Options, replay


def drawn(rng: Random) -> list[Asked]:
    """No more jobs than have reservations at once."""
    moments = sorted(rng.randint(0, 60) for _ in range(rng.randint(3, 16)))
    jobs = []
    for at, comes in enumerate(moments):
        limit = rng.randint(2, 60)
        runs = rng.randint(1, limit) if rng.random() < 0.7 else limit
        jobs.append(Asked(f"j{at:02}", comes, rng.randint(1, 8), limit, runs))
    return jobs


def played(jobs: list[Asked]) -> dict[str, float | None]:
    trace = [
        job(one.comes, one.runs, one.cards, one.name, requested_seconds=float(one.limit)) for one in jobs
    ]
    policy = POLICIES["conservative"].by("user")
    return started(replay(trace, make_nodes(parse("1x8")), policy, Options()))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_conservative_is_conservative_backfilling_with_compression(seed: int) -> None:
    jobs = drawn(Random(seed))
    told = Naive(8).play(jobs)
    begun = played(jobs)
    assert begun == told.started, jobs
    assert all(told.started[name] <= start for name, start in told.promised.items())


def test_many_are_promised_a_start_and_many_promises_are_moved_forward() -> None:
    told = [Naive(8).play(drawn(Random(seed))) for seed in range(20)]
    assert sum(len(one.promised) for one in told) >= 80
    assert sum(one.moved for one in told) >= 80
