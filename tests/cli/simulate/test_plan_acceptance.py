"""The users' manifests about kinds of GPUs, through ``windlass plan``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import acceptance_manifests
import pytest
import yaml

from windlass.api.nodes.simulated import node_object


def plan(windlass: Any, folder: Path, objects: list[dict[str, Any]], config: Path | None = None) -> Any:
    dump = folder / "cluster.yaml"
    dump.write_text(yaml.safe_dump_all(objects))
    more = ("--config", str(config)) if config else ()
    done = windlass("plan", "-f", str(dump), "-o", "json", *more)
    assert done.code == 0, done.err
    return json.loads(done.out), done.err


def pod(document: dict[str, Any], name: str, at: int = 0, **labels: str) -> dict[str, Any]:
    metadata = {**document["metadata"], "name": name, "namespace": "default", "uid": name}
    metadata["creationTimestamp"] = f"2026-01-01T00:00:{at:02d}Z"
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    spec = {**document["spec"], "schedulerName": document["spec"].get("schedulerName", "windlass")}
    return {**document, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def binds(document: Any) -> dict[str, str]:
    return {bind["pod"]: bind["node"] for bind in document["binds"]}


@pytest.mark.parametrize("product", ["NVIDIA-H100-80GB", "NVIDIA-H100-80GB-HBM3"])
def test_10_two_copies_land_on_two_hosts_of_the_product(windlass, tmp_path, product):
    zone = {"topology.kubernetes.io/zone": "zone-a"}
    nodes = [node_object(f"n{at}", gpus=8, product=product, labels=zone) for at in range(2)]
    nodes.append(node_object("other", gpus=8, product="NVIDIA-A100-SXM4-80GB", labels=zone))
    wanted = acceptance_manifests.merged(10)
    pods = [pod(wanted, name, at, app="training-job") for at, name in enumerate(("one", "two", "three"))]
    document, _ = plan(windlass, tmp_path, [*nodes, *pods])
    assert set(binds(document)) == {"one", "two"}
    assert set(binds(document).values()) == {"n0", "n1"}


def test_20_each_tier_is_found(windlass, tmp_path):
    entry = acceptance_manifests.expectation(20)
    nodes = []
    for at, shape in enumerate(entry["nodes"]):
        taints = []
        for text in shape.get("taints", ()):
            label, _, effect = text.rpartition(":")
            key, _, value = label.partition("=")
            taints.append({"key": key, "value": value, "effect": effect})
        nodes.append(node_object(f"n{at}", gpus=shape["gpus"], labels=shape["labels"], taints=taints))
    pods = [pod(d, d["metadata"]["name"], at) for at, d in enumerate(acceptance_manifests.documents(20))]
    document, _ = plan(windlass, tmp_path, [*nodes, *pods])
    assert binds(document) == {"llm-training": "n0", "finetuning": "n1", "inference": "n2"}


def test_21_is_the_policy_with_its_warnings(windlass, tmp_path):
    nodes = [
        node_object("four", gpus=4, product="NVIDIA-A40"),
        node_object("one", gpus=1, product="NVIDIA-A40"),
    ]
    wanted = acceptance_manifests.documents(2)[0]
    wanted["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 1
    wanted["spec"]["schedulerName"] = "volcano"
    document, told = plan(
        windlass, tmp_path, [*nodes, pod(wanted, "p")], acceptance_manifests.manifest_path(21)
    )
    assert binds(document) == {"p": "one"}
    for text in acceptance_manifests.expected_warnings(21):
        assert text in told
