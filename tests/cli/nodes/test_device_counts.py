"""``windlass node ls``, ``status``, ``node tree`` and ``gpu`` where a device plug-in makes several units of a card.

GPUs are cards, and the units are told beside them. Nodes as GPU operators write them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakecluster import FakeCluster, node

from windlass.api.devices.node_annotation import NODE_DEVICES, DeviceRecord, write
from windlass.api.devices.plugin_units import more_units_than_devices, unit_of
from windlass.api.resources import NODES, PODS

GPU = "nvidia.com/gpu"
A100 = "NVIDIA-A100-SXM4-40GB"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def labels(**words: str) -> dict[str, str]:
    return {f"nvidia.com/{key.replace('_', '.').replace('..', '-')}": value for key, value in words.items()}


def add(cluster: FakeCluster, name: str, said: dict[str, str], amounts: dict[str, int], **notes: str) -> None:
    obj = node(name, gpus=0)
    obj["metadata"]["labels"] = said
    obj["metadata"]["annotations"] = notes
    obj["status"]["allocatable"] |= {key: str(value) for key, value in amounts.items()}
    cluster.add(NODES, obj)


def run(cluster: FakeCluster, name: str, where: str, limits: dict[str, int]) -> None:
    container = {
        "name": "main",
        "image": "x",
        "resources": {"limits": {k: str(v) for k, v in limits.items()}},
    }
    cluster.add(
        PODS,
        {
            "metadata": {"name": name},
            "spec": {"nodeName": where, "containers": [container]},
            "status": {"phase": "Running"},
        },
    )


def told(windlass: Any) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(windlass("node", "ls", "-o", "json").out)["items"]}


T4 = labels(gpu_product="Tesla-T4-SHARED", gpu_count="2", gpu_memory="15360", gpu_replicas="4")
T4["nvidia.com/gpu.sharing-strategy"] = "time-slicing"


def test_replicas_are_parts_of_cards(cluster, windlass):
    add(cluster, "t4", T4, {GPU: 8})
    run(cluster, "notebook", "t4", {GPU: 1})
    run(cluster, "train", "t4", {GPU: 2})
    header, line = windlass("node", "ls").out.splitlines()
    assert header.split()[:6] == ["NODE", "STATE", "GPUS", "FREE", "UNITS", "STRANDED"]
    assert line.split()[2:6] == ["2", "1.25", "3/8", "time-slicing"]
    assert line.split()[-2:] == ["notebook(0.25)", "train(0.5)"]
    (one,) = told(windlass).values()
    assert (one["gpus"], one["gpusFree"]) == (2.0, 1.25)
    assert one["units"] == [
        {
            "resource": GPU,
            "sharing": "time-slicing",
            "profile": "",
            "replicas": 4,
            "units": 8,
            "unitsFree": 5,
        }
    ]
    cluster.answers |= {"/version": b'{"gitVersion": "v1.36.3"}', "/readyz": b"ok"}
    assert json.loads(windlass("status", "-o", "json").out)["capacity"]["gpus"] == 2.0
    assert "0.75 of 2 in use" in windlass("status").out
    cards = json.loads(windlass("gpu", "ls", "-o", "json").out)["items"]
    assert [card["unit"] for card in cards] == ["time-slicing"] * 8


@pytest.mark.parametrize(
    ("said", "amounts", "gpus", "free", "units"),
    [
        pytest.param(labels(gpu_count="2"), {GPU: 2}, 2.0, 2.0, [], id="whole"),
        pytest.param(
            {**T4, "nvidia.com/gpu.product": "Tesla-T4"},
            {"nvidia.com/gpu.shared": 8, GPU: 0},
            2.0,
            2.0,
            [("time-slicing", "", 4, 8)],
            id="renamed",
        ),
        pytest.param(
            {**T4, "nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": "5"},
            {GPU: 10},
            2.0,
            2.0,
            [("mps", "", 5, 10)],
            id="mps",
        ),
        pytest.param(
            {key: value for key, value in T4.items() if "replicas" not in key},
            {GPU: 8},
            2.0,
            2.0,
            [("time-slicing", "", 4, 8)],
            id="replicas told by the count alone",
        ),
        pytest.param(
            labels(mig_strategy="single", gpu_product=f"{A100}-MIG-1g.5gb", gpu_count="14"),
            {GPU: 14},
            2.0,
            2.0,
            [("mig", "1g.5gb", 1, 14)],
            id="single",
        ),
        pytest.param(
            labels(mig_strategy="single", gpu_product=f"{A100}-MIG-1g.10gb", gpu_count="8"),
            {GPU: 8},
            2.0,
            2.0,
            [("mig", "1g.10gb", 1, 8)],
            id="four of double memory on a card",
        ),
        pytest.param(
            labels(
                mig_strategy="single",
                gpu_product=f"{A100}-MIG-1g.5gb-SHARED",
                gpu_count="7",
                gpu_replicas="2",
            ),
            {GPU: 14},
            1.0,
            1.0,
            [("time-slicing", "1g.5gb", 2, 14)],
            id="slices that are replicated",
        ),
        pytest.param(
            labels(mig_strategy="mixed", gpu_product=A100, gpu_count="2"),
            {GPU: 1, "nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-3g.20gb": 1},
            2.0,
            1.714,
            [("mig", "1g.5gb", 1, 2), ("mig", "3g.20gb", 1, 1)],
            id="mixed",
        ),
        pytest.param(
            labels(mig_strategy="mixed", gpu_product=A100, gpu_count="4"),
            {GPU: 0, "nvidia.com/mig-3g.20gb": 4},
            4.0,
            1.714,
            [("mig", "3g.20gb", 1, 4)],
            id="more cards than the slices need",
        ),
        pytest.param(
            labels(mig_strategy="mixed", gpu_product=A100),
            {GPU: 0, "nvidia.com/mig-1g.5gb": 7},
            1.0,
            1.0,
            [("mig", "1g.5gb", 1, 7)],
            id="seven sevenths are one card",
        ),
        pytest.param({}, {"amd.com/gpu": 4}, 4.0, 4.0, [], id="others"),
    ],
)
def test_cards_and_what_is_made_of_them(cluster, windlass, said, amounts, gpus, free, units):
    add(cluster, "n", said, amounts)
    one = told(windlass)["n"]
    assert (one["gpus"], one["gpusFree"]) == (gpus, free)
    found = [(u["sharing"], u["profile"], u["replicas"], u["units"]) for u in one["units"]]
    assert found == units
    assert all(u["unitsFree"] == u["units"] for u in one["units"])
    assert ("UNITS" in windlass("node", "ls").out) is bool(units)


def test_cards_of_hami_are_not_its_slots(cluster, windlass):
    wire = {
        "count": 10,
        "devmem": 15360,
        "devcore": 100,
        "type": "Tesla T4",
        "mode": "hami-core",
        "health": True,
    }
    cards = json.dumps([{**wire, "id": f"GPU-{n}", "index": n} for n in range(2)])
    add(cluster, "h", labels(gpu_count="2"), {GPU: 20}, **{"hami.io/node-nvidia-register": cards})
    run(cluster, "half", "h", {GPU: 1, "nvidia.com/gpumem-percentage": 50})
    one = told(windlass)["h"]
    assert (one["gpus"], one["gpusFree"], one["units"]) == (2.0, 1.5, [])


def test_a_tree_of_domains_counts_cards(cluster, windlass):
    zone = {"topology.kubernetes.io/zone": "z"}
    add(cluster, "t4", {**T4, **zone}, {GPU: 8})
    add(cluster, "mig", labels(mig_strategy="mixed") | zone, {"nvidia.com/mig-1g.5gb": 7})
    run(cluster, "notebook", "t4", {GPU: 1})
    (tree,) = json.loads(windlass("node", "tree", "topology.kubernetes.io/zone", "-o", "json").out)["items"]
    assert (tree["gpus"], tree["gpusFree"]) == (3.0, 2.75)


def test_what_is_stranded_of_units_is_told_in_cards(cluster, windlass):
    """All of its CPU is taken, five of the eight replicas of two cards are not."""
    add(cluster, "t4", T4, {GPU: 8})
    run(cluster, "train", "t4", {GPU: 3, "cpu": 16})
    done = windlass("node", "ls")
    assert "1.25 cpu" in done.out
    assert done.err == "stranded: 1.25 of 1.25 idle GPUs (1.25 no CPU left on their nodes)\n"


def test_units_that_pods_hold_of_a_plug_in_that_is_away(cluster, windlass):
    add(cluster, "t4", T4, {GPU: 0})
    run(cluster, "train", "t4", {GPU: 2})
    one = told(windlass)["t4"]
    assert (one["gpus"], one["gpusFree"], one["units"]) == (0.0, 0.0, [])
    assert one["holders"] == ["train(0.5)"]


@pytest.mark.parametrize("words", ["", "0", "-4", "four", "1e9", "99999"])
def test_a_label_that_is_no_number_of_replicas_is_nobody_s_harm(words):
    unit = unit_of(GPU, {**T4, "nvidia.com/gpu.replicas": words, "nvidia.com/gpu.count": words})
    assert unit is not None
    assert (unit.replicas, unit.part) == (1, 1)


def test_a_slice_that_cannot_be_read_counts_as_a_card():
    said = labels(mig_strategy="single", gpu_product="NVIDIA-X-MIG-odd")
    for resource in (GPU, "nvidia.com/mig-odd"):
        unit = unit_of(resource, said)
        assert unit is not None
        assert (unit.words, unit.part) == ("mig", 1)


def test_a_pod_that_asks_for_more_units_than_there_are_cards_is_told(cluster, windlass):
    """Kubernetes places it, as the kubelet counts units; nothing else would tell its user."""
    add(cluster, "t4", T4, {GPU: 8})
    run(cluster, "two", "t4", {GPU: 2})
    run(cluster, "many", "t4", {GPU: 6})
    told = "many on t4 asks for 6 nvidia.com/gpu, of which the node has 2 cards in 4 units each (time-slicing): some of"
    assert told in " ".join(windlass("explain", "many").out.split())
    assert "asks for" not in windlass("explain", "two").out


@pytest.mark.parametrize(
    ("said", "asked", "listed", "told"),
    [
        (T4, {GPU: 3}, {GPU: 8}, "asks for 3 nvidia.com/gpu, of which the node has 2 cards in 4 units each"),
        (T4, {GPU: 2}, {GPU: 8}, ""),
        (labels(gpu_count="8"), {GPU: 8}, {GPU: 8}, ""),
        (T4, {"nvidia.com/gpu.shared": 3}, {"nvidia.com/gpu.shared": 8}, "asks for 3 nvidia.com/gpu.shared"),
        (labels(gpu_count="1") | {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "mps"},
         {GPU: 2}, {GPU: 4}, "the node has 1 card in 4 units each (mps)"),
        ({"nvidia.com/mig-1g.5gb.replicas": "2"}, {"nvidia.com/mig-1g.5gb": 3}, {"nvidia.com/mig-1g.5gb": 4},
         "the node has 2 slices 1g.5gb in 2 units each (time-slicing)"),
        ({"nvidia.com/mig-1g.5gb.replicas": "2"}, {"nvidia.com/mig-1g.5gb": 2}, {"nvidia.com/mig-1g.5gb": 4}, ""),
    ],
)  # fmt: skip
def test_more_units_than_cards(said, asked, listed, told):
    thousandths = [{name: 1000 * n for name, n in amounts.items()} for amounts in (asked, listed)]
    words = more_units_than_devices(*thousandths, said)
    assert (told in words) if told else not words


def test_unhealthy_gpu_is_not_free_and_its_pod_is_not_in_excess(cluster: FakeCluster, windlass: Any) -> None:
    records = (DeviceRecord(0), DeviceRecord(1, healthy=False, reason="XID 79"))
    add(cluster, "box", {}, {GPU: 1}, **{NODE_DEVICES: write(records)})
    for number in range(2):
        run(cluster, f"train-{number}", "box", {GPU: 1})
    found = told(windlass)["box"]
    assert (found["gpus"], found["gpusFree"], found["state"]) == (2.0, 0.0, "Ready")
