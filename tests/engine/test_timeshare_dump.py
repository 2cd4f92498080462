"""A dumped engine whose groups share time goes on as if nothing had been."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st
from sharedtime import workloads

from windlass.engine.decision import Decision
from windlass.engine.deltas import Delta
from windlass.engine.engine import Engine
from windlass.plugins.availability import NodeAvailable
from windlass.plugins.binpack import Binpack
from windlass.plugins.resources import ResourcesFit
from windlass.plugins.timeshare.classic import ShortestRemaining
from windlass.plugins.timeshare.learned import LearnedSharing
from windlass.plugins.timeshare.predicted import PredictedSharing
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.policies import POLICIES
from windlass.sim.replay import Options, Replay
from windlass.spi.timeshare import TimeSharing

ORDERS: Mapping[str, Callable[[], TimeSharing]] = {
    "windlass": LearnedSharing,
    "srtf": ShortestRemaining,
    "predicted": PredictedSharing,
}


class Reborn:
    """An engine that is dumped and loaded again before every ``often``-th cycle. ``found``: what was decided."""

    def __init__(self, engine: Engine, order: Callable[[], TimeSharing], often: int) -> None:
        self.found: list[Decision] = []
        self.dumps = 0
        self._engine, self._order, self._often = engine, order, often

    @property
    def claimants(self) -> Mapping[str, object]:
        return self._engine.claimants

    def apply(self, deltas: Iterable[Delta]) -> None:
        self._engine.apply(deltas)

    def cycle(self, now: float) -> Decision:
        if not (len(self.found) + 1) % self._often:
            self.dumps += 1
            data = self._engine.dump()
            self._engine = Engine.load(data, [NodeAvailable(), ResourcesFit(), Binpack(), self._order()])
            assert json.loads(self._engine.dump()) == json.loads(data)
        self.found.append(self._engine.cycle(now))
        return self.found[-1]


def decided(jobs: list[TraceJob], policy: str, often: int) -> tuple[list[Decision], int]:
    """All decisions of a replay, and how often the engine was loaded anew."""
    run = Replay(jobs, make_nodes(parse("2x4")), POLICIES[policy], Options(timeline=False))
    reborn = Reborn(run.engine, ORDERS[policy], often)
    run.engine = cast(Engine, reborn)
    run.run(lambda _: None)
    return reborn.found, reborn.dumps


@settings(max_examples=15, deadline=None)
@given(workloads(), st.sampled_from(sorted(ORDERS)), st.integers(1, 5))
def test_a_loaded_dump_shares_time_as_the_original(jobs: list[TraceJob], policy: str, often: int) -> None:
    plain, none = decided(jobs, policy, 1 << 30)
    dumped, many = decided(jobs, policy, often)
    assert (none, many > 0) == (0, True)
    assert dumped == plain
