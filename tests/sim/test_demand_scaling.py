"""Jobs on capacity that follows a forecast (F78)."""

from __future__ import annotations

from windlass.predict.demand import STEP_SECONDS
from windlass.sim.demand_scaling import demand, margin_of, play
from windlass.sim.jobs import TraceJob


def test_demand_is_the_mean_of_gpus_per_step() -> None:
    jobs = [TraceJob("a", 0, STEP_SECONDS / 2, 4), TraceJob("b", STEP_SECONDS, 2 * STEP_SECONDS, 2)]
    assert demand(jobs) == [2.0, 2.0]


def test_a_job_waits_until_capacity_was_planned_for_it() -> None:
    jobs = [TraceJob("a", 0, 100, 4)]
    assert play(jobs, [4.0], 8, 1.0).wait_seconds == 0
    late = play(jobs, [0.0, 0.0], 8, 1.0)
    assert late.wait_seconds == STEP_SECONDS  # the backlog of the first step is planned for the second


def test_running_jobs_keep_their_gpus_when_capacity_falls() -> None:
    jobs = [TraceJob("a", 0, 3 * STEP_SECONDS, 4), TraceJob("b", STEP_SECONDS, 10, 4)]
    played = play(jobs, [4.0, 0.0, 0.0], 4, 1.0)
    assert played.wait_seconds == 2 * STEP_SECONDS / 2
    assert played.gpu_hours >= 3 * 4 * STEP_SECONDS / 3600


def test_the_margin_covers_the_error_of_a_forecast() -> None:
    assert margin_of([10.0] * 10, [10.0] * 5 + [12.0] * 5) == 1.2
    assert margin_of([10.0], [5.0]) == 1.0
