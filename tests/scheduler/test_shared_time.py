"""Attained service is written on a group's object before a suspension, and survives the
scheduler."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.errors import conflict, failure
from windlass.api.resources import CONFIG_MAPS, POD_GROUPS, PODS
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.scheduler.estimates.run_times import NAME
from windlass.scheduler.options import OWN_NAMESPACE

KEPT = f"{OWN_NAMESPACE}/{NAME}"
SHARES = {"windlass.dev/time-share": "true", "windlass.dev/checkpoint-every": "0s"}


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), node("n1", gpus=8))
    return made


def come(api: SchedulerApi, name: str, pods: int, gpus: int, incarnation: int = 0) -> None:
    """Add the gang if it is new, and its pods."""
    if api.object(POD_GROUPS, f"default/{name}") is None:
        made = group(name, pods)
        made["metadata"] |= {
            "annotations": dict(SHARES),
            "creationTimestamp": rfc3339(api.clock.now()),
            "uid": f"{name}-uid",
        }
        api.add(made)
    for at in range(pods):
        one = pod(
            f"{name}-{at}",
            group=name,
            uid=f"{name}-{at}-{incarnation}",
            requests={"nvidia.com/gpu": gpus},
        )
        one["metadata"]["creationTimestamp"] = rfc3339(api.clock.now())
        api.add(one)


def start(api: SchedulerApi, name: str, pods: int) -> None:
    for at in range(pods):
        now = rfc3339(api.clock.now())
        api.change(PODS, f"default/{name}-{at}", status={"phase": "Running", "startTime": now})


def notes(api: SchedulerApi, name: str) -> dict[str, str]:
    found = (api.object(POD_GROUPS, f"default/{name}") or {})["metadata"]["annotations"]
    return {key.partition("/")[2]: text for key, text in found.items() if "explanation" not in key}


def stint(running: Running, name: str) -> Any:
    return running.service.engine.state.time_sharing.accounts[f"default/{name}"].segment


async def suspended(api: SchedulerApi, running: Running, ran: float = 700.0) -> None:
    """Let a gang of two run for some time and be suspended for another."""
    come(api, "old", 2, 4)
    await running.settle(1)
    start(api, "old", 2)
    await running.settle(ran)
    come(api, "new", 1, 8)
    await running.settle(1)
    api.finish_deletions()
    await running.settle(1)
    assert api.node_of("new-0") == "n1"


async def test_attained_service_is_written_before_the_first_eviction(api: SchedulerApi) -> None:
    async with Running(api) as running:
        await suspended(api, running)
    said = notes(api, "old")
    assert said["suspensions"] == "1"
    assert said["attained"] in ("11m40s", "11m41s")
    assert abs(parse_rfc3339(said["attained-at"]) - api.clock.now()) < 3
    gone = api.log.index(("delete", "pods", "default/old-0"))
    last = [entry for entry in api.log[:gone] if entry[1] in ("podgroups", "pods") and "new" not in entry[2]][
        -1
    ]
    assert last == ("patch", "podgroups", "default/old")
    assert "attained" not in notes(api, "new")


async def test_a_new_leader_counts_from_the_written_attained_service(api: SchedulerApi) -> None:
    async with Running(api) as running:
        await suspended(api, running)
        start(api, "new", 1)
        come(api, "old", 2, 4, incarnation=1)
        await running.settle(100)
        before = stint(running, "old")
        was = (before.attained, before.suspensions, before.resumed)
    async with Running(api) as running:
        await running.settle(1)
        after = stint(running, "old")
        assert (after.suspensions, after.resumed) == was[1:]
        assert after.attained == pytest.approx(was[0], abs=1)
        assert after.waited == pytest.approx(api.clock.now() - created(api, "old") - after.attained, abs=3)
        told = running.service.explain("default/old")
        assert told is not None
        assert "has run for 11m" in told.message
        assert "suspended once" in told.message


async def test_a_job_with_a_recreated_group_keeps_its_rank(api: SchedulerApi) -> None:
    """As a Volcano Job does that restarts when one of its pods is evicted."""
    async with Running(api) as running:
        await suspended(api, running)
        start(api, "new", 1)
        await running.settle(10)
        was = (api.object(POD_GROUPS, "default/old") or {})["metadata"]
        api.remove(POD_GROUPS, "default/old")
        await running.settle(20)
        come(api, "old", 2, 4, incarnation=1)
        since = {"windlass.dev/attained-since": was["creationTimestamp"]}
        said = {name: text for name, text in was["annotations"].items() if name.startswith("windlass.dev/")}
        api.change(POD_GROUPS, "default/old", metadata={"uid": "old-again", "annotations": said | since})
        await running.settle(1)
        after = stint(running, "old")
        assert after.attained == pytest.approx(700.0, abs=2)
        assert after.suspensions == 1
        assert after.waited == pytest.approx(32.0, abs=3)
        await running.settle(300)
        assert api.node_of("new-0") == "n1"  # its capacity is not reclaimed as by a group that never ran


def created(api: SchedulerApi, name: str) -> float:
    return parse_rfc3339((api.object(POD_GROUPS, f"default/{name}") or {})["metadata"]["creationTimestamp"])


async def test_attained_service_includes_both_runs(api: SchedulerApi) -> None:
    async with Running(api) as running:
        await suspended(api, running)
        start(api, "new", 1)
        come(api, "old", 2, 4, incarnation=1)
        api.end("new-0")
        await running.settle(1)
        start(api, "old", 2)
        await running.settle(50)
    async with Running(api) as running:
        come(api, "newer", 1, 8)
        await running.settle(650)
        # 700 s, and the minute for which a start is left alone: 50 s of it before the other one began
        assert notes(api, "old")["suspensions"] == "2"
        assert notes(api, "old")["attained"] in ("12m40s", "12m41s", "12m42s", "12m43s")


@pytest.mark.parametrize(
    ("error", "after"),
    [
        (failure(403, "Forbidden", "no"), 12.0),
        (conflict(POD_GROUPS, "old", "Precondition failed: UID in precondition: x"), 1.0),
        (failure(500, "X", "x"), 12.0),
    ],
)
async def test_a_failed_write_prevents_no_suspension(
    api: SchedulerApi, error: Exception, after: float
) -> None:
    def refuse(verb: str, resource: Any, _: Any) -> Any:
        return error if verb == "patch" and resource is POD_GROUPS else None

    async with Running(api) as running:
        come(api, "old", 2, 4)
        await running.settle(1)
        start(api, "old", 2)
        await running.settle(700)
        api.reject = refuse
        come(api, "new", 1, 8)
        await running.settle(after)
        api.finish_deletions()
        await running.settle(1)
        assert api.node_of("new-0") == "n1"
        assert stint(running, "old").suspensions == 1


async def test_a_temporary_failure_loses_nothing(api: SchedulerApi) -> None:
    async with Running(api) as running:
        come(api, "old", 2, 4)
        await running.settle(1)
        start(api, "old", 2)
        await running.settle(700)
        problems = [failure(503, "Busy", "later")] * 2
        api.reject = lambda verb, resource, _: (
            problems.pop() if problems and (verb, resource) == ("patch", POD_GROUPS) else None
        )
        come(api, "new", 1, 8)
        await running.settle(5)
        assert not problems
        assert notes(api, "old")["suspensions"] == "1"
        assert len(api.objects(PODS)) == 1 + 2
        api.finish_deletions()
        await running.settle(1)
        assert api.node_of("new-0") == "n1"


async def test_impossible_attained_service_is_reported_and_ignored(api: SchedulerApi) -> None:
    come(api, "old", 2, 4)
    now = rfc3339(api.clock.now())
    wrong = {"windlass.dev/attained": "9000h", "windlass.dev/attained-at": now}
    api.change(POD_GROUPS, "default/old", metadata={"annotations": {**SHARES, **wrong}})
    async with Running(api) as running:
        await running.settle(5)
        assert stint(running, "old").attained < 10
        said = [words for name, reason, words in running.recorder.said if reason == "AttainedIgnored"]
        assert len(said) == 1
        assert "longer than the object existed" in said[0]


async def test_counters_survive_the_scheduler_and_nothing_is_counted_twice(api: SchedulerApi) -> None:
    async with Running(api) as running:
        await suspended(api, running)
        start(api, "new", 1)
        await running.settle(1)
        api.end("new-0")
        come(api, "old", 2, 4, incarnation=1)
        await running.settle(1)
        start(api, "old", 2)
        await running.settle(70)
        counts = running.service.engine.state.time_sharing.policy.counts()  # type: ignore[union-attr]
        kept = api.object(CONFIG_MAPS, KEPT)
        assert kept is not None
        assert json.loads(kept["data"]["time-sharing"])["counts"]["every"] == [list(n) for n in counts.every]
        assert sum(counts.every[0]) == 1
        assert counts.every[1][0] == 1
    async with Running(api) as running:
        come(api, "third", 1, 8)  # a group waits, so groups that are due are ranked
        await running.settle(1)
        policy = running.service.engine.state.time_sharing.policy
        assert policy.counts() == counts  # type: ignore[union-attr]


@pytest.mark.parametrize("text", ["{", '{"version": 9, "at": 0, "counts": {}}', "x", "null"])
async def test_invalid_counters_are_ignored(api: SchedulerApi, text: str) -> None:
    kept = {"metadata": {"name": NAME, "namespace": OWN_NAMESPACE}, "data": {"time-sharing": text}}
    api.put(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **kept})
    async with Running(api) as running:
        await suspended(api, running)
        await running.settle(61)
        again = (api.object(CONFIG_MAPS, KEPT) or {})["data"]["time-sharing"]
        assert json.loads(again)["version"] == 1
