"""A cluster with one job of every state, for transcripts."""

from __future__ import annotations

import json
from typing import Any

from fakecluster import FakeCluster, node, queue

from windlass.api import annotations as names
from windlass.api.reasons import Blocker, Explanation, NearMiss, Reason
from windlass.api.resources import NODES, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS

Object = dict[str, Any]
GPU = "nvidia.com/gpu"


def container(gpus: int = 1) -> Object:
    return {
        "name": "main",
        "image": "windlass.dev/host",
        "command": ["python", "train.py"],
        "resources": {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}},
    }


def job(
    cluster: FakeCluster,
    name: str,
    *,
    phase: str,
    replicas: int = 1,
    gpus: int = 1,
    queue: str = "default",
    created: str = "2026-01-01T11:30:00Z",
) -> Object:
    made = cluster.add(
        VOLCANO_JOBS,
        {
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {
                "queue": queue,
                "minAvailable": replicas,
                "tasks": [
                    {
                        "name": "main",
                        "replicas": replicas,
                        "template": {"spec": {"containers": [container(gpus)]}},
                    }
                ],
            },
            "status": {"state": {"phase": phase, "lastTransitionTime": "2026-01-01T11:50:00Z"}},
        },
    )
    cluster.add(
        POD_GROUPS,
        {
            "metadata": {
                "name": f"{name}-{made['metadata']['uid']}",
                "ownerReferences": [
                    {
                        "apiVersion": "batch.volcano.sh/v1alpha1",
                        "kind": "Job",
                        "name": name,
                        "controller": True,
                    }
                ],
            },
            "spec": {"minMember": replicas, "queue": queue},
            "status": {"phase": "Running" if phase == "Running" else "Pending"},
        },
    )
    return made


def pod(
    cluster: FakeCluster,
    owner: str,
    index: int,
    *,
    node: str = "",
    phase: str = "Pending",
    exit_code: int | None = None,
    gpus: int = 1,
    devices: str = "",
) -> Object:
    notes = {names.DEVICES: devices} if devices else {}
    state: Object = {"running": {"startedAt": "2026-01-01T11:31:00Z"}}
    if exit_code is not None:
        state = {"terminated": {"exitCode": exit_code, "finishedAt": f"2026-01-01T11:50:0{index}Z"}}
    statuses = [{"name": "main", "restartCount": 0, "state": state}] if phase != "Pending" else []
    return cluster.add(
        PODS,
        {
            "metadata": {
                "name": f"{owner}-main-{index}",
                "labels": {names.JOB_NAME: owner, names.TASK_SPEC: "main", names.TASK_INDEX: str(index)},
                "annotations": notes,
                "creationTimestamp": "2026-01-01T11:30:30Z",
            },
            "spec": {"containers": [container(gpus)], **({"nodeName": node} if node else {})},
            "status": {"phase": phase, "containerStatuses": statuses},
        },
    )


WAITING = Explanation(
    Reason.INSUFFICIENT_RESOURCES,
    "needs 4 nvidia.com/gpu at once; 2 are free",
    blockers=(
        Blocker(Reason.INSUFFICIENT_RESOURCES, 1, GPU, "4", "2"),
        Blocker(Reason.TAINT_NOT_TOLERATED, 2, detail="dedicated=inference:NoSchedule"),
    ),
    nearest=NearMiss("box", "2 nvidia.com/gpu"),
    holders=("default/train",),
    position=1,
    estimate_seconds=300.0,
    remedies=("windlass run --gpus 2 …",),
    nodes_considered=3,
)
NEVER = Explanation(
    Reason.EXCEEDS_EVERY_NODE,
    "one pod needs 16 nvidia.com/gpu; the largest node has 4",
    blockers=(Blocker(Reason.EXCEEDS_EVERY_NODE, 3, GPU, "16", "4"),),
    position=2,
    ahead=("default/big",),
    remedies=("windlass node add-simulated --gpus 16",),
    nodes_considered=3,
)


def explain(cluster: FakeCluster, name: str, record: Explanation) -> None:
    for (resource, _, _), obj in cluster.objects.items():
        if resource is POD_GROUPS and obj["metadata"]["name"].startswith(f"{name}-uid"):
            notes = obj["metadata"].setdefault("annotations", {})
            notes[names.EXPLANATION] = json.dumps(record.as_dict())


def busy() -> FakeCluster:
    """Running, waiting, hopeless, failed and completed jobs; a bare pod with a placeholder."""
    cluster = FakeCluster()
    cluster.add(QUEUES, queue("root"))
    cluster.add(QUEUES, queue("default"))
    cluster.add(
        QUEUES,
        queue(
            "research",
            weight=3,
            priority=10,
            capability={GPU: "8", "cpu": "32"},
            deserved={GPU: "4"},
            guarantee={"resource": {GPU: "2"}},
        ),
    )
    cluster.add(QUEUES, queue("night", state="Closed", parent="research"))
    for name in ("box", "sim-2", "sim-10"):
        cluster.add(NODES, node(name, 4))
    job(cluster, "train", phase="Running", replicas=2)
    pod(cluster, "train", 0, node="box", phase="Running", devices="0")
    pod(cluster, "train", 1, node="box", phase="Running", devices="1")
    job(cluster, "big", phase="Pending", gpus=4, queue="research")
    pod(cluster, "big", 0)
    explain(cluster, "big", WAITING)
    job(cluster, "huge", phase="Pending", gpus=16, queue="research")
    explain(cluster, "huge", NEVER)
    job(cluster, "crash", phase="Terminated", replicas=2)
    pod(cluster, "crash", 0, node="sim-2", phase="Failed", exit_code=143)
    pod(cluster, "crash", 1, node="sim-2", phase="Failed", exit_code=3)
    job(cluster, "hello", phase="Completed", gpus=0)
    pod(cluster, "hello", 0, node="box", phase="Succeeded", exit_code=0, gpus=0)
    cluster.add(
        PODS,
        {
            "metadata": {"name": "bare", "annotations": {names.PLACEHOLDER: "main"}},
            "spec": {"containers": [container(1)], "nodeName": "sim-10"},
            "status": {
                "phase": "Running",
                "containerStatuses": [{"name": "main", "state": {"running": {}}}],
            },
        },
    )
    return cluster
