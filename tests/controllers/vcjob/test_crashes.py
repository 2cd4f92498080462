"""A controller that dies between any two writes loses nothing and does nothing twice.

The same history is played to two worlds. In one the controller is killed after a few writes, again and
again, and a new one starts from what is stored. When both have settled they must agree.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from example_counts import examples
from fakeapi import Crash
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vcjob_cluster import World, job, settle_with_crashes, task, with_fresh_controller

from windlass.api.resources import (
    COMMANDS,
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
    SERVICES,
    VOLCANO_JOBS,
)

Json = dict[str, Any]

EVENTS = st.one_of(
    st.tuples(st.just("admit"), st.sampled_from(["Inqueue", "Pending", "Running", "Unknown"])),
    st.tuples(st.just("run"), st.integers(0, 3)),
    st.tuples(st.just("succeed"), st.integers(0, 3)),
    st.tuples(st.just("fail"), st.integers(0, 3)),
    st.tuples(st.just("take"), st.integers(0, 3)),
    st.tuples(st.just("gone"), st.none()),
    st.tuples(st.just("time"), st.sampled_from([1, 30, 601])),
    st.tuples(st.just("scale"), st.integers(0, 3)),
    st.tuples(
        st.just("command"),
        st.sampled_from(["AbortJob", "ResumeJob", "RestartJob", "CompleteJob", "TerminateJob"]),
    ),
)
ACTIONS = st.sampled_from(
    ["RestartJob", "RestartTask", "RestartPod", "AbortJob", "CompleteJob", "TerminateJob"]
)
POLICY = st.builds(
    lambda event, action, timeout: {"event": event, "action": action, **timeout},
    st.sampled_from(["PodFailed", "PodEvicted", "TaskCompleted", "PodPending", "Unknown", "*"]),
    ACTIONS,
    st.sampled_from([{}, {"timeout": "10m"}]),
)


def manifest(policies: list[Json]) -> Json:
    return job(
        task("ps", 1),
        task("worker", 2),
        policies=policies,
        plugins={"pytorch": [], "env": []},
        maxRetry=4,
        volumes=[{"mountPath": "/out", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}],
    )


def play(world: World, event: tuple[str, Any]) -> None:
    """One thing that somebody else does. What is not possible now is passed over."""
    event, how = event
    pods = world.pods()
    name = pods[how] if isinstance(how, int) and event != "scale" and how < len(pods) else ""
    match event:
        case "admit" if world.group is not None:
            world.admit(how)
        case "run" if name and world.pod(name)["status"]["phase"] == "Pending":
            world.run(name)
        case "succeed" | "fail" if name and world.pod(name)["status"]["phase"] == "Running":
            world.end(name, 1 if event == "fail" else 0)
        case "take" if name:
            world.take_away(name)
        case "gone":
            world.api.finish_deletions()
        case "time":
            world.pass_time(how)
        case "scale":
            tasks = copy.deepcopy(world.job["spec"]["tasks"])
            tasks[1]["replicas"] = how
            world.api.change(VOLCANO_JOBS, "default/train", spec={"tasks": tasks})
        case "command":
            world.command(how)


def picture(world: World) -> Json:
    """What is stored, without names that depend on how many objects were ever made."""

    def plain(obj: Json) -> Json:
        kept = copy.deepcopy(obj)
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            kept["metadata"].pop(field, None)
        return kept

    status = copy.deepcopy(world.status)
    status.get("controlledResources", {}).pop("command", None)
    kinds = (PODS, POD_GROUPS, SERVICES, CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, COMMANDS)
    found = {
        resource.plural: sorted((plain(o) for o in world.api.objects(resource)), key=str)
        for resource in kinds
    }
    return {"status": status, **found}


def check_always(world: World) -> None:
    """What holds at every moment."""
    names = Counter(pod["metadata"]["name"] for pod in world.api.objects(PODS))
    assert all(count == 1 for count in names.values())
    assert len(world.api.objects(POD_GROUPS)) <= 1
    assert len(world.api.objects(PERSISTENT_VOLUME_CLAIMS)) <= 1


@settings(max_examples=examples(150), deadline=None)
@given(
    policies=st.lists(POLICY, max_size=3),
    history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 6), max_size=3)), max_size=14),
)
@example(policies=[], history=[(("run", 1), []), (("scale", 0), [3])])
def test_crashes_change_nothing(
    policies: list[Json], history: list[tuple[tuple[str, Any], list[int]]]
) -> None:
    calm, stormy = World(manifest(policies)), World(manifest(policies))
    begin = [(("admit", "Inqueue"), [0, 1]), (("time", 1), [2])]
    for world in (calm, stormy):
        world.settle()
    for event, crashes in begin + history:
        for world in (calm, stormy):
            play(world, event)
        calm.settle()
        settle_with_crashes(stormy, crashes)
        check_always(stormy)
        assert picture(stormy) == picture(calm), event


@settings(max_examples=examples(40), deadline=None)
@given(writes=st.integers(0, 40))
def test_a_whole_run_with_one_crash_anywhere(writes: int) -> None:
    """From creation over a restart to the end, with one death after any number of writes."""

    def run(world: World) -> Json:
        def settle() -> None:
            try:
                world.settle()
            except Crash:
                with_fresh_controller(world)
                world.settle()

        settle()
        world.admit()
        settle()
        world.run()
        settle()
        world.end("train-worker-0", 9)
        settle()
        world.api.finish_deletions()
        settle()
        world.admit()
        settle()
        world.run()
        settle()
        for name in world.pods():
            world.end(name)
        settle()
        return picture(world)

    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    calm, stormy = World(manifest(policies)), World(manifest(policies))
    expected = run(calm)
    assert expected["status"]["state"]["phase"] == "Completed"
    assert expected["status"]["retryCount"] == 1
    stormy.api.crash_after = writes
    assert run(stormy) == expected
