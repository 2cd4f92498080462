"""``windlass explain --scores``: how the nodes rank for a job's pods, score by score."""

from __future__ import annotations

import json

import example_cluster
import pytest
from fakecluster import FakeCluster, node

from windlass.api.resources import CONFIG_MAPS, NODES

PACKING = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: binpack\n"


@pytest.fixture
def cluster() -> FakeCluster:
    found = example_cluster.busy()
    found.add(NODES, node("spare", gpus=8))
    return found


def policy(cluster: FakeCluster, text: str) -> None:
    cluster.add(
        CONFIG_MAPS,
        {
            "metadata": {"name": "volcano-scheduler-config", "namespace": "volcano-system"},
            "data": {"volcano-scheduler.conf": text},
        },
    )


def test_a_waiting_job_has_a_table(windlass):
    document = json.loads(windlass("explain", "big", "--scores", "-o", "json").out)
    (table,) = document["scores"]
    assert document["policy"] == "default actions"
    assert "binpack" in [column["plugin"] for column in table["scores"]]
    assert {row["node"] for row in table["nodes"]} >= {"box", "spare"}
    assert next(row["node"] for row in table["nodes"] if row["fits"]) == "box"  # it is in use already
    weights = [column["weight"] for column in table["scores"]]
    for row in table["nodes"]:
        total = sum(w * points for w, points in zip(weights, row["points"], strict=True))
        assert row["total"] == pytest.approx(total, abs=1e-3)


def test_a_placed_job_is_judged_as_if_it_had_no_node_yet(windlass):
    document = json.loads(windlass("explain", "train", "--scores", "-o", "json").out)
    (table,) = document["scores"]
    assert table["pods"] == 2
    assert {row["node"]: row["fits"] for row in table["nodes"]}["box"] is True


def test_weights_of_the_policy_in_force_stand_in_the_table(cluster, windlass):
    policy(
        cluster,
        PACKING
        + 'nodeorder:\n- name: gpu-aware\n  args: \'{"gpuMemoryWeight": 1.0, "gpuComputeWeight": 0.8}\'\n',
    )
    text = windlass("explain", "big", "--scores").out
    assert "gpu-aware (gpuMemoryWeight 1.0, gpuComputeWeight 0.8)" in text
    header = next(line for line in text.splitlines() if line.startswith("NODE"))
    assert header.split()[:3] == ["NODE", "FITS", "TOTAL"]
    for title in (
        "gpu-aware.gpuMemory ×1",
        "gpu-aware.gpuCompute ×0.8",
        "gpu-aware.interGPUComms ×0.5",
    ):
        assert title in header
    assert text.index("\nbox ") < text.index("\nspare ")


def test_on_a_cluster_the_policy_is_that_of_the_installed_windlass(cluster, windlass):
    """Volcano's own ConfigMap says there how Volcano decides."""
    policy(cluster, "actions: allocate, preempt\n")
    aimed = ("--context", "gpu", "explain", "big", "--scores", "-o", "json")
    assert json.loads(windlass(*aimed).out)["policy"] == "default actions"
    here = {"name": "windlass-scheduler", "namespace": "windlass-system"}
    cluster.add(CONFIG_MAPS, {"metadata": here, "data": {"windlass.conf": "actions: allocate\n"}})
    assert json.loads(windlass(*aimed).out)["policy"] == "actions allocate"
    assert json.loads(windlass(*aimed[2:]).out)["policy"] == "actions allocate, preempt"
    here["namespace"] = "team-gpu"  # where helm was told to install it
    del cluster.objects[(CONFIG_MAPS, "windlass-system", "windlass-scheduler")]
    cluster.add(CONFIG_MAPS, {"metadata": here, "data": {"windlass.conf": "actions: allocate\n"}})
    assert json.loads(windlass(*aimed).out)["policy"] == "actions allocate"


def test_a_job_that_has_ended_has_no_scores(windlass):
    assert windlass("explain", "crash", "--scores").out.endswith("it has no unfinished pods to score\n")


def test_types_and_rejected_nodes_of_a_placed_job(cluster, windlass):
    """F47: which GPUs it has, and why no other node was taken."""
    cluster.add(NODES, node("plain", gpus=0))
    document = json.loads(windlass("explain", "train", "-o", "json").out)
    assert document["gpuTypes"] == {"nvidia.com/gpu": 2}
    rejected = {entry["node"]: entry["reason"] for entry in document["rejectedNodes"]}
    assert rejected["plain"] == "InsufficientResources: nvidia.com/gpu needs 1, has 0"
    assert rejected["spare"].startswith("score ")
    assert set(rejected).isdisjoint(document["nodes"])
    text = windlass("explain", "train").out
    assert "GPU type:" in text
    assert "plain: InsufficientResources: nvidia.com/gpu needs 1, has 0" in text
    assert "rejectedNodes" not in json.loads(windlass("explain", "big", "-o", "json").out)
