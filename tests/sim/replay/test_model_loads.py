"""AI models on cards: who loads, who finds his model there, and what grouping saves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from windlass.cli.simulate.trace_files import read_trace
from windlass.kits.rng import seeded
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.batches import batches
from windlass.sim.replay.job_progress import Effort
from windlass.sim.replay.metrics import measure
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import ReplayOptions, replay

GENAI = Path(__file__).parents[4] / "shared" / "traces" / "genai" / "lora_requests.csv.gz"


def play(jobs: list[TraceJob], policy: str, nodes: str, load: float) -> ReplayOutcome:
    effort = Effort(model_load_seconds=load)
    return replay(
        jobs, make_nodes(parse(nodes)), POLICIES[policy], ReplayOptions(effort=effort, timeline=False)
    )


def item(index: int, model: str, seconds: float = 10.0, gpus: int = 1) -> TraceJob:
    return TraceJob(str(index), 0.0, seconds, gpus, model=model)


def test_a_card_loads_only_what_it_does_not_have() -> None:
    outcome = play([item(0, "a"), item(1, "a"), item(2, "b"), item(3, ""), item(4, "b")], "fifo", "1x1", 5.0)
    assert outcome.model_loads == 2
    assert [ended.ended for ended in outcome.jobs] == [15.0, 25.0, 40.0, 50.0, 60.0]


def test_a_job_takes_the_cards_that_have_its_model() -> None:
    jobs = [item(0, "a"), item(1, "b"), item(2, "b", 20), item(3, "a", 20)]
    outcome = play(jobs, "fifo", "1x2", 5.0)
    assert outcome.model_loads == 2, "whichever starts first, each finds its own"


def test_a_gang_waits_for_all_of_its_cards() -> None:
    outcome = play([item(0, "a", gpus=1), item(1, "a", gpus=4)], "fifo", "1x4", 5.0)
    assert outcome.model_loads == 4
    assert outcome.jobs[1].ended == 15.0 + 5.0 + 10.0


def test_every_card_of_an_elastic_job_loads_its_model() -> None:
    outcome = play([replace(item(0, "a", gpus=4), min_gpus=1)], "fifo-backfill", "1x4", 5.0)
    assert outcome.model_loads == 4
    assert outcome.jobs[0].ended == 15.0, "side by side"


def test_cards_that_come_later_load_while_those_before_go_on() -> None:
    jobs = [item(0, "", 10.0, 3), replace(item(1, "a", 40.0, 4), min_gpus=1)]
    outcome = play(jobs, "fifo-backfill", "1x4", 5.0)
    assert outcome.model_loads == 4
    done = (10.0 - 5.0) / 4
    assert outcome.jobs[1].ended == 10.0 + 5.0 * 3 / 4 + 40.0 - done


def test_a_card_that_an_elastic_job_gave_up_keeps_its_model() -> None:
    elastic = replace(item(0, "a", 100.0, 2), min_gpus=1)
    later = replace(item(1, "a", 10.0, 1), submit_seconds=20.0, priority=9)
    outcome = play([elastic, later], "default", "1x2", 5.0)
    assert outcome.jobs[1].ended == 30.0, "its card has the model"
    assert outcome.model_loads == 2, "also when the card comes back"


def test_grouping_loads_each_model_once_per_card_at_most() -> None:
    random = seeded(3)
    jobs = [item(index, random.choice("abcde")) for index in range(200)]
    plain, grouped = (play(jobs, policy, "4x1", 22.0) for policy in ("fifo-backfill", "model-grouping"))
    assert grouped.model_loads <= 4 + 4 * 5
    assert plain.model_loads > 120
    for outcome in (plain, grouped):
        held = measure("p", outcome).figures["gpu_hours"] * 3600
        assert held == pytest.approx(200 * 10 + 22 * outcome.model_loads, abs=20)


def test_batches_hold_all_work_in_order_and_no_more_than_asked() -> None:
    jobs = [item(index, "ab"[index % 2], 4.0) for index in range(11)] + [item(11, "", 3.0)]
    found = batches(jobs, 10.0)
    assert sorted(job.duration_seconds for job in found) == [3.0, 8.0, 12.0, 12.0, 12.0]
    assert sum(job.duration_seconds for job in found) == sum(job.duration_seconds for job in jobs)
    assert {job.id for job in found if not job.model} == {"11"}


def test_a_batch_asks_for_what_its_requests_ask_for() -> None:
    """Its owner's estimate is theirs together; who takes other cards, or makes do with fewer, is in another batch."""
    asked = [replace(item(n, "a", 4.0, 2), requested_seconds=5.0) for n in range(3)]
    (whole,) = batches(asked, 60.0)
    assert (whole.duration_seconds, whole.requested_seconds) == (12.0, 15.0)
    (unsaid,) = batches([*asked, replace(asked[0], requested_seconds=None)], 60.0)
    assert unsaid.requested_seconds is None
    other = [{"gpu_models": ("H100",)}, {"min_gpus": 1}, {"checkpoint_seconds": 9.0}, {"time_share": True}]
    assert len(batches([*asked, *(replace(asked[0], **each) for each in other)], 60.0)) == 5


@pytest.mark.skipif(not GENAI.exists(), reason="the GenTD26 requests are not on this machine")
def test_requests_for_images_take_much_less_when_grouped_by_model() -> None:
    requests = read_trace(str(GENAI))
    batch = [TraceJob(job.id, 0.0, job.duration_seconds, 1, model=job.model) for job in requests]
    plain = measure("p", play(batch, "fifo-backfill", "33x1", 22.0)).figures
    grouped = measure("p", play(batches(batch, 600.0), "model-grouping", "33x1", 22.0)).figures
    assert grouped["gpu_hours"] <= 0.62 * plain["gpu_hours"]
    assert grouped["makespan_seconds"] <= 0.65 * plain["makespan_seconds"]
