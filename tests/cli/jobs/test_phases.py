"""Three phases of a job in ``windlass explain`` (F56)."""

from __future__ import annotations

from typing import Any

from windlass.cli.jobs.jobs import Job
from windlass.cli.jobs.phases import phases_of, texts

GPU = "nvidia.com/gpu"


def node(name: str, gpus: int) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"allocatable": {GPU: str(gpus), "cpu": "64"}}}


def pod(name: str, gpus: int, at: str = "", phase: str = "Pending") -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {GPU: str(gpus)}}}
    spec = {"containers": [container], **({"nodeName": at} if at else {})}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": {"phase": phase}}


def gang(*pods: dict[str, Any]) -> Job:
    group = {"kind": "PodGroup", "metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}}
    return Job("PodGroup", group, list(pods), group)


NODES = [node("a", 8), node("b", 8), node("c", 4), node("d", 8)]
REJECTED = {
    "b": f"InsufficientResources: {GPU} needs 8, has 2",
    "c": f"InsufficientResources: {GPU} needs 8, has 4",
    "d": "TaintNotTolerated: gpu=reserved",
}


def test_f56_a_node_that_is_only_full_passes_the_filter() -> None:
    found = phases_of(gang(pod("p", 8), pod("q", 8)), NODES, REJECTED)
    assert [(p["phase"], p["nodes"], p["of"]) for p in found] == [
        ("filter", 2, 4),  # c is too small, d is tainted
        ("allocate", 1, 2),  # b is full
        ("run", 0, 1),
    ]


def test_f56_a_placed_job_counts_its_nodes_and_those_that_run() -> None:
    job = gang(pod("p", 8, "a", "Running"), pod("q", 8, "b"))
    found = phases_of(job, NODES, {"c": REJECTED["c"], "d": REJECTED["d"]})
    assert [(p["phase"], p["nodes"], p["of"]) for p in found] == [
        ("filter", 2, 4),
        ("allocate", 2, 2),
        ("run", 1, 2),
    ]
    assert texts(found)[1] == "allocate: 2 of 2 nodes hold 2 pods of 2"
