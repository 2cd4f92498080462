"""A controller of AIGCJobs that is killed between any two writes loses nothing and repeats nothing."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from aigc_world import AigcWorld, aigc_job, picture
from example_counts import examples
from fakeapi import Crash
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.jobs.aigc.storage import OutputsClaim

EVENTS = st.one_of(
    st.tuples(st.just("run"), st.integers(0, 4)),
    st.tuples(st.just("succeed"), st.integers(0, 4)),
    st.tuples(st.just("fail"), st.integers(0, 4)),
    st.tuples(st.just("kill"), st.integers(0, 4)),
    st.tuples(st.just("delete"), st.integers(0, 4)),
    st.tuples(st.just("time"), st.sampled_from([1, 30, 601])),
    st.tuples(st.just("suspend"), st.booleans()),
    st.tuples(st.just("scale"), st.integers(1, 3)),
    st.tuples(st.just("done"), st.integers(0, 10)),
    st.tuples(st.just("retry"), st.integers(0, 2)),
)


def play(world: AigcWorld, event: tuple[str, Any]) -> None:
    """Play one event. An event that is not possible now is passed over."""
    word, how = event
    pods = world.pods()
    name = pods[how] if word in ("run", "succeed", "fail", "kill", "delete") and how < len(pods) else ""
    phase = (world.pod(name).get("status") or {}).get("phase") if name else ""
    match word:
        case "run" if name and phase in ("Pending", None):
            world.run(name)
        case "succeed" | "fail" | "kill" if phase == "Running":
            world.end(name, {"succeed": 0, "fail": 1, "kill": 137}[word])
        case "delete" if name:
            world.take_away(name)
        case "time":
            world.pass_time(how)
        case "suspend":
            world.change_spec(policy={"suspend": how})
        case "scale":
            world.change_spec(replicas=how)
        case "done":
            world.driver.status = {"items": {"total": 10, "done": how}, "finished": how == 10}
            world.pass_time(1)  # the controllers look once a second
        case "retry":
            world.annotate({"aigc.kurator.dev/retry": str(how)})


@settings(max_examples=examples(80), deadline=None)
@given(
    policy=st.fixed_dictionaries(
        {},
        optional={
            "backoffLimit": st.integers(0, 2),
            "activeDeadlineSeconds": st.sampled_from([40, 1000]),
        },
    ),
    shards=st.sampled_from([None, 2]),
    history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 6), max_size=3)), max_size=12),
)
def test_crashes_change_nothing(policy, shards, history):
    manifest = aigc_job(policy=policy, parallelism={"max": 3}, shards=shards)
    claim = OutputsClaim("1Gi")
    calm, stormy = (AigcWorld(copy.deepcopy(manifest), claim=claim) for _ in range(2))
    for world in (calm, stormy):
        world.settle()
    for event, crashes in history:
        for world in (calm, stormy):
            play(world, event)
        calm.settle()
        for writes in crashes:
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.reconcile()
            stormy.restart()
        stormy.settle()
        assert picture(stormy) == picture(calm), event
