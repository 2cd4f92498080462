"""The least wait: by hand, and below what every policy gets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_traces import job, play

from windlass.sim.replay.job_progress import Effort
from windlass.sim.replay.metrics import queue_seconds
from windlass.sim.replay.wait_lower_bound import least_mean_queue


def test_jobs_that_all_fit_need_not_wait() -> None:
    assert least_mean_queue([job(0, 100, 2), job(50, 10, 4), job(50, 10, 0)], 8.0) == 0.0
    assert least_mean_queue([], 8.0) == 0.0


def test_jobs_that_take_all_cards_wait_for_one_another_the_shortest_first() -> None:
    """100 s and 300 s at once on all cards: the second waits for 100 s, nobody can do better."""
    assert least_mean_queue([job(0, 300, 8), job(0, 100, 8)], 8.0) == pytest.approx(50.0)


def test_who_comes_later_and_has_less_work_goes_first() -> None:
    """The long one is interrupted from 10 to 20: its mean busy time is later by 10 s times what is left of it."""
    bound = least_mean_queue([job(0, 100, 8), job(10, 10, 8)], 8.0)
    assert bound == pytest.approx(10.0 * 0.9 / 2)


def test_cards_that_are_faster_do_it_in_less() -> None:
    assert least_mean_queue([job(0, 100, 1)], 16.0, 2.0) == pytest.approx(-50.0)


JOBS = st.lists(
    st.builds(
        job,
        st.integers(0, 200),
        st.integers(1, 300),
        st.sampled_from((0, 1, 1, 2, 4, 8)),
        st.uuids().map(str),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=40, deadline=None)
@given(jobs=JOBS, policy=st.sampled_from(("srsf", "sjf", "fifo", "windlass", "kube")), fast=st.booleans())
def test_no_policy_gets_below_it(jobs: list, policy: str, fast: bool) -> None:
    speed = 2.0 if fast else 1.0
    effort = Effort(speeds={"H100": speed})
    outcome = play(jobs, "1xH100:8", policy, effort=effort)
    waits = [queue_seconds(ended) for ended in outcome.jobs if ended.ended is not None]
    assert len(waits) == len(jobs)
    assert sum(waits) / len(waits) >= least_mean_queue(jobs, 8 * speed, speed) - 1e-6
