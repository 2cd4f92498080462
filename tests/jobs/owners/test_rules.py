"""Gangs by the kind of their top owner: the table of kinds, and declared rules."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.jobs.owners import paths
from windlass.jobs.owners.decision import group_of
from windlass.jobs.owners.rules import MIN_MEMBER, PRIORITY_CLASS, QUEUE, TOPOLOGY_TIER, declared, faults

Json = dict[str, Any]


def owner(version: str, kind: str, **spec: Any) -> Json:
    metadata = {"name": kind.lower(), "uid": f"uid-{kind}"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def pod(**labels: str) -> Json:
    return {"metadata": {"name": "p", "namespace": "default", "uid": "uid-pod", "labels": labels}}


KUBEFLOW = "kubeflow.org/v1"
ROLES = {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}
POLICY = {"schedulingPolicy": {"minAvailable": 2}}
RAY = {"workerGroupSpecs": [{"replicas": 4, "minReplicas": 2, "numOfHosts": 2}, {"replicas": 3}]}
INDEX = "leaderworkerset.sigs.k8s.io/group-index"
PARTS = [
    {"replicas": 2, "template": {"spec": {"parallelism": 3}}},
    {"replicas": 1, "template": {"spec": {"parallelism": 4, "completions": 2}}},
]
MINIMUMS: list[tuple[Json, int]] = [
    (owner(KUBEFLOW, "PyTorchJob", pytorchReplicaSpecs=ROLES), 4),
    (owner(KUBEFLOW, "PyTorchJob", pytorchReplicaSpecs=ROLES, elasticPolicy={"minReplicas": 3}), 3),
    (owner(KUBEFLOW, "PyTorchJob", pytorchReplicaSpecs=ROLES, runPolicy=POLICY), 2),
    (owner(KUBEFLOW, "TFJob", tfReplicaSpecs={"Chief": {}, "Worker": {"replicas": 2}}), 3),
    (owner(KUBEFLOW, "MPIJob", mpiReplicaSpecs={"Launcher": {}, "Worker": {"replicas": 2}}), 3),
    (
        owner(
            "kubeflow.org/v2beta1",
            "MPIJob",
            mpiReplicaSpecs={"Launcher": {}, "Worker": {"replicas": 2}},
            launcherCreationPolicy="WaitForWorkersReady",
        ),
        2,
    ),
    (owner("kubeflow.org/v1", "Notebook"), 1),
    (owner("ray.io/v1", "RayCluster", **RAY), 8),
    (owner("ray.io/v1", "RayJob", rayClusterSpec=RAY), 8),
    (owner("ray.io/v1", "RayJob", clusterSelector={"a": "b"}), 1),
    (owner("ray.io/v1", "RayService", rayClusterConfig={"workerGroupSpecs": [{"suspend": True}]}), 1),
    (owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leaderWorkerTemplate={"size": 5}), 5),
    (owner("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=PARTS), 8),
    (
        owner(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            replicatedJobs=PARTS,
            startupPolicy={"startupPolicyOrder": "InOrder"},
        ),
        6,
    ),
    (owner("apps/v1", "StatefulSet", replicas=3), 1),
    (owner("example.com/v1", "Unknown", replicas=3), 1),
]


def test_minimum_of_each_kind() -> None:
    for top, least in MINIMUMS:
        found = group_of(pod(), [top], {})
        assert (found.owner, found.min_member, found.problems) == (top, least, ()), top


def test_top_owner_decides_and_wrappers_do_not() -> None:
    job = owner("batch/v1", "Job")
    job_set = owner("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=PARTS)
    train = owner("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert group_of(pod(), [job, job_set], {}).owner is job_set
    assert group_of(pod(), [job, job_set, train], {}).owner is job_set
    assert group_of(pod(), [job, owner("batch/v1", "CronJob")], {}).owner is job
    assert group_of(pod(), [owner("argoproj.io/v1alpha1", "Workflow")], {}).owner is None
    assert group_of(pod(), [owner("apps/v1", "ReplicaSet"), owner("apps/v1", "Deployment")], {}).owner is None
    assert group_of(pod(), [], {}).owner is None


def test_replicas_of_a_leader_worker_set_are_gangs_of_their_own() -> None:
    top = owner("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", leaderWorkerTemplate={"size": 2})
    chain = [owner("apps/v1", "StatefulSet"), top]
    assert [group_of(pod(**{INDEX: index}), chain, {}).suffix for index in ("0", "1")] == ["0", "1"]
    ready = owner(
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        leaderWorkerTemplate={"size": 2},
        startupPolicy="LeaderReady",
    )
    assert group_of(pod(**{INDEX: "0"}), [ready], {}).min_member == 1


def test_declared_rule_reads_the_owner() -> None:
    annotations = {
        MIN_MEMBER: "1 + .spec.groups[*].workers",
        PRIORITY_CLASS: ".spec.class",
        QUEUE: ".spec.team",
        TOPOLOGY_TIER: ".spec.tier",
    }
    rule = declared(annotations)
    assert rule is not None
    rules = {("example.com", "Training"): rule}
    top = owner(
        "example.com/v1", "Training", groups=[{"workers": 2}, {"workers": 3}], team="research", tier=2
    ) | {"metadata": {"name": "t", "uid": "u"}}
    found = group_of(pod(), [top], rules)
    assert (found.min_member, found.priority_class, found.queue, found.tier) == (6, "", "research", 2)
    wrong = owner("example.com/v1", "Training", groups=[{"workers": "two"}], **{"class": 5})
    found = group_of(pod(), [wrong], rules)
    assert found.min_member == 1
    assert found.problems == (
        ".spec.groups[*].workers is 'two', not a whole number of at least 0: minMember is 1",
        ".spec.class is 5, not a text: it is ignored",
    )
    empty = group_of(pod(), [owner("example.com/v1", "Training")], rules)
    assert empty.problems == ("1 + .spec.groups[*].workers has no value: minMember is 1",)
    assert declared({"other": "x"}) is None


def test_mistakes_in_a_declared_rule_are_named() -> None:
    assert faults({MIN_MEMBER: ".spec.a + 2"}) == []
    for text in ("spec.a", ".spec.a + ", ".spec[0]", "", ".spec.a[*][*]"):
        ((name, why),) = faults({MIN_MEMBER: text})
        assert name == MIN_MEMBER
        assert "is not a path: write it as .spec.workers" in why
    with pytest.raises(paths.OwnerPathError, match=r"annotation windlass\.dev/queue-path"):
        declared({QUEUE: "team"})


def test_paths_that_a_schema_specifies() -> None:
    items = {"type": "array", "items": {"properties": {"n": {}}}}
    schema = {"properties": {"spec": {"properties": {"groups": items, "free": {"additionalProperties": {}}}}}}
    for path, known in (
        (".spec.groups[*].n", True),
        (".spec.groups[*].m", False),
        (".spec.free.any", True),
        (".status.n", False),
    ):
        assert paths.specified(schema, path) == known, path


def parts(top: Json) -> list[tuple[str, int, int]]:
    return [(part.name, part.size, part.count) for part in group_of(pod(), [top], {}).subgroups]


def test_parts_of_each_kind_have_minima_of_their_own() -> None:
    assert parts(owner(KUBEFLOW, "PyTorchJob", pytorchReplicaSpecs=ROLES)) == [
        ("master", 1, 1),
        ("worker", 3, 1),
    ]
    elastic = owner(KUBEFLOW, "PyTorchJob", pytorchReplicaSpecs=ROLES, elasticPolicy={"minReplicas": 2})
    assert parts(elastic) == [("master", 1, 1), ("worker", 1, 1)]
    assert parts(owner(KUBEFLOW, "PyTorchJob", pytorchReplicaSpecs={"Worker": {"replicas": 2}})) == []
    assert parts(owner(KUBEFLOW, "TFJob", tfReplicaSpecs=ROLES)) == []
    groups = [{"groupName": "small", "minReplicas": 2, "numOfHosts": 2}, {"groupName": "idle", "replicas": 0}]
    ray = {"workerGroupSpecs": groups}
    for top in (
        owner("ray.io/v1", "RayCluster", **ray),
        owner("ray.io/v1", "RayJob", rayClusterSpec=ray),
        owner("ray.io/v1", "RayService", rayClusterConfig=ray),
    ):
        assert parts(top) == [("head", 1, 1), ("workers-small", 4, 1)]
    assert parts(owner("ray.io/v1", "RayJob", clusterSelector={"a": "b"})) == []
    named = [{**part, "name": name} for part, name in zip(PARTS, ("a", "b"), strict=True)]
    assert parts(owner("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=named)) == [
        ("a", 3, 2),
        ("b", 2, 1),
    ]
    ordered = {"replicatedJobs": named, "startupPolicy": {"startupPolicyOrder": "InOrder"}}
    assert parts(owner("jobset.x-k8s.io/v1alpha2", "JobSet", **ordered)) == [("a", 3, 2)]
    template = {"size": 8, "subGroupPolicy": {"subGroupSize": 4}}
    lws = "leaderworkerset.x-k8s.io/v1"
    assert parts(owner(lws, "LeaderWorkerSet", leaderWorkerTemplate=template)) == [("subgroup", 4, 2)]
    ready = {"leaderWorkerTemplate": template, "startupPolicy": "LeaderReady"}
    assert parts(owner(lws, "LeaderWorkerSet", **ready)) == []


def test_pod_gang_of_grove_decides_for_its_pods() -> None:
    gang = owner(
        "scheduler.grove.io/v1alpha1",
        "PodGang",
        podgroups=[{"name": "s-0-prefill", "minReplicas": 2}, {"name": "s-0-decode", "minReplicas": 3}],
        priorityClassName="inference",
    )
    chain = [owner("grove.io/v1alpha1", kind) for kind in ("PodClique", "PodCliqueSet")]
    found = group_of(pod(), [*chain, gang], {})
    assert (found.owner, found.min_member, found.priority_class) == (gang, 5, "inference")
    assert found.subgroups[0].policy == {
        "name": "s-0-prefill",
        "subGroupSize": 2,
        "minSubGroups": 1,
        "labelSelector": {"matchLabels": {"grove.io/podclique": "s-0-prefill"}},
    }
    assert group_of(pod(), chain, {}).owner is None


def test_queue_and_class_come_from_the_policy_or_from_labels_of_an_owner() -> None:
    policy = {"schedulingPolicy": {"queue": "research", "priorityClass": "high"}}
    found = group_of(pod(), [owner(KUBEFLOW, "TFJob", runPolicy=policy)], {})
    assert (found.queue, found.priority_class, found.rule) == ("research", "high", "table")
    inner, outer = owner("jobset.x-k8s.io/v1alpha2", "JobSet"), owner("example.com/v1", "Study")
    outer["metadata"]["labels"] = {"kai.scheduler/queue": "vision", "priorityClassName": "train"}
    found = group_of(pod(), [inner, outer], {})
    assert (found.queue, found.owner_queue, found.owner_class) == ("", "vision", "train")
    assert (found.rule, found.record["kind"]) == ("default", "Study.example.com")
    inner["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "inner"}
    assert group_of(pod(), [inner, outer], {}).owner_queue == "inner"
