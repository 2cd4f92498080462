"""Where queues reclaim and room is kept, nobody is started in order to be evicted."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace as altered

from windlass.model.cluster.engine_factory import make_engine
from windlass.sim.cluster import GPU, make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.replay.policies import ReplayEngine, ReplayPolicy
from windlass.sim.replay.replay import ReplayOptions, replay
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Dialect, Group, Queue

SHORTEST = 100


def drawn(seed: int) -> list[TraceJob]:
    """Two queues, of which one asks for more; whole seconds, no two of a moment."""
    rng = Random(seed)
    moments = sorted(rng.sample(range(1, 2400), 18))
    return [
        TraceJob(
            f"job-{at:02d}",
            float(moment),
            float(rng.randrange(SHORTEST, 900)),
            rng.choice([1, 1, 2, 4, 8, 8, 16, 24]),
            queue=rng.choice("aab"),
        )
        for at, moment in enumerate(moments)
    ]


def told(group: Group, job: TraceJob) -> Group:
    return altered(group, run_estimate=job.duration_seconds)


def played(jobs: list[TraceJob], backfill: str) -> ReplayOutcome:
    config = SchedulerConfig(configurations={"backfill": {"reservations": backfill}})
    policy = ReplayPolicy(
        "reserving",
        "",
        lambda _: ReplayEngine(make_engine(config), dialect=Dialect.WINDLASS, confirms=True, dress=told),
    )
    half = {name: Queue(name, deserved={GPU: 16_000}) for name in "ab"}
    return replay(jobs, make_nodes(parse("4x8")), policy, ReplayOptions(queues=True, terms=half))


def cut_short(outcome: ReplayOutcome, seconds: float) -> list[str]:
    """Who was stopped so soon after a start, as often as he was."""
    short = [span for span in outcome.spans if not span.held and span.end - span.start < seconds]
    whole = {job.job.id: job.job.duration_seconds for job in outcome.jobs}
    last = {span.job: span.end for span in outcome.spans}
    names = [outcome.jobs[span.job].job.id for span in short if span.end < last[span.job]]
    return [name for name in names if whole[name] >= SHORTEST]


@pytest.mark.parametrize(
    ("backfill", "seed"), [("easy", 94), *[("conservative", seed) for seed in (3, 13, 24, 62, 89)]]
)
def test_nobody_is_started_in_order_to_be_evicted(backfill: str, seed: int) -> None:
    """In each of these a gang beyond its queue's share had a reservation, while a group within its own waited."""
    outcome = played(drawn(seed), backfill)
    assert not cut_short(outcome, 1.0)
    assert len(outcome.spans) > len(outcome.jobs), "some are evicted"


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_nobody_is_started_and_evicted_again_and_again(backfill: str) -> None:
    for seed in range(30):
        found = cut_short(played(drawn(seed), backfill), 1.0)
        assert len(set(found)) == len(found), (seed, found)
