"""Gangs that lack nodes request all of them or none, by one ProvisioningRequest each."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from fakeapi import Crash
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api import annotations as names
from windlass.api import errors
from windlass.api.reasons import Explanation
from windlass.api.resources import (
    KAI_POD_GROUPS,
    KAI_QUEUES,
    POD_GROUPS,
    POD_TEMPLATES,
    PODS,
    PROVISIONING_REQUESTS,
    QUEUES,
)
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339

ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
PARAMETER = names.PROVISIONING_PARAMETER
Json = dict[str, Any]


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), node("n1", gpus=1))
    return made


def members(count: int, name: str = "g", **fields: Any) -> list[Json]:
    return [pod(f"{name}{i}", group=name, **fields) for i in range(count)]


def asks(api: SchedulerApi, **options: Any) -> Running:
    return Running(api, provisioning_class=ATOMIC, **options)


def says(made: Json, class_name: str) -> Json:
    """A queue with a provisioning class."""
    made["metadata"]["annotations"] = {names.PROVISIONING_CLASS: class_name}
    return made


def requests(api: SchedulerApi) -> list[Json]:
    return api.objects(PROVISIONING_REQUESTS)


def counts(api: SchedulerApi) -> list[int]:
    return sorted(one["count"] for made in requests(api) for one in made["spec"]["podSets"])


def say(api: SchedulerApi, kind: str, message: str = "", status: str = "True") -> None:
    """Write a condition on the one request, as an autoscaler does."""
    (made,) = requests(api)
    at = rfc3339(api.clock.now())
    new = {"type": kind, "status": status, "reason": "R", "message": message, "lastTransitionTime": at}
    kept = [c for c in (made.get("status") or {}).get("conditions", []) if c["type"] != kind]
    key = f"default/{made['metadata']['name']}"
    api.change(PROVISIONING_REQUESTS, key, status={"conditions": [*kept, new]})


def refuses_requests(api: SchedulerApi) -> None:
    refused = errors.forbidden(PROVISIONING_REQUESTS, "g", "not today")
    api.reject = lambda verb, kind, obj: (
        refused if verb == "create" and kind is PROVISIONING_REQUESTS else None
    )


def shown(api: SchedulerApi, name: str = "g") -> Explanation:
    notes = api.object(POD_GROUPS, f"default/{name}")["metadata"]["annotations"]  # type: ignore[index]
    return Explanation.from_dict(msgspec.json.decode(notes[names.EXPLANATION]))


def reasons(api: SchedulerApi) -> set[str]:
    found = (api.conditions(PODS, f"default/{o['metadata']['name']}") for o in api.objects(PODS))
    return {c["PodScheduled"]["reason"] for c in found if "PodScheduled" in c}


def consumed(api: SchedulerApi) -> set[str]:
    notes = (o["metadata"].get("annotations") or {} for o in api.objects(PODS))
    return {found.get(names.NODES_REQUESTED, "") for found in notes}


async def test_a_gang_requests_all_its_nodes_once_and_its_pods_none(
    api: SchedulerApi,
) -> None:
    said: list[str] = []

    async def patch(resource: Any, name: str, patch: Json, *args: Any, **options: Any) -> Json:
        if resource is PODS:
            said.extend(c["reason"] for c in patch.get("status", {}).get("conditions", ()))
        return await SchedulerApi.patch(api, resource, name, patch, *args, **options)

    api.patch = patch  # type: ignore[method-assign]
    chief = pod("chief", group="g", requests={"cpu": "2"}, env=["secret"])
    api.add(group("g", 5), *members(4, volumes=[{"name": "v", "emptyDir": {}}]), chief)
    async with asks(api) as running:
        await running.settle(30.0)
        (made,) = requests(api)
        assert made["spec"]["provisioningClassName"] == ATOMIC
        assert counts(api) == [1, 4]
        templates = {o["metadata"]["name"]: o for o in api.objects(POD_TEMPLATES)}
        assert {one["podTemplateRef"]["name"] for one in made["spec"]["podSets"]} == set(templates)
        owner = api.object(POD_GROUPS, "default/g")["metadata"]["uid"]  # type: ignore[index]
        for obj in (made, *templates.values()):
            assert [one["uid"] for one in obj["metadata"]["ownerReferences"]] == [owner]
        assert "secret" not in str(templates)
        assert "emptyDir" not in str(templates)
        assert consumed(api) == {made["metadata"]["name"]}
        classes = {o["metadata"]["annotations"][names.PROVISIONING_CLASS_NAME] for o in api.objects(PODS)}
        assert classes == {ATOMIC}
        assert set(said) == {"SchedulingGated"}
        assert len(api.writes("provisioningrequests")) == 1


async def test_no_request_is_made_by_default(api: SchedulerApi) -> None:
    api.add(group("g", 2), *members(2))
    async with Running(api) as running:
        await running.settle(20.0)
        assert requests(api) == []
        assert reasons(api) == {"Unschedulable"}
        assert shown(api).asked is None


@pytest.mark.parametrize("setting", [ATOMIC, "none"])
async def test_a_queue_inherits_the_provisioning_class(api: SchedulerApi, setting: str) -> None:
    check = "check-capacity.autoscaling.x-k8s.io"
    api.add(says(queue("above"), check), queue("below", parent="above"), says(queue("off"), "none"))
    for name in ("below", "off"):
        api.add(group(name, 2, queue=name), *members(2, name))
    async with Running(api, provisioning_class=setting) as running:
        await running.settle(20.0)
        assert [one["spec"]["provisioningClassName"] for one in requests(api)] == [check]
        assert reasons(api) == {"SchedulingGated", "Unschedulable"}
        api.change(QUEUES, "above", metadata={"annotations": {names.PROVISIONING_CLASS: "none"}})
        api.change(POD_GROUPS, "default/below", metadata={"labels": {"any": "change"}})
        await running.settle(60.0)
        assert requests(api) == []
        assert consumed(api) == {""}
        assert reasons(api) == {"Unschedulable"}


async def test_parameters_of_the_group_come_before_those_of_the_queue(api: SchedulerApi) -> None:
    first = says(queue("team"), ATOMIC)
    first["metadata"]["annotations"] |= {f"{PARAMETER}ValidUntilSeconds": "60", f"{PARAMETER}a": "of queue"}
    gang = group("g", 2, queue="team")
    gang["metadata"]["annotations"] = {f"{PARAMETER}a": "of group"}
    api.add(first, gang, *members(2))
    async with Running(api) as running:
        await running.settle(10.0)
        (made,) = requests(api)
        assert made["spec"]["parameters"] == {"ValidUntilSeconds": "60", "a": "of group"}
        api.change(QUEUES, "team", metadata={"annotations": {f"{PARAMETER}ValidUntilSeconds": "90"}})
        await running.settle(10.0)
        (again,) = requests(api)
        assert again["spec"]["parameters"]["ValidUntilSeconds"] == "90"
        assert again["metadata"]["uid"] != made["metadata"]["uid"]


async def test_the_setting_is_followed_while_it_runs(api: SchedulerApi) -> None:
    api.add(group("g", 2), *members(2))
    async with Running(api) as running:
        await running.settle(10.0)
        assert reasons(api) == {"Unschedulable"}
        off = running.service.options
        running.service.adjust(replace(off, provisioning_class=ATOMIC))
        await running.settle(10.0)
        assert counts(api) == [2]
        assert reasons(api) == {"SchedulingGated"}
        running.service.adjust(off)
        await running.settle(20.0)
        assert requests(api) == []
        assert consumed(api) == {""}
        assert reasons(api) == {"Unschedulable"}


@pytest.mark.parametrize("why", ["limit", "members", "gate", "claim", "alone", "fits", "asked"])
async def test_only_gangs_that_lack_nothing_but_nodes_make_requests(api: SchedulerApi, why: str) -> None:
    least, fields = 2, {}
    if why == "limit":
        api.add(queue("default", capability={"nvidia.com/gpu": "1"}))
    elif why == "members":
        least = 3
    elif why == "gate":
        fields = {"schedulingGates": [{"name": "example.com/wait"}]}
    elif why == "claim":
        fields = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "nobody-made-it"}}]}
    elif why == "alone":
        least = 1
    elif why == "fits":
        api.add(node("n2", gpus=1))
    elif why == "asked":
        fields = {"annotations": {names.NODES_REQUESTED: "of-kueue"}}
    api.add(group("g", least), *members(2, **fields))
    async with asks(api) as running:
        await running.settle(30.0)
        assert requests(api) == []
        assert api.objects(POD_TEMPLATES) == []
        assert consumed(api) == {"of-kueue" if why == "asked" else ""}


async def test_an_elastic_gang_requests_its_minimum_and_further_pods_their_own_nodes(
    api: SchedulerApi,
) -> None:
    api.add(group("g", 4), *members(6))
    async with asks(api) as running:
        await running.settle(10.0)
        assert counts(api) == [4]
        assert reasons(api) == {"SchedulingGated"}
        api.add(node("n2", gpus=3))
        await running.settle(40.0)
        assert len(api.bound()) == 4
        assert requests(api) == []
        waiting = [o["metadata"]["name"] for o in api.objects(PODS) if not o["spec"].get("nodeName")]
        said = {api.conditions(PODS, f"default/{name}")["PodScheduled"]["reason"] for name in waiting}
        assert said == {"Unschedulable"}


@pytest.mark.parametrize("how", ["placed", "group deleted", "lacks a member", "pods gone", "limit lowered"])
async def test_an_unwanted_request_is_withdrawn_with_its_templates(api: SchedulerApi, how: str) -> None:
    api.add(group("g", 2), *members(2))
    async with asks(api) as running:
        await running.settle(10.0)
        assert len(requests(api)) == 1
        if how == "placed":
            api.add(node("n2", gpus=1))
        elif how == "group deleted":
            api.remove(POD_GROUPS, "default/g")
        elif how == "limit lowered":
            api.add(queue("default", capability={"nvidia.com/gpu": "1"}))
        elif how == "lacks a member":
            api.remove(PODS, "default/g1")
        else:
            for i in range(2):
                api.remove(PODS, f"default/g{i}")
        await running.settle(30.0)
        assert requests(api) == []
        assert api.objects(POD_TEMPLATES) == []
        if how in ("lacks a member", "limit lowered"):
            assert consumed(api) == {""}


async def test_the_state_of_a_request_is_reported_on_the_group(api: SchedulerApi) -> None:
    api.add(group("g", 2), *members(2))
    async with asks(api) as running:
        await running.settle(10.0)
        asked = shown(api).asked
        assert asked is not None
        assert (asked.what, asked.state, asked.class_name, asked.attempt) == ("2 x 1 GPU", "asked", ATOMIC, 1)
        assert asked.detail.startswith("no autoscaler has taken it up yet")
        for kind, state in (
            ("Accepted", "accepted"),
            ("Provisioned", "provisioned"),
            ("BookingExpired", "booking expired"),
        ):
            say(api, kind, "so it is")
            at = api.clock.now()
            await running.settle(6.0)
            asked = shown(api).asked
            assert asked is not None
            assert asked.state == state
            assert abs(asked.since - at) <= 1.0
            words = api.conditions(POD_GROUPS, "default/g")["Unschedulable"]["message"]
            assert words.endswith(f"; nodes requested: 2 x 1 GPU, {state}")
        assert asked.detail == "so it is"
        assert running.reasons("g").count("NodesProvisioned") == 1
        assert running.reasons("g").count("NodesExpired") == 1


async def test_a_delayed_request_is_reported_with_the_autoscalers_message(api: SchedulerApi) -> None:
    api.add(group("g", 2), *members(2))
    async with asks(api) as running:
        await running.settle(10.0)
        say(api, "Accepted")
        say(api, "Provisioned", "Capacity is not found, CA will try to find it later.", "False")
        await running.settle(4000.0)
        asked = shown(api).asked
        assert asked is not None
        assert (asked.state, asked.attempt) == ("accepted", 1)
        assert asked.detail.startswith("Capacity is not found")
        assert len(api.writes("provisioningrequests")) == 1


@pytest.mark.parametrize("kind", ["Failed", "BookingExpired", "CapacityRevoked"])
async def test_a_failed_request_is_repeated_with_back_off_until_the_limit(
    api: SchedulerApi, kind: str
) -> None:
    api.add(group("g", 2), *members(2))
    async with asks(api) as running:
        await running.settle(10.0)
        for attempt, pause in ((1, 60), (2, 120), (3, 240)):
            (made,) = requests(api)
            assert made["metadata"]["name"].endswith(f"-{attempt}")
            say(api, kind, "no")
            await running.settle(pause - 5.0)
            assert [one["metadata"]["name"] for one in requests(api)] == [made["metadata"]["name"]]
            asked = shown(api).asked
            assert asked is not None
            assert asked.retry_at == pytest.approx(api.clock.now() + 5.0, abs=2.0)
            await running.settle(12.0)
            (again,) = requests(api)
            assert again["metadata"]["uid"] != made["metadata"]["uid"]
            assert consumed(api) == {again["metadata"]["name"]}
        assert len(api.objects(POD_TEMPLATES)) == 1  # it said the same each time
        say(api, kind, "no")
        await running.settle(8000.0)
        (last,) = requests(api)
        assert last["metadata"]["name"].endswith("-4")
        asked = shown(api).asked
        assert asked is not None
        assert "given up after 4 attempts" in asked.detail
        api.remove(PROVISIONING_REQUESTS, f"default/{last['metadata']['name']}")  # as it says
        await running.settle(10.0)
        assert [one["metadata"]["name"][-2:] for one in requests(api)] == ["-1"]


async def test_a_new_leader_continues_with_existing_requests(api: SchedulerApi) -> None:
    api.add(group("g", 2), *members(2))
    async with asks(api) as running:
        await running.settle(10.0)
    (before,) = requests(api)
    writes = len(api.writes("provisioningrequests"))
    async with asks(api) as running:
        await running.settle(60.0)
        (after,) = requests(api)
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert len(api.writes("provisioningrequests")) == writes
    api.add(node("n2", gpus=1))
    async with asks(api) as running:
        await running.settle(10.0)
        assert len(api.bound()) == 2
        assert requests(api) == []


async def test_a_changed_gang_gets_another_request(api: SchedulerApi) -> None:
    """The counts of a request cannot be changed."""
    api.add(group("g", 2), *members(2))
    async with asks(api) as running:
        await running.settle(10.0)
        assert counts(api) == [2]
        api.change(POD_GROUPS, "default/g", spec={"minMember": 3})
        api.add(pod("g2", group="g"))
        await running.settle(15.0)
        assert counts(api) == [3]
        api.remove(POD_GROUPS, "default/g")
        api.add(group("g", 3))
        api.change(POD_GROUPS, "default/g", metadata={"uid": "another"})
        await running.settle(15.0)
        (made,) = requests(api)
        assert made["metadata"]["ownerReferences"][0]["uid"] == "another"
        assert consumed(api) == {made["metadata"]["name"]}


async def test_a_rejected_request_is_reported_and_repeated(api: SchedulerApi) -> None:
    refuses_requests(api)
    api.add(group("g", 2), *members(2))
    async with asks(api) as running:
        await running.settle(20.0)
        asked = shown(api).asked
        assert asked is not None
        assert asked.state == "not asked"
        assert "not today" in asked.detail
        assert reasons(api) == {"SchedulingGated"}
        api.reject = lambda *_: None
        await running.settle(60.0)
        assert counts(api) == [2]


async def test_unused_templates_are_deleted(api: SchedulerApi) -> None:
    refuses_requests(api)
    api.add(group("g", 2), *members(2))
    async with asks(api) as running:
        await running.settle(20.0)
        assert len(api.objects(POD_TEMPLATES)) == 1
        api.add(node("n2", gpus=1))
        await running.settle(20.0)
        assert len(api.bound()) == 2
        assert api.objects(POD_TEMPLATES) == []


@pytest.mark.parametrize("lost", [True, False], ids=["its answer lost", "answered"])
async def test_a_request_is_reported_once_even_if_the_watch_is_late(api: SchedulerApi, lost: bool) -> None:
    tried = 0
    deliver = api._changed

    async def create(resource: Any, obj: Json, *args: Any, **options: Any) -> Json:
        nonlocal tried
        tried += resource is PROVISIONING_REQUESTS
        found = await SchedulerApi.create(api, resource, obj, *args, **options)
        if lost and resource is PROVISIONING_REQUESTS:
            raise errors.StatusError({"code": 504, "reason": "Timeout", "message": "the answer is lost"})
        return found

    def unless_late(resource: Any, *change: Any) -> None:
        if resource is not PROVISIONING_REQUESTS:
            deliver(resource, *change)

    api.create = create  # type: ignore[method-assign]
    api._changed = unless_late  # type: ignore[method-assign]
    api.add(group("g", 2), *members(2))
    async with asks(api) as running:
        for number in range(4):
            await running.settle(5.0)
            api.add(pod(f"more{number}", group="g"))
            api.remove(PODS, f"default/more{number}")
        assert tried > 1
        assert len(requests(api)) == 1
        assert [reason for _, reason, _ in running.recorder.said].count("NodesAsked") == 1


async def test_a_kai_gang_owns_its_request_and_further_pods_request_their_own_nodes(
    api: SchedulerApi,
) -> None:
    api.put(KAI_QUEUES, says(kai_queue("team"), ATOMIC))
    api.put(KAI_POD_GROUPS, kai_group("k", 2, "team"))
    for i in range(3):
        api.put(PODS, kai_pod(f"k{i}", "k", "team"))
    async with Running(api) as running:
        await running.settle(10.0)
        (made,) = requests(api)
        assert counts(api) == [2]
        assert made["metadata"]["ownerReferences"][0]["apiVersion"] == KAI_POD_GROUPS.api_version
        assert reasons(api) == {"SchedulingGated"}
        api.add(node("n2", gpus=1))
        await running.settle(40.0)
        assert len(api.bound()) == 2
        assert requests(api) == []
        (waits,) = {f"k{i}" for i in range(3)} - set(api.bound())
        assert api.conditions(PODS, f"default/{waits}")["PodScheduled"]["reason"] == "Unschedulable"


async def test_a_missing_kind_is_reported_and_checked_again(api: SchedulerApi) -> None:
    served = api.list
    known = {PROVISIONING_REQUESTS: False}

    async def listed(resource: Any, *args: Any, **options: Any) -> Any:
        if not known.get(resource, True):
            raise errors.failure(404, "NotFound", "the server could not find the requested resource")
        return await served(resource, *args, **options)

    api.list = listed  # type: ignore[method-assign]
    api.add(group("g", 2), *members(2))
    async with asks(api) as running:
        await running.settle(20.0)
        asked = shown(api).asked
        assert asked is not None
        assert asked.detail == (
            "the cluster has no provisioningrequests.autoscaling.x-k8s.io, or does not show them"
        )
        assert (requests(api), api.objects(POD_TEMPLATES)) == ([], [])
        known.clear()
        for _ in range(10):
            await running.settle(20.0)
        assert counts(api) == [2]


async def test_too_many_kinds_of_pods_for_one_request_are_reported(api: SchedulerApi) -> None:
    api.add(group("g", 33))
    api.add(*(pod(f"g{i}", group="g", nodeSelector={"node": str(i)}) for i in range(33)))
    async with asks(api) as running:
        await running.settle(20.0)
        asked = shown(api).asked
        assert asked is not None
        assert asked.detail == "pods of 33 kinds are not alike, and a ProvisioningRequest counts 32 at most"
        assert requests(api) == []


@pytest.mark.parametrize("writes", range(12))
async def test_after_a_crash_at_any_time_there_is_one_request_and_nothing_unused(
    api: SchedulerApi, writes: int
) -> None:
    api.add(group("g", 3), *members(2), pod("chief", group="g", requests={"cpu": "2"}))
    api.crash_after = writes
    with contextlib.suppress(Crash):
        async with asks(api) as running:
            await running.settle(20.0)
    api.crash_after = None
    async with asks(api) as running:
        await running.settle(20.0)
        (made,) = requests(api)
        assert counts(api) == [1, 2]
        assert consumed(api) == {made["metadata"]["name"]}
        api.add(node("n2", gpus=1))
        await running.settle(20.0)
        assert len(api.bound()) == 3
        assert (requests(api), api.objects(POD_TEMPLATES)) == ([], [])
