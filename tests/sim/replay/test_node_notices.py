"""Spot machines that end and nodes that become slow, in a replay."""

from __future__ import annotations

from dataclasses import replace as altered

import pytest
from small_traces import job, of

from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.job_progress import Effort, RestartCost
from windlass.sim.replay.metrics import measure
from windlass.sim.replay.node_notices import NodeChange, SlowNode, SpotNotice, parse_slow, parse_spot
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import ReplayOptions, replay

NODES = ("node-0000", "node-0001")


def play(jobs: list[TraceJob], *changes: NodeChange, checkpoint: float | None = 1000.0) -> ReplayOutcome:
    effort = Effort(restart=RestartCost(10, 10, 10), checkpoint_seconds=checkpoint)
    options = ReplayOptions(effort=effort, changes=changes)
    return replay(jobs, make_nodes(parse("2x8")), POLICIES["fifo"], options)


def last_nodes(outcome: ReplayOutcome) -> dict[str, tuple[str, ...]]:
    return {outcome.jobs[span.job].job.id: span.nodes for span in outcome.spans}


def test_a_spot_notice_signals_the_job_which_goes_on_elsewhere() -> None:
    """F44: it saves its work at the notice, and restarts on another node."""
    outcome = play([job(0, 1000, 8, "a")], SpotNotice("node-0000", 400))
    ended = of(outcome, "a")
    assert ended.spot_interruptions == 1
    assert ended.ended == 1010.0, "the work of 400 s is saved, and the restart takes 10 s"
    assert last_nodes(outcome)["a"] == ("node-0001",)
    assert measure("fifo", outcome).figures["spot_interruptions"] == 1


def test_what_never_saves_begins_again() -> None:
    outcome = play([job(0, 1000, 8, "a")], SpotNotice("node-0000", 400), checkpoint=None)
    assert of(outcome, "a").ended == 1410.0


def test_an_interrupted_job_keeps_its_age() -> None:
    """F44: it goes before work that was submitted later."""
    jobs = [job(0, 1000, 8, "old"), job(0, 500, 8, "other"), job(1, 100, 8, "late")]
    outcome = play(jobs, SpotNotice("node-0000", 400))
    started = {span.start: outcome.jobs[span.job].job.id for span in outcome.spans}
    assert next(started[at] for at in sorted(started) if at >= 400) == "old"


def test_a_machine_may_come_back() -> None:
    jobs = [job(0, 1000, 16, "both")]
    assert of(play(jobs, SpotNotice("node-0000", 400)), "both").ended is None
    assert of(play(jobs, SpotNotice("node-0000", 400, 300)), "both").ended == 1310.0


def test_a_slow_node_loses_its_job_of_high_priority_only() -> None:
    """F51: that is saved and restarted on another node, the low one stays and takes longer."""
    high = altered(job(0, 1000, 4, "high"), priority=10_000)
    low = altered(job(0, 1000, 4, "low"), priority=100)
    outcome = play([high, low], SlowNode("node-0000", 500, 0.5))
    assert (of(outcome, "high").degraded_moves, of(outcome, "low").degraded_moves) == (1, 0)
    assert of(outcome, "high").ended == 1010.0
    assert of(outcome, "low").ended == 1500.0
    assert last_nodes(outcome) == {"high": ("node-0001",), "low": ("node-0000",)}
    assert measure("fifo", outcome).figures["degraded_moves"] == 1


def test_forms() -> None:
    assert parse_spot("node-0001@1h/30m", NODES) == SpotNotice("node-0001", 3600, 1800)
    assert parse_spot("node-0001@90s", NODES) == SpotNotice("node-0001", 90)
    assert parse_slow("node-0000@1h=0.4", NODES) == SlowNode("node-0000", 3600, 0.4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node-0000", "the form is NODE@TIME=FACTOR, such as node-0000@1h"),
        ("gpu@1h=0.5", 'there is no node "gpu"; nodes are node-0000, node-0001'),
        ("node-0000@soon=0.5", "soon"),
        ("node-0000@1h=2", "2 is not a factor between 0 and 1"),
        ("node-0000@1h", "nothing is not a factor between 0 and 1"),
    ],
)
def test_wrong_forms(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="--slow-node") as caught:
        parse_slow(text, NODES)
    assert message in str(caught.value)
