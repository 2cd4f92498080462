"""The figures of a replay, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_traces import job, play

from windlass.sim.replay.metrics import fairness, measure, percentile, summary
from windlass.sim.replay.outcome import EndedJob

FIELDS = {
    "policy",
    "jobs",
    "seconds",
    "makespan_seconds",
    "queue_seconds",
    "queue_seconds_ge8_gpus",
    "queue_seconds_ge32_gpus",
    "completion_seconds",
    "allocation_percent",
    "preemptions",
    "preemptions_per_job",
    "lost_gpu_seconds",
    "failed_gang_starts",
    "partial_gang_gpu_seconds",
}
"""What programs that compare results with published tables read."""


def test_queue_is_completion_less_duration() -> None:
    figures = measure("x", play([job(0, 100, 8), job(0, 50, 8), job(10, 20, 8)])).figures
    assert figures["queue_seconds"]["mean"] == pytest.approx((0 + 100 + 140) / 3, abs=0.05)
    assert figures["completion_seconds"]["p50"] == 150.0
    assert figures["queue_seconds_ge8_gpus"]["mean"] == figures["queue_seconds"]["mean"]
    assert figures["queue_seconds_ge32_gpus"] == {"mean": None, "jobs": 0}
    assert figures["makespan_seconds"] == 170.0


def test_slowdown_is_completion_by_duration_and_short_jobs_count_as_ten_seconds() -> None:
    """The first waits for nobody; the second for 100 s, of 50 s; the third for 150 s, of 2 s that count as ten."""
    figures = measure("x", play([job(0, 100, 8), job(0, 50, 8), job(0, 2, 8)])).figures
    assert figures["bounded_slowdown"]["p50"] == 3.0
    assert figures["bounded_slowdown"]["mean"] == pytest.approx((1 + 3 + 15.2) / 3, abs=0.001)
    assert measure("x", play([job(0, 2, 8)])).figures["bounded_slowdown"]["mean"] == 1.0


def test_every_figure_of_the_contract_is_there() -> None:
    figures = measure("x", play([job(0, 1)])).figures
    assert set(figures) >= FIELDS
    for name in ("queue_seconds", "completion_seconds"):
        assert set(figures[name]) == {"mean", "p50", "p90", "p99"}


def test_allocation_counts_between_the_5th_and_95th_percentile_of_submissions() -> None:
    """Twenty jobs, one every 100 s: the window is from 0 to 1800 s, and four of eight GPUs run in half of it."""
    jobs = [job(100 * n, 50, 4) for n in range(20)]
    figures = measure("x", play(jobs)).figures
    assert figures["allocation_percent"] == pytest.approx(25.0)
    assert figures["fragmented_percent"] == 0.0


def test_idle_gpus_count_as_stranded_while_somebody_waits() -> None:
    jobs = [job(0, 1000, 6), job(0, 10, 4), *(job(100 * n, 1, 0, name=f"cpu{n}") for n in range(11))]
    figures = measure("x", play(jobs, nodes="1x8")).figures
    assert figures["fragmented_percent"] == pytest.approx(25.0, abs=0.5)


def test_a_job_that_never_ends_counts_as_that_alone() -> None:
    figures = measure("x", play([job(0, 10, 9), job(0, 10, 1)])).figures
    assert (figures["unfinished_jobs"], figures["queue_seconds"]["mean"]) == (1, 0.0)


def test_of_no_job_that_ended_nothing_is_told() -> None:
    """A zero would say that nobody waited."""
    figures = measure("x", play([job(0, 10, 9)])).figures
    assert (figures["unfinished_jobs"], figures["makespan_seconds"]) == (1, None)
    for name in ("queue_seconds", "completion_seconds"):
        assert figures[name] == dict.fromkeys(("mean", "p50", "p90", "p99"))


def test_percentiles_are_values_that_occur() -> None:
    assert [percentile([1.0, 2.0, 3.0, 4.0], p) for p in (1, 25, 50, 51, 100)] == [1.0, 1.0, 2.0, 3.0, 4.0]
    assert percentile([], 50) == 0.0


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_percentiles_are_in_order(values: list[float]) -> None:
    found = summary(values)
    p50, p90, p99 = (found[name] or 0.0 for name in ("p50", "p90", "p99"))
    assert min(values) - 0.1 <= p50 <= p90 <= p99 <= max(values) + 0.1


def test_fairness_is_one_where_all_wait_alike_and_a_half_where_one_of_two_waits_for_ever() -> None:
    def ended(queue: str, wait: float) -> EndedJob:
        return EndedJob(job(0, 100, 1, queue=queue), 0.0, 100.0 + wait)

    assert fairness([ended("a", 100), ended("b", 100)]) == pytest.approx(1.0)
    assert fairness([ended("a", 0), ended("b", 1e9)]) == pytest.approx(0.5, abs=1e-6)
    assert fairness([]) is None
    assert fairness([ended("a", 100), ended("a", 0)]) is None, "nobody is unfair to one"
