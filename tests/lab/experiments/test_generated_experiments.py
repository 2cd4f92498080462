"""Experiments on generated workloads: N2, N3, N4, N5, N19 and N21."""

from __future__ import annotations

import pytest

from windlass.kits.clock import SystemClock
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.outcome import EndedJob, ReplayOutcome
from windlass.sim.traces import formats, openb
from windlass_lab.experiments import generated_traces, item_workers
from windlass_lab.experiments.claim import ExperimentFinding
from windlass_lab.experiments.item_workers import ScaledWorkers, WorkItem, static, static_size
from windlass_lab.experiments.lab import Lab
from windlass_lab.experiments.registry import EXPERIMENTS
from windlass_lab.experiments.requirement_numbers import TRIED
from windlass_lab.experiments.submission_delay import delays


def brief() -> Lab:
    return Lab(generated_traces.lines, SystemClock(), brief=True)


@pytest.mark.parametrize("number", ["N2", "N3", "N4", "N5", "N19", "N21"])
def test_n2_n3_n4_n5_n19_n21_need_no_published_traces(number: str) -> None:
    assert [EXPERIMENTS[tried].files for tried in TRIED[number]] == [()]


def tried(number: str) -> ExperimentFinding:
    (experiment,) = TRIED[number]
    return EXPERIMENTS[experiment].try_(brief())


def test_n2_gives_the_median_and_the_p99_from_submission_to_binding() -> None:
    names = [figure.name for figure in tried("N2").figures]
    assert names[:2] == ["median of submission to binding", "p99 of submission to binding"]


def test_n19_gives_time_averaged_fragmentation_with_its_definition() -> None:
    found = tried("N19")
    first = found.figures[0]
    assert first.name == "fragmentation, averaged over time"
    assert first.baseline is not None
    assert 0 < first.baseline < 100
    assert "typical pods cannot use" in found.note


def test_n21_holds_all_1000_gpus_within_minutes_on_a_loaded_cluster() -> None:
    found = tried("N21")
    assert [goal.met for goal in found.goals] == [True]
    assert "1280 GPUs" in found.note


def test_every_trace_of_an_experiment_can_be_generated_and_read() -> None:
    for name in {name for one in EXPERIMENTS.values() for name in one.files} - {"muri/published_table.csv"}:
        lines = generated_traces.lines(name)
        assert lines == generated_traces.lines(name), "equal on each call"
        assert openb.read_nodes(lines, name) if "nodes" in name else formats.read(lines, name)


def test_a_generated_trace_has_the_load_of_its_cluster() -> None:
    jobs = formats.read(generated_traces.lines("philly/philly_oct.csv.gz"), "philly")
    assert sum(job.gpu_seconds for job in jobs) / (480 * 86_400) == pytest.approx(0.91, rel=0.01)


# -- delays ----------------------------------------------------------------------------------------


def test_a_submission_waits_for_the_pass_that_runs() -> None:
    jobs = [
        EndedJob(TraceJob(str(n), submit, 5.0, 1), started=started)
        for n, (submit, started) in enumerate([(0, 0.0), (1, 1.0), (2, 9.0)])
    ]
    found = delays(ReplayOutcome(jobs), [0.0, 1.0, 9.0], [1.5, 0.5, 0.25])
    assert found == [1.5, 1.0]  # the second begins when the first is over; the third did not fit at once


# -- workers ---------------------------------------------------------------------------------------


def test_static_workers_load_a_model_whenever_it_changes() -> None:
    load = item_workers.LOAD
    assert static([WorkItem(0, 10), WorkItem(0, 10), WorkItem(1, 10)], 1) == 30 + 2 * load
    assert static_size([WorkItem(0, 3600 - load), WorkItem(0, 3600 - load)], 1.0) == 2


def test_scaled_workers_process_every_item_and_return_to_the_minimum() -> None:
    work = item_workers.items(3000)
    run = ScaledWorkers(work).run(12 * 3600)
    assert item_workers.LEAST < run.peak <= item_workers.MOST
    assert run.nodes[-1][1] == item_workers.LEAST
    assert run.makespan > 0
    paid = run.on_demand_hours + run.spot_hours
    assert paid * 3600 >= sum(item.seconds for item in work)


def test_work_of_a_spot_node_that_is_taken_away_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_workers, "SPOT_HOURS", 0.2)
    work = item_workers.items(1000)
    harsh = ScaledWorkers(work).run(3600)
    monkeypatch.setattr(item_workers, "SPOT_HOURS", 1e9)
    calm = ScaledWorkers(work).run(3600)
    assert harsh.interruptions > 0
    assert calm.interruptions == 0
    assert harsh.makespan > calm.makespan
