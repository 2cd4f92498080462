"""A dumped engine whose groups share time goes on as if nothing had been."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from timeshare_traces import Order, Watched, loaded, played, workloads

from windlass.engine.decision import Decision
from windlass.engine.engine import Engine
from windlass.plugins.timeshare.classic import ShortestRemaining
from windlass.plugins.timeshare.gittins import LearnedSharing
from windlass.plugins.timeshare.predicted import PredictedSharing
from windlass.sim.jobs import TraceJob
from windlass.spi.timeshare import TimeSharing

ORDERS: Mapping[str, Callable[[], TimeSharing]] = {
    "windlass": LearnedSharing,
    "srtf": ShortestRemaining,
    "predicted": PredictedSharing,
}


class Reborn(Watched):
    """The engine is dumped and loaded again before every ``often``-th cycle. ``found``: what was decided."""

    def __init__(self, engine: Engine, order: Order, often: int) -> None:
        super().__init__(engine)
        self.found: list[Decision] = []
        self.dumps = 0
        self._order, self._often = order, often

    def cycle(self, now: float) -> Decision:
        if not (len(self.found) + 1) % self._often:
            self.dumps += 1
            data = self.engine.dump()
            self.engine = loaded(data, self._order)
            assert json.loads(self.engine.dump()) == json.loads(data)
        self.found.append(self.engine.cycle(now))
        return self.found[-1]


def decided(jobs: list[TraceJob], policy: str, often: int) -> tuple[list[Decision], int]:
    """All decisions of a replay, and how often the engine was loaded anew."""
    reborn = played(jobs, policy, lambda engine: Reborn(engine, ORDERS[policy], often))
    return reborn.found, reborn.dumps


@settings(max_examples=examples(15), deadline=None)
@given(workloads(), st.sampled_from(sorted(ORDERS)), st.integers(1, 5))
def test_a_loaded_dump_shares_time_as_the_original(jobs: list[TraceJob], policy: str, often: int) -> None:
    plain, none = decided(jobs, policy, 1 << 30)
    dumped, many = decided(jobs, policy, often)
    assert (none, many > 0) == (0, True)
    assert dumped == plain
