"""Kinds of others on one box: a CustomResourceDefinition, kubectl, a Python operator, and a restart."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubectl as kubectl_tool
import pytest
from definitions import definition
from single_node import Box

OPERATOR = Path(__file__).parent / "training_operator.py"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "description": "Workers of the training.",
            "properties": {
                "workers": {"type": "integer", "minimum": 1, "default": 2},
                "command": {"type": "array", "items": {"type": "string"}},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
KIND = "trainings.conformance.example.com"


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    if kubectl_tool.find() is None:
        pytest.skip("kubectl is not installed")
    with Box("--gpus", "none") as one:
        yield one


def apply(box: Box, manifest: Any, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return box.kubectl("apply", "-f", "-", *options, stdin=json.dumps(manifest), check=check)


def training(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "conformance.example.com/v1",
        "kind": "Training",
        "metadata": {"name": name},
        "spec": spec,
    }


def shown(box: Box, name: str) -> dict[str, Any]:
    return json.loads(box.kubectl("get", "training", name, "-o", "json").stdout)


@pytest.fixture(scope="module")
def kind(box: Box) -> str:
    """The kind ``Training``, installed as a user does."""
    crd = definition("trainings", "Training", schema=SCHEMA, shortNames=["trn"], categories=["all"])
    version = crd["spec"]["versions"][0]
    version["subresources"] = {
        "status": {},
        "scale": {"specReplicasPath": ".spec.workers", "statusReplicasPath": ".status.workers"},
    }
    version["additionalPrinterColumns"] = [
        {"name": "Workers", "type": "integer", "jsonPath": ".spec.workers"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    ]
    apply(box, crd)
    box.kubectl("wait", "--for=condition=established", f"crd/{KIND}", "--timeout=90s")
    return KIND


def test_kubectl_knows_the_kind_at_once(box: Box, kind: str) -> None:
    refused = apply(box, training("first", worker=1), check=False)
    assert 'unknown field "spec.worker"' in refused.stderr
    bad = apply(box, training("first", workers=0), check=False)
    assert "spec.workers in body should be greater than or equal to 1" in bad.stderr
    apply(box, training("first"))
    assert shown(box, "first")["spec"] == {"workers": 2}
    assert box.kubectl("get", "trn").stdout.split("\n")[0].split() == ["NAME", "WORKERS", "PHASE"]
    assert "training.conformance.example.com/first" in box.kubectl("get", "all").stdout
    assert "Workers of the training." in box.kubectl("explain", "training.spec").stdout
    box.kubectl("scale", "training/first", "--replicas=3")
    assert (shown(box, "first")["spec"]["workers"], shown(box, "first")["metadata"]["generation"]) == (3, 2)
    assert box.kubectl("get", "crd", kind).stdout.split("\n")[0].split() == ["NAME", "CREATED", "AT"]
    box.kubectl("delete", "training", "first")


def test_windlass_commands_take_the_kind(box: Box, kind: str) -> None:
    crd = definition("others", "Other", schema={"type": "object"})
    other = {"apiVersion": "conformance.example.com/v1", "kind": "Other", "metadata": {"name": "one"}}
    text = f"{json.dumps(crd)}\n---\n{json.dumps(other)}\n"
    applied = box.windlass("apply", "--strict", "-f", "-", stdin=text).stdout
    assert "other.conformance.example.com/one created" in applied
    assert "one" in box.windlass("get", "others").stdout
    assert "Kind:         Other" in box.windlass("describe", "other", "one").stdout
    box.windlass("delete", "-f", "-", stdin=text)
    assert box.windlass("get", "others", check=False).returncode != 0


def test_operator_written_with_kopf_runs_a_training(box: Box, kind: str, tmp_path: Path) -> None:
    pytest.importorskip("kopf", reason="kopf is not installed")
    log = tmp_path / "operator.log"
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "-n", "default", str(OPERATOR)]
    with log.open("w") as out:
        operator = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=box.environment)
    try:
        apply(box, training("sum", workers=2, command=["echo", "done"]))
        box.wait_for(
            "the training's end", lambda: shown(box, "sum").get("status", {}).get("phase") == "Succeeded"
        )
        pods = [pod for pod in box.items("pod") if pod["metadata"].get("ownerReferences")]
        assert sorted(pod["metadata"]["name"] for pod in pods) == ["sum-0", "sum-1"]
        assert shown(box, "sum")["metadata"]["finalizers"] == ["conformance.example.com/operator"]
        box.kubectl("delete", "training", "sum", "--timeout=60s")
        box.wait_for(
            "the pods' removal",
            lambda: not [p for p in box.items("pod") if p["metadata"].get("ownerReferences")],
        )
    finally:
        operator.terminate()
        operator.wait(90)
    assert "cleaned up sum" in log.read_text()


def test_kinds_and_objects_survive_a_restart(box: Box, kind: str) -> None:
    apply(box, training("kept", workers=4))
    box.windlass("down")
    box.windlass("up", "--detach", "--gpus", "none")
    assert shown(box, "kept")["spec"]["workers"] == 4
    box.kubectl("delete", "crd", kind, "--timeout=60s")
    assert box.kubectl("get", "trainings", check=False).returncode == 1
    assert kind not in box.kubectl("get", "crd").stdout
