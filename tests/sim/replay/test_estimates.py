"""Policies of the simulator by exact, stated and learned run times."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_traces import job, play, published, started

from windlass.predict.history import History
from windlass.predict.scoring import Case, PredictionScore, online, score
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.estimates import ReplayEstimates, traits_of
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import ReplayOptions, replay
from windlass.spi.objects import Group

TIMED = ("easy", "conservative", "sjf", "srtf", "srsf")


def by(run_times: str, jobs: list[TraceJob], policy: str = "easy") -> ReplayOutcome:
    made = POLICIES[policy].by(run_times)
    assert made.name == f"{policy} ({run_times})"
    return replay(jobs, make_nodes(parse("1x8")), made, ReplayOptions())


def short(submit: float, seconds: float, gpus: int, name: str) -> TraceJob:
    """A job of the name ``short``."""
    return replace(job(submit, seconds, gpus, name), name="short")


def past(count: int = 4, seconds: float = 50.0) -> list[TraceJob]:
    """Runs of one name that end before anything else comes."""
    return [short(number * 100, seconds, 2, f"past{number}") for number in range(count)]


def test_who_may_pass_is_learned_from_those_that_ended() -> None:
    jobs = [
        *past(),
        job(1000, 100, 6, "a", requested_seconds=100.0),
        job(1001, 10, 8, "b", requested_seconds=10.0),
        short(1002, 50, 2, "c"),
    ]
    ran = {kind: started(by(kind, jobs)) for kind in ("oracle", "user", "learned")}
    assert ran["oracle"]["c"] == 1002.0
    assert ran["user"]["c"] == 1002.0
    assert ran["user"]["b"] == ran["oracle"]["b"] == 1100.0
    assert ran["learned"]["c"] == 1002.0
    unknown = [one for one in jobs if not one.id.startswith("past")]
    assert started(by("user", unknown))["c"] == 1110.0, "nobody knows how long it runs"
    assert started(by("oracle", unknown))["c"] == 1002.0


def test_an_owner_who_says_too_much_waits_longer() -> None:
    jobs = [
        job(0, 100, 6, "a", requested_seconds=100.0),
        job(1, 10, 8, "b", requested_seconds=10.0),
        job(2, 50, 2, "c", requested_seconds=500.0),
    ]
    assert started(by("user", jobs))["c"] == 110.0
    assert started(by("oracle", jobs))["c"] == 2.0


def test_what_nothing_is_known_of_goes_last_where_the_shortest_goes_first() -> None:
    jobs = [
        *past(),
        job(1000, 100, 8, "a"),
        job(1001, 5, 8, "new"),
        short(1002, 50, 8, "c"),
    ]
    ran = started(by("learned", jobs, "sjf"))
    assert (ran["c"], ran["new"]) == (1100.0, 1150.0)
    assert started(by("oracle", jobs, "sjf"))["new"] == 1100.0


@pytest.mark.parametrize("policy", TIMED)
def test_unless_said_otherwise_the_truth_is_known(policy: str) -> None:
    jobs = [job(number * 7 % 50, 20 + number * 13 % 90, 1 + number % 8, str(number)) for number in range(40)]
    assert POLICIES[policy].oracle
    assert started(play(jobs, policy=policy)) == started(by("oracle", jobs, policy))
    assert all(ended.ended is not None for ended in by("learned", jobs, policy).jobs)


def test_a_policy_that_goes_by_no_run_times_is_the_same_by_all() -> None:
    assert POLICIES["fifo"].by("learned") is POLICIES["fifo"]
    assert {name for name, policy in POLICIES.items() if policy.oracle} == set(TIMED)


def test_what_is_learned_is_named_as_such() -> None:
    jobs = past()
    keys = [f"sim/{number}" for number in range(len(jobs))]
    known, new = ReplayEstimates("learned", keys, jobs), short(0, 9, 2, "x")
    group = Group("sim/9", "default")
    assert known.dress(group, new) is group
    for key, one in zip(keys, jobs, strict=True):
        known.ended(key, one, one.duration_seconds)
    dressed = known.dress(group, new)
    assert (dressed.run_estimate, dressed.run_bound) == (50.0, 50.0)
    assert dressed.learned.startswith("by 4 earlier runs")
    exact = ReplayEstimates("oracle", keys, jobs).dress(Group(keys[0], "default"), jobs[0])
    assert (exact.run_estimate, exact.run_bound, exact.learned) == (50.0, None, "")
    with pytest.raises(ValueError, match="no run times 'guess'"):
        ReplayEstimates("guess", keys, jobs)


def foretold(name: str, most: int) -> PredictionScore:
    jobs = published(name)[:most]
    cases = [
        Case(
            traits_of(one, str(number)),
            one.submit_seconds,
            one.submit_seconds + one.duration_seconds,
            one.duration_seconds,
        )
        for number, one in enumerate(jobs)
    ]
    return score(online(History(), cases))


@pytest.mark.parametrize(
    ("trace", "pinball", "error"),
    [("philly/philly_oct.csv.gz", 0.40, 0.60), ("openb/pods_default.csv.gz", 0.50, 1.30)],
)
def test_published_traces_are_foretold_as_well_as_stated(trace: str, pinball: float, error: float) -> None:
    found = foretold(trace, 8000)
    assert found.answered > 0.95
    assert found.pinball < pinball
    assert found.error < error
    assert 0.75 < found.kept < 0.95
