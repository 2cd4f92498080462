"""Cycles in which nothing but ranks is looked at decide what whole ones would."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from cluster_dsl import Cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered
from sharedtime import Order, Watched, loaded, played, workloads

from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision
from windlass.engine.deltas import BudgetUpserted, Delta, TaskRemoved, TaskUpserted
from windlass.engine.engine import Engine
from windlass.engine.groups import TERMINATING
from windlass.plugins.availability import NodeAvailable
from windlass.plugins.binpack import Binpack
from windlass.plugins.resources import ResourcesFit
from windlass.plugins.timeshare.classic import LeastAttained, ShortestRemaining
from windlass.plugins.timeshare.learned import LearnedSharing
from windlass.plugins.timeshare.predicted import PredictedSharing
from windlass.sim.jobs import TraceJob
from windlass.spi.objects import TaskState
from windlass.spi.timeshare import TimeSharing

ORDERS: Mapping[str, Callable[[], TimeSharing]] = {
    "windlass": LearnedSharing,
    "las": LeastAttained,
    "srtf": ShortestRemaining,
    "predicted": PredictedSharing,
}


class Beside(Watched):
    """Where the engine looks at ranks alone, one of the same state has a whole cycle beside it. ``still``: how often
    that was; ``decided``: how often something came of it."""

    def __init__(self, engine: Engine, order: Order) -> None:
        super().__init__(engine)
        self.still = self.decided = 0
        self._order = order

    def cycle(self, now: float) -> Decision:
        engine = self.engine
        if not engine.still(now):
            return engine.cycle(now)
        other = loaded(engine.dump(), self._order)
        assert not other.still(now)
        found = engine.cycle(now)
        assert found == other.cycle(now)
        assert state(engine) == state(other)
        self.still += 1
        self.decided += bool(found.evictions)
        return found


def state(engine: Engine) -> dict[str, object]:
    """All that is dumped, but for who has heard which news: an engine that was loaded looks at all of them."""
    found = json.loads(engine.dump())
    del found["time_share"]
    return found


def beside(jobs: list[TraceJob], policy: str) -> Beside:
    return played(jobs, policy, lambda engine: Beside(engine, ORDERS[policy]))


@settings(max_examples=20, deadline=None)
@given(workloads(), st.sampled_from(sorted(ORDERS)))
def test_what_is_left_out_of_a_cycle_would_have_changed_nothing(jobs: list[TraceJob], policy: str) -> None:
    beside(jobs, policy)


def test_ranks_alone_make_room() -> None:
    """Those that come last find all taken; once those that run have outlived a stretch they give way, and nothing but
    their ranks has changed."""
    jobs = [TraceJob(str(number), 0.0, 50_000.0, 2) for number in range(4)]
    jobs += [TraceJob(f"late {number}", 500.0, 9000.0, 2) for number in range(6)]
    found = beside(jobs, "windlass")
    assert found.still > found.decided > 0


def test_news_makes_a_cycle_whole_and_a_confirmation_does_not() -> None:
    config = EngineConfig(actions=("allocate", "timeshare"), backfill="none", reports=False)
    plugins = [NodeAvailable(), ResourcesFit(), Binpack(), LearnedSharing()]
    c = Cluster(config, plugins).queues("default").nodes("n1 cpu=4")
    assert not c.engine.still(c.now)
    c.gang("a", 1, "cpu=1")
    assert c.cycle(confirm=False).binds
    assert c.engine.still(c.now)
    there = altered(c.tasks["ns/a-0"], node="n1", state=TaskState.RUNNING)
    c.engine.apply([TaskUpserted(there)])
    assert c.engine.still(c.now)
    told: list[Delta] = [
        TaskUpserted(altered(there, preemptible=not there.preemptible)),
        BudgetUpserted("ns/a", 1),
        TaskUpserted(altered(there, state=TERMINATING)),
        TaskRemoved(there.key),
    ]
    for news in told:
        c.engine.apply([news])
        assert not c.engine.still(c.now)
        c.now += 1.0
        c.engine.cycle(c.now)


def test_where_somebody_reads_reports_all_cycles_are_whole() -> None:
    c = Cluster(EngineConfig(actions=("allocate", "timeshare"))).queues("default").nodes("n1 cpu=4")
    c.cycle()
    assert not c.engine.still(c.now)
