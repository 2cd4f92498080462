"""A controller of Kubeflow jobs that is killed between any two writes loses nothing and repeats nothing.

The same history is played to two worlds. In one the controller is killed after a few
writes, again and again, and a new one starts from what is stored. When both have
settled they agree.
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from example_counts import examples
from fakeapi import Crash
from hypothesis import given, settings
from hypothesis import strategies as st
from kubeflow_cluster import KubeflowWorld, kubeflow_job, replica

from windlass.api.annotations import WRITTEN_AS
from windlass.api.resources import CONFIG_MAPS, MPI_JOBS, POD_GROUPS, PODS, PYTORCH_JOBS, SECRETS, SERVICES

RULES = st.sampled_from(["Always", "OnFailure", "Never", "ExitCode"])
EVENTS = st.one_of(
    st.tuples(st.just("run"), st.integers(0, 2)),
    st.tuples(st.just("succeed"), st.integers(0, 2)),
    st.tuples(st.just("fail"), st.integers(0, 2)),
    st.tuples(st.just("kill"), st.integers(0, 2)),
    st.tuples(st.just("delete"), st.integers(0, 2)),
    st.tuples(st.just("time"), st.sampled_from([1, 30, 601])),
    st.tuples(st.just("suspend"), st.booleans()),
)


def play(world: KubeflowWorld, event: tuple[str, Any]) -> None:
    """Play one event. An event that is not possible now is passed over."""
    word, how = event
    pods = world.pods()
    name = pods[how] if word not in ("time", "suspend") and how < len(pods) else ""
    phase = (world.pod(name).get("status") or {}).get("phase") if name else ""
    match word:
        case "run" if phase in ("Pending", None):
            world.run(name)
        case "succeed" | "fail" | "kill" if phase == "Running":
            world.end(name, {"succeed": 0, "fail": 1, "kill": 137}[word])
        case "delete" if name:
            world.take_away(name)
        case "time":
            world.pass_time(how)
        case "suspend":
            world.change_run_policy(suspend=how)


def picture(world: KubeflowWorld) -> Any:
    """Return what is stored, without names that depend on how many objects were ever created."""

    def plain(obj: Any) -> Any:
        kept = copy.deepcopy(obj)
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            kept["metadata"].pop(field, None)
        return kept

    found = {
        resource.plural: sorted((plain(obj) for obj in world.api.objects(resource)), key=str)
        for resource in (PODS, POD_GROUPS, SERVICES, CONFIG_MAPS, SECRETS)
    }
    record = (world.job["metadata"].get("annotations") or {}).get("windlass.dev/job-record")
    return world.status, record, found


def settle(world: KubeflowWorld) -> None:
    for _ in range(40):
        world.api.finish_deletions()
        if world.group is not None and not (world.group.get("status") or {}).get("phase"):
            world.admit()
        world.reconcile()
        if not world.last.stages:
            return
    raise AssertionError("does not settle")


@settings(max_examples=examples(100), deadline=None)
@given(
    rules=st.tuples(RULES, RULES),
    run=st.fixed_dictionaries(
        {},
        optional={
            "backoffLimit": st.integers(0, 2),
            "activeDeadlineSeconds": st.sampled_from([40, 1000]),
            "cleanPodPolicy": st.sampled_from(["None", "Running", "All"]),
        },
    ),
    history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 5), max_size=3)), max_size=12),
)
def test_crashes_change_nothing(rules, run, history):
    manifest = kubeflow_job(
        PYTORCH_JOBS,
        run,
        Master=replica(restartPolicy=rules[0]),
        Worker=replica(2, restartPolicy=rules[1]),
    )
    agree(manifest, PYTORCH_JOBS, history)


@settings(max_examples=examples(50), deadline=None)
@given(
    waits=st.booleans(),
    run=st.fixed_dictionaries(
        {},
        optional={
            "backoffLimit": st.integers(0, 2),
            "cleanPodPolicy": st.sampled_from(["None", "Running", "All"]),
        },
    ),
    history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 7), max_size=3)), max_size=12),
)
def test_crashes_change_nothing_of_an_mpi_job(waits, run, history):
    manifest = kubeflow_job(MPI_JOBS, run, Launcher=replica(container="mpi"), Worker=replica(2, "mpi"))
    manifest["metadata"]["annotations"] = {WRITTEN_AS: "v2beta1"}
    if waits:
        manifest["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"
    agree(manifest, MPI_JOBS, history)


@settings(max_examples=examples(50), deadline=None)
@given(
    master=st.booleans(),
    history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 5), max_size=3)), max_size=12),
)
def test_crashes_change_nothing_of_an_elastic_job(master, history):
    """The announced world is written once for each change of the workers."""
    roles = {"Master": replica()} if master else {}
    manifest = kubeflow_job(PYTORCH_JOBS, None, **roles, Worker=replica(3, restartPolicy="OnFailure"))
    manifest["spec"]["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 5}
    agree(manifest, PYTORCH_JOBS, history)


def agree(manifest, resource, history):
    """Play a history to two worlds: in one the controller is killed."""
    calm = KubeflowWorld(copy.deepcopy(manifest), resource)
    stormy = KubeflowWorld(copy.deepcopy(manifest), resource)
    for world in (calm, stormy):
        settle(world)
    for event, crashes in history:
        for world in (calm, stormy):
            play(world, event)
        settle(calm)
        for writes in crashes:
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.reconcile()
            stormy.restart()
        settle(stormy)
        assert picture(stormy) == picture(calm), event
