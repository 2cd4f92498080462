"""Small traces whose jobs share time, some of them, and engines that are watched as they are played."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar, cast

from hypothesis import strategies as st

from windlass.engine.decision import Decision
from windlass.engine.deltas import Delta
from windlass.engine.engine import Engine
from windlass.plugins.nodes.availability import NodeAvailable
from windlass.plugins.nodes.binpack import Binpack
from windlass.plugins.nodes.resources import ResourcesFit
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import Replay, ReplayOptions
from windlass.spi.timeshare import TimeSharing

Order = Callable[[], TimeSharing]


@st.composite
def workloads(draw: st.DrawFn) -> list[TraceJob]:
    found, at = [], 0.0
    for number in range(draw(st.integers(4, 14))):
        at += draw(st.sampled_from((0.0, 30.0, 400.0, 2000.0)))
        seconds = draw(st.sampled_from((10.0, 300.0, 1500.0, 9000.0, 50_000.0)))
        gpus = draw(st.sampled_from((1, 1, 2, 4, 6, 8)))
        saves = draw(st.sampled_from((None, None, 600.0, 7200.0)))
        shares = draw(st.booleans())
        found.append(TraceJob(str(number), at, seconds, gpus, time_share=shares, checkpoint_seconds=saves))
    return found


def loaded(dump: bytes, order: Order) -> Engine:
    """An engine of the simulator's time-sharing policies."""
    return Engine.load(dump, [NodeAvailable(), ResourcesFit(), Binpack(), order()])


class Watched:
    """An engine, as far as a replay asks it; :meth:`cycle` is to be made."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def apply(self, deltas: Iterable[Delta]) -> None:
        self.engine.apply(deltas)

    def cycle(self, now: float) -> Decision:
        raise NotImplementedError


Kind = TypeVar("Kind", bound=Watched)


ALL_ALIKE = ReplayOptions(timeline=False)


def played(
    jobs: list[TraceJob], policy: str, watch: Callable[[Engine], Kind], options: ReplayOptions = ALL_ALIKE
) -> Kind:
    """The jobs on two nodes of four GPUs, under a policy of the simulator."""
    run = Replay(jobs, make_nodes(parse("2x4")), POLICIES[policy], options)
    watched = watch(run.deciding.engine)
    run.deciding.engine = cast(Engine, watched)
    run.run(lambda _: None)
    return watched
