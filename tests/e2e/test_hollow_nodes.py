"""Nodes without machines whose kubelets kwok plays: it says that they live, has their pods run, and lets them go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from clusters import Cluster, eventually
from realkube import RealKube, end, free_ports, need, spawn, tools_folder
from scheduler_processes import WindlassPart

Json = dict[str, Any]
pytestmark = [pytest.mark.real]
NAME = "windlass-hollow"
OURS = "tests.windlass.dev/hollow"
_AT_ONCE = {
    "Node": (
        {"key": '.status.conditions.[] | select(.type == "Ready") | .status', "operator": "DoesNotExist"},
        {
            "statusTemplate": "conditions:\n- {type: Ready, status: 'True', reason: KubeletReady, message: up, "
            "lastHeartbeatTime: {{ Now }}, lastTransitionTime: {{ Now }}}\n"
        },
    ),
    "Pod": (
        {"key": ".status.phase", "operator": "In", "values": ["Pending"]},
        {"statusTemplate": "phase: Running\n"},
    ),
    "Gone": ({"key": ".metadata.deletionTimestamp", "operator": "Exists"}, {"delete": True}),
}
"""What becomes of a node that is new, of a pod that waits on one, of a pod that is to go: which fields say that it is
one, and what is done."""
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"


@pytest.fixture
def api(real_kube: RealKube, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster with kwok for the nodes that carry an annotation, and a scheduler."""
    need("kwok")
    (port,) = free_ports(1)
    argv = [str(tools_folder() / "kwok"), f"--kubeconfig={real_kube.kubeconfig}"]
    argv += ["--manage-all-nodes=false", f"--manage-nodes-with-annotation-selector={OURS}=true"]
    argv += [
        f"--server-address=127.0.0.1:{port}",
        "--node-lease-duration-seconds=40",
        f"--config={_stages(tmp_path)}",
    ]
    kwok = spawn(argv, tmp_path / "kwok.log", cwd=tmp_path)
    scheduler = WindlassPart(real_kube, "scheduler", f"--scheduler-name={NAME}", name=NAME)
    cluster = Cluster.of_real(real_kube)
    try:
        yield cluster
    finally:
        scheduler.stop()
        end(kwok)
        cluster.delete("/api/v1/nodes/hollow-0")
        cluster.delete("/api/v1/nodes/hollow-1")
        cluster.close()


def test_a_gang_runs_on_them_from_their_first_word_to_its_end(api: Cluster) -> None:
    namespace = api.new_namespace("hollow")
    pods, group = f"/api/v1/namespaces/{namespace}/pods", f"{GROUPS.format(namespace)}/train"
    for number in range(2):
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "20", "nvidia.com/gpu": "2"}
        body = {
            "metadata": {"name": f"hollow-{number}", "annotations": {OURS: "true"}, "labels": {OURS: "true"}},
            "status": {"allocatable": amounts, "capacity": amounts},
        }
        api.post("/api/v1/nodes", body).ok(201)
    queue = {"apiVersion": _KIND["apiVersion"], "kind": "Queue", "metadata": {"name": namespace}, "spec": {}}
    api.post("/apis/scheduling.volcano.sh/v1beta1/queues", queue).ok(201)
    spec = {"minMember": 4, "queue": namespace}
    api.post(GROUPS.format(namespace), {**_KIND, "metadata": {"name": "train"}, "spec": spec}).ok(201)
    for number in range(4):
        api.post(pods, _pod(f"train-{number}")).ok(201)

    def phases() -> list[str]:
        return [pod["status"]["phase"] for pod in api.get(pods).ok()["items"]]

    eventually(lambda: phases() == ["Running"] * 4)
    where = [pod["spec"]["nodeName"] for pod in api.get(pods).ok()["items"]]
    assert sorted(where) == ["hollow-0", "hollow-0", "hollow-1", "hollow-1"]
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/hollow-0"
    assert api.get(lease).ok()["spec"]["holderIdentity"]
    status = eventually(lambda: _whole(api.get(group).ok()))
    assert (status["phase"], status["running"]) == ("Running", 4)
    api.delete(f"{pods}/train-0").ok()
    eventually(lambda: len(phases()) == 3)  # who plays the kubelet lets it go
    eventually(lambda: (api.get(group).ok()["status"].get("running") or 0) == 3)


def _stages(folder: Path) -> Path:
    """kwok's file of what becomes of its nodes and pods."""
    documents = []
    for name, (sign, then) in _AT_ONCE.items():
        about = {"apiGroup": "v1", "kind": "Node" if name == "Node" else "Pod"}
        stage = {"resourceRef": about, "selector": {"matchExpressions": [sign]}, "next": then}
        head = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name.lower()}}
        documents.append({**head, "spec": stage})
    file = folder / "stages.yaml"
    file.write_text(yaml.safe_dump_all(documents))
    return file


_KIND = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}


def _whole(group: Json) -> Json | None:
    status = group.get("status") or {}
    return status if status.get("running") == 4 else None


def _pod(name: str) -> Json:
    resources = {"limits": {"nvidia.com/gpu": 1}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"scheduling.k8s.io/group-name": "train"}},
        "spec": {
            "schedulerName": NAME,
            "restartPolicy": "Never",
            "nodeSelector": {OURS: "true"},
            "containers": [{"name": "main", "image": "busybox", "resources": resources}],
        },
    }
