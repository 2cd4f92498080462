"""NUMA nodes on a whole box: reports of exporters, what survives a restart, and where processes run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from single_node import Box

from windlass.api.devices import numa_annotations


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "none") as one:
        yield one


@pytest.fixture(autouse=True)
def clean(box: Box) -> Iterator[None]:
    yield
    box.windlass("delete", "vcjobs", "--all", check=False)
    box.windlass("delete", "pods", "--all", check=False)
    box.wait_for("no pods are left", lambda: not box.items("pods"))


def apply(box: Box, *objects: dict[str, Any]) -> None:
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))


def pod(name: str, node: str, **limits: str) -> dict[str, Any]:
    resources = {"limits": {key.replace("gpu", "nvidia.com/gpu"): amount for key, amount in limits.items()}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {}},
        "spec": {
            "schedulerName": "windlass",
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "main", "image": "trainer", "resources": resources}],
        },
    }


def placement(box: Box, name: str) -> numa_annotations.Placement:
    notes = box.get("pod", name)["metadata"].get("annotations") or {}
    return numa_annotations.placement_of(notes) or ()


def bound(box: Box, *names: str) -> None:
    def placed() -> set[str]:
        return {pod["metadata"]["name"] for pod in box.items("pods") if pod["spec"].get("nodeName")}

    box.wait_for(f"{', '.join(names)}: on nodes", lambda: placed() >= set(names))


def explained(box: Box, name: str, word: str) -> str:
    def look() -> str:
        text = box.windlass("explain", name, check=False).stdout
        return text if word in text else ""

    return box.wait_for(f"{word} of {name}", look)


def topology(node: str, policy: str) -> dict[str, Any]:
    def zone(number: int) -> dict[str, Any]:
        amounts = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "2"}
        resources = [{"name": n, "capacity": a, "allocatable": a, "available": a} for n, a in amounts.items()]
        return {"name": f"node-{number}", "type": "Node", "resources": resources}

    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
        "attributes": [{"name": "topologyManagerPolicy", "value": policy}],
        "zones": [zone(0), zone(1)],
    }


def test_what_an_exporter_reports_is_kept_to_and_outlives_a_restart(box: Box) -> None:
    box.windlass("node", "add-simulated", "--gpus", "4", "--cpu", "16", "--prefix", "nrt")
    apply(box, topology("nrt-0", "single-numa-node"))
    assert "SingleNUMANode" in box.windlass("get", "noderesourcetopologies").stdout
    small = {"cpu": "3", "memory": "1Gi", "gpu": "1"}
    apply(box, *(pod(f"one-{i}", "nrt-0", **small) for i in range(2)))
    bound(box, "one-0", "one-1")
    assert {zone for i in range(2) for zone, _ in placement(box, f"one-{i}")} == {0}
    apply(box, pod("three", "nrt-0", cpu="6", memory="1Gi", gpu="2"))
    bound(box, "three")
    assert [zone for zone, _ in placement(box, "three")] == [1]
    box.windlass("down")
    box.windlass("up", "--gpus", "none", "--detach")
    apply(box, pod("more", "nrt-0", cpu="3", memory="1Gi"))
    text = explained(box, "more", "NumaAlignmentFailed")
    assert "3 cpu in one zone: zone 0 has 2 cpu left, zone 1 has 2 cpu left" in text
    box.windlass("delete", "pod", "one-0")
    bound(box, "more")
    assert [zone for zone, _ in placement(box, "more")] == [0]


def test_a_job_names_the_policy_of_its_nodes(box: Box) -> None:
    policy = "--topology-manager-policy"
    box.windlass("node", "add-simulated", "--zones", "2", policy, "restricted", "--prefix", "kubelet")
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "named"},
        "spec": {
            "minAvailable": 2,
            "tasks": [
                {
                    "name": "worker",
                    "replicas": 2,
                    "topologyPolicy": "restricted",
                    "template": {"spec": pod("x", "kubelet-0", cpu="16", memory="8Gi", gpu="4")["spec"]},
                }
            ],
        },
    }
    del job["spec"]["tasks"][0]["template"]["spec"]["schedulerName"]
    apply(box, job)
    bound(box, "named-worker-0", "named-worker-1")
    found = [[zone for zone, _ in placement(box, f"named-worker-{i}")] for i in range(2)]
    assert sorted(found) == [[0], [1]]
    assert "NUMA node 1" in box.windlass("explain", "named").stdout
    box.windlass("delete", "vcjob", "named")


def test_a_pod_of_the_box_runs_on_the_processors_of_its_zone(box: Box) -> None:
    (own,) = [node for node in box.items("nodes") if "windlass.dev/box" in node["metadata"]["labels"]]
    record = numa_annotations.read(own["metadata"]["annotations"]).record
    if record is None or not record.zones:
        pytest.skip("the kernel of this machine shows no NUMA nodes")
    wanted = pod("kept", own["metadata"]["name"], cpu="500m", memory="64Mi")
    wanted["metadata"]["annotations"] = {numa_annotations.POLICY_VOLCANO: "single-numa-node"}
    wanted["spec"]["containers"][0] |= {
        "image": "windlass.dev/host",
        "command": ["python3", "-c", "import os; print(sorted(os.sched_getaffinity(0)))"],
    }
    apply(box, wanted)
    said = box.wait_for("the pod's word", lambda: box.windlass("logs", "kept", check=False).stdout.strip())
    ((number, _),) = placement(box, "kept")
    cpus = {
        cpu for zone in record.zones if zone.number == number for cpu in numa_annotations.cpus_of(zone.cpus)
    }
    assert set(yaml.safe_load(said)) <= cpus
    assert set(yaml.safe_load(said)) <= os.sched_getaffinity(0)
