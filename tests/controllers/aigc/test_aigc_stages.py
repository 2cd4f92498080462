"""Stages of an AIGCJob: late binding, release, reservation, fallback, shared budget, figures, crashes."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from aigc_world import AigcWorld, aigc_job, picture
from example_counts import examples
from fakeapi import Crash
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api import annotations as names
from windlass.api.fields.stages import GPU_GATE
from windlass.api.resources import POD_GROUPS, PODS
from windlass.cli.generation import progress as show
from windlass.kits.timestamps import parse_rfc3339

GPU = {"limits": {"nvidia.com/gpu": 1}}
DRIVER, PREPARE, INFER = "train-driver", "train-prepare-0", "train-infer-0"


def staged_job(*more: dict[str, Any], **spec: Any) -> dict[str, Any]:
    stages = [{"name": "prepare", "kind": "cpu"}, {"name": "infer", "kind": "gpu", "resources": GPU}, *more]
    return aigc_job(gpus=0, replicas=None, stages=stages, **spec)


def stage(name: str, done: int = 0, waiting: int = 0, total: int = 1000, before: int | None = None, **more):
    """Return the figures of a stage. ``before``: rows that have left the stage before."""
    held = total - (total if before is None else before)
    flying = more.pop("inFlight", 0)
    return {
        "name": name,
        "done": done,
        "waiting": waiting,
        "held": held,
        "inFlight": flying,
        "finished": done == total,
        **more,
    }


def figures(*stages: dict[str, Any], total: int = 1000, **more) -> dict[str, Any]:
    items = {"total": total, "done": stages[-1]["done"], "failed": 0, "deadLetter": 0, "inFlight": 0}
    return {"items": items, "stages": list(stages), **more}


def progress(world: AigcWorld, seconds: float, *stages: dict[str, Any], **more) -> None:
    world.driver.status = figures(*stages, **more)
    world.pass_time(seconds)
    world.settle()


def settle(world: AigcWorld) -> None:
    """Reconcile until nothing changes; all PodGroups are admitted."""
    for _ in range(5):
        world.settle()
        for group in world.api.objects(POD_GROUPS):
            if not (group.get("status") or {}).get("phase"):
                world.api.change(
                    POD_GROUPS, f"default/{group['metadata']['name']}", status={"phase": "Inqueue"}
                )
    world.settle()


def begun(*running: str, **spec: Any) -> AigcWorld:
    """Return a staged job with these running pods; default: all that exist."""
    world = AigcWorld(staged_job(**spec))
    world.driver.status = {"items": {"total": 0}, "phase": "Admitting"}
    settle(world)
    world.run(*running)
    settle(world)
    return world


def phases(world: AigcWorld) -> dict[str, str]:
    return {one["name"]: one["phase"] for one in world.status["stages"]}


def test_gpus_are_bound_once_enough_rows_wait_for_them():
    world = begun()
    assert (world.pods(), world.phase) == ([DRIVER, PREPARE], "Preprocessing")
    progress(world, 1, stage("prepare", 40), stage("infer", waiting=40, before=40))
    assert (world.pods(), world.phase) == ([DRIVER, PREPARE], "Preprocessing")
    progress(world, 9, stage("prepare", 70), stage("infer", waiting=70, before=70))  # a batch, and 5 %
    settle(world)
    assert (world.pods(), world.phase) == ([DRIVER, INFER, PREPARE], "WaitingForGPU")
    assert [one["metadata"]["name"] for one in world.api.objects(POD_GROUPS)] == ["train", "train-infer"]
    infer = world.pod(INFER)
    env = {one["name"]: one.get("value") for one in infer["spec"]["containers"][0]["env"]}
    assert env["WINDLASS_BATCH_STAGE"] == "infer"
    assert infer["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert "nvidia.com/gpu" not in str(world.pod(PREPARE)["spec"])
    assert "gpuSeconds" not in world.status
    world.run(INFER)
    settle(world)
    assert (world.phase, phases(world)) == ("Running", {"prepare": "Running", "infer": "Running"})
    conditions = {one["type"]: one["status"] for one in world.status["conditions"]}
    assert (conditions["StageReady/infer"], conditions["GPUBound"]) == ("True", "True")
    progress(world, 20, stage("prepare", 1000), stage("infer", 900, 100, busySeconds=15.0))
    assert (world.status["gpuSeconds"], world.status["gpuBusySeconds"]) == (20, 15)
    assert world.status["gpuSecondsEager"] == 30  # ten more, while rows were prepared
    world.end(PREPARE)
    settle(world)
    assert phases(world) == {"prepare": "Succeeded", "infer": "Running"}
    assert world.pods() == [DRIVER, INFER, PREPARE]


def test_gpu_stage_that_ends_before_the_next_look_is_compared_with_binding_at_once():
    world = begun()
    progress(world, 10, stage("prepare", 70), stage("infer", waiting=70, before=70))
    settle(world)
    world.run(INFER)
    settle(world)
    world.end(INFER)
    progress(world, 2, stage("prepare", 70), stage("infer", 70, before=70))
    assert (world.status["gpuSeconds"], world.status["gpuSecondsEager"]) == (2, 12)


def test_job_that_binds_at_once_is_not_compared_with_binding_at_once():
    world = AigcWorld(staged_job(progressive={"gpuBind": "Eager"}))
    world.driver.status = {"items": {"total": 0}, "phase": "Admitting"}
    settle(world)
    world.pass_time(5)
    world.run()
    settle(world)
    progress(world, 10, stage("prepare", 70), stage("infer", 30, waiting=40, before=70))
    progress(world, 2, stage("prepare", 1000), stage("infer", 1000))
    assert world.status["gpuSeconds"] == 12
    assert "gpuSecondsEager" not in world.status


def test_time_before_the_first_pod_has_a_node_is_no_saving_of_late_binding():
    world = AigcWorld(staged_job())
    world.driver.status = {"items": {"total": 0}, "phase": "Admitting"}
    settle(world)
    world.pass_time(600)  # the queue has no place
    world.run()
    settle(world)
    progress(world, 10, stage("prepare", 70), stage("infer", waiting=70, before=70))
    settle(world)
    world.run(INFER)
    settle(world)
    progress(world, 20, stage("prepare", 1000), stage("infer", 900, 100))
    assert (world.status["gpuSeconds"], world.status["gpuSecondsEager"]) == (20, 30)


def test_gpu_worker_that_starts_and_ends_between_two_looks_is_counted():
    world = begun()
    progress(world, 10, stage("prepare", 70), stage("infer", waiting=70, before=70))
    settle(world)
    world.run(INFER)
    world.end(INFER)
    progress(world, 2, stage("prepare", 70), stage("infer", 70, before=70, busySeconds=0.25))
    assert (world.status["gpus"], world.status["gpuSeconds"], world.status["gpuIdleSeconds"]) == (0, 0.25, 0)


def test_finished_gpu_stage_gives_its_devices_back_while_the_cpu_tail_runs():
    """The case of ray#66196: GPUs are free within five seconds."""
    world = AigcWorld(staged_job({"name": "write", "kind": "cpu"}))
    settle(world)
    world.run()
    done = (stage("prepare", 1000), stage("infer", 10, 990), stage("write", before=10, waiting=10))
    progress(world, 1, *done)
    settle(world)
    world.run()
    settle(world)
    assert world.status["gpus"] == 1
    progress(world, 1, stage("prepare", 1000), stage("infer", 1000), stage("write", 20, 980))
    assert (world.status["gpus"], phases(world)["infer"]) == (1, "Succeeded")
    world.pass_time(3)  # its worker hangs, although the driver has told it to end
    world.settle()
    world.settle()
    assert INFER not in world.pods()
    assert (world.status["gpus"], world.phase) == (0, "Running")
    assert phases(world)["write"] == "Running"
    before = world.status["gpuSeconds"]
    progress(world, 100, stage("prepare", 1000), stage("infer", 1000), stage("write", 30, 970))
    assert world.status["gpuSeconds"] == before


def test_idle_gpus_are_released_and_bound_again_with_enough_rows():
    world = begun(progressive={"releaseIdleGPUSeconds": 30, "startWhen": {"readyFraction": 0}})
    progress(world, 1, stage("prepare", 100), stage("infer", waiting=100, before=100))
    settle(world)
    world.run()
    settle(world)
    idle = (stage("prepare", 100), stage("infer", 100, before=100))
    progress(world, 1, *idle)
    progress(world, 29, *idle)
    assert INFER in world.pods()
    progress(world, 1, *idle)
    settle(world)
    assert (world.pods(), phases(world)["infer"]) == ([DRIVER, PREPARE], "Released")
    assert [one["metadata"]["name"] for one in world.api.objects(POD_GROUPS)] == ["train"]
    progress(world, 5, stage("prepare", 130), stage("infer", 100, 30, before=130))
    assert INFER not in world.pods()
    progress(world, 5, stage("prepare", 200), stage("infer", 100, 100, before=200))
    settle(world)
    assert INFER in world.pods()


def reservation(world: AigcWorld) -> tuple[list[str], dict[str, str]]:
    """Return the scheduling gates of the GPU worker, and the reservation of its PodGroup as seconds from now."""
    gates = [gate["name"] for gate in world.pod(INFER)["spec"].get("schedulingGates") or ()]
    group = next(one for one in world.api.objects(POD_GROUPS) if one["metadata"]["name"] == "train-infer")
    notes, now = group["metadata"].get("annotations") or {}, world.api.clock.now()
    found = {name: notes.get(name) for name in (names.EARLIEST_START, names.RESERVE_UNTIL)}
    return gates, {name: round(parse_rfc3339(text) - now) for name, text in found.items() if text}


def test_reserved_gpus_are_lent_until_enough_rows_are_expected():
    world = begun(DRIVER, PREPARE, progressive={"gpuBind": "Reserve", "reserveTimeoutSeconds": 100})
    assert (world.phase, phases(world)["infer"]) == ("Preprocessing", "Reserved")
    start, until = names.EARLIEST_START, names.RESERVE_UNTIL
    assert reservation(world) == ([GPU_GATE], {start: 0, until: 100})  # no rate is measured: nothing is lent
    progress(world, 10, stage("prepare", 14, perSecond=1.0), stage("infer", waiting=14, before=14))
    assert reservation(world) == ([GPU_GATE], {start: 50, until: 90})
    progress(world, 2, stage("prepare", 16, perSecond=0.95), stage("infer", waiting=16, before=16))
    assert reservation(world) == ([GPU_GATE], {start: 48, until: 88})  # small changes are not written
    progress(world, 8, stage("prepare", 24, perSecond=4.0), stage("infer", waiting=24, before=24))
    assert reservation(world) == ([GPU_GATE], {start: 10, until: 80})
    progress(world, 10, stage("prepare", 64, perSecond=4.0), stage("infer", waiting=64, before=64))
    settle(world)
    assert reservation(world) == ([], {start: 0, until: 100})
    assert (world.phase, world.status["gpuReservedSeconds"]) == ("WaitingForGPU", 30)


def test_reservation_ends_after_its_time():
    world = begun(DRIVER, PREPARE, progressive={"gpuBind": "Reserve", "reserveTimeoutSeconds": 100})
    few = (stage("prepare", 10), stage("infer", waiting=10, before=10))
    progress(world, 99, *few)
    assert phases(world)["infer"] == "Reserved"
    progress(world, 1, *few)
    settle(world)
    assert (INFER in world.pods(), phases(world)["infer"]) == (False, "Released")
    assert "the reservation of infer expired at" in show.reservation(world.status)
    progress(world, 50, stage("prepare", 80), stage("infer", waiting=80, before=80))
    settle(world)
    assert reservation(world) == ([], {})
    assert world.status["gpuReservedSeconds"] == 100


def test_stage_without_free_gpus_waits_falls_back_or_is_requeued():
    enough = (stage("prepare", 900), stage("infer", waiting=900, before=900))
    for action in ("Wait", "CPUFallback", "Requeue"):
        world = begun(progressive={"onNoGPU": action, "reserveTimeoutSeconds": 60})
        progress(world, 1, *enough)
        settle(world)
        world.api.change(PODS, f"default/{INFER}", spec={"nodeName": None})
        progress(world, 59, *enough)
        assert INFER in world.pods()
        progress(world, 2, *enough)
        settle(world)
        if action == "Wait":
            assert (INFER in world.pods(), world.phase) == (True, "WaitingForGPU")
        elif action == "CPUFallback":
            assert world.pods() == [DRIVER, "train-infer-cpu-0", PREPARE]
            assert "gpu" not in str(world.pod("train-infer-cpu-0")["spec"]["containers"][0]["resources"])
        else:
            assert INFER not in world.pods()
            assert "train-infer" in [one["metadata"]["name"] for one in world.api.objects(POD_GROUPS)]
            progress(world, 61, *enough)
            settle(world)
            assert INFER in world.pods()


def test_stages_share_one_budget_by_their_measured_times():
    stages = [{"name": name, "kind": "cpu"} for name in ("map", "infer")]
    world = AigcWorld(aigc_job(gpus=0, replicas=None, stages=stages, parallelism={"max": 126}))
    settle(world)
    world.run()
    slow = {"secondsPerItem": 0.21}
    measured = (
        stage("map", 500, 99_500, total=100_000, secondsPerItem=0.17),
        stage("infer", 400, 100, total=100_000, before=500, **slow),
    )
    progress(world, 6, *measured, total=100_000)
    settle(world)
    progress(world, 6, *measured, total=100_000)
    desired = {one["name"]: one["desired"] for one in world.status["stages"]}
    assert abs(desired["map"] - 56) <= 2
    assert desired["map"] + desired["infer"] == 126
    names = [name for name in world.pods() if name != DRIVER]
    assert sum(name.startswith("train-map-") for name in names) == desired["map"]


MOMENTS = st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from([1, 20, 70, 700]))
EVENTS = st.one_of(
    st.tuples(st.just("rows"), MOMENTS),
    st.tuples(st.just("run"), st.just(0)),
    st.tuples(st.sampled_from(["succeed", "kill", "delete"]), st.integers(0, 2)),
    st.tuples(st.just("suspend"), st.booleans()),
)


def play(world: AigcWorld, word: str, how: Any) -> None:
    names = world.pods()
    name = names[how] if word in ("succeed", "kill", "delete") and how < len(names) else ""
    running = bool(name) and (world.pod(name).get("status") or {}).get("phase") == "Running"
    if word == "rows":
        prepared, inferred = max(how[0], how[1]), min(how[0], how[1])
        rows = (stage("prepare", prepared), stage("infer", inferred, prepared - inferred, before=prepared))
        world.driver.status = figures(*rows, finished=inferred == 1000)
        world.pass_time(how[2])
    elif word == "run":
        world.run()
    elif word == "suspend":
        world.change_spec(policy={"suspend": how})
    elif name and word == "delete":
        world.take_away(name)
    elif running:
        world.end(name, {"succeed": 0, "kill": 137}[word])


@settings(max_examples=examples(15), deadline=None)
@given(
    bind=st.sampled_from(["Late", "Reserve", "Eager"]),
    action=st.sampled_from(["Wait", "CPUFallback", "Requeue"]),
    history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 6), max_size=3)), max_size=10),
)
def test_crashes_change_nothing(bind, action, history):
    manifest = staged_job(progressive={"gpuBind": bind, "onNoGPU": action})
    calm, stormy = AigcWorld(copy.deepcopy(manifest)), AigcWorld(copy.deepcopy(manifest))
    for world in (calm, stormy):
        settle(world)
    for event, crashes in history:
        for world in (calm, stormy):
            play(world, *event)
        settle(calm)
        for writes in crashes:
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.reconcile()
            stormy.restart()
        settle(stormy)
        assert picture(stormy) == picture(calm), event
