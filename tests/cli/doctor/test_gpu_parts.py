"""Six parts of the GPU stack per node in ``windlass doctor`` (F21, C4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from windlass.api import annotations
from windlass.api.devices import node_annotation
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.api.resources import NODES, PODS
from windlass.cli.doctor.gpu_parts import Part, PartState, checks, findings

Json = dict[str, Any]
ALL = set(Part)


def node(name: str, labels: Mapping[str, str], amounts: Mapping[str, int], *records: DeviceRecord) -> Json:
    notes = annotations.both(annotations.NODE_DEVICES, node_annotation.write(records)) if records else {}
    return {
        "metadata": {"name": name, "labels": dict(labels), "annotations": notes},
        "status": {"allocatable": {key: str(value) for key, value in amounts.items()}},
    }


def pod(name: str, where: str, labels: Mapping[str, str], *, ready: bool = True) -> Json:
    return {
        "metadata": {"name": name, "namespace": "gpu-operator", "labels": dict(labels)},
        "spec": {"nodeName": where},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


OPERATOR_LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/cuda.driver.major": "535",
    "nvidia.com/cuda.driver.minor": "104",
    "nvidia.com/cuda.driver.rev": "05",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.config.state": "success",
}
EXPORTER = {"app": "nvidia-dcgm-exporter"}


def states(obj: Json, pods: list[Json] | None, *drivers: str) -> dict[Part, PartState]:
    found = findings(obj, pods, drivers)
    assert [finding.part for finding in found] == list(Part)
    for finding in found:
        assert bool(finding.remedy) == (finding.state is PartState.MISSING)
    return {finding.part: finding.state for finding in found}


def test_all_parts_of_an_installed_operator_are_found() -> None:
    """The seed's driver 535.104.05 is shown by its labels (C4)."""
    gpu = node("gpu-0", OPERATOR_LABELS, {"nvidia.com/gpu": 8})
    found = findings(gpu, [pod("x", "gpu-0", EXPORTER)])
    assert {finding.state for finding in found} == {PartState.FOUND}
    assert found[0].detail == "version 535.104.05"
    assert found[2].detail == "the kubelet offers nvidia.com/gpu: 8"


def test_a_machine_with_a_gpu_and_nothing_installed_misses_every_part() -> None:
    bare = node("gpu-0", {"feature.node.kubernetes.io/pci-10de.present": "true"}, {})
    found = states(bare, [])
    assert found.pop(Part.MIG_MANAGER) is PartState.NOT_NEEDED
    assert set(found.values()) == {PartState.MISSING}
    for result in checks([bare], [], {}):
        assert result.state != "missing" or "helm upgrade --install gpu-operator" in result.remedy


def test_a_part_that_the_operator_leaves_out_is_enabled_by_its_label() -> None:
    labels = {**OPERATOR_LABELS, "nvidia.com/gpu.deploy.dcgm-exporter": "false"}
    (result,) = [
        one
        for one in checks([node("gpu-0", labels, {"nvidia.com/gpu": 8})], [], {})
        if one.name == Part.EXPORTER
    ]
    assert result.remedy == "kubectl label node gpu-0 nvidia.com/gpu.deploy.dcgm-exporter=true --overwrite"


def test_a_pod_that_is_not_ready_is_named() -> None:
    broken = pod("exporter-x", "gpu-0", EXPORTER, ready=False)
    gpu = node("gpu-0", OPERATOR_LABELS, {"nvidia.com/gpu": 8})
    (found,) = [one for one in findings(gpu, [broken]) if one.part is Part.EXPORTER]
    assert found.state is PartState.MISSING
    assert found.remedy == "kubectl -n gpu-operator describe pod exporter-x"


@pytest.mark.parametrize(
    ("labels", "amounts", "drivers"),
    [
        ({}, {"nvidia.com/mig-1g.5gb": 7}, ()),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}, {"nvidia.com/gpu": 1}, ()),
        ({}, {}, ("gpu.nvidia.com",)),
    ],
)
def test_plugins_other_than_the_operators_are_found(
    labels: dict[str, str], amounts: dict[str, int], drivers: tuple[str, ...]
) -> None:
    found = states(node("gpu-0", labels, amounts), [], *drivers)
    assert found[Part.PLUGIN] is PartState.FOUND
    assert found[Part.DRIVER] is PartState.FOUND


def test_nodes_without_gpus_of_nvidia_need_no_part() -> None:
    assert set(states(node("cpu", {}, {}), []).values()) == {PartState.NOT_NEEDED}
    amd = states(node("amd", {}, {"amd.com/gpu": 8}), [])
    assert amd.pop(Part.PLUGIN) is PartState.FOUND
    assert set(amd.values()) == {PartState.NOT_NEEDED}


def test_a_user_that_may_not_list_pods_is_told_so() -> None:
    gpu = node("gpu-0", OPERATOR_LABELS, {"nvidia.com/gpu": 8})
    (found,) = [one for one in findings(gpu, None) if one.part is Part.EXPORTER]
    assert "you may not list pods" in found.detail


@pytest.mark.parametrize(
    ("labels", "driver"),
    [
        ({"nvidia.com/gpu.driver.version": "550.54.15"}, PartState.FOUND),
        ({"nvidia.com/gpu.driver.version": "simulated"}, PartState.BUILT_IN),
        ({}, PartState.MISSING),
    ],
)
def test_parts_of_a_node_agent_are_built_in(labels: dict[str, str], driver: PartState) -> None:
    record = DeviceRecord(0, model="NVIDIA-A100-SXM4-80GB", mig=True, dynamic=True)
    box = node("box", {annotations.BOX: "true", **labels}, {"nvidia.com/gpu": 0}, record)
    found = states(box, [])
    assert found[Part.DRIVER] is driver
    for part in (Part.TOOLKIT, Part.PLUGIN, Part.DISCOVERY, Part.MIG_MANAGER):
        assert found[part] is PartState.BUILT_IN


def test_nodes_with_equal_findings_share_a_line_that_names_them_all() -> None:
    same = [node(f"gpu-{number}", OPERATOR_LABELS, {"nvidia.com/gpu": 8}) for number in (10, 2, 0, 1)]
    results = checks(same, [], {})
    assert {result.name for result in results} == ALL
    assert {result.nodes for result in results} == {("gpu-0", "gpu-1", "gpu-2", "gpu-10")}
    assert "on gpu-0 … gpu-2, gpu-10: version 535.104.05" in results[0].text


def test_doctor_lists_the_parts_of_each_node(windlass: Any, cluster: Any) -> None:
    cluster.add(NODES, node("extra", OPERATOR_LABELS, {"nvidia.com/gpu": 8}))
    cluster.add(PODS, pod("exporter", "extra", EXPORTER))
    listed = json.loads(windlass("doctor", "-o", "json").out)["checks"]
    names = {name for obj in cluster.objects for name in [obj[2]] if obj[0] is NODES}
    for part in Part:
        shown = [name for check in listed if check["check"] == part for name in check["nodes"]]
        assert sorted(shown) == sorted(names)
    lines = [line for line in windlass("doctor").out.splitlines() if "DCGM exporter: found on extra" in line]
    assert lines == ["ok    DCGM exporter: found on extra: pods of nvidia-dcgm-exporter run"]
