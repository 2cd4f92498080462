"""A controller of JobSets that is killed between any two writes ends in the same state."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from example_counts import examples
from fakeapi import Crash
from hypothesis import given, settings
from hypothesis import strategies as st
from jobset_cluster import JobSetWorld, job_set, replicated

from windlass.api.resources import BATCH_JOBS, POD_GROUPS, SERVICES

ACTIONS = ("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts", "RestartJob")
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["run", "succeed", "fail"]), st.integers(0, 2)),
    st.tuples(st.just("suspend"), st.booleans()),
    st.tuples(st.just("time"), st.sampled_from([1, 601])),
)


def play(world: JobSetWorld, event: tuple[str, Any]) -> None:
    word, how = event
    jobs = world.jobs()
    name = jobs[how] if word not in ("suspend", "time") and how < len(jobs) else ""
    ended = name and (world.job(name).get("status") or {}).get("conditions")
    match word:
        case "run" if name and not ended:
            world.run(name)
        case "succeed" if name and not ended:
            world.end(name)
        case "fail" if name and not ended:
            world.end(name, failed="BackoffLimitExceeded")
        case "suspend" if world.set is not None:
            world.change(suspend=how)
        case "time":
            world.api.clock.jump(how)


def picture(world: JobSetWorld) -> Any:
    def plain(obj: Any) -> Any:
        kept = copy.deepcopy(obj)
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            kept["metadata"].pop(field, None)
        return kept

    found = {
        resource.plural: sorted((plain(obj) for obj in world.api.objects(resource)), key=str)
        for resource in (BATCH_JOBS, POD_GROUPS, SERVICES)
    }
    return world.status, found


@settings(max_examples=examples(80), deadline=None)
@given(
    action=st.sampled_from(ACTIONS),
    strategy=st.sampled_from(["Recreate", "BlockingRecreate"]),
    order=st.sampled_from(["AnyOrder", "InOrder"]),
    history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 5), max_size=3)), max_size=10),
)
def test_crashes_change_nothing(action, strategy, order, history):
    manifest = job_set(
        replicated("a"),
        replicated("b", replicas=2),
        failurePolicy={"maxRestarts": 2, "restartStrategy": strategy, "rules": [{"action": action}]},
        startupPolicy={"startupPolicyOrder": order},
        activeDeadlineSeconds=1200,
    )
    calm, stormy = JobSetWorld(copy.deepcopy(manifest)), JobSetWorld(copy.deepcopy(manifest))
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
