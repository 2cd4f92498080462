"""``plugins.timeshare.suspension_cost`` and what time-sharing makes of it: a suspension has to be worth what it
loses."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.plugins.timeshare.gittins import LearnedSharing
from windlass.plugins.timeshare.suspension_cost import (
    CHECKPOINT_EVERY,
    CHECKPOINTED,
    RESTART_COST,
    habit_of,
    loss_seconds,
    next_saved,
)
from windlass.spi.objects import Group
from windlass.spi.timeshare import RunSegment


class Crowd:
    def __init__(self, running: int, waiting: int, ahead: int) -> None:
        self.running, self.waiting, self.ahead = running, waiting, ahead

    def before(self, rank: float) -> int:
        return self.ahead


def stint(
    devices: float = 1.0, *, started: float | None = 0.0, again: bool = False, **notes: str
) -> RunSegment:
    names = {"every": CHECKPOINT_EVERY, "restart": RESTART_COST, "at": CHECKPOINTED}
    group = Group("ns/a", "q", annotations={names[name]: text for name, text in notes.items()})
    return RunSegment(group, devices, started=started, resumed=again)


@pytest.mark.parametrize(
    ("one", "now", "loss", "saved"),
    [
        (stint(), 5000.0, 5000.0, inf),
        (stint(every="0s"), 5000.0, 0.0, inf),
        (stint(every="30m"), 5000.0, 1400.0, 5400.0),
        (stint(every="30m", restart="1m"), 5000.0, 1460.0, 5400.0),
        (stint(every="30m", restart="1m", again=True), 5000.0, 1400.0, 5460.0),  # worked since 60
        (stint(every="30m", restart="1m", again=True), 40.0, 40.0, 1860.0),  # at its restart yet
        (stint(at="1970-01-01T01:00:00Z"), 5000.0, 1400.0, inf),
        (stint(at="1970-01-01T01:00:00Z", every="10m"), 5000.0, 1400.0, 5400.0),  # late; its word counts
        (stint(at="1970-01-01T01:00:00Z", started=4000.0), 5000.0, 1000.0, inf),  # of a run before
        (stint(every="often", restart="-", at="now"), 5000.0, 5000.0, inf),
        (stint(started=None), 5000.0, 0.0, inf),
    ],
)
def test_what_a_stop_loses_and_when_the_work_is_saved_next(
    one: RunSegment, now: float, loss: float, saved: float
) -> None:
    habit = habit_of(one)
    assert (loss_seconds(one, habit, now), next_saved(one, habit, now)) == (loss, saved)


def test_a_stop_at_the_moment_of_a_checkpoint_loses_nothing_and_the_next_is_after_it() -> None:
    one = stint(every="300s", started=0.1)
    habit = habit_of(one)
    for count in range(1, 2000):
        now = 0.1 + 300.0 * count
        assert loss_seconds(one, habit, now) < 1e-6
        assert next_saved(one, habit, now) > now + 299


seconds = st.integers(0, 200_000).map(float)
rates = st.sampled_from(["0s", "5m", "30m", "2h", ""])


@given(
    rates, st.sampled_from(["0s", "7s", "10m"]), seconds, seconds, st.sampled_from([1.0, 4.0, 8.0, 32.0]),
    st.sampled_from([1.0, 8.0]), st.integers(1, 400), st.integers(1, 300), st.data(),
)  # fmt: skip
def test_suspension_needs_a_gain_above_its_loss_and_happens_at_the_stated_time(
    every: str, restart: str, ran: float, waited: float, theirs: float, ours: float, running: int, waiting: int,
    data: st.DataObject,
) -> None:  # fmt: skip
    """The rule as defined: the loss times all delayed groups is at most the gain of
    those that profit."""
    notes: dict[str, Any] = {"restart": restart, **({"every": every} if every else {})}
    policy, victim = LearnedSharing(), stint(theirs, **notes)
    claimer = RunSegment(Group("ns/b", "q"), ours, waited=waited)
    ahead = data.draw(st.integers(1, waiting))
    crowd, rank = (
        Crowd(running, waiting, ahead),
        policy.rank(RunSegment(victim.group, theirs, attained=ran)).value,
    )
    until = policy.protected_until(victim, claimer, rank, crowd, ran)
    loss, worth = loss_seconds(victim, habit_of(victim), ran), policy.worth(claimer, rank)
    if until <= ran:
        assert loss * max(theirs / ours, 1.0) * (waiting + running) <= worth * ahead * (1 + 1e-9) or loss == 0
    elif until == policy.tuning.quantum_seconds * theirs / ours:
        pass  # it has only just been started
    elif until < inf:
        assert policy.protected_until(victim, claimer, rank, crowd, until) <= until + 1e-6
    else:
        restarts = habit_of(victim).restart * max(theirs / ours, 1.0) * (waiting + running)
        assert not every or restarts > worth * ahead or loss == 0
    if every == "0s" and restart == "0s":
        assert until == policy.tuning.quantum_seconds * theirs / ours  # as where nothing is said of losses


def test_the_more_are_ahead_of_the_victim_and_the_fewer_it_delays_the_sooner_it_goes() -> None:
    policy, victim, claimer = LearnedSharing(), stint(every="30m"), RunSegment(Group("ns/b", "q"), 1.0)
    rank, now = policy.rank(RunSegment(victim.group, 1.0, attained=20_000.0)).value, 20_000.0

    def goes(running: int, waiting: int, ahead: int) -> bool:
        return policy.protected_until(victim, claimer, rank, Crowd(running, waiting, ahead), now) <= now

    assert loss_seconds(victim, habit_of(victim), now) == 200.0
    assert goes(10, 100, 100)
    assert not goes(10_000, 100, 1)
    assert policy.protected_until(victim, claimer, rank, Crowd(10_000, 100, 1), now) == 21_600.0
