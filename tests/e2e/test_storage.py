"""Claims on one box: provisioning, binding modes, protection, reclaim policies, what kubectl shows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from single_node import Box

Json = dict[str, Any]


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "none") as one:
        yield one


def claim(name: str, **spec: Any) -> Json:
    fields = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": fields}


def pod(name: str, command: str, *claims: str) -> Json:
    mounts = [{"name": one, "mountPath": f"/mnt/{one}"} for one in claims]
    container = {"name": "c", "image": "x", "command": ["sh", "-c", command], "volumeMounts": mounts}
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes},
    }


def apply(box: Box, *items: Json) -> None:
    box.windlass("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def phase(box: Box, kind: str, name: str) -> str:
    return box.get(kind, name).get("status", {}).get("phase", "")


def gone(box: Box, kind: str, name: str) -> bool:
    return all(one["metadata"]["name"] != name for one in box.items(kind))


def reasons(box: Box, name: str) -> set[str]:
    return {event["reason"] for event in box.items("events") if event["involvedObject"]["name"] == name}


def test_a_claim_gets_a_directory_that_outlives_pods_and_ends_with_the_claim(
    box: Box, tmp_path: Path
) -> None:
    apply(box, claim("data"), pod("writer", "echo kept > /mnt/data/f", "data"))
    box.wait_for("it has written", lambda: phase(box, "pod", "writer") == "Succeeded")
    apply(box, pod("reader", f"cat /mnt/data/f; until [ -e {tmp_path}/go ]; do sleep 0.1; done", "data"))
    box.wait_for("it reads", lambda: "kept" in box.windlass("logs", "reader", check=False).stdout)
    found = box.get("pvc", "data")
    volume = box.get("pv", found["spec"]["volumeName"])
    assert found["status"]["capacity"] == {"storage": "1Gi"}
    assert volume["spec"]["storageClassName"] == "local-path"
    box.wait_for("the volume is bound", lambda: phase(box, "pv", volume["metadata"]["name"]) == "Bound")
    told = {"ExternalProvisioning", "Provisioning", "ProvisioningSucceeded"}
    box.wait_for("all is told", lambda: told <= reasons(box, "data"))
    box.windlass("delete", "pvc", "data", "--no-wait")
    assert box.get("pvc", "data")["metadata"]["deletionTimestamp"]
    (tmp_path / "go").touch()
    box.wait_for("the pod ends", lambda: phase(box, "pod", "reader") == "Succeeded")
    box.wait_for("the claim is gone", lambda: gone(box, "pvc", "data"))
    box.wait_for("the volume is gone", lambda: gone(box, "pv", volume["metadata"]["name"]))
    box.wait_for("its directory, too", lambda: not list((box.state.node / "claims").glob("*_data")))


def test_a_claim_may_wait_for_its_first_pod_and_keep_its_volume(box: Box) -> None:
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "windlass.dev/local-path",
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Retain",
    }
    apply(box, storage_class, claim("later", storageClassName="late"))
    box.wait_for("it waits", lambda: "WaitForFirstConsumer" in reasons(box, "later"))
    assert phase(box, "pvc", "later") == "Pending"
    apply(box, pod("first", "echo first > /mnt/later/f", "later"))
    box.wait_for("the pod ends", lambda: phase(box, "pod", "first") == "Succeeded")
    volume = box.get("pvc", "later")["spec"]["volumeName"]
    box.windlass("delete", "pvc", "later")
    box.wait_for("the volume is kept", lambda: phase(box, "pv", volume) == "Released")
    (directory,) = (box.state.node / "claims").glob("*_later")
    assert (directory / "f").read_text() == "first\n"


def test_pods_wait_for_claims_with_kube_schedulers_words(box: Box) -> None:
    apply(box, claim("never", storageClassName=""), pod("a", "true", "nowhere"), pod("b", "true", "never"))
    for name, words in (
        ("a", 'persistentvolumeclaim "nowhere" not found'),
        ("b", "pod has unbound immediate PersistentVolumeClaims"),
    ):
        box.wait_for(f"{name} says why", lambda name=name, words=words: words in _why(box, name))
    apply(box, claim("nowhere"))
    box.wait_for("a runs", lambda: phase(box, "pod", "a") == "Succeeded")
    box.windlass("delete", "pod", "b")


def _why(box: Box, name: str) -> str:
    conditions = box.get("pod", name)["status"].get("conditions") or ()
    return " ".join(one.get("message") or "" for one in conditions if one["type"] == "PodScheduled")


@pytest.mark.kubectl
def test_kubectl_shows_classes_claims_and_volumes(box: Box) -> None:
    apply(box, claim("shown", storageClassName="gp3", accessModes=["ReadWriteMany"]))
    box.wait_for("it is bound", lambda: phase(box, "pvc", "shown") == "Bound")
    classes = box.kubectl("get", "sc").stdout
    assert "local-path (default)   windlass.dev/local-path   Delete          Immediate" in classes
    described = ("describe", "pvc", "shown")
    box.wait_for("it is told", lambda: "ProvisioningStandIn" in box.kubectl(*described).stdout)
    line = next(x for x in box.kubectl("get", "pvc").stdout.splitlines() if x.startswith("shown"))
    assert line.split()[1::2][:2] == ["Bound", "1Gi"]
    refused = box.kubectl(
        *("patch", "pvc", "shown", "-p", '{"spec": {"resources": {"requests": {"storage": "9Gi"}}}}'),
        check=False,
    )
    assert "only dynamically provisioned pvc can be resized" in refused.stderr
