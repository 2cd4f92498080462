"""Workloads of ``apps/v1`` in the list of jobs: one line each, whatever creates the pods."""

from __future__ import annotations

from typing import Any

from windlass.cli.jobs.job_index import assemble
from windlass.cli.jobs.jobs import Job, rank_of
from windlass.cli.jobs.reasons import brief, serving_text, waiting_pods

Json = dict[str, Any]


def workload(kind: str, name: str, owner: Json | None = None, **more: Any) -> Json:
    template = {
        "metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "serving"}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
    }
    metadata: Json = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if owner is not None:
        metadata["ownerReferences"] = [reference(owner)]
    selector = {"matchLabels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"replicas": 3, "selector": selector, "template": template, **more.pop("spec", {})},
        **more,
    }


def reference(owner: Json) -> Json:
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def pod(name: str, owner: Json, **labels: str) -> Json:
    metadata = {"name": name, "namespace": "default", "ownerReferences": [reference(owner)], "labels": labels}
    return {"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}


def found(*objects: Json, pods: tuple[Json, ...] = ()) -> dict[str, Job]:
    return {job.name: job for job in assemble(objects, (), pods)}


def test_pods_of_replica_sets_belong_to_the_deployment() -> None:
    deployment = workload("Deployment", "web", status={"readyReplicas": 2})
    old, new = (workload("ReplicaSet", f"web-{at}", deployment) for at in "ab")
    jobs = found(deployment, old, new, pods=(pod("p", old), pod("q", new), pod("r", new)))
    assert list(jobs) == ["web"]
    web = jobs["web"]
    assert (web.kind, web.state, web.members, len(web.pods)) == ("Deployment", "Running", 3, 3)
    assert (web.queue, web.gpus, web.finished) == ("serving", "6", False)
    assert web.definition is not None
    assert web.definition.pods_of(web.obj) == "app=web"


def test_replica_set_without_deployment_is_shown() -> None:
    bare = workload("ReplicaSet", "bare", status={"readyReplicas": 1})
    assert list(found(bare, pods=(pod("p", bare),))) == ["bare"]


def test_states_of_workloads() -> None:
    cases: list[tuple[Json, str, int]] = [
        (workload("Deployment", "w"), "Pending", 3),
        (workload("Deployment", "w", status={"readyReplicas": 1}), "Running", 3),
        (workload("StatefulSet", "w", spec={"replicas": 0}), "Idle", 0),
        (workload("DaemonSet", "w", status={"desiredNumberScheduled": 0}), "Idle", 0),
        (workload("DaemonSet", "w", status={"desiredNumberScheduled": 2, "numberReady": 2}), "Running", 2),
    ]
    for obj, state, members in cases:
        job = found(obj)["w"]
        assert (job.state, job.members, job.finished) == (state, members, False), obj
        assert job.idle is (state == "Idle")


def test_rank_of_a_stateful_pod_is_its_ordinal() -> None:
    owner = workload("StatefulSet", "db")
    assert rank_of(pod("db-1", owner, **{"apps.kubernetes.io/pod-index": "1"})) == "1"


def test_pods_that_wait_are_told_of_a_running_workload() -> None:
    deployment = workload("Deployment", "web", status={"readyReplicas": 1})
    replicas = workload("ReplicaSet", "web-a", deployment)
    waiting = pod("q", replicas)
    waiting["spec"] = {}
    condition = {"type": "PodScheduled", "status": "False", "message": "no GPU is free"}
    waiting["status"] = {"phase": "Pending", "conditions": [condition]}
    web = found(deployment, replicas, pods=(pod("p", replicas), waiting))["web"]
    assert brief(web) == "n, 1 of 3 pods ready"
    assert waiting_pods(web) == "q: no GPU is free"
    assert serving_text(found(workload("Deployment", "web", status={"readyReplicas": 3}))["web"]) == ""
