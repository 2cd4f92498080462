"""Share requests as needs and charges, devices of nodes, and annotations of allocated devices."""

from __future__ import annotations

from typing import Any

import pytest
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import node, pod, queue

from windlass.api import views
from windlass.api.devices import node_annotation
from windlass.engine import deltas
from windlass.engine.decision import Bind, DeviceShare
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.devices import assignment
from windlass.model.devices.node_devices import REGISTERED, devices_of
from windlass.spi.devices import DeviceMode, DeviceNeed
from windlass.spi.objects import HeldSlice, Needs, Node, Task

GPU = "nvidia.com/gpu"


def gpu_node(name: str = "n", gpus: int = 2, mib: int = 16384, **labels: str) -> dict[str, Any]:
    obj = node(name, gpus=gpus)
    obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), **labels}
    if mib:
        obj["metadata"]["labels"]["nvidia.com/gpu.memory"] = str(mib)
    return obj


class World:
    def __init__(self, *objects: dict[str, Any]) -> None:
        self.model = ClusterModel(["windlass", "kai-scheduler"])
        for obj in objects:
            self.add(obj)
        self.tasks: dict[str, Task] = {}
        self.nodes: dict[str, Node] = {}
        self.take()

    def add(self, obj: dict[str, Any]) -> None:
        raw, model = views.encode(obj), self.model
        match obj["apiVersion"], obj["kind"]:
            case _, "Pod":
                model.objects.upsert_pod(views.decode_pod(raw))
            case _, "Node":
                model.objects.upsert_node(views.decode_node(raw))
            case "scheduling.run.ai/v2", "Queue":
                model.objects.upsert_kai_queue(views.decode_kai_queue(raw))
            case "scheduling.run.ai/v2alpha2", "PodGroup":
                model.objects.upsert_kai_group(views.decode_kai_pod_group(raw))
            case _, "Queue":
                model.objects.upsert_queue(views.decode_queue(raw))

    def take(self) -> None:
        for delta in self.model.take():
            if isinstance(delta, deltas.TaskUpserted):
                self.tasks[delta.task.key] = delta.task
            elif isinstance(delta, deltas.NodeUpserted):
                self.nodes[delta.node.name] = delta.node

    def needs(self, name: str = "a") -> Needs:
        return self.tasks[f"default/{name}"].needs


def asking(annotations: dict[str, str] | None = None, **limits: str) -> dict[str, Any]:
    return pod("a", requests={"cpu": "1", **limits}, annotations=annotations)


def need(**fields: Any) -> DeviceNeed:
    return DeviceNeed(GPU, **fields)


SHARED = {"slices": False}


@pytest.mark.parametrize(
    ("annotations", "limits", "needs", "charge"),
    [
        ({"gpu-fraction": "0.5"}, {}, [need(milli=500, memory_milli=500, **SHARED)], 500),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"},
            {},
            [need(count=2, milli=500, memory_milli=500, **SHARED)],
            1000,
        ),
        ({"gpu-memory": "4096"}, {}, [need(memory_mib=4096, **SHARED)], 250),
        ({"windlass.dev/gpu-memory": "10Gi"}, {}, [need(memory_mib=10240)], 625),
        ({}, {"aliyun.com/gpu-mem": "10"}, [need(memory_mib=10240)], 625),
        ({}, {"volcano.sh/vgpu-number": "2"}, [need(count=2, memory_milli=1000, **SHARED)], 2000),
        (
            {},
            {"volcano.sh/vgpu-memory": "1024", "volcano.sh/vgpu-cores": "30"},
            [need(memory_mib=1024, milli=300, **SHARED)],
            300,
        ),
        ({}, {GPU: "2", "nvidia.com/gpumem": "4096"}, [need(count=2, memory_mib=4096)], 500),
        ({}, {GPU: "1", "nvidia.com/gpucores": "30"}, [need(milli=300, memory_milli=1000, **SHARED)], 1000),
    ],
)
def test_shares_are_needs_charged_in_thousandths_of_devices(
    annotations: dict[str, str], limits: dict[str, str], needs: list[DeviceNeed], charge: int
) -> None:
    found = World(gpu_node(), asking(annotations, **limits)).needs()
    assert list(found.devices) == needs
    assert dict(found.request) == {"cpu": 1000, GPU: charge}
    assert dict(found.node_request) == {"cpu": 1000}


def test_memory_is_charged_by_the_smallest_sufficient_device() -> None:
    world = World(gpu_node("small", mib=8192), gpu_node("n", mib=16384), gpu_node("big", mib=65536))
    world.add(asking({"gpu-memory": "10240"}))
    world.take()
    assert dict(world.needs().request)[GPU] == 625
    world.model.objects.remove_node("n")
    world.take()
    assert dict(world.needs().request)[GPU] == 157
    world.model.objects.remove_node("big")
    world.take()
    assert dict(world.needs().request)[GPU] == 1000  # no device of the cluster is large enough: a whole one


def test_whole_devices_without_preferences_stay_plain_amounts() -> None:
    for limits in ({GPU: "2"}, {"volcano.sh/gpu-number": "2"}, {"tke.cloud.tencent.com/qgpu-core": "200"}):
        found = World(gpu_node(), asking(**limits)).needs()
        assert found.devices == ()
        assert dict(found.request) == {"cpu": 1000, GPU: 2000}


def test_whole_devices_of_a_kind_are_counted_one_by_one() -> None:
    wishes = {"windlass.dev/gpu-model": "H100", "windlass.dev/gpu-min-memory": "40Gi"}
    found = World(gpu_node(), asking(wishes, **{GPU: "2"})).needs()
    assert found.devices == (
        need(count=2, milli=1000, models=("H100",), min_memory_mib=40960, shares=True, slices=True),
    )
    assert dict(found.request)[GPU] == 2000
    assert GPU not in dict(found.node_request)


def test_whole_devices_with_a_share_of_the_same_kind() -> None:
    obj = asking(**{GPU: "1"})
    obj["spec"]["containers"].append(
        {"name": "b", "image": "x", "resources": {"requests": {"aliyun.com/gpu-mem": "4"}}}
    )
    found = World(gpu_node(), obj).needs()
    assert [(one.milli, one.memory_mib, one.count) for one in found.devices] == [(0, 4096, 1), (1000, 0, 1)]
    assert dict(found.request)[GPU] == 1250


def test_unknown_container_is_an_error() -> None:
    notes = {"gpu-fraction": "0.5", "gpu-fraction-container-name": "main"}
    assert World(gpu_node(), asking(notes)).needs().devices
    notes["gpu-fraction-container-name"] = "trainer"
    world = World(gpu_node(), asking(notes))
    assert world.tasks == {}
    told = world.model.explanation("default/pod:a")
    assert told is not None
    assert "the pod has no such container; it has main" in told.message


def test_no_two_pods_of_a_spread_group_share_a_device() -> None:
    found = World(
        gpu_node(), asking({"volcano.sh/vgpu-podgroup-policy": "spread"}, **{"volcano.sh/vgpu-memory": "9"})
    )
    (one,) = found.needs().devices
    assert one.carries == one.avoids == ("group:default/pod:a",)


# ------------------------------------------------------------------ slices


def test_slices_are_plain_amounts_without_dynamic_mig() -> None:
    found = World(gpu_node(), asking(**{"nvidia.com/mig-1g.5gb": "2"})).needs()
    assert found.devices == ()
    assert dict(found.request) == {"cpu": 1000, "nvidia.com/mig-1g.5gb": 2000}


def test_slices_are_device_needs_with_dynamic_mig() -> None:
    world = World(gpu_node(**{"windlass.dev/mig": "dynamic"}), asking(**{"nvidia.com/mig-1g.5gb": "2"}))
    assert world.needs().devices == (
        need(count=2, profile="1g.5gb", listed="nvidia.com/mig-1g.5gb", shares=False),
    )
    assert dict(world.needs().request) == {"cpu": 1000, "nvidia.com/mig-1g.5gb": 2000}
    assert dict(world.needs().node_request) == {"cpu": 1000}
    assert {card.mode for card in world.nodes["n"].devices} == {DeviceMode.SLICED}


def test_a_slice_by_annotation_is_charged_like_one_by_resource() -> None:
    found = World(gpu_node(), asking({"nvidia.com/mig-1g.5gb": "1"})).needs()
    assert dict(found.request)["nvidia.com/mig-1g.5gb"] == 1000


def test_kai_queues_count_slices_as_shares_of_gpus() -> None:
    mig = kai_pod("p", "g", requests={"nvidia.com/mig-3g.40gb": "2"})
    listed = gpu_node(gpus=0)
    listed["status"]["allocatable"]["nvidia.com/mig-3g.40gb"] = "2"
    world = World(listed, kai_queue("q"), kai_group("g", 1, "q"), mig)
    found = world.tasks["default/p"].needs
    assert dict(found.request) == {"nvidia.com/mig-3g.40gb": 2000, GPU: 858}
    assert dict(found.node_request) == {"nvidia.com/mig-3g.40gb": 2000}
    assert world.nodes["n"].quota == {GPU: 858}
    assert World(listed).nodes["n"].quota == {}


# ------------------------------------------------------------------ queues that count words


def test_vocabulary_resources_are_charged_if_a_queue_names_them() -> None:
    limits = {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "1024"}
    world = World(gpu_node(), asking(**limits))
    assert "volcano.sh/vgpu-memory" not in dict(world.needs().request)
    world.add(queue("q", capability={"volcano.sh/vgpu-memory": "4096"}))
    world.take()
    assert dict(world.needs().request)["volcano.sh/vgpu-memory"] == 2048
    assert "volcano.sh/vgpu-memory" not in dict(world.needs().node_request)


# ------------------------------------------------------------------ devices of nodes


def node_view(obj: dict[str, Any]) -> views.NodeObject:
    return views.decode_node(views.encode(obj))


def test_devices_are_read_from_the_agents_record() -> None:
    place = node_annotation.ProfilePlacement("1g.10gb+me", (0, 1), 1, 1, 9856, 14)
    told = (
        node_annotation.DeviceRecord(
            0, "GPU-a", model="H100", memory_mib=81559, compute="9.0", numa=1, link_group=2
        ),
        node_annotation.DeviceRecord(1, "GPU-b", healthy=False, reason="XID 79"),
        node_annotation.DeviceRecord(2, "GPU-c", mig=True, dynamic=True, placements=(place,)),
        node_annotation.DeviceRecord(3, "GPU-d", mig=True),
        node_annotation.DeviceRecord(4, "GPU-e", dynamic=True),
    )
    obj = gpu_node(gpus=4)
    obj["metadata"]["annotations"] = {node_annotation.NODE_DEVICES: node_annotation.write(told)}
    found = devices_of(node_view(obj))
    assert [card.index for card in found] == [0, 1, 2, 4]
    first, sick, carved, either = found
    assert (first.uuid, first.model, first.memory_mib, first.compute) == ("GPU-a", "H100", 81559, (9, 0))
    assert (first.numa, first.link_group, first.mode, first.healthy) == (1, 2, DeviceMode.PLAIN, True)
    assert not sick.healthy
    assert (carved.mode, either.mode) == (DeviceMode.SLICED, DeviceMode.EITHER)
    (profile,) = carved.geometry
    assert (profile.name, profile.starts, profile.memory_mib, profile.media) == (
        "1g.10gb+me",
        (0, 1),
        9856,
        True,
    )


@pytest.mark.parametrize(
    "text",
    ["no json", "[{}]", '[{"index": -1}]', '[{"index": 0}, {"index": 0}]', '[{"index": 0, "memoryMib": -1}]'],
)
def test_implausible_record_is_ignored(text: str) -> None:
    obj = gpu_node(gpus=2, mib=100)
    obj["metadata"]["annotations"] = {node_annotation.NODE_DEVICES: text}
    assert node_annotation.read({node_annotation.NODE_DEVICES: text}).problem is not None
    assert [(card.index, card.memory_mib) for card in devices_of(node_view(obj))] == [(0, 100), (1, 100)]


def test_record_survives_a_round_trip() -> None:
    told = (
        node_annotation.DeviceRecord(1, "b", numa=1),
        node_annotation.DeviceRecord(0, "a", compute="10.0", mps=True),
    )
    assert node_annotation.read({node_annotation.NODE_DEVICES: node_annotation.write(told)}).cards == (
        told[1],
        told[0],
    )
    assert told[1].capability == (10, 0)
    assert node_annotation.DeviceRecord(0, compute="new").capability == (0, 0)


def test_devices_of_all_vendors_by_label_or_by_name() -> None:
    obj = node("n", gpus=0)
    obj["status"]["allocatable"] |= {
        "amd.com/gpu": "2",
        "huawei.com/Ascend910B3": "1",
        "habana.ai/gaudi": "8",
    }
    obj["metadata"]["labels"] = {"amd.com/gpu.product": "MI300X", "amd.com/gpu.memory": "196592"}
    found = devices_of(node_view(obj))
    assert {card.resource for card in found} == {"amd.com/gpu", "huawei.com/Ascend910B3", "habana.ai/gaudi"}
    assert {card.memory_mib for card in found if card.resource == "amd.com/gpu"} == {196592}
    assert {card.memory_mib for card in found if "Ascend" in card.resource} == {65536}


@pytest.mark.parametrize(
    ("resource", "labels", "memory"),
    [
        (GPU, {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}, 16384),
        (GPU, {"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": "4"}, 4096),
        (GPU, {"nvidia.com/gpu.product": "NVIDIA-A10-SHARED"}, 16384),
        (
            GPU,
            {"nvidia.com/gpu.product": "NVIDIA-A100-MIG-1g.5gb", "nvidia.com/mig.strategy": "single"},
            16384,
        ),
        ("nvidia.com/gpu.shared", {}, 16384),
        ("nvidia.com/mig-1g.5gb", {"nvidia.com/mig-1g.5gb.memory": "4864"}, 4864),
    ],
)
def test_units_of_a_device_plugin_are_allocated_whole_only(
    resource: str, labels: dict[str, str], memory: int
) -> None:
    obj = gpu_node(gpus=0, **labels)
    obj["status"]["allocatable"][resource] = "8"
    found = devices_of(node_view(obj))
    assert {(card.mode, card.memory_mib) for card in found} == {(DeviceMode.WHOLE, memory)}
    assert len(found) == 8


def test_hami_slots_are_not_devices() -> None:
    obj = gpu_node(gpus=20, **{"nvidia.com/gpu.count": "2"})
    obj["metadata"]["annotations"] = {"hami.io/node-nvidia-register": "[]"}
    found = World(obj).nodes["n"]
    assert found.allocatable[GPU] == 2000
    assert len(found.devices) == 2


REGISTER = "GPU-a,10,16384,NVIDIA-A10,true,hami-core:GPU-b,10,16384,NVIDIA-A10,false,hami-core:"


def registered_node() -> dict[str, Any]:
    obj = node("n", gpus=0)
    obj["status"]["allocatable"] |= {REGISTERED: "20", "volcano.sh/vgpu-memory": "32768"}
    obj["metadata"]["annotations"] = {"volcano.sh/node-vgpu-register": REGISTER}
    return obj


def test_devices_registered_by_volcanos_plugin() -> None:
    world = World(registered_node(), asking(**{"volcano.sh/vgpu-memory": "4096"}))
    found = world.nodes["n"]
    assert found.allocatable[REGISTERED] == 2000
    assert found.quota == {GPU: 2000}
    assert [(card.uuid, card.memory_mib, card.healthy) for card in found.devices] == [
        ("GPU-a", 16384, True),
        ("GPU-b", 16384, False),
    ]
    assert world.needs().devices == (DeviceNeed(REGISTERED, memory_mib=4096),)
    assert dict(world.needs().request) == {"cpu": 1000, GPU: 250}
    assert dict(world.needs().node_request) == {"cpu": 1000}


@pytest.mark.parametrize("text", ["", ":", "a,b", "GPU-a,10,many,T,true,x", "GPU-a,10,1,T"])
def test_unreadable_registration_registers_no_devices(text: str) -> None:
    obj = registered_node()
    obj["metadata"]["annotations"] = {"volcano.sh/node-vgpu-register": text}
    assert devices_of(node_view(obj)) == ()


# ------------------------------------------------------------------ what a pod was given


def test_annotations_of_a_binding() -> None:
    world = World(gpu_node(), asking({"gpu-fraction": "0.5"}))
    bind = Bind(
        "default/a",
        "uid-default-a",
        "default/pod:a",
        "n",
        (DeviceShare(1, GPU, 500, 8192, device_mib=16384),),
    )
    assert world.model.writes.annotations(bind, 5.0) == {
        "windlass.dev/devices": "1",
        "windlass.dev/device-shares": "1:500/8192",
    }


def test_kai_pods_are_annotated_with_what_they_received() -> None:
    world = World(gpu_node(), kai_queue("q"), kai_group("g", 1, "q"), kai_pod("p", "g", requests={GPU: "1"}))
    for shares, told in (((DeviceShare(0, GPU),), "Regular"), ((DeviceShare(0, GPU, 500),), "Fraction")):
        bind = Bind("default/p", "u", "default/kai:g", "n", shares)
        assert world.model.writes.annotations(bind, 0.0)["received-resource-type"] == told


def test_volcano_device_plugin_gets_devices_by_container() -> None:
    obj = pod("a", requests={"cpu": "1"})
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "4096", "volcano.sh/vgpu-cores": "20"}
    obj["spec"]["containers"].append({"name": "b", "image": "x", "resources": {"limits": limits}})
    world = World(registered_node(), obj)
    share = DeviceShare(0, REGISTERED, 200, 4096, device_mib=16384)
    bind = Bind("default/a", "u", "default/pod:a", "n", (share,))
    words = world.model.writes.annotations(bind, 12.7)
    assert words["volcano.sh/vgpu-ids-new"] == ";GPU-a,NVIDIA,4096,20:"
    assert words["volcano.sh/devices-to-allocate"] == words["volcano.sh/vgpu-ids-new"]
    assert words["volcano.sh/vgpu-node"] == "n"
    assert words["volcano.sh/vgpu-time"] == words["volcano.sh/bind-time"] == "12"
    assert words["volcano.sh/bind-phase"] == "allocating"


def test_older_volcano_annotations_use_an_index() -> None:
    world = World(gpu_node(), asking(**{"volcano.sh/gpu-memory": "1024"}))
    bind = Bind("default/a", "u", "default/pod:a", "n", (DeviceShare(1, GPU, 0, 1024, device_mib=16384),))
    assert world.model.writes.annotations(bind, 0.0)["volcano.sh/gpu-index"] == "1"
    running = pod(
        "a",
        node="n",
        phase="Running",
        annotations={"volcano.sh/gpu-index": "1"},
        requests={"volcano.sh/gpu-memory": "1024"},
    )
    assert World(gpu_node(), running).tasks["default/a"].devices == (1,)
    sick = gpu_node()
    sick["metadata"]["annotations"] = {"volcano.sh/gpu-unhealthy-ids": "1"}
    assert [card.healthy for card in devices_of(node_view(sick))] == [True, False]


def test_what_running_pods_report() -> None:
    notes = {"windlass.dev/devices": "1", "windlass.dev/device-slices": "1:1g.5gb@6,nonsense"}
    obj = pod("a", node="n", phase="Running", annotations=notes)
    task = World(gpu_node(), obj).tasks["default/a"]
    assert task.devices == (1,)
    assert task.slices == (HeldSlice(1, "1g.5gb", 6),)


def test_pods_that_volcanos_scheduler_placed_report_uuids() -> None:
    notes = {"volcano.sh/vgpu-ids-new": "GPU-b,NVIDIA,4096,20:;GPU-none,NVIDIA,1,1:"}
    obj = pod("a", node="n", phase="Running", annotations=notes, requests={"volcano.sh/vgpu-memory": "4096"})
    assert World(registered_node(), obj).tasks["default/a"].devices == (1,)


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (DeviceShare(3, GPU), assignment.AllocatedDevice(3, 1000)),
        (DeviceShare(0, GPU, 300, 4096, device_mib=16384), assignment.AllocatedDevice(0, 300)),
        (DeviceShare(0, GPU, 0, 10240, device_mib=16384), assignment.AllocatedDevice(0, 625)),
        (DeviceShare(0, GPU, 0, 10240), assignment.AllocatedDevice(0, 0)),
        (DeviceShare(0, GPU, 0, 0, "1g.5gb", 6), assignment.AllocatedDevice(0, 143, "1g.5gb")),
        (DeviceShare(1, "nvidia.com/mig-1g.5gb"), assignment.AllocatedDevice(1, 1000, "1g.5gb")),
    ],
)
def test_device_shares_in_a_plan(share: DeviceShare, shown: assignment.AllocatedDevice) -> None:
    assert assignment.allocated_devices(share) == shown
