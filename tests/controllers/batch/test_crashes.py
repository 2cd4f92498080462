"""A controller of Jobs that is killed between any two writes loses no pod and counts none twice."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from batch_cluster import BatchWorld
from example_counts import examples
from fakeapi import Crash
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.resources import PODS

EVENTS = st.one_of(
    st.tuples(st.sampled_from(["run", "succeed", "fail", "delete"]), st.integers(0, 2)),
    st.tuples(st.just("suspend"), st.booleans()),
    st.tuples(st.just("parallelism"), st.integers(0, 3)),
)
SPECS = st.sampled_from(
    [
        {},
        {"completions": 3, "parallelism": 2},
        {"parallelism": 2},
        {"completions": 3, "parallelism": 3, "completionMode": "Indexed"},
        {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1},
        {"completions": 3, "parallelism": 2, "podReplacementPolicy": "Failed"},
    ]
)


def play(world: BatchWorld, event: tuple[str, Any]) -> None:
    """Play one event. An event that is not possible now is passed over."""
    word, how = event
    pods = world.unfinished()
    name = pods[how] if word in ("run", "succeed", "fail", "delete") and how < len(pods) else ""
    match word:
        case "run" if name:
            world.run(name)
        case "succeed" | "fail" if name:
            world.end(name, int(word == "fail"))
        case "delete" if name:
            asyncio.run(world.api.delete(PODS, name, "default"))
        case "suspend":
            world.change_spec(suspend=how)
        case "parallelism":
            world.change_spec(parallelism=how)


def settle(world: BatchWorld) -> None:
    """Let the controller and the node work, and an hour pass."""
    for _ in range(40):
        for pod in world.api.objects(PODS):
            if pod["metadata"].get("deletionTimestamp") and not pod["metadata"].get("finalizers"):
                world.api.remove(PODS, f"default/{pod['metadata']['name']}")
            elif pod["metadata"].get("deletionTimestamp"):
                world.api.change(PODS, f"default/{pod['metadata']['name']}", status={"phase": "Failed"})
        world.reconcile()
        if not world.last.stages:
            return
    raise AssertionError("does not settle")


def picture(world: BatchWorld) -> Any:
    pods = [
        (BatchWorld.index(pod), (pod.get("status") or {}).get("phase"), pod["metadata"].get("finalizers"))
        for pod in world.api.objects(PODS)
    ]
    return world.status, sorted(pods, key=str)


@settings(max_examples=examples(100), deadline=None)
@given(
    spec=SPECS,
    history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 5), max_size=3)), max_size=10),
)
def test_crashes_change_nothing(spec, history):
    calm, stormy = BatchWorld(backoffLimit=3, **spec), BatchWorld(backoffLimit=3, **spec)
    for world in (calm, stormy):
        settle(world)
    for event, crashes in history:
        for world in (calm, stormy):
            play(world, event)
        for writes in crashes:
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.reconcile()
            stormy.restart()
        for world in (calm, stormy):
            settle(world)
            world.pass_time(700)
            settle(world)
        assert picture(stormy) == picture(calm), event
