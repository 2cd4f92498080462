"""Cycles in which nothing is looked at but who may be asked to go decide what whole ones would."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from cluster_dsl import Cluster
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered
from timeshare_traces import Order, Watched, loaded, played, workloads

from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision
from windlass.engine.deltas import BudgetUpserted, Delta, TaskRemoved, TaskUpserted
from windlass.engine.engine import Engine
from windlass.engine.groups.entries import TERMINATING
from windlass.model import scheduler_config
from windlass.plugins import registry
from windlass.plugins.nodes.availability import NodeAvailable
from windlass.plugins.nodes.binpack import Binpack
from windlass.plugins.nodes.resources import ResourcesFit
from windlass.plugins.timeshare.classic import LeastAttained, ShortestRemaining
from windlass.plugins.timeshare.gittins import LearnedSharing
from windlass.plugins.timeshare.predicted import PredictedSharing
from windlass.sim.cluster import GPU
from windlass.sim.jobs import WHOLE, TraceJob
from windlass.sim.replay.policies import KAI
from windlass.sim.replay.replay import ReplayOptions
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Queue, TaskState
from windlass.spi.timeshare import TimeSharing

ORDERS: Mapping[str, Callable[[], TimeSharing]] = {
    "windlass": LearnedSharing,
    "las": LeastAttained,
    "srtf": ShortestRemaining,
    "predicted": PredictedSharing,
}


CLAIMING: Mapping[str, SchedulerConfig] = {
    "kai-like": scheduler_config.parse(KAI).config,
    "default": SchedulerConfig(),
}
"""Policies of the simulator under which groups claim room, and their configurations."""
TERMS = {
    name: Queue(name, deserved={GPU: gpus * WHOLE, "cpu": 64_000, "memory": 1 << 40})
    for name, gpus in (("a", 2), ("b", 6))
}


@st.composite
def of_two_queues(draw: st.DrawFn) -> list[TraceJob]:
    kinds = st.tuples(st.sampled_from("ab"), st.sampled_from((50, 50, 75, 125)))
    found = []
    for job in draw(workloads()):
        queue, priority = draw(kinds)
        found.append(replace(job, queue=queue, priority=priority))
    return found


class Beside(Watched):
    """Where the engine looks at those alone, one of the same state has a whole cycle beside it. ``still``: how often
    that was; ``decided``: how often something came of it."""

    def __init__(self, engine: Engine, order: Order) -> None:
        super().__init__(engine)
        self.still = self.decided = 0
        self._order = order

    def cycle(self, now: float) -> Decision:
        engine = self.engine
        if not engine.is_quiet(now):
            return engine.cycle(now)
        other = loaded(engine.dump(), self._order)
        assert not other.is_quiet(now)
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


class Twins(Watched):
    """An engine and one like it that is told the same, and of which all cycles are whole. ``still``, ``decided``: as
    of :class:`Beside`."""

    def __init__(self, engine: Engine, config: SchedulerConfig) -> None:
        super().__init__(engine)
        self.still = self.decided = 0
        self._twin = Engine.load(engine.dump(), registry.build(config, lambda _: None)[0])
        self._twin.is_quiet = lambda now: False  # type: ignore[method-assign]

    def apply(self, deltas: Iterable[Delta]) -> None:
        told = list(deltas)
        self.engine.apply(told)
        self._twin.apply(told)

    def cycle(self, now: float) -> Decision:
        still = self.engine.is_quiet(now)
        found = self.engine.cycle(now)
        assert found == self._twin.cycle(now)
        assert self.engine.dump() == self._twin.dump()
        self.still += still
        self.decided += still and bool(found.evictions)
        return found


def beside(jobs: list[TraceJob], policy: str) -> Beside:
    return played(jobs, policy, lambda engine: Beside(engine, ORDERS[policy]))


def twins(jobs: list[TraceJob], policy: str) -> Twins:
    options = ReplayOptions(queues=True, terms=TERMS, time_share=False, timeline=False)
    return played(jobs, policy, lambda engine: Twins(engine, CLAIMING[policy]), options)


@settings(max_examples=examples(20), deadline=None)
@given(workloads(), st.sampled_from(sorted(ORDERS)))
def test_what_is_left_out_of_a_cycle_would_have_changed_nothing(jobs: list[TraceJob], policy: str) -> None:
    beside(jobs, policy)


@settings(max_examples=examples(20), deadline=None)
@given(of_two_queues(), st.sampled_from(sorted(CLAIMING)))
def test_nor_where_groups_claim_room(jobs: list[TraceJob], policy: str) -> None:
    twins(jobs, policy)


def test_a_confirmation_alone_makes_room() -> None:
    """Whoever was bound may be asked to go once that is confirmed: nothing else has changed."""
    jobs = [
        TraceJob("first", 0.0, 300.0, 4, queue="a", priority=75),
        TraceJob("large", 10.0, 300.0, 8, queue="a", priority=75),
        TraceJob("low", 10.0, 9000.0, 4, queue="a", priority=50),
        TraceJob("late", 300.0, 9000.0, 4, queue="a", priority=50),
    ]
    found = twins(jobs, "kai-like")
    assert found.still > found.decided > 0


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
    assert not c.engine.is_quiet(c.now)
    c.gang("a", 1, "cpu=1")
    assert c.cycle(confirm=False).binds
    assert c.engine.is_quiet(c.now)
    there = altered(c.tasks["ns/a-0"], node="n1", state=TaskState.RUNNING)
    c.engine.apply([TaskUpserted(there)])
    assert c.engine.is_quiet(c.now)
    told: list[Delta] = [
        TaskUpserted(altered(there, preemptible=not there.preemptible)),
        BudgetUpserted("ns/a", 1),
        TaskUpserted(altered(there, state=TERMINATING)),
        TaskRemoved(there.key),
    ]
    for news in told:
        c.engine.apply([news])
        assert not c.engine.is_quiet(c.now)
        c.now += 1.0
        c.engine.cycle(c.now)


def test_where_somebody_reads_reports_all_cycles_are_whole() -> None:
    c = Cluster(EngineConfig(actions=("allocate", "timeshare"))).queues("default").nodes("n1 cpu=4")
    c.cycle()
    assert not c.engine.is_quiet(c.now)
