"""``windlass gpu``: every card, from Node and Pod objects alone."""

from __future__ import annotations

import json
from typing import Any, TextIO

import pytest
from claimobjects import device, devices_of
from fakecluster import FakeCluster, node

from windlass.api import annotations
from windlass.api.devices import node_annotation
from windlass.api.devices.assignment_annotations import DeviceAssignment, to_annotations
from windlass.api.devices.node_annotation import DeviceRecord, SliceInstance
from windlass.api.resources import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from windlass.cli import resources
from windlass.cli.nodes import device_table, fragmentation
from windlass.cli.nodes.device_table import DeviceRow, Holding
from windlass.cli.terminal import Terminal
from windlass.node.devices.simulated import simulated_devices


def node_with(name: str, found: tuple[DeviceRecord, ...], **amounts: str) -> dict[str, Any]:
    made = node(name, gpus=0, **{})
    made["metadata"]["annotations"] = {node_annotation.NODE_DEVICES: node_annotation.write(found)}
    made["metadata"]["labels"] = {annotations.BOX: "true"}
    made["status"]["allocatable"] |= amounts
    return made


def pod(
    name: str, where: str, limits: dict[str, str], *parts: DeviceAssignment, phase: str = "Running"
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": to_annotations(parts)},
        "spec": {"nodeName": where, "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": phase},
    }


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    sick = DeviceRecord(1, "GPU-1", model="T4", memory_mib=15360, healthy=False, reason="XID 79")
    shared = DeviceRecord(0, "GPU-0", model="T4", memory_mib=15360, numa=1, pci="0000:17:00.0")
    made.add(NODES, node_with("box", (shared, sick), **{"nvidia.com/gpu": "2"}))
    cut = simulated_devices("simulated:1xA100-40GB+mig,1xMI300X", "mig")
    made.add(NODES, node_with("mig", cut, **{"amd.com/gpu": "1"}))
    made.add(
        NODES, node("plain", 2, **{"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.memory": "23034"})
    )
    memory = {"aliyun.com/gpu-mem": "5"}
    made.add(PODS, pod("one", "box", memory, DeviceAssignment(0, 300, 5120)))
    made.add(PODS, pod("two", "box", memory, DeviceAssignment(0, 0, 5120)))
    made.add(PODS, pod("over", "box", memory, DeviceAssignment(0, 300, 5120), phase="Succeeded"))
    made.add(
        PODS, pod("cut", "mig", {"nvidia.com/mig-3g.20gb": "1"}, DeviceAssignment(0, 0, 0, "3g.20gb", 4))
    )
    made.add(PODS, pod("amd", "mig", {"amd.com/gpu": "1"}, DeviceAssignment(0)))
    made.add(PODS, pod("whole", "plain", {"nvidia.com/gpu": "1"}, DeviceAssignment(1)))
    return made


_SHARED = "MPS,cGPU,qGPU"
"""Sharing modes of GPUs of NVIDIA without MIG."""


def lines(text: str) -> list[list[str]]:
    """The cells of the first table."""
    return [line.split() for line in text.partition("\n\n")[0].splitlines()]


def test_every_card_with_what_is_left_and_who_has_it(windlass: Any) -> None:
    found = lines(windlass("gpu").out)
    assert found[0] == ["NODE", "GPU", "MODEL", "MEMORY", "HEALTH", "FREE", "MODE", "SUPPORTS", "HELD", "BY"]
    assert found[1] == [
        "box",
        "0",
        "T4",
        "15G",
        "ok",
        "70%",
        "5G",
        "shared",
        _SHARED,
        "one(30%,5G)",
        "two(5G)",
    ]
    assert found[2] == ["box", "1", "T4", "15G", "XID", "79", "-", "-", _SHARED]
    amd, cut = sorted(found[3:5])
    assert amd[:9] == ["mig", "0", "AMD-Instinct-MI300X", "192G", "ok", "-", "whole", "whole", "amd"]
    assert cut[:5] == ["mig", "0", "NVIDIA-A100-SXM4-40GB", "40G", "ok"]
    assert cut[5:] == ["1×4g.20gb", "4×1g.5gb", "MIG", f"{_SHARED},MIG", "cut(3g.20gb@4)"]
    assert [row[:7] for row in found[5:]] == [
        ["plain", "0", "NVIDIA-L4", "22.5G", "ok", "all", "-"],
        ["plain", "1", "NVIDIA-L4", "22.5G", "ok", "-", "whole"],
    ]


def test_one_node_and_more_columns(windlass: Any) -> None:
    wide = lines(windlass("gpu", "box", "-o", "wide").out)
    assert wide[0][-6:] == ["NUMA", "LINK", "PCI", "UUID", "HELD", "BY"]
    assert wide[1][-6:] == ["1", "-", "0000:17:00.0", "GPU-0", "one(30%,5G)", "two(5G)"]
    assert {row[0] for row in wide[1:]} == {"box"}
    assert windlass("gpu", "ls", "box").out == windlass("gpu", "box").out
    assert windlass("gpu", "nowhere").code != 0


def test_records(windlass: Any) -> None:
    items = json.loads(windlass("gpu", "-o", "json").out)["items"]
    by = {(item["node"], item["resource"], item["index"]): item for item in items}
    assert by["box", "nvidia.com/gpu", 0]["free"] == {
        "whole": False,
        "computePercent": 70.0,
        "memoryMib": 5120,
        "slices": {},
    }
    assert by["box", "nvidia.com/gpu", 1]["reason"] == "XID 79"
    assert by["mig", "nvidia.com/gpu", 0]["slices"] == [
        {"profile": "3g.20gb", "start": 4, "size": 4, "uuid": "", "pod": "default/cut"}
    ]
    assert by["mig", "amd.com/gpu", 0]["holders"] == [{"pod": "default/amd", "whole": True}]
    assert by["plain", "nvidia.com/gpu", 0]["numa"] is None


def test_slices_that_are_only_counted(windlass: Any, cluster: FakeCluster) -> None:
    instances = tuple(SliceInstance("1g.5gb", start, 1, f"MIG-{start}") for start in (5, 6))
    made = node_with(
        "static", (DeviceRecord(0, "GPU-9", mig=True, instances=instances),), **{"nvidia.com/mig-1g.5gb": "2"}
    )
    cluster.add(NODES, made)
    cluster.add(PODS, pod("small", "static", {"nvidia.com/mig-1g.5gb": "1"}, DeviceAssignment(1)))
    (item,) = json.loads(windlass("gpu", "static", "-o", "json").out)["items"]
    assert [(s["start"], s["pod"]) for s in item["slices"]] == [(5, None), (6, "default/small")]
    assert item["free"]["slices"] == {"1g.5gb": 1}


def test_a_pod_of_another_scheduler_has_some_card(windlass: Any, cluster: FakeCluster) -> None:
    cluster.add(PODS, pod("other", "plain", {"nvidia.com/gpu": "1"}))
    items = json.loads(windlass("gpu", "plain", "-o", "json").out)["items"]
    assert [item["holders"] for item in items] == [
        [{"pod": "default/other", "whole": True, "told": False}],
        [{"pod": "default/whole", "whole": True}],
    ]
    assert windlass("gpu", "plain", "-o", "wide").out.splitlines()[1].endswith(" other?")


def test_a_node_without_cards_has_no_line() -> None:
    assert device_table.rows_of([node("none", 0)], []) == []


def test_clearing_a_card_is_written_to_its_node(windlass: Any, cluster: FakeCluster) -> None:
    done = windlass("gpu", "clear", "box", "1", "0")
    assert done.out == "GPU 1, 0 of node box: earlier errors are ignored\n"
    written = windlass("get", "node", "box", "-o", "json").out
    words = json.loads(written)["metadata"]["annotations"]["windlass.dev/clear-devices"]
    assert words == "1,0@2026-01-01T12:00:00.000000Z"
    windlass("gpu", "clear", "box", "2")  # the agent has not heard of the first yet
    written = windlass("get", "node", "box", "-o", "json").out
    words = json.loads(written)["metadata"]["annotations"]["windlass.dev/clear-devices"]
    assert words == "1,0@2026-01-01T12:00:00.000000Z;2@2026-01-01T12:00:00.000000Z"
    refused = windlass("gpu", "clear", "plain", "0")
    assert refused.code != 0
    assert "not managed by Windlass" in refused.err


def test_simulated_nodes_have_cards_one_by_one(windlass: Any) -> None:
    done = windlass("node", "add-simulated", "--devices", "2xA100-40GB+mig,1xT4", "--prefix", "sim")
    assert done.code == 0, done.err
    items = json.loads(windlass("gpu", "sim-0", "-o", "json").out)["items"]
    assert [(item["model"], item["mig"]) for item in items] == [
        ("NVIDIA-A100-SXM4-40GB", True),
        ("NVIDIA-A100-SXM4-40GB", True),
        ("Tesla-T4", False),
    ]
    made = json.loads(windlass("get", "node", "sim-0", "-o", "json").out)
    assert made["status"]["allocatable"]["nvidia.com/gpu"] == "1"
    assert made["metadata"]["labels"]["windlass.dev/mig"] == "dynamic"
    refused = windlass("node", "add-simulated", "--devices", "1xNobody")
    assert "Nobody is not a known model; add its memory, as in 2xNobody:24GiB\n" in refused.err
    assert "simulated:" not in refused.err
    assert windlass("node", "add-simulated", "--cards", "1xT4", "--prefix", "former").code == 0
    assert len(json.loads(windlass("gpu", "former-0", "-o", "json").out)["items"]) == 1


def test_shares_count_by_the_card_that_they_are_of() -> None:
    """Not by the smallest card of the node."""
    mixed = node_with("mixed", simulated_devices("simulated:1xA100-40GB,1xT4"), **{"nvidia.com/gpu": "2"})
    large = pod("large", "mixed", {"aliyun.com/gpu-mem": "10"}, DeviceAssignment(0, 0, 10240))
    small = pod("small", "mixed", {"aliyun.com/gpu-mem": "5"}, DeviceAssignment(1, 0, 5120))
    assert resources.devices(resources.effective_request(large, mixed)) == 250
    assert resources.devices(resources.effective_request(small, mixed)) == 334
    waiting = {**large, "metadata": {"name": "waiting"}}
    assert resources.devices(resources.effective_request(waiting, mixed)) == 667


def test_on_a_narrow_terminal_models_are_short_and_holders_whole(
    windlass: Any, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add(
        NODES, node_with("a-node", simulated_devices("simulated:1xH100-80GB"), **{"nvidia.com/gpu": "1"})
    )
    cluster.add(PODS, pod("tiny", "a-node", {"aliyun.com/gpu-mem": "5"}, DeviceAssignment(0, 300, 5120)))
    piped = windlass("gpu").out
    assert "NVIDIA-H100-80GB-HBM3" in piped
    assert max(map(len, piped.splitlines())) > 80
    monkeypatch.setattr("windlass.cli.terminal.Terminal.of", watched)
    shown = windlass("gpu").out
    assert max(map(len, shown.splitlines())) <= 80
    (line,) = [line for line in shown.splitlines() if line.startswith("a-node")]
    assert line.split()[2] == "H100"
    assert line.endswith("tiny(30%,5G)")


def watched(stream: TextIO) -> Terminal:
    return Terminal(stream, True, 80, False)


def test_devices_that_drivers_list_and_who_has_claimed_them(windlass: Any, cluster: FakeCluster) -> None:
    """Also what kube-scheduler allocated for an amount, which its status alone tells; who looks on has none."""
    cluster.add(NODES, node("n", 0))
    devices = [
        {
            "name": f"gpu-{i}",
            "attributes": {"productName": {"string": "H100"}},
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for i in range(4)
    ]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": pool, "devices": devices}
    cluster.add(RESOURCE_SLICES, {"metadata": {"name": "n-gpus"}, "spec": spec})
    for name, chosen, more in (("a", "gpu-1", {}), ("b", "gpu-2", {}), ("c", "gpu-3", {"adminAccess": True})):
        result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": chosen, **more}
        status = {"allocation": {"devices": {"results": [result]}}}
        cluster.add(
            RESOURCE_CLAIMS,
            {"metadata": {"name": name, "namespace": "default"}, "spec": {}, "status": status},
        )
    for name in ("a", "c"):
        made = pod(f"claimer-{name}", "n", {})
        made["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": name}]
        cluster.add(PODS, made)
    amount = pod("amount", "n", {"nvidia.com/gpu": "1"})
    mapping = {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "gpu"}
    amount["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "b", "requestMappings": [mapping]}
    cluster.add(PODS, amount)
    found = windlass("gpu", "n")
    assert lines(found.out)[1:] == [
        ["n", "0", "H100", "80G", "ok", "all", "-"],
        ["n", "1", "H100", "80G", "ok", "-", "whole", "claimer-a"],
        ["n", "2", "H100", "80G", "ok", "-", "whole", "amount"],
        ["n", "3", "H100", "80G", "ok", "all", "-"],
    ]
    shown = {fields[0]: fields for fields in lines(windlass("node", "ls").out)}["n"]
    assert shown[2:4] == ["4", "2"]
    assert shown[-2:] == ["amount(1)", "claimer-a(1)"]


def test_of_the_parts_that_a_driver_could_make_those_are_shown_that_somebody_has(
    windlass: Any, cluster: FakeCluster
) -> None:
    """A GPU of 40 GiB, and three ways to have half of it; and a GPU that is tainted."""
    cluster.add(NODES, node("n", 0))

    def drawing(name: str, gib: int) -> dict[str, Any]:
        memory = {"memory": {"value": f"{gib}Gi"}}
        return device(name, consumesCounters=[{"counterSet": "card", "counters": memory}])

    card = {"name": "card", "counters": {"memory": {"value": "40Gi"}}}
    taint = {"key": "example.com/ecc", "effect": "NoSchedule"}
    halves = [drawing(f"half-{i}", 20) for i in range(3)]
    pool = {"resourceSliceCount": 2}
    for made in (
        devices_of("n", "gpu.example.com", part="-c", pool=pool, sharedCounters=[card]),
        devices_of(
            "n", "gpu.example.com", drawing("gpu", 40), *halves, device("bad", taints=[taint]), pool=pool
        ),
    ):
        cluster.add(RESOURCE_SLICES, made)
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "half-1"}
    status = {"allocation": {"devices": {"results": [result]}}}
    claimed = {"metadata": {"name": "a", "namespace": "default"}, "spec": {}, "status": status}
    cluster.add(RESOURCE_CLAIMS, claimed)
    user = pod("user", "n", {})
    user["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "a"}]
    cluster.add(PODS, user)
    found = [fields for fields in lines(windlass("gpu", "n").out)[1:]]
    assert [(fields[1], fields[4], fields[-1]) for fields in found] == [
        ("0", "ok", "-"),
        ("2", "ok", "user"),
        ("4", "bad", "-"),
    ]
    shown = {fields[0]: fields for fields in lines(windlass("node", "ls").out)}["n"]
    assert (shown[2:4], shown[-1]) == (["1", "0.5"], "user(0.5)")


def test_parts_of_a_device_that_claims_share(windlass: Any, cluster: FakeCluster) -> None:
    cluster.add(NODES, node("n", 0))
    told = {"memory": {"value": "80Gi"}}
    shared = device("gpu", allowMultipleAllocations=True, capacity=told)
    cluster.add(RESOURCE_SLICES, devices_of("n", "gpu.example.com", shared))
    for name, gib in (("a", 20), ("b", 50)):
        result = {
            "request": "gpu",
            "driver": "gpu.example.com",
            "pool": "n",
            "device": "gpu",
            "shareID": name,
        }
        result["consumedCapacity"] = {"memory": f"{gib}Gi"}  # type: ignore[assignment]
        status = {"allocation": {"devices": {"results": [result]}}}
        metadata = {"name": name, "namespace": "default"}
        cluster.add(RESOURCE_CLAIMS, {"metadata": metadata, "spec": {}, "status": status})
        user = pod(name, "n", {})
        user["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": name}]
        cluster.add(PODS, user)
    (item,) = json.loads(windlass("gpu", "n", "-o", "json").out)["items"]
    assert [(one["pod"], one["computePercent"]) for one in item["holders"]] == [
        ("default/a", 25.0),
        ("default/b", 62.5),
    ]
    shown = {fields[0]: fields for fields in lines(windlass("node", "ls").out)}["n"]
    assert (shown[2:4], shown[-1]) == (["1", "0.125"], "b(0.625)")


def test_cards_that_device_plugins_tell_in_their_own_words(windlass: Any, cluster: FakeCluster) -> None:
    """AMD's labels, the part of memory of an MPS replica, and slices that a node lists as amounts."""
    amd = node("amd-node", 0, **{"amd.com/gpu.product-name": "MI300X", "amd.com/gpu.vram": "192G"})
    amd["status"]["allocatable"] |= {"amd.com/gpu": "1"}
    shared = {"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": "2"}
    mps = node(
        "mps", 2, **{"nvidia.com/gpu.product": "L4-SHARED", "nvidia.com/gpu.memory": "20480", **shared}
    )
    mixed = node("mixed", 0, **{"nvidia.com/mig.strategy": "mixed", "nvidia.com/mig-1g.5gb.memory": "4864"})
    mixed["status"]["allocatable"] |= {"nvidia.com/mig-1g.5gb": "3"}
    for one in (amd, mixed, mps):
        cluster.add(NODES, one)
    cluster.add(
        PODS, pod("cut", "mixed", {"nvidia.com/mig-1g.5gb": "2"}, DeviceAssignment(0), DeviceAssignment(2))
    )
    assert lines(windlass("gpu", "amd-node", "mixed", "mps").out)[1:] == [
        ["amd-node", "0", "MI300X", "192G", "ok", "all", "-"],
        ["mixed", "0", "nvidia.com/mig-1g.5gb", "4.8G", "ok", "-", "1g.5gb", "cut"],
        ["mixed", "1", "nvidia.com/mig-1g.5gb", "4.8G", "ok", "all", "1g.5gb"],
        ["mixed", "2", "nvidia.com/mig-1g.5gb", "4.8G", "ok", "-", "1g.5gb", "cut"],
        ["mps", "0", "L4-SHARED", "10G", "ok", "all", "mps"],
        ["mps", "1", "L4-SHARED", "10G", "ok", "all", "mps"],
    ]


def test_fragmentation_by_product(windlass: Any) -> None:
    """F54: the part of a product's idle GPUs that is not on entirely idle nodes."""
    table = windlass("gpu").out.partition("\n\n")[2].splitlines()
    assert table[0].split() == ["PRODUCT", "NODES", "GPUS", "IDLE", "IDLE", "NODES", "LARGEST", "FRAGMENTED"]
    assert ["NVIDIA-L4", "1", "2", "1", "0", "1", "100%"] in [line.split() for line in table]
    document = json.loads(windlass("gpu", "-o", "json").out)
    by_product = {one["product"]: one for one in document["fragmentation"]}
    assert by_product["NVIDIA-L4"] == {
        "product": "NVIDIA-L4",
        "nodes": 1,
        "gpus": 2,
        "idleGpus": 1.0,
        "idleNodes": 0,
        "largestIdle": 1,
        "fragmentedGpus": 1.0,
        "fragmentation": 1.0,
    }


def test_idle_nodes_are_not_fragmented() -> None:
    rows = [DeviceRow(f"n{number // 4}", DeviceRecord(number % 4, model="H100")) for number in range(16)]
    for row in rows[:2]:
        row.holdings.append(Holding("default/p", DeviceAssignment(row.device.index)))
    (figures,) = fragmentation.by_product(rows, closed=["n3"])
    assert (figures.nodes, figures.idle_nodes, figures.largest) == (3, 2, 4)
    assert figures.fragmented == pytest.approx(2 / 10)
