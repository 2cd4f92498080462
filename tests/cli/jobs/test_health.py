"""``windlass explain`` of a job that runs, as far as anybody knows: its nodes may know better, or nobody does."""

from __future__ import annotations

import example_cluster
import pytest
from fakecluster import FakeCluster

from windlass.api.resources import EVENTS, NODES, PODS
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339

NOW = FakeClock().now()
"""Of every command: the clock stands still."""


@pytest.fixture
def cluster() -> FakeCluster:
    return example_cluster.busy()


def trouble(windlass) -> list[str]:
    lines = windlass("explain", "train").out.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith("  problems:")), None)
    if start is None:
        return []
    end = next(at for at, line in enumerate(lines[start + 1 :], start + 1) if line[2] != " ")
    return [line.removeprefix("  problems:").strip() for line in lines[start:end]]


def test_a_node_that_is_not_ready_is_told(windlass, cluster) -> None:
    assert trouble(windlass) == []
    (ready,) = [
        one for one in cluster.objects[(NODES, "", "box")]["status"]["conditions"] if one["type"] == "Ready"
    ]
    ready |= {"status": "Unknown", "lastTransitionTime": rfc3339(NOW - 240)}
    assert trouble(windlass) == ["box is not ready for 4m: the status of its 2 pods may be out of date"]
    del cluster.objects[(NODES, "", "box")]
    assert trouble(windlass) == ["box is gone: the status of its 2 pods may be out of date"]


def test_a_node_that_holds_more_than_it_has_is_told(windlass, cluster) -> None:
    status = cluster.objects[(NODES, "", "box")]["status"]
    for which in ("allocatable", "capacity"):
        status[which]["nvidia.com/gpu"] = "1"
    assert trouble(windlass) == [
        "pods on box hold 1 GPU more than it has: not all of them have the capacity that they requested"
    ]


def test_pods_that_should_be_gone_are_told(windlass, cluster) -> None:
    metadata = cluster.objects[(PODS, "default", "train-main-0")]["metadata"]
    metadata["deletionTimestamp"] = rfc3339(NOW - 10)
    assert trouble(windlass) == []
    metadata["deletionTimestamp"] = rfc3339(NOW - 300)
    assert trouble(windlass) == ["1 pod on box should have ended 5m ago; the capacity is still allocated"]


def test_a_pod_that_runs_and_is_not_ready_is_told_with_what_its_probe_said(windlass, cluster) -> None:
    pod = cluster.objects[(PODS, "default", "train-main-0")]
    ready = {
        "type": "Ready",
        "status": "False",
        "lastTransitionTime": rfc3339(NOW - 60),
        "message": "containers",
    }
    pod["status"] |= {"phase": "Running", "conditions": [ready]}
    assert trouble(windlass) == ["train-main-0 is not ready for 60s: containers"]
    assert "box, 1 pod not ready" in windlass("ps").out
    for count, words in enumerate(
        ("Startup probe failed: no", "Readiness probe failed: HTTP probe failed\n")
    ):
        about = {"kind": "Pod", "namespace": "default", "name": "train-main-0", "uid": pod["metadata"]["uid"]}
        event = {
            "metadata": {"name": f"e{count}", "namespace": "default", "uid": f"e{count}"},
            "involvedObject": about,
            "reason": "Unhealthy",
            "message": words,
            "lastTimestamp": rfc3339(NOW - 30 + count),
        }
        cluster.objects[(EVENTS, "default", f"e{count}")] = event
    assert trouble(windlass) == [
        "train-main-0 is not ready for 60s: Readiness probe failed: HTTP probe failed"
    ]
    pod["metadata"]["deletionTimestamp"] = rfc3339(NOW)
    assert trouble(windlass) == []


def test_of_a_job_without_a_pod_on_a_node_nothing_is_said_of_where(windlass, cluster) -> None:
    example_cluster.job(cluster, "again", phase="Restarting", replicas=2)
    told = windlass("explain", "again").out
    assert "0 of 2 running" in told
    assert "why there" not in told
    assert "why there" in windlass("explain", "train").out
