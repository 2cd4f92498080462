"""Rolling updates: every group ends at the new revision, and enough groups stay ready."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.jobs.leaderworkerset.rollout import GroupState, LeaderSet, next_rollout
from windlass.jobs.leaderworkerset.spec import LeaderWorkerSet, read_set, scaled


def lws(replicas: int, image: str = "v1", **rolling: Any) -> LeaderWorkerSet:
    template = {"size": 2, "workerTemplate": {"spec": {"containers": [{"name": "c", "image": image}]}}}
    spec = {
        "replicas": replicas,
        "leaderWorkerTemplate": template,
        "rolloutStrategy": {"rollingUpdateConfiguration": rolling},
    }
    return read_set({"metadata": {"name": "llm", "namespace": "ns", "uid": "u"}, "spec": spec})


def test_percentages_are_rounded_as_upstream_does() -> None:
    assert (scaled("30%", 4, up=False), scaled("30%", 4, up=True), scaled(2, 4, up=True)) == (1, 2, 2)
    assert lws(2, maxSurge=5).max_surge == 2


def test_the_first_write_has_all_groups() -> None:
    step = next_rollout(lws(3), None, [])
    assert (step.partition, step.replicas) == (0, 3)


@settings(max_examples=150, deadline=None)
@given(
    replicas=st.integers(1, 6),
    unavailable=st.integers(0, 3),
    surge=st.integers(0, 3),
    partition=st.integers(0, 3),
    order=st.lists(st.integers(0, 8), max_size=60),
)
def test_updates_end_and_keep_enough_groups_ready(
    replicas: int, unavailable: int, surge: int, partition: int, order: list[int]
) -> None:
    """Groups become ready one at a time, in any order."""
    if not unavailable and not surge:
        return
    partition = min(partition, replicas)
    found = lws(replicas, "v2", maxUnavailable=unavailable, maxSurge=surge, partition=partition)
    leaders = LeaderSet(replicas, 0, replicas, "old")
    states = [GroupState(True, False)] * replicas
    for turn in range(120):
        step = next_rollout(found, leaders, states)
        leaders = LeaderSet(step.replicas, step.partition, replicas, found.template.revision)
        states = [*states, *[GroupState(False, True)] * step.replicas][: step.replicas]
        states = [
            one if one.updated or index < step.partition else GroupState(False, True)
            for index, one in enumerate(states)
        ]
        assert sum(one.ready for one in states) >= replicas - unavailable, (turn, states)
        assert step.replicas <= replicas + surge
        waiting = [index for index, one in enumerate(states) if not one.ready]
        if waiting:
            chosen = waiting[(order[turn] if turn < len(order) else 0) % len(waiting)]
            states[chosen] = replace(states[chosen], ready=True)
    assert [one.updated for one in states[:replicas]] == [index >= partition for index in range(replicas)]
    if not partition:
        assert (leaders.replicas, leaders.partition) == (replicas, 0)
