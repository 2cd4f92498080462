"""``plugins.timeshare.classic``: well-known orders, to compare with."""

from __future__ import annotations

import pytest
from small_traces import ends, job

from windlass.plugins.timeshare.classic import LAS_BOUND_SECONDS, LeastAttained, ShortestRemaining
from windlass.plugins.timeshare.suspension_cost import CHECKPOINT_EVERY, CHECKPOINTED, RESTART_COST
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.replay.policies import ReplayPolicy, shared
from windlass.sim.replay.replay import replay
from windlass.spi.objects import AttainedService, Group
from windlass.spi.timeshare import Rank, RunSegment

UNIX = 1_700_000_000.1


def test_who_has_had_his_time_but_for_a_rounding_has_had_it() -> None:
    """Moments of a clock are sums of floating point numbers: 900.1 - 0.1 is less than 900."""
    segment = RunSegment(Group("ns/a"), 8.0, attained=UNIX + 900.0 - UNIX - 1e-7)
    assert LeastAttained().rank(segment) == Rank(1.0)


class Exactly(LeastAttained):
    """Policy that compares exactly, and is therefore asked again about differences
    below the clock's resolution."""

    def rank(self, segment: RunSegment) -> Rank:
        until = LAS_BOUND_SECONDS / max(segment.devices, 1.0)
        return Rank(1.0) if segment.attained >= until else Rank(0.0, until=until)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("policy", [LeastAttained, Exactly])
def test_nobody_is_asked_for_ever_at_one_moment_of_a_clock(policy: type[LeastAttained]) -> None:
    jobs = [job(UNIX + 0.3 * at, LAS_BOUND_SECONDS, 7, f"{at}") for at in range(12)]
    made = ReplayPolicy("las", "", shared(lambda _: policy()))
    assert None not in ends(replay(jobs, make_nodes(parse("1x8")), made)).values()


def left(group: Group, *history: tuple[float, float], attained: float = 0.0) -> float:
    """Return the remaining part of a hundred seconds after some runs (from, to)."""
    policy = ShortestRemaining(lambda _: 100.0)
    segment = RunSegment(group, 1.0, attained)
    rank = policy.rank(segment)
    for begun, ended in history:
        segment.started, segment.resumed = begun, segment.attained > 0
        policy.rank(segment)
        segment.attained += ended - begun
        segment.started = None
        rank = policy.rank(segment)
    return rank.value


def group(past: AttainedService | None = None, **notes: str) -> Group:
    names = {"every": CHECKPOINT_EVERY, "restart": RESTART_COST, "at": CHECKPOINTED}
    return Group("ns/a", "q", annotations={names[name]: text for name, text in notes.items()}, past=past)


@pytest.mark.parametrize(
    ("of", "runs", "seconds"),
    [
        (group(every="0s"), [(0, 70)], 30),
        (group(every="0s", restart="10s"), [(0, 70)], 40),
        (
            group(every="0s", restart="10s"),
            [(0, 70), (100, 115)],
            35,
        ),  # five seconds of work in the second run
        (group(every="20s"), [(0, 70)], 40),
        (
            group(every="20s", restart="10s"),
            [(0, 70), (100, 135)],
            30,
        ),  # 60 and 20 are saved, and a restart is due
        (group(), [(0, 70)], 100),
        (group(at="1970-01-01T00:00:50Z"), [(0, 70)], 50),
        (group(at="1970-01-01T00:00:50Z"), [(0, 70), (100, 120)], 50),  # nothing of the second run is saved
        (
            group(every="20s", restart="10s"),
            [(0, 30), (50, 55)],
            90,
        ),  # a restart that was cut short adds nothing
    ],
)
def test_what_a_stop_lost_and_the_restart_remain(
    of: Group, runs: list[tuple[float, float]], seconds: float
) -> None:
    assert left(of, *runs) == seconds


def test_what_was_done_before_the_scheduler_began_is_what_was_saved_of_it() -> None:
    past = AttainedService(attained=70.0, at=70.0, suspensions=1)
    assert left(group(past, every="20s", restart="10s"), attained=70.0) == 50.0
    assert left(group(past), attained=70.0) == 100.0
    assert left(group(past, every="20s", restart="10s"), (100, 135), attained=70.0) == 30.0
