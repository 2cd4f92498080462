"""The scores by which a job of a replay was placed."""

from __future__ import annotations

import pytest
from small_traces import job

from windlass.sim.cluster import make_nodes, parse
from windlass.sim.replay.placements import Witness
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import ReplayOptions, replay
from windlass.sim.synthetic import Profile, generate

NODES = make_nodes(parse("3x8"))


@pytest.mark.parametrize(("policy", "beside"), [("fifo", True), ("kube", False)])
def test_a_start_is_told_with_how_the_nodes_ranked(policy: str, beside: bool) -> None:
    """The node that is partly in use ranks first under ``fifo``, an empty one under ``kube``."""
    jobs = [job(0, 500, 2, "small"), job(20, 50, 4, "last"), job(30, 5, 1, "later")]
    witness = Witness("last")
    outcome = replay(jobs, NODES, witness.over(POLICIES[policy]))
    (small,) = next(span.nodes for span in outcome.spans if span.job == 0)
    (seen,) = witness.seen
    (table,) = seen.tables
    best = table.nodes[0]
    assert (seen.policy, seen.seconds, seen.nodes, table.pods) == (policy, 20.0, (best.node,), 1)
    assert (best.node == small) is beside
    assert sorted(row.node for row in table.nodes) == ["node-0000", "node-0001", "node-0002"]
    assert all(row.fits for row in table.nodes)
    assert best.total > table.nodes[1 if policy == "fifo" else 2].total
    for row in table.nodes:
        points = sum(c.weight * p for c, p in zip(table.columns, row.points, strict=True))
        assert points == pytest.approx(row.total)


def test_nobody_of_that_name_is_seen_nowhere() -> None:
    witness = Witness("nobody")
    replay([job(0, 10, 4, "a")], NODES, witness.over(POLICIES["fifo"]))
    assert witness.seen == []


@pytest.mark.parametrize(
    "policy", ["windlass", "default", "fifo-backfill", "easy", "kube", "kai-like", "las"]
)
def test_nothing_is_decided_otherwise_while_somebody_watches(policy: str) -> None:
    """The job is one that waits."""
    jobs = generate(Profile(jobs=60, days=0.05), 3)
    options = ReplayOptions(queues=True)
    alone = replay(jobs, NODES, POLICIES[policy], options)
    waited = max(alone.jobs, key=lambda ended: (ended.started or 0.0) - ended.job.submit_seconds)
    witness = Witness(waited.job.id)
    watched = replay(jobs, NODES, witness.over(POLICIES[policy]), options)
    assert (watched.jobs, watched.spans, watched.cycles) == (alone.jobs, alone.spans, alone.cycles)
    assert witness.seen
    assert min(seen.seconds for seen in witness.seen) <= (waited.started or 0.0)
