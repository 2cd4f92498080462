"""What a card counts for that is held for its sharers: once, for them alone, whoever holds it."""

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
        """Whole cards, as counted beside the engine."""
        return self.ledger.free(self.node).left[GPU] // 1000


def test_a_card_that_is_held_is_one_card_and_its_sharers_none_besides() -> None:
    world = World(reservation(0), placed("a", 0, 500), pod("w1"), pod("w2"))
    assert world.left() == 1
    assert [bind.devices[0].index for bind in world.decide().values()] == [1]


def test_who_shares_goes_where_a_card_is_held_and_nobody_has_it_whole() -> None:
    world = World(reservation(1), pod("w", requests={GPU: "2"}), gpus=2)
    assert world.left() == 1
    assert world.decide() == {}
    world = World(reservation(1), placed("b", 1, 500), sharer("a"))
    assert [share.index for share in world.decide()["a"].devices] == [1]
    assert world.left() == 1


def test_a_reservation_that_goes_still_holds_its_card() -> None:
    going = reservation(0, metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"})
    world = World(going, pod("w"), gpus=1)
    assert world.decide() == {}
    assert world.left() == 0
    world.ledger.change(view(going), None)
    world.model.objects.remove_pod(f"{NAMESPACE}/card-0")
    assert set(world.decide()) == {"w"}
    assert world.left() == 1


def test_one_that_a_kubelet_refused_holds_nothing() -> None:
    world = World(reservation(0, phase="Failed"), pod("w"), gpus=1)
    assert set(world.decide()) == {"w"}


def test_nobody_else_can_say_that_his_card_is_not_his() -> None:
    """The words of a reservation count in one namespace alone."""
    fake = pod("fake", node="n", scheduler="nobody", annotations=reserved_devices.reservation_annotations(0))
    world = World(fake, pod("w"), gpus=1)
    assert world.decide() == {}
    assert world.left() == 0


def test_pods_of_other_schedulers_find_the_card_taken() -> None:
    world = World(reservation(0), placed("a", 0, 500), gpus=1)
    assert world.ledger.free(world.node).lacks(view(pod("theirs"))) == ["1 nvidia.com/gpu of 0 left"]
    over = view(pod("theirs", node="n", scheduler="other"))
    world.ledger.change(None, over)
    assert world.ledger.overflow(over, world.node) == "node n holds 2 of 1 nvidia.com/gpu"


def test_a_card_is_not_shared_beyond_what_it_has() -> None:
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
def test_a_card_under_kais_reservation_counts_once(names: tuple[str, ...], order: int) -> None:
    theirs = [kai_reservation("g1"), kai_sharer("a", "g1"), kai_sharer("b", "g1")]
    world = World(*theirs[::order], pod("w1"), pod("w2"), names=names)
    assert world.left() == 1
    assert len(world.decide()) == 1, "the other card is free, and KAI's is KAI's"


def test_kais_shares_of_several_cards_ride_on_each() -> None:
    labels = {"runai-gpu-group/g1": "g1", "runai-gpu-group/g2": "g2"}
    both = sharer("a", "0.5", node="n", scheduler="kai-scheduler", labels=labels)
    both["metadata"]["annotations"]["gpu-fraction-num-devices"] = "2"
    world = World(kai_reservation("g1"), kai_reservation("g2"), both, pod("w1"), pod("w2"), gpus=3)
    assert len(world.decide()) == 1


def test_when_kai_lets_a_card_go_it_is_free() -> None:
    world = World(kai_reservation("g1"), kai_sharer("a", "g1"), pod("w"), gpus=1)
    assert world.decide() == {}
    world.model.objects.remove_pod("default/a")
    world.model.objects.remove_pod(f"{NAMESPACE_KAI}/gpu-reservation-n-g1")
    assert set(world.decide()) == {"w"}


def test_a_share_that_nobody_holds_for_kai_still_counts() -> None:
    """Its reservation is not there (yet, or any more): its card is somebody's all the same."""
    world = World(kai_sharer("a", "g1"), pod("w"), gpus=1)
    assert world.decide() == {}


# ------------------------------------------------------------------ who can share such cards


def node_of(labels: dict[str, str] | None = None, **notes: str) -> views.NodeObject:
    made = node("n", gpus=2, labels=labels or {})
    made["metadata"]["annotations"] = notes
    return views.decode_node(views.encode(made))


def test_whose_cards_are_handed_out_whole() -> None:
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


def test_the_container_that_gets_the_part_has_to_be_told() -> None:
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


def test_what_the_kubelet_gives_by_itself_is_not_held() -> None:
    """A pod with a whole card in one container and a part in another: of the part alone."""
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
            [{"name": "tell", "state": {"terminated": {"exitCode": 1, "message": "two cards"}}}],
            "",
            "two cards",
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
def test_what_the_pod_that_holds_a_card_reports(status: list[Json], card: str, problem: str) -> None:
    obj = reservation(0)
    obj["status"]["initContainerStatuses"] = status
    report = view(obj).report
    assert report is not None
    assert (report.card, report.problem) == (card, problem)
    obj["metadata"]["annotations"] = {}
    assert view(obj).report is None
