"""Node usage, bind conflicts, the bind guard and the engine count the resources of a pod alike."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from kubeobjects import node, pod, queue

from windlass.api import views
from windlass.engine import deltas
from windlass.engine.decision import Bind, DeviceShare
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.devices.usage import as_bound, resources_held
from windlass.model.devices.uuid_annotations import UuidShare, uuid_shares
from windlass.scheduler.commit.bind_guard import BindGuard
from windlass.scheduler.commit.conflict_detector import BindConflicts

GPU = "nvidia.com/gpu"
ALLOCATED, REGISTER = "hami.io/vgpu-devices-allocated", "hami.io/node-nvidia-register"


def container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": f"c{cpu}", "resources": {"requests": {"cpu": cpu}}, **more}


ALWAYS = {"restartPolicy": "Always"}
RESIZED = [{"name": "main", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "2"}}]
SIXES: dict[str, dict[str, Any]] = {
    "its container": {"requests": {"cpu": "6"}},
    "two containers": {"containers": [container("2"), container("4")]},
    "an init container": {"requests": {"cpu": "1"}, "initContainers": [container("6"), container("5")]},
    "a sidecar in addition": {"requests": {"cpu": "4"}, "initContainers": [container("2", **ALWAYS)]},
    "a sidecar before an init container": {
        "requests": {"cpu": "1"},
        "initContainers": [container("2", **ALWAYS), container("4")],
    },
    "the pod as a whole": {"requests": {"cpu": "1"}, "resources": {"requests": {"cpu": "6"}}},
    "overhead": {"requests": {"cpu": "5"}, "overhead": {"cpu": "1"}},
    "a resize that is not granted yet": {"requests": {"cpu": "6"}, "status": {"containerStatuses": RESIZED}},
    "a resize that takes away": {
        "requests": {"cpu": "1"},
        "status": {
            "containerStatuses": [
                {
                    "name": "main",
                    "resources": {"requests": {"cpu": "6"}},
                    "allocatedResources": {"cpu": "1"},
                }
            ]
        },
    },
}
"""Each of them holds six CPUs."""


class Scene:
    """One node ``n`` of ten CPUs, and all components that count on it."""

    def __init__(self, *objects: dict[str, Any], **fields: Any) -> None:
        self.model = ClusterModel(["windlass"])
        self.ledger = NodeUsage(self.model.features.claims.index)
        self.guard = BindGuard(self.model, self.ledger)
        self.conflicts = BindConflicts(self.model, self.ledger, 60.0)
        where = node("n", cpu="10", **{"gpus": 0, **fields})
        where["metadata"]["annotations"] = {}
        for obj in objects:
            where["metadata"] |= obj.get("metadata", {})
        self.node = views.decode_node(views.encode(where))
        self.model.objects.upsert_node(self.node)
        self.model.objects.upsert_queue(views.decode_queue(views.encode(queue("default"))))
        self.model.take()

    def see(self, obj: dict[str, Any]) -> views.Pod:
        new = views.decode_pod(views.encode(obj))
        old = self.model.objects.pods.get(new.key)
        self.model.objects.upsert_pod(new)
        self.ledger.change(old, new)
        return new

    def decide(self, obj: dict[str, Any], *devices: DeviceShare) -> Bind:
        waits = self.see(obj)
        bind = Bind(waits.key, waits.uid, "", "n", devices)
        self.model.binds.assume(bind)
        return bind

    def claim(self, name: str, *devices: str, **more: Any) -> None:
        results = [
            {"request": "r", "driver": "gpu.nvidia.com", "pool": "p", "device": one} for one in devices
        ]
        status = {"allocation": {"devices": {"results": results}}} if devices else {}
        obj = {
            "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
            "spec": {"devices": {"requests": [], **more}},
            "status": status,
        }
        self.model.features.claims.upsert(views.decode_device_claim(views.encode(obj)))

    def slices(self, *devices: str) -> None:
        spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": {"name": "p", "generation": 1}}
        spec["devices"] = [{"name": name} for name in devices]
        self.model.features.claims.upsert(
            views.decode_resource_slice(views.encode({"metadata": {"name": "s"}, "spec": spec}))
        )


def build(name: str, fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    status = fields.get("status", {})
    rest = {key: value for key, value in fields.items() if key != "status"}
    obj = pod(name, **{"requests": {}, **rest}, **more)
    obj["status"] |= status
    return obj


@pytest.mark.parametrize("held", SIXES.values(), ids=SIXES.keys())
def test_all_components_count_an_existing_pod_alike(held: dict[str, Any]) -> None:
    scene = Scene()
    theirs = scene.see(build("theirs", held, scheduler="other", node="n"))
    assert resources_held(theirs) == {"cpu": 6000}
    assert scene.ledger.free(scene.node).left["cpu"] == 4000
    asked = scene.see(build("asks", {"requests": {"cpu": "5"}}, scheduler="other"))
    assert (
        scene.guard.check(asked, "n", 0.0)
        == "node n has too little capacity for pod default/asks: 5 cpu of 4 left"
    )
    bind = scene.decide(build("ours", {"requests": {"cpu": "5"}}))
    scene.conflicts.foreign_pod_bound(theirs, 0.0)
    assert "5 cpu of 4 left" in scene.conflicts.objection(bind)
    fits = scene.decide(build("ours", {"requests": {"cpu": "4"}}))
    scene.conflicts.foreign_pod_bound(theirs, 0.0)
    assert scene.conflicts.objection(fits) == ""
    told = {d.task.key: d.task for d in scene.model.take() if isinstance(d, deltas.TaskUpserted)}
    assert dict(told["default/theirs"].needs.request) == {"cpu": 6000}


@pytest.mark.parametrize("asks", [SIXES[name] for name in SIXES if "resize" not in name])
def test_all_components_count_a_new_pod_alike(asks: dict[str, Any]) -> None:
    scene = Scene()
    theirs = scene.see(build("theirs", {"requests": {"cpu": "5"}}, scheduler="other", node="n"))
    bind = scene.decide(build("ours", asks))
    scene.conflicts.foreign_pod_bound(theirs, 0.0)
    assert "6 cpu of 5 left" in scene.conflicts.objection(bind)
    scene.model.binds.forget(bind.task, bind.uid)
    asked = scene.see(build("asks", asks, scheduler="other"))
    assert "6 cpu of 5 left" in scene.guard.check(asked, "n", 0.0)


def test_resized_pod_takes_capacity_of_unsent_binds() -> None:
    scene = Scene()
    small = scene.see(build("theirs", {"requests": {"cpu": "2"}}, scheduler="other", node="n"))
    bind = scene.decide(build("ours", {"requests": {"cpu": "6"}}))
    scene.conflicts.foreign_pod_bound(small, 0.0)
    assert scene.conflicts.objection(bind) == ""
    grown = scene.see(build("theirs", SIXES["a resize that is not granted yet"], scheduler="other", node="n"))
    scene.conflicts.usage_grew(grown)
    assert "6 cpu of 4 left" in scene.conflicts.objection(bind)


def test_devices_of_a_claim_are_used_whichever_scheduler_allocated_them() -> None:
    """kube-scheduler allocates in the claim's status and writes nothing on the pod."""
    scene = Scene()
    scene.slices("a", "b")
    scene.claim("c", "b", constraints=[{"matchAttribute": "x/y"}])
    claims = [{"name": "g", "resourceClaimName": "c"}]
    scene.see(build("theirs", {"requests": {"cpu": "1"}}, scheduler="other", node="n", resourceClaims=claims))
    told = {d.task.key: d.task for d in scene.model.take() if isinstance(d, deltas.TaskUpserted)}
    task = told["default/theirs"]
    (need,) = task.needs.devices
    assert (need.resource, need.count, task.devices) == ("gpu.nvidia.com/accelerator", 1, (1,))
    scene.claim("d", "b")
    asked = build("asks", {}, scheduler="other", resourceClaims=[{"name": "g", "resourceClaimName": "d"}])
    refused = scene.guard.check(scene.see(asked), "n", 0.0)
    assert refused.endswith("device 1 (gpu.nvidia.com/accelerator) is allocated twice")
    scene.claim("d", "a")
    assert scene.guard.check(scene.see(asked), "n", 0.0) == ""


def test_devices_selected_for_a_claim_are_listed_by_its_node() -> None:
    """Until the claim is allocated, the pod's annotations name its devices, which only slices list."""
    scene = Scene()
    scene.slices("a", "b")
    scene.claim("c")
    listed = "gpu.nvidia.com/accelerator"
    asks = build("ours", {}, resourceClaims=[{"name": "g", "resourceClaimName": "c"}])
    scene.decide(asks, DeviceShare(1, listed))
    meant = as_bound(scene.model.objects.pods["default/ours"], scene.model.binds.assumed["default/ours"])
    free = scene.ledger.free(scene.node)
    assert list(free.crowded(meant)) == []
    free.take(meant)
    assert free.over() == {}
    scene.claim("d")
    more = build("more", {}, resourceClaims=[{"name": "g", "resourceClaimName": "d"}])
    scene.decide(more, DeviceShare(1, listed))
    same = as_bound(scene.model.objects.pods["default/more"], scene.model.binds.assumed["default/more"])
    assert list(free.crowded(same)) == [f"device 1 ({listed}) is allocated twice"]


def test_pods_of_one_claim_share_what_it_holds() -> None:
    scene = Scene()
    scene.slices("a")
    scene.claim("c", "a")
    claims = [{"name": "g", "resourceClaimName": "c"}]
    first = scene.see(build("one", {}, scheduler="other", node="n", resourceClaims=claims))
    second = build("two", {}, scheduler="other", resourceClaims=claims)
    assert scene.guard.check(scene.see(second), "n", 0.0) == ""
    assert scene.ledger.overflow(first, scene.node) is None
    told = {d.task.key: d.task for d in scene.model.take() if isinstance(d, deltas.TaskUpserted)}
    assert len(told["default/one"].needs.devices) == 1


def share(index: int, milli: int, mib: int = 0) -> DeviceShare:
    return DeviceShare(index, GPU, milli, mib, device_mib=81920)


@pytest.mark.parametrize(
    ("words", "meant", "lost"),
    [
        pytest.param({"windlass.dev/devices": "0"}, share(0, 1000), True, id="the same device"),
        pytest.param({"windlass.dev/devices": "1"}, share(0, 1000), False, id="another device"),
        pytest.param(
            {"windlass.dev/devices": "0", "windlass.dev/device-shares": "0:600/1000"},
            share(0, 500),
            True,
            id="too much compute",
        ),
        pytest.param(
            {"windlass.dev/devices": "0", "windlass.dev/device-shares": "0:500/1000"},
            share(0, 500, 1000),
            False,
            id="both halves",
        ),
        pytest.param({ALLOCATED: "GPU-a,NVIDIA,46000,0:;"}, share(0, 0, 2000), True, id="HAMi's memory"),
        pytest.param(
            {ALLOCATED: "GPU-b,NVIDIA,46000,0:;"}, share(0, 0, 2000), False, id="HAMi's other device"
        ),
        pytest.param({ALLOCATED: "GPU-a,NVIDIA,100,100:;"}, share(0, 100, 100), True, id="HAMi's exclusive"),
        pytest.param(
            {ALLOCATED: "GPU-a,NVIDIA,10,0:;GPU-a,NVIDIA,10,0:;"}, share(0, 100, 10), True, id="slots"
        ),
    ],
)
def test_binds_are_recalled_if_another_scheduler_took_the_devices(
    words: dict[str, str], meant: DeviceShare, lost: bool
) -> None:
    card = {"count": 2, "devmem": 46068, "devcore": 100, "type": "NVIDIA L40S", "health": True}
    cards = [{"id": "GPU-a", **card}, {"id": "GPU-b", **card}]
    scene = Scene({"metadata": {"annotations": {REGISTER: json.dumps(cards)}}}, gpus=4)
    whole = meant.milli == 1000
    requests = {GPU: "1"} if whole else {"cpu": "1"}
    notes = {} if whole else {"gpu-fraction": "0.5"}
    bind = scene.decide(pod("ours", requests=requests, annotations=notes), meant)
    other = {} if "windlass.dev/device-shares" not in words else {"gpu-fraction": "0.5"}
    amounts = {"cpu": "1"} if other else {GPU: "1"}
    if ALLOCATED in words:
        amounts |= {"nvidia.com/gpumem": "10"}
    theirs = scene.see(
        pod("theirs", scheduler="other", node="n", requests=amounts, annotations={**words, **other})
    )
    scene.conflicts.foreign_pod_bound(theirs, 0.0)
    found = scene.conflicts.objection(bind)
    assert ("device 0" in found) is lost, found
    assert scene.conflicts.objection(bind) == ""  # told once


def test_shared_device_is_never_allocated_whole() -> None:
    """Whole devices without names are checked by their number."""
    scene = Scene(gpus=2)
    words = {"windlass.dev/devices": "0", "windlass.dev/device-shares": "0:500/0", "gpu-fraction": "0.5"}
    scene.see(pod("part", node="n", requests={"cpu": "1"}, annotations=words))
    two = scene.see(pod("two", scheduler="other", requests={GPU: "2"}))
    assert "2 nvidia.com/gpu of 1 left" in scene.guard.check(two, "n", 0.0)


def test_devices_by_uuid_of_sequential_and_parallel_containers() -> None:
    text = "GPU-a,NVIDIA,3000,50:;GPU-a,NVIDIA,1000,20:GPU-b,NVIDIA,500,0:;;GPU-a,NVIDIA,1000,20:;"
    assert uuid_shares(text) == (UuidShare("GPU-a", 3, 900, 5000), UuidShare("GPU-b", 1, 0, 500))
    assert uuid_shares(text, 1) == (UuidShare("GPU-a", 2, 500, 3000), UuidShare("GPU-b", 1, 0, 500))
    assert uuid_shares("GPU-a[1-0],NVIDIA,10,5:;") == (UuidShare("GPU-a", 1, 50, 10),)
    assert uuid_shares("nonsense;,,;GPU-a,NVIDIA,x,0:;GPU-a,NVIDIA:") == ()


def test_newest_view_of_a_pod_with_devices_is_stored() -> None:
    scene = Scene(gpus=1)
    words = {"windlass.dev/devices": "0"}
    first = scene.see(pod("a", node="n", annotations=words))
    newer = msgspec.structs.replace(first, resource_version="2")
    scene.ledger.change(first, newer)
    assert scene.ledger._with_devices["n"][first.uid] is newer
    scene.ledger.change(newer, None)
    assert not scene.ledger._with_devices


def test_partitions_of_a_device_are_allocated_while_its_counters_last() -> None:
    """kube-scheduler allocated half of a device, and is about to allocate all of it by a new claim."""
    scene = Scene()

    def drawing(name: str, gib: int) -> dict[str, Any]:
        memory = {"memory": {"value": f"{gib}Gi"}}
        return {"name": name, "consumesCounters": [{"counterSet": "card", "counters": memory}]}

    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    card = {"name": "card", "counters": {"memory": {"value": "40Gi"}}}
    devices = [drawing("half-0", 20), drawing("half-1", 20), drawing("whole", 40)]
    for name, told in (("c", {"sharedCounters": [card]}), ("s", {"devices": devices})):
        spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": pool, **told}
        raw = views.encode({"metadata": {"name": name}, "spec": spec})
        scene.model.features.claims.upsert(views.decode_resource_slice(raw))
    for name, device in (("first", "half-0"), ("second", "half-1"), ("third", "whole")):
        scene.claim(name, device)
    uses = {name: [{"name": "g", "resourceClaimName": name}] for name in ("first", "second", "third")}
    scene.see(build("first", {}, scheduler="other", node="n", resourceClaims=uses["first"]))
    second = scene.see(build("second", {}, scheduler="other", resourceClaims=uses["second"]))
    third = scene.see(build("third", {}, scheduler="other", resourceClaims=uses["third"]))
    assert scene.guard.check(third, "n", 0.0).endswith(
        "counter memory of its devices is allocated to 1.50 of its total"
    )
    assert scene.guard.check(second, "n", 0.0) == ""
