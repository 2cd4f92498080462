"""Who was told a start has it, also where other queues come before his own."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace as altered

from windlass.engine.decision import Decision
from windlass.model.cluster.engine_factory import make_engine
from windlass.sim.cluster import GPU, make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.policies import ReplayEngine, ReplayPolicy
from windlass.sim.replay.replay import ReplayOptions, replay
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Dialect, Group, Queue

EASY = SchedulerConfig(
    actions=("allocate",), configurations={"backfill": {"reservations": "easy", "learned": "false"}}
)


def trace(rng: Random, queues: str) -> list[TraceJob]:
    sizes = (1, 1, 2, 4, 8, 8, 16, 24)
    return [
        TraceJob(
            f"job-{at:02d}",
            float(moment),
            float(rng.randrange(100, 900)),
            rng.choice(sizes),
            queue=rng.choice(queues),
        )
        for at, moment in enumerate(sorted(rng.sample(range(1, 2400), 18)))
    ]


def stated(group: Group, job: TraceJob) -> Group:
    return altered(group, run_estimate=job.duration_seconds)


def played(jobs: list[TraceJob], queues: str) -> tuple[dict[str, float], dict[str, float]]:
    """By job: the start that was first reserved for it, and the one that it had."""
    engine = make_engine(EASY)
    promised: dict[str, float] = {}
    cycle = engine.cycle

    def noting(now: float) -> Decision:
        decision = cycle(now)
        for key, start, _ in engine.reservations.as_records():
            promised.setdefault(f"job-{key.rpartition('/')[2]}", start)
        return decision

    engine.cycle = noting  # type: ignore[method-assign]
    policy = ReplayPolicy(
        "noted", "", lambda _: ReplayEngine(engine, dialect=Dialect.WINDLASS, confirms=True, dress=stated)
    )
    terms = {name: Queue(name, deserved={GPU: 16_000}) for name in queues}
    outcome = replay(jobs, make_nodes(parse("4x8")), policy, ReplayOptions(queues=True, terms=terms))
    return promised, {outcome.jobs[span.job].job.id: span.start for span in outcome.spans}


@pytest.mark.parametrize("queues", ["a", "aab"])
def test_nobody_starts_later_than_was_reserved_for_him(queues: str) -> None:
    told = 0
    for seed in range(12):
        promised, started = played(trace(Random(seed), queues), queues)
        late = {key: start for key, start in promised.items() if started[key] > start + 1e-6}
        assert not late, (seed, late, started)
        told += len(promised)
    assert told >= 20, "some had to wait"
