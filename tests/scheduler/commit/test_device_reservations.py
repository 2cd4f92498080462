"""Devices of a device plugin are shared only while a pod reserves them."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from device_plugin_kubelet import PlugKubelet, cards_asked
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api import errors
from windlass.api.devices.request import GPU
from windlass.api.resources import NODES, PODS
from windlass.engine.decision import Bind, DeviceShare
from windlass.kits.clock import FakeClock
from windlass.model.devices.reserved_devices import NAMESPACE
from windlass.scheduler.commit.reservation_pod import name_of
from windlass.scheduler.options import ReservationPodOptions

Json = dict[str, Any]
VISIBLE = "windlass.dev/visible-devices"
ENV = [
    {
        "name": "NVIDIA_VISIBLE_DEVICES",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{VISIBLE}']"}},
    }
]
OPTIONS = ReservationPodOptions("windlass:test", runtime_class="nvidia", seconds=60.0)
LABELS = {"nvidia.com/gpu.product": "NVIDIA-A100", "nvidia.com/gpu.memory": "40960"}


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"))
    return made


def sharer(name: str, part: float = 0.5, **fields: Any) -> Json:
    fields.setdefault("annotations", {"gpu-fraction": str(part)})
    made = pod(name, requests=fields.pop("requests", {}), **fields)
    made["spec"]["containers"][0]["env"] = ENV
    return made


def plugged(name: str, gpus: int, **fields: Any) -> Json:
    return node(name, gpus=gpus, labels={**LABELS, **fields.pop("labels", {})}, **fields)


def kubelet_for(api: SchedulerApi, shuffle: random.Random | None = None) -> PlugKubelet:
    """Kubelets of all nodes with GPUs.

    Their plugins prefer other GPUs than Windlass counts.
    """
    nodes = {}
    for obj in api.objects(NODES):
        gpus = int(obj["status"]["allocatable"].get("nvidia.com/gpu", 0))
        cards = [f"GPU-{obj['metadata']['name']}-{at}" for at in reversed(range(gpus))]
        if shuffle is not None:
            shuffle.shuffle(cards)
        nodes[obj["metadata"]["name"]] = cards
    return PlugKubelet(nodes)


def play(api: SchedulerApi, kubelet: PlugKubelet, *, end: bool = True) -> None:
    """Let all kubelets act once. ``end``: deleted pods terminate."""
    if end:
        api.finish_deletions()
    kubelet.forget(api.objects(PODS))
    for obj in api.objects(PODS):
        if (status := kubelet.judge(obj)) is not None:
            api.change(PODS, f"{obj['metadata']['namespace']}/{obj['metadata']['name']}", status=status)


def held(api: SchedulerApi) -> list[str]:
    """The reservations, as ``node/index``."""
    found = [o for o in api.objects(PODS) if o["metadata"]["namespace"] == NAMESPACE]
    notes = [
        (o["spec"]["nodeName"], o["metadata"]["annotations"]["windlass.dev/reserves-device"]) for o in found
    ]
    return sorted(f"{where}/{index}" for where, index in notes)


def told(api: SchedulerApi, name: str) -> str:
    return ((api.object(PODS, f"default/{name}") or {})["metadata"].get("annotations") or {}).get(VISIBLE, "")


def delete(api: SchedulerApi, key: str) -> None:
    api.change(PODS, key, metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"})


async def test_a_former_leader_creates_and_deletes_no_reservation(api: SchedulerApi) -> None:
    """It was suspended while another instance took over, and continues."""
    api.add(plugged("n1", 2), sharer("a"))
    kubelet = kubelet_for(api)
    async with Running(api, reservation_pods=OPTIONS) as running:
        await answered(running, api, kubelet)
        assert held(api) == ["n1/0"]
        sure = False
        running.service.lead(lambda: sure)
        api.add(sharer("b", 0.8))
        delete(api, "default/a")
        api.finish_deletions()
        await running.settle(5.0)
        assert held(api) == ["n1/0"]
        assert not (api.object(PODS, f"{NAMESPACE}/{name_of('n1', 0)}") or {})["metadata"].get(
            "deletionTimestamp"
        )
        sure = True
        await answered(running, api, kubelet)
        await answered(running, api, kubelet)
        assert "b" in api.bound()


async def answered(running: Running, api: SchedulerApi, kubelet: PlugKubelet) -> None:
    """Let the scheduler create reservations, the kubelet act, and the scheduler
    continue."""
    await running.settle(1.0)
    play(api, kubelet)
    await running.settle(3.0)


async def test_the_kubelet_names_the_shared_device(api: SchedulerApi) -> None:
    api.add(plugged("n1", 2), sharer("a"), sharer("b"))
    kubelet = kubelet_for(api)
    async with Running(api, reservation_pods=OPTIONS) as running:
        await running.settle(1.0)
        assert held(api) == ["n1/0"]
        assert api.bound() == [name_of("n1", 0)], "no pod is bound before the device is named"
        play(api, kubelet)
        await running.settle(3.0)
        assert [told(api, name) for name in "ab"] == ["GPU-n1-1"] * 2
        assert api.bound() == ["a", "b", name_of("n1", 0)]
        assert held(api) == ["n1/0"]
        api.add(sharer("c"))
        await answered(running, api, kubelet)
        assert held(api) == ["n1/0", "n1/1"]
        assert told(api, "c") == "GPU-n1-0"
        api.add(sharer("d", 1.0))
        await running.settle(3.0)
        assert api.node_of("d") == ""


async def test_a_reservation_pod_has_no_rights_and_one_device(api: SchedulerApi) -> None:
    api.add(plugged("n1", 1), sharer("a"))
    options = ReservationPodOptions("windlass:test", pull_secrets=("pull",), runtime_class="")
    async with Running(api, reservation_pods=options) as running:
        await running.settle(1.0)
    made = api.object(PODS, f"{NAMESPACE}/{name_of('n1', 0)}")
    assert made is not None
    spec = made["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert "runtimeClassName" not in spec
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert cards_asked(made) == 1
    assert [one["args"] for one in (*spec["initContainers"], *spec["containers"])] == [
        ["reserve-device", "--tell"],
        ["reserve-device", "--hold"],
    ]
    owner = made["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Node", "n1", True)


async def test_a_device_is_released_after_its_last_pod_and_is_whole_again_only_then(
    api: SchedulerApi,
) -> None:
    api.add(plugged("n1", 1), sharer("a", 0.3), sharer("b", 0.3))
    kubelet = kubelet_for(api)
    async with Running(api, reservation_pods=OPTIONS) as running:
        await answered(running, api, kubelet)
        play(api, kubelet)
        api.add(pod("whole"))
        delete(api, "default/a")
        play(api, kubelet)
        await running.settle(3.0)
        assert held(api) == ["n1/0"]
        delete(api, "default/b")
        play(api, kubelet)
        await running.settle(3.0)
        card = api.object(PODS, f"{NAMESPACE}/{name_of('n1', 0)}")
        assert card is not None
        assert card["metadata"].get("deletionTimestamp")
        assert api.node_of("whole") == "", "the kubelet has not released the device yet"
        play(api, kubelet)
        await running.settle(3.0)
        assert held(api) == []
        assert api.node_of("whole") == "n1"
        play(api, kubelet)
        assert kubelet.refused == []


@pytest.mark.parametrize("code", [409, 410, 500, 502])
async def test_a_stray_rejection_neither_prevents_nor_keeps_a_reservation(
    api: SchedulerApi, code: int
) -> None:
    """Neither one that is to be held, nor one that is to be let go."""
    api.add(plugged("n1", 1), sharer("a"))
    kubelet = kubelet_for(api)
    nos = {verb: [errors.failure(code, "", "try again")] * 2 for verb in ("create", "delete")}

    def reject(verb: str, resource: Any, *_: Any) -> errors.StatusError | None:
        return nos[verb].pop() if resource == PODS and nos.get(verb) else None

    api.reject = reject
    async with Running(api, reservation_pods=OPTIONS) as running:
        await running.settle(3.0)
        await answered(running, api, kubelet)
        assert not nos["create"]
        assert api.node_of("a") == "n1"
        api.end("a")
        await running.settle(5.0)
        play(api, kubelet)
        await running.settle(1.0)
        assert not nos["delete"]
        assert held(api) == []


async def test_a_finished_pod_uses_no_device(api: SchedulerApi) -> None:
    api.add(plugged("n1", 1), sharer("a"))
    kubelet = kubelet_for(api)
    async with Running(api, reservation_pods=OPTIONS) as running:
        await answered(running, api, kubelet)
        assert api.node_of("a") == "n1"
        api.end("a")
        await running.settle(1.0)
        play(api, kubelet)
        await running.settle(1.0)
        assert held(api) == []


async def test_a_gang_is_bound_once_all_its_devices_are_named(api: SchedulerApi) -> None:
    api.add(plugged("n1", 1), plugged("n2", 1), group("g", 2))
    api.add(*[sharer(f"g-{i}", 0.8, group="g") for i in range(2)])
    kubelet = kubelet_for(api)
    kubelet.mute.add("n2")
    async with Running(api, reservation_pods=OPTIONS) as running:
        await running.settle(1.0)
        assert held(api) == ["n1/0", "n2/0"]
        play(api, kubelet)
        await running.settle(20.0)
        assert not [name for name in api.bound() if name.startswith("g-")]
        explained = running.service.explain("default/g")
        assert explained is not None
        assert explained.code == "ReservingDevice"
        assert "GPU 0 of node n2" in explained.message
        kubelet.mute.clear()
        play(api, kubelet)
        await running.settle(5.0)
        assert [name for name in api.bound() if name.startswith("g-")] == ["g-0", "g-1"]
        assert running.service.explain("default/g") is None


async def test_no_member_is_bound_if_one_device_is_not_named(api: SchedulerApi) -> None:
    api.add(plugged("n1", 1), plugged("n2", 1), group("g", 2))
    api.add(*[sharer(f"g-{i}", 0.8, group="g") for i in range(2)])
    kubelet = kubelet_for(api)
    kubelet.mute.add("n2")
    async with Running(api, reservation_pods=OPTIONS) as running:
        await running.settle(1.0)
        play(api, kubelet)
        await running.settle(64.0)
        play(api, kubelet)
        await running.settle(1.0)
        assert held(api) == []
        assert not [name for name in api.bound() if name.startswith("g-")]
        explained = running.service.explain("default/g")
        assert explained is not None
        assert "GPU 0 of node n2 was not named within 60 s" in str(explained), explained
        api.add(plugged("n3", 1))
        kubelet.nodes["n3"] = ["GPU-n3-0"]
        for _ in range(40):
            await running.settle(2.0)
            play(api, kubelet)
        assert {api.node_of("g-0"), api.node_of("g-1")} == {"n1", "n3"}


async def test_no_device_is_shared_for_a_while_after_a_rejection(api: SchedulerApi) -> None:
    """The plugin has fewer GPUs than the node reports."""
    api.add(plugged("n1", 1), sharer("a"))
    kubelet = kubelet_for(api)
    kubelet.nodes["n1"] = []
    async with Running(api, reservation_pods=OPTIONS) as running:
        await answered(running, api, kubelet)
        assert api.node_of("a") == ""
        assert held(api) == []
        refused = [text for name, _, text in running.recorder.said if name == "a"]
        assert any("rejected GPU 0 of node n1 (UnexpectedAdmissionError)" in text for text in refused), (
            refused
        )
        await running.settle(20.0)
        assert held(api) == []
        kubelet.nodes["n1"] = ["GPU-x"]
        for _ in range(30):
            await running.settle(1.0)
            play(api, kubelet)
        assert told(api, "a") == "GPU-x"


@pytest.mark.parametrize("code", [403, 422])
async def test_missing_rights_to_reserve_are_reported(api: SchedulerApi, code: int) -> None:
    api.add(plugged("n1", 1), sharer("a"))
    make = api.create

    async def refuse(resource: Any, obj: Any, namespace: Any = None, **rest: Any) -> Any:
        if resource == PODS:
            raise errors.StatusError({"code": code, "message": "pods is forbidden"})
        return await make(resource, obj, namespace, **rest)

    api.create = refuse  # type: ignore[method-assign]
    async with Running(api, reservation_pods=OPTIONS) as running:
        await running.settle(2.0)
        assert "FailedScheduling" in running.reasons("a")
        texts = [text for name, _, text in running.recorder.said if name == "a"]
        assert any("cannot be reserved: pods is forbidden" in text for text in texts), texts


async def test_pods_on_a_device_without_a_reservation_are_evicted(api: SchedulerApi) -> None:
    api.add(plugged("n1", 1), sharer("a"), sharer("b"))
    kubelet = kubelet_for(api)
    async with Running(api, reservation_pods=OPTIONS) as running:
        await answered(running, api, kubelet)
        assert api.node_of("b") == "n1"
        api.remove(PODS, f"{NAMESPACE}/{name_of('n1', 0)}")
        await running.settle(1.0)
        for name in "ab":
            obj = api.object(PODS, f"default/{name}")
            assert obj is not None
            assert obj["metadata"].get("deletionTimestamp")
            assert (
                api.conditions(PODS, f"default/{name}")["DisruptionTarget"]["reason"] == "CardReservationLost"
            )


async def test_a_pod_that_cannot_be_given_its_device_is_held_back(api: SchedulerApi) -> None:
    silent = pod("silent", requests={}, annotations={"gpu-fraction": "0.5"})
    hami = pod("hami", requests={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"})
    api.add(plugged("n1", 1), silent, hami)
    async with Running(api, reservation_pods=OPTIONS) as running:
        await running.settle(2.0)
        assert api.bound() == []
        messages = {o["metadata"]["name"]: str(o["status"].get("conditions")) for o in api.objects(PODS)}
        assert "env[NVIDIA_VISIBLE_DEVICES]" in messages["silent"]
        assert "would allocate a whole GPU" in messages["hami"]


async def test_pods_with_hami_resources_use_hami_nodes(api: SchedulerApi) -> None:
    """HAMi's device plugin serves shares itself, so no device is reserved there."""
    listed = '[{"id":"GPU-h","index":0,"count":4,"devmem":40960,"devcore":100,"type":"A100","health":true}]'
    hami_node = node("h1", gpus=4)
    hami_node["metadata"] |= {"resourceVersion": "1", "annotations": {"hami.io/node-nvidia-register": listed}}
    api.add(plugged("n1", 4), hami_node)
    api.add(pod("hami", requests={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}))
    async with Running(api, reservation_pods=OPTIONS) as running:
        await running.settle(2.0)
        assert api.node_of("hami") == "h1"
        assert held(api) == []


async def test_nothing_is_reserved_by_default(api: SchedulerApi) -> None:
    api.add(plugged("n1", 1), sharer("a"))
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.bound() == ["a"]
        assert told(api, "a") == ""


async def test_a_new_leader_finds_the_reservations(api: SchedulerApi) -> None:
    """One is in use, one was meant for a gang without a bound member, one is unused."""
    api.add(plugged("n1", 3), sharer("a", 0.9))
    kubelet = kubelet_for(api)
    async with Running(api, reservation_pods=OPTIONS) as running:
        await answered(running, api, kubelet)
        api.add(group("g", 2), *[sharer(f"g-{i}", 0.5, group="g") for i in range(2)])
        await running.settle(0.5)
        assert held(api) == ["n1/0", "n1/1"]
        orphan = api.object(PODS, f"{NAMESPACE}/{name_of('n1', 1)}")
    assert orphan is not None
    orphan = {**orphan, "metadata": {**orphan["metadata"], "name": name_of("n1", 2), "uid": "orphan"}}
    orphan["metadata"]["annotations"] = {
        **orphan["metadata"]["annotations"],
        "windlass.dev/reserves-device": "2",
        "windlass.dev/devices": "2",
        "windlass.dev/device-shares": "2:0/0",
    }
    api.add(orphan)
    play(api, kubelet)
    async with Running(api, reservation_pods=OPTIONS) as running:
        await running.settle(3.0)
        play(api, kubelet)
        await running.settle(1.0)
        assert held(api) == ["n1/0", "n1/1"]
        (card,) = next(cards for name, _, cards in kubelet.history if name == name_of("n1", 1))
        assert [told(api, f"g-{i}") for i in range(2)] == [card] * 2
        assert api.node_of("a") == "n1"


@pytest.mark.parametrize("seed", range(4))
async def test_no_device_is_both_shared_and_whole_whatever_happens(api: SchedulerApi, seed: int) -> None:
    """Pods arrive, end and are deleted, other schedulers take GPUs, the scheduler dies
    at any time. No container ever has another's GPU, no placed pod is rejected, and
    in the end nothing is left behind."""
    rng = random.Random(seed)
    api.add(*[plugged(f"n{i}", rng.randint(1, 3)) for i in range(3)])
    kubelet = kubelet_for(api, rng)
    names: list[str] = []
    number = 0
    for _ in range(4):
        async with Running(api, reservation_pods=OPTIONS) as running:
            for _ in range(rng.randint(4, 10)):
                number += 1
                if rng.random() < 0.6:
                    names += come(api, rng, number)
                else:
                    go(api, rng, names)
                await running.settle(rng.choice((0.1, 0.5, 2.0)))
                if rng.random() < 0.7:
                    play(api, kubelet, end=rng.random() < 0.7)
                check(api, kubelet)
    async with Running(api, reservation_pods=OPTIONS) as running:
        for _ in range(10):
            await running.settle(2.0)
            play(api, kubelet)
            check(api, kubelet)
        sharing = {
            (o["spec"]["nodeName"], told(api, o["metadata"]["name"]))
            for o in api.objects(PODS)
            if o["metadata"]["namespace"] == "default"
            and o["spec"].get("nodeName")
            and o["status"]["phase"] not in ("Succeeded", "Failed")
            and told(api, o["metadata"]["name"])
        }
        assert len(held(api)) == len(sharing), "one reservation per shared device"
        for name in names:
            if api.object(PODS, f"default/{name}") is not None:
                api.remove(PODS, f"default/{name}")
        for _ in range(4):
            await running.settle(1.0)
            play(api, kubelet)
        assert held(api) == []
    assert not [name for name in kubelet.refused if name.startswith("w")]


def come(api: SchedulerApi, rng: random.Random, number: int) -> list[str]:
    """Add a pod with a whole GPU, a gang of two, or a pod with a share.

    Return their names.
    """
    if rng.random() < 0.3:
        api.add(pod(f"w{number}", requests={"nvidia.com/gpu": "1"}))
        return [f"w{number}"]
    if rng.random() < 0.2:
        api.add(group(f"g{number}", 2))
        gang = [f"g{number}-{i}" for i in range(2)]
        for name in gang:
            api.add(sharer(name, rng.choice((0.3, 0.6)), group=f"g{number}"))
        return gang
    api.add(sharer(f"s{number}", rng.choice((0.25, 0.5, 0.75))))
    return [f"s{number}"]


def go(api: SchedulerApi, rng: random.Random, names: list[str]) -> None:
    """End or delete one of the pods."""
    present = [name for name in names if api.object(PODS, f"default/{name}") is not None]
    if not present:
        return
    name = rng.choice(present)
    if api.node_of(name) and rng.random() < 0.5:
        api.end(name)
    elif api.node_of(name):
        delete(api, f"default/{name}")
    else:
        api.remove(PODS, f"default/{name}")


def check(api: SchedulerApi, kubelet: PlugKubelet) -> None:
    """Check that no GPU is visible to a pod that has it whole and to any other, nor
    shared beyond its size."""
    whole: dict[str, str] = {}
    parts: dict[str, float] = {}
    for obj in api.objects(PODS):
        name, notes = obj["metadata"]["name"], obj["metadata"].get("annotations") or {}
        if obj["metadata"]["namespace"] == NAMESPACE or not obj["spec"].get("nodeName"):
            continue
        if obj["status"]["phase"] in ("Succeeded", "Failed"):
            continue
        for card in kubelet.visible(obj):
            if "gpu-fraction" in notes:
                parts[card] = parts.get(card, 0.0) + float(notes["gpu-fraction"])
            else:
                assert card not in whole, (card, name, whole[card])
                whole[card] = name
    assert not set(whole) & set(parts), (whole, parts)
    assert all(part <= 1.0 + 1e-9 for part in parts.values()), parts


async def test_pods_are_evicted_from_a_reservation_that_changes_its_device(api: SchedulerApi) -> None:
    """A node that lost its state gave the same pod another GPU."""
    api.add(plugged("n1", 2), sharer("a"))
    kubelet = kubelet_for(api)
    async with Running(api, reservation_pods=OPTIONS) as running:
        await answered(running, api, kubelet)
        assert told(api, "a") == "GPU-n1-1"
        ended = {"terminated": {"exitCode": 0, "message": "GPU-n1-0"}}
        statuses = [{"name": "tell", "restartCount": 1, "state": ended}]
        api.change(PODS, f"{NAMESPACE}/{name_of('n1', 0)}", status={"initContainerStatuses": statuses})
        await running.settle(1.0)
        assert api.conditions(PODS, "default/a")["DisruptionTarget"]["reason"] == "CardReservationLost"


@pytest.mark.parametrize("loss", ["deleted", "failed", "gone", "silent"])
async def test_no_bind_is_sent_to_a_device_without_a_reservation(api: SchedulerApi, loss: str) -> None:
    api.add(plugged("n1", 1), sharer("a"))
    kubelet = kubelet_for(api)
    async with Running(api, reservation_pods=OPTIONS) as running:
        await answered(running, api, kubelet)
        obj = api.object(PODS, "default/a")
        assert obj is not None
        bind = Bind("default/a", obj["metadata"]["uid"], "", "n1", (DeviceShare(0, GPU, 500),))
        assert running.service.components.checks.objection(bind) == ""
        key = f"{NAMESPACE}/{name_of('n1', 0)}"
        if loss == "deleted":
            delete(api, key)
        elif loss == "failed":
            api.change(PODS, key, status={"phase": "Failed"})
        elif loss == "silent":
            api.change(PODS, key, status={"initContainerStatuses": []})
        else:
            api.remove(PODS, key)
        assert (
            running.service.components.checks.objection(bind) == "GPU 0 of node n1 is not reserved any more"
        )


async def test_a_pod_that_arrives_during_a_release_waits_for_the_next_reservation(api: SchedulerApi) -> None:
    """The deletion is in progress, and the watch does not show it yet."""
    api.add(plugged("n1", 1), sharer("a"))
    kubelet = kubelet_for(api)
    gate = asyncio.Event()
    remove = api.delete

    async def slow(resource: Any, name: str, *args: Any, **rest: Any) -> Any:
        await gate.wait()
        return await remove(resource, name, *args, **rest)

    async with Running(api, reservation_pods=OPTIONS) as running:
        await answered(running, api, kubelet)
        first = (api.object(PODS, f"{NAMESPACE}/{name_of('n1', 0)}") or {})["metadata"]["uid"]
        api.delete = slow  # type: ignore[method-assign]
        api.end("a")
        await running.settle(1.0)
        api.add(sharer("b"))
        await running.settle(3.0)
        assert api.node_of("b") == ""
        gate.set()
        for _ in range(4):
            await running.settle(2.0)
            play(api, kubelet)
        assert told(api, "b") == "GPU-n1-0"
        assert (api.object(PODS, f"{NAMESPACE}/{name_of('n1', 0)}") or {})["metadata"]["uid"] != first
        assert api.conditions(PODS, "default/b").get("DisruptionTarget") is None
        assert "FailedScheduling" not in running.reasons("b")
