"""GPUs of several products: their sharing modes, their models, and the use of their sharers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from single_node import Box
from single_node_gpus import gpu_pod

PRODUCTS = {
    "h100": ("H100-80GB", "nvidia.com/gpu", "NVIDIA-H100-80GB-HBM3"),
    "b200": ("B200", "nvidia.com/gpu", "NVIDIA-B200"),
    "amd": ("MI300X", "amd.com/gpu", "AMD-Instinct-MI300X"),
    "gaudi": ("GAUDI3", "habana.ai/gaudi", "Gaudi3"),
    "ascend": ("ASCEND910B", "huawei.com/Ascend910", "Ascend910B"),
    "trainium": ("TRAINIUM", "aws.amazon.com/neuron", "AWS-Trainium"),
    "inferentia": ("INFERENTIA2", "aws.amazon.com/neuron", "AWS-Inferentia2"),
    "a100": ("A100-80GB", "nvidia.com/gpu", "NVIDIA-A100-SXM4-80GB"),
    "t4": ("T4", "nvidia.com/gpu", "Tesla-T4"),
}


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "simulated:1xA30") as one:
        for prefix, (model, _, _) in PRODUCTS.items():
            one.windlass("node", "add-simulated", "--prefix", prefix, "--devices", f"2x{model}")
        yield one


def apply(box: Box, *pods: dict[str, Any]) -> None:
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump_all(pods))


def node_of(box: Box, name: str) -> str:
    return box.wait_for("it has a node", lambda: box.get("pod", name)["spec"].get("nodeName", ""))


def scheduled(name: str, limits: dict[str, str], **changes: Any) -> dict[str, Any]:
    return gpu_pod(name, limits, "sleep 600", schedulerName="windlass", **changes)


def test_f32_each_product_is_shown_and_gets_its_own_pods(box: Box) -> None:
    shown = {
        row["name"]: row["product"]
        for row in json.loads(box.windlass("node", "ls", "-o", "json").stdout)["items"]
    }
    table = box.windlass("node", "ls").stdout
    for prefix, (_, _, product) in PRODUCTS.items():
        assert shown[f"{prefix}-0"] == product
        assert product in table
    pods = []
    for prefix, (model, resource, _) in PRODUCTS.items():
        notes = (
            {"windlass.dev/gpu-model": model}
            if resource in ("nvidia.com/gpu", "aws.amazon.com/neuron")
            else {}
        )
        pods.append(scheduled(f"on-{prefix}", {resource: "1"}, metadata={"annotations": notes}))
    apply(box, *pods)
    assert {prefix: node_of(box, f"on-{prefix}") for prefix in PRODUCTS} == {p: f"{p}-0" for p in PRODUCTS}
    box.windlass("delete", "pod", *(f"on-{prefix}" for prefix in PRODUCTS))


def test_f69_job_for_type_a100_80g_goes_to_the_labelled_node(box: Box) -> None:
    labels = box.get("node", "a100-0")["metadata"]["labels"]
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
    box.windlass("submit", "--name", "typed", "-g", "1", "--gpu-model", "A100-80G", "--", "sleep", "1")
    assert node_of(box, "typed-main-0") == "a100-0"
    refused = box.windlass("submit", "-g", "1", "--gpu-model", "A100-40G", "--", "sleep", "1", check=False)
    assert "no node has a GPU of model A100-40G" in refused.stderr
    box.windlass("cancel", "typed", "--yes")


def test_f22_supported_modes_are_listed_and_a_t4_is_not_partitioned(box: Box) -> None:
    rows = json.loads(box.windlass("gpu", "-o", "json").stdout)["items"]
    modes = {row["node"]: row["supportedModes"] for row in rows}
    assert modes["a100-0"] == modes["h100-0"] == ["MPS", "cGPU", "qGPU", "MIG"]
    assert modes["t4-0"] == ["MPS", "cGPU", "qGPU"]
    assert modes["amd-0"] == []
    assert "MPS,cGPU,qGPU,MIG" in box.windlass("gpu").stdout
    on_t4 = {"nodeSelector": {"kubernetes.io/hostname": "t4-0"}}
    on_a100 = {"nodeSelector": {"kubernetes.io/hostname": "a100-0"}}
    slice_ = {"nvidia.com/mig-1g.10gb": "1"}
    apply(box, scheduled("slice-t4", slice_, **on_t4), scheduled("slice-a100", slice_, **on_a100))

    def why(name: str) -> str:
        record = json.loads(box.windlass("explain", name, "-o", "json").stdout)
        return (record.get("explanation") or {}).get("message", "")

    box.wait_for("it is told", lambda: "Tesla-T4 cannot be partitioned into MIG slices." in why("slice-t4"))
    box.wait_for("it is told", lambda: "NVIDIA-A100-SXM4-80GB is not in MIG mode." in why("slice-a100"))
    box.windlass("delete", "pod", "slice-t4", "slice-a100")


def test_f52_share_and_use_of_each_sharer_are_shown(box: Box) -> None:
    (node,) = [
        node["metadata"]["name"] for node in box.items("nodes") if "-0" not in node["metadata"]["name"]
    ]
    here = {"nodeSelector": {"kubernetes.io/hostname": node}}
    notes = [{"windlass.dev/simulated-gpu-use": "3Gi"}, {}, {}]
    pods = [
        scheduled(f"share-{number}", {"aliyun.com/gpu-mem": "10"}, metadata={"annotations": note}, **here)
        for number, note in enumerate(notes)
    ]
    apply(box, *pods[:2])
    for number in (0, 1):
        node_of(box, f"share-{number}")
    apply(box, pods[2])

    def shares() -> list[tuple[str, int, int]]:
        rows = json.loads(box.windlass("gpu", "-o", "json").stdout)["items"]
        holders = [holder for row in rows if row["node"] == node for holder in row["holders"]]
        return [(h["pod"], h["memoryMib"], h["usedMemoryMib"]) for h in holders]

    used = [("default/share-0", 10240, 3072), ("default/share-1", 10240, 0)]
    box.wait_for("shares and use are shown", lambda: shares() == used)
    assert "share-0(10G,3G used) share-1(10G,0 used)" in box.windlass("gpu").stdout
    box.wait_for("it waits", lambda: "why:" in box.windlass("explain", "share-2").stdout)
    assert not box.get("pod", "share-2")["spec"].get("nodeName")
