"""Reserved devices count once, and only for the pods that share them."""

from __future__ import annotations

from typing import Any

import pytest
from kubeobjects import node, pod, queue

from windlass.api import views
from windlass.api.devices.request import GPU
from windlass.engine.decision import Bind
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.engine_factory import make_engine
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.devices import node_devices, reserved_devices
from windlass.model.devices.reserved_devices import NAMESPACE, NAMESPACE_KAI
from windlass.spi.configuration import SchedulerConfig

Json = dict[str, Any]
VISIBLE = "windlass.dev/visible-devices"


def view(obj: Json) -> views.Pod:
    return views.decode_pod(views.encode(obj))


def reservation(index: int, where: str = "n", card: str = "GPU-x", **fields: Any) -> Json:
    made = pod(
        f"card-{index}",
        namespace=NAMESPACE,
        scheduler="nobody",
        node=where,
        annotations=reserved_devices.reservation_annotations(index),
        **fields,
    )
    ended = {"terminated": {"exitCode": 0, "message": f"{card}\n"}}
    made["status"]["initContainerStatuses"] = [{"name": "tell", "restartCount": 0, "state": ended}]
    return made


def sharer(name: str, part: str = "0.5", **fields: Any) -> Json:
    notes = {"gpu-fraction": part, **fields.pop("annotations", {})}
    return pod(name, requests={}, annotations=notes, **fields)


def placed(name: str, index: int, milli: int, **fields: Any) -> Json:
    notes = {
        "windlass.dev/devices": str(index),
        "windlass.dev/device-shares": f"{index}:{milli}/0",
        VISIBLE: "GPU-x",
    }
    return sharer(name, f"{milli / 1000}", node="n", annotations=notes, **fields)


class World:
    """One node, its pods, and what is decided for those that wait."""

    def __init__(self, *pods: Json, gpus: int = 2, names: tuple[str, ...] = ("windlass",)) -> None:
        self.model = ClusterModel(names)
        self.ledger = NodeUsage()
        self.node = views.decode_node(
            views.encode(node("n", gpus=gpus, labels={"nvidia.com/gpu.memory": "40960"}))
        )
        self.model.objects.upsert_node(self.node)
        self.model.objects.upsert_queue(views.decode_queue(views.encode(queue("default"))))
        self.engine = make_engine(SchedulerConfig())
        for obj in pods:
            self.show(obj)

    def show(self, obj: Json) -> None:
        new = view(obj)
        self.ledger.change(self.model.objects.pods.get(new.key), new)
        self.model.objects.upsert_pod(new)

    def decide(self) -> dict[str, Bind]:
        self.engine.apply(self.model.take(0.0))
        return {bind.task.partition("/")[2]: bind for bind in self.engine.cycle(0.0).binds}

    def left(self) -> int:
        """Whole devices, as counted outside the engine."""
        return self.ledger.free(self.node).left[GPU] // 1000


def test_reserved_device_counts_once() -> None:
    world = World(reservation(0), placed("a", 0, 500), pod("w1"), pod("w2"))
    assert world.left() == 1
    assert [bind.devices[0].index for bind in world.decide().values()] == [1]


def test_sharing_pod_uses_a_reserved_device_that_is_never_whole() -> None:
    world = World(reservation(1), pod("w", requests={GPU: "2"}), gpus=2)
    assert world.left() == 1
    assert world.decide() == {}
    world = World(reservation(1), placed("b", 1, 500), sharer("a"))
    assert [share.index for share in world.decide()["a"].devices] == [1]
    assert world.left() == 1


def test_terminating_reservation_still_holds_its_device() -> None:
    going = reservation(0, metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"})
    world = World(going, pod("w"), gpus=1)
    assert world.decide() == {}
    assert world.left() == 0
    world.ledger.change(view(going), None)
    world.model.objects.remove_pod(f"{NAMESPACE}/card-0")
    assert set(world.decide()) == {"w"}
    assert world.left() == 1


def test_reservation_rejected_by_the_kubelet_holds_nothing() -> None:
    world = World(reservation(0, phase="Failed"), pod("w"), gpus=1)
    assert set(world.decide()) == {"w"}


def test_pods_outside_the_namespace_cannot_reserve_devices() -> None:
    """Annotations of a reservation count in one namespace only."""
    fake = pod("fake", node="n", scheduler="nobody", annotations=reserved_devices.reservation_annotations(0))
    world = World(fake, pod("w"), gpus=1)
    assert world.decide() == {}
    assert world.left() == 0


def test_foreign_pods_see_the_device_as_used() -> None:
    world = World(reservation(0), placed("a", 0, 500), gpus=1)
    assert world.ledger.free(world.node).lacks(view(pod("theirs"))) == ["1 nvidia.com/gpu of 0 left"]
    over = view(pod("theirs", node="n", scheduler="other"))
    world.ledger.change(None, over)
    assert world.ledger.overflow(over, world.node) == "node n holds 2 of 1 nvidia.com/gpu"


def test_device_is_not_shared_beyond_its_capacity() -> None:
    world = World(reservation(0), placed("a", 0, 500), placed("b", 0, 500), gpus=1)
    for one in ("a", "b"):
        assert world.ledger.overflow(world.model.objects.pods[f"default/{one}"], world.node) is None
    world.show(placed("c", 0, 100))
    assert "is allocated to 1.1 of 1" in (
        world.ledger.overflow(world.model.objects.pods["default/c"], world.node) or ""
    )


# ------------------------------------------------------------------ KAI's


def kai_reservation(group: str) -> Json:
    return pod(
        f"gpu-reservation-n-{group}",
        namespace=NAMESPACE_KAI,
        scheduler="default-scheduler",
        node="n",
        labels={"runai-gpu-group": group, "app": "kai-resource-reservation"},
        annotations={"run.ai/reserve_for_gpu_index": "GPU-y"},
    )


def kai_sharer(name: str, group: str, part: str = "0.5", **fields: Any) -> Json:
    labels = {"runai-gpu-group": group, **fields.pop("labels", {})}
    return sharer(name, part, node="n", scheduler="kai-scheduler", labels=labels, **fields)


@pytest.mark.parametrize("names", [("windlass",), ("windlass", "kai-scheduler")], ids=["beside", "adopted"])
@pytest.mark.parametrize("order", [1, -1], ids=["holder first", "sharers first"])
def test_device_with_a_kai_reservation_counts_once(names: tuple[str, ...], order: int) -> None:
    theirs = [kai_reservation("g1"), kai_sharer("a", "g1"), kai_sharer("b", "g1")]
    world = World(*theirs[::order], pod("w1"), pod("w2"), names=names)
    assert world.left() == 1
    assert len(world.decide()) == 1, "the other GPU is free, and KAI's belongs to KAI"


def test_kai_shares_of_several_devices_use_their_reservations() -> None:
    labels = {"runai-gpu-group/g1": "g1", "runai-gpu-group/g2": "g2"}
    both = sharer("a", "0.5", node="n", scheduler="kai-scheduler", labels=labels)
    both["metadata"]["annotations"]["gpu-fraction-num-devices"] = "2"
    world = World(kai_reservation("g1"), kai_reservation("g2"), both, pod("w1"), pod("w2"), gpus=3)
    assert len(world.decide()) == 1


def test_device_released_by_kai_is_free() -> None:
    world = World(kai_reservation("g1"), kai_sharer("a", "g1"), pod("w"), gpus=1)
    assert world.decide() == {}
    world.model.objects.remove_pod("default/a")
    world.model.objects.remove_pod(f"{NAMESPACE_KAI}/gpu-reservation-n-g1")
    assert set(world.decide()) == {"w"}


def test_kai_share_without_a_reservation_still_counts() -> None:
    """Its device is in use although its reservation is missing (not created yet, or deleted)."""
    world = World(kai_sharer("a", "g1"), pod("w"), gpus=1)
    assert world.decide() == {}


# ------------------------------------------------------------------ pods that can share such devices


def node_of(labels: dict[str, str] | None = None, **notes: str) -> views.NodeObject:
    made = node("n", gpus=2, labels=labels or {})
    made["metadata"]["annotations"] = notes
    return views.decode_node(views.encode(made))


def test_nodes_with_whole_devices_only() -> None:
    assert node_devices.by_plugin(node_of())
    assert node_devices.by_plugin(
        node_of({"nvidia.com/gpu.product": "NVIDIA-A100", "nvidia.com/mig.strategy": "mixed"})
    )
    assert not node_devices.by_plugin(node_of({"nvidia.com/gpu.sharing-strategy": "time-slicing"}))
    assert not node_devices.by_plugin(node_of({"nvidia.com/gpu.sharing-strategy": "mps"}))
    assert not node_devices.by_plugin(
        node_of({"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.product": "A100-MIG-1g.5gb"})
    )
    assert not node_devices.by_plugin(node_of({"windlass.dev/simulated": "true"}))
    assert not node_devices.by_plugin(node_of({"windlass.dev/mig": "dynamic"}))
    assert not node_devices.by_plugin(node_of(**{"hami.io/node-nvidia-register": "[]"}))
    assert not node_devices.by_plugin(views.decode_node(views.encode(node("cpu", gpus=0))))
    told = '{"cards":[{"index":0,"resource":"nvidia.com/gpu","uuid":"GPU-1","memoryMib":40960}]}'
    agent = node_of(**{"windlass.dev/node-devices": told})
    assert node_devices.by_plugin(agent) is not any(card.uuid for card in node_devices.devices_of(agent))


def with_env(obj: Json, container: int = 0) -> views.Pod:
    path = f"metadata.annotations['{VISIBLE}']"
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": {"fieldPath": path}}}]
    obj["spec"]["containers"][container]["env"] = env
    return view(obj)


def test_container_with_the_share_must_read_its_devices() -> None:
    assert reserved_devices.fault(with_env(sharer("a"))) is None
    missing = reserved_devices.fault(view(sharer("a")))
    assert missing is not None
    assert missing.field == "spec.containers[main].env[NVIDIA_VISIBLE_DEVICES]"
    other = sharer("a", annotations={"gpu-fraction-container-name": "second"})
    other["spec"]["containers"].append({"name": "second", "image": "x"})
    assert reserved_devices.fault(with_env(other, 1)) is None
    found = reserved_devices.fault(with_env({**other, "spec": {**other["spec"]}}, 0))
    assert found is None, "both are told"
    del other["spec"]["containers"][1]["env"]
    found = reserved_devices.fault(view(other))
    assert found is not None
    assert "second" in found.field
    asks = pod("h", requests={GPU: "1", "nvidia.com/gpumem": "1000"})
    refused = reserved_devices.fault(with_env(asks))
    assert refused is not None
    assert "whole GPU" in refused.message
    assert reserved_devices.fault(view(pod("whole"))) is None


def test_devices_allocated_by_the_kubelet_need_no_reservation() -> None:
    """A pod with a whole device in one container and a share in another reserves only the latter."""
    mixed = pod("a", annotations={"windlass.dev/gpu-memory": "4Gi"})
    parts = reserved_devices.assignment_annotations.from_annotations(
        {"windlass.dev/devices": "0,1", "windlass.dev/device-shares": "1:0/4096"}
    )
    assert reserved_devices.indices(parts, view(mixed)) == (1,)
    alone = sharer("a", "1")
    whole = reserved_devices.assignment_annotations.from_annotations({"windlass.dev/devices": "0"})
    assert reserved_devices.indices(whole, view(alone)) == (0,)


@pytest.mark.parametrize(
    ("status", "card", "problem"),
    [
        ([], "", ""),
        ([{"name": "tell", "state": {"running": {}}}], "", ""),
        ([{"name": "tell", "state": {"terminated": {"exitCode": 0, "message": "GPU-1\n"}}}], "GPU-1", ""),
        ([{"name": "tell", "state": {"terminated": {"exitCode": 0}}}], "", "it reported no GPU"),
        (
            [{"name": "tell", "state": {"terminated": {"exitCode": 1, "message": "two devices"}}}],
            "",
            "two devices",
        ),
        ([{"name": "tell", "state": {"waiting": {"reason": "ImagePullBackOff"}}}], "", "ImagePullBackOff"),
        (
            [
                {
                    "name": "tell",
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "no NVML"}},
                }
            ],
            "",
            "no NVML",
        ),
    ],
)
def test_report_of_a_reservation_pod(status: list[Json], card: str, problem: str) -> None:
    obj = reservation(0)
    obj["status"]["initContainerStatuses"] = status
    report = view(obj).report
    assert report is not None
    assert (report.card, report.problem) == (card, problem)
    obj["metadata"]["annotations"] = {}
    assert view(obj).report is None
