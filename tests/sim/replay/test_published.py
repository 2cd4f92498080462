"""The simulator against results of others: months of jobs on published traces.

The reference figures come from simulators that share no code with this one (``reference.csv`` beside the trace;
Muri's own for its traces). Gangs by age and by shortest job, and pods one by one, agree to the digit. A month takes a
core ten to thirty seconds: four of them are played here, each policy's is by ``make sim-months``; the strict order, and
what is reserved, are held on Muri's smaller trace.
"""

from __future__ import annotations

import csv
from functools import lru_cache

import pytest
from example_counts import seeds
from small_traces import TRACES, play, published

from windlass.sim.replay.job_progress import Effort, RestartCost
from windlass.sim.replay.metrics import measure

NAMES = {"fifo-backfill": "fifobf", "sjf": "sjf", "kube": "kube"}
TOLERANCES = {
    "fifo-backfill": (0.001, 0.001),
    "sjf": (0.001, 0.001),
    "kube": (0.005, 0.02),
}
"""Policy → how far the mean queue may be off, and that of the jobs with at least eight GPUs."""


@lru_cache(maxsize=1)
def reference() -> dict[tuple[str, str], dict[str, str]]:
    path = TRACES / "philly" / "reference.csv"
    if not path.exists():
        pytest.skip("the published trace philly is not here")
    with path.open() as lines:
        return {(row["nodes"], row["policy"]): row for row in csv.DictReader(lines)}


@pytest.mark.timeout(900)
@pytest.mark.seeds
@pytest.mark.parametrize(("policy", "nodes"), seeds([("fifo-backfill", 60), ("kube", 60), ("sjf", 72)], 2))
def test_a_month_of_philly(policy: str, nodes: int) -> None:
    row = reference()[str(nodes), NAMES[policy]]
    outcome = play(published("philly/philly_oct.csv.gz"), f"{nodes}x8", policy)
    figures = measure(policy, outcome).figures
    mean, large = TOLERANCES[policy]
    assert figures["jobs"] == int(row["jobs"])
    assert figures["unfinished_jobs"] == 0
    assert figures["queue_seconds"]["mean"] == pytest.approx(float(row["avg_q"]), rel=mean)
    assert figures["queue_seconds_ge8_gpus"]["mean"] == pytest.approx(float(row["big_q"]), rel=large)
    assert figures["allocation_percent"] == pytest.approx(float(row["util_win"]), abs=0.6)
    assert figures["failed_gang_starts"] == pytest.approx(float(row["failed_starts"]), rel=0.02)
    if policy != "kube":
        assert figures["partial_gang_gpu_seconds"] == 0.0


@pytest.mark.timeout(900)
def test_the_default_policy_on_a_busy_month_without_an_oracle() -> None:
    """Philly's October on sixty nodes, where restarts cost time. Of the gap between pods one by one (3,760 s) and an
    oracle (487 s) that is free to stop anybody at no cost more than 84 % is closed, and the large jobs wait no longer
    than where gangs come by age and pass one another (46,519 s)."""
    effort = Effort(RestartCost(7.0, 30.0, 60.0))
    outcome = play(published("philly/philly_oct.csv.gz"), "60x8", "windlass", effort=effort, timeline=False)
    figures = measure("windlass", outcome).figures
    assert figures["unfinished_jobs"] == 0
    assert figures["queue_seconds"]["mean"] <= 1_000
    assert figures["queue_seconds_ge8_gpus"]["mean"] <= 46_500
    assert figures["preemptions_per_job"] <= 1
    assert figures["failed_gang_starts"] == 0
    assert figures["partial_gang_gpu_seconds"] == 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("policy", "mean"), [("fifo", 991_215), ("fifo-backfill", 480_913)])
def test_muris_third_trace(policy: str, mean: float) -> None:
    figures = measure(policy, play(published("muri/trace3.csv.gz"), "8x8", policy)).figures
    assert figures["completion_seconds"]["mean"] == pytest.approx(mean, rel=0.001)


@pytest.mark.timeout(600)
def test_the_shortest_remaining_gpu_time_first_on_muris_third_trace() -> None:
    """An oracle, preemptive and free of charge: Muri's own simulator gives 185,022 s."""
    figures = measure("srsf", play(published("muri/trace3.csv.gz"), "8x8", "srsf")).figures
    assert figures["completion_seconds"]["mean"] == pytest.approx(185_022, rel=0.07)


@pytest.mark.timeout(600)
def test_reservations_do_not_harm_the_large_jobs_of_muri() -> None:
    """EASY: the first that waits starts no later than without those who pass."""
    jobs = published("muri/trace3.csv.gz")
    easy, greedy = (measure(p, play(jobs, "8x8", p)).figures for p in ("easy", "fifo-backfill"))
    assert easy["queue_seconds_ge32_gpus"]["mean"] < greedy["queue_seconds_ge32_gpus"]["mean"]
