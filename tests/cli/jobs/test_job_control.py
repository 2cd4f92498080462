"""``windlass suspend``, ``resume``, ``requeue`` and ``scale`` on each kind of job."""

from __future__ import annotations

import json
from typing import Any

import example_cluster
import pytest
from fakecluster import FakeCluster

from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import (
    BATCH_JOBS,
    COMMANDS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JAX_JOBS,
    LEADER_WORKER_SETS,
    PODS,
    PYTORCH_JOBS,
    RAY_CLUSTERS,
    RAY_SERVICES,
    REPLICA_SETS,
    STATEFUL_SETS,
    VOLCANO_JOBS,
    Resource,
)

Json = dict[str, Any]
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.fixture
def cluster() -> FakeCluster:
    found = example_cluster.busy()
    for resource in (PYTORCH_JOBS, JAX_JOBS):
        replicas = {"Worker": {"replicas": 2, "template": TEMPLATE}}
        if resource == PYTORCH_JOBS:
            replicas = {"Master": {"replicas": 1, "template": TEMPLATE}, **replicas}
        spec = {FIELDS[resource].field: replicas}
        found.add(resource, {"metadata": {"name": resource.singular}, "spec": spec})
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": TEMPLATE}
    found.add(BATCH_JOBS, {"metadata": {"name": "indexed"}, "spec": spec})
    return found


def spec_of(cluster: FakeCluster, resource: Resource, name: str) -> Json:
    return cluster.objects[resource, "default", name]["spec"]


def actions(cluster: FakeCluster) -> list[str]:
    return [obj["action"] for (kind, *_), obj in cluster.objects.items() if kind is COMMANDS]


def enter(cluster: FakeCluster, name: str, phase: str, **status: Any) -> None:
    job = cluster.objects[VOLCANO_JOBS, "default", name]
    job["status"] = {**job.get("status", {}), "state": {"phase": phase}, **status}


def test_a_volcano_job_is_suspended_resumed_and_requeued_by_commands(windlass, cluster):
    assert windlass("suspend", "train").out == "train is being suspended\n"
    assert windlass("requeue", "train").out == "train is being requeued\n"
    assert windlass("resume", "train").out == "train is not suspended\n"
    enter(cluster, "train", "Aborted")
    assert windlass("suspend", "train").out == "train is already suspended\n"
    assert windlass("resume", "train").out == "train is being resumed\n"
    assert actions(cluster) == ["AbortJob", "RestartJob", "ResumeJob"]


def test_a_volcano_job_that_would_fail_at_its_next_restart_is_left_alone(windlass, cluster):
    enter(cluster, "train", "Running", retryCount=2)
    for verb in ("suspend", "requeue"):
        done = windlass(verb, "train")
        assert done.code != 0
        assert f"error[WL-JOB-405]: cannot {verb} train" in done.err
        assert "it was restarted 2 times, and fails at the next restart because of maxRetry 3" in done.err
    assert actions(cluster) == []


@pytest.mark.parametrize("resource", [PYTORCH_JOBS, JAX_JOBS, BATCH_JOBS])
def test_other_kinds_are_suspended_by_their_field(windlass, cluster, resource):
    name = "indexed" if resource == BATCH_JOBS else resource.singular

    def suspended() -> Any:
        spec = spec_of(cluster, resource, name)
        return (spec if resource == BATCH_JOBS else spec.get("runPolicy", {})).get("suspend")

    assert windlass("suspend", name).out == f"{name} is being suspended\n"
    assert suspended() is True
    refused = windlass("requeue", name)
    assert "it is suspended" in refused.err
    assert f"windlass resume {name}" in refused.err
    assert windlass("resume", name).out == f"{name} is being resumed\n"
    assert suspended() is False
    assert windlass("requeue", name).out == f"{name} is already waiting\n"


def test_requeue_waits_for_the_end_of_the_old_pods(windlass, cluster):
    labels = {
        "training.kubeflow.org/job-name": "jaxjob",
        "training.kubeflow.org/operator-name": "jaxjob-controller",
    }
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "JAXJob",
        "name": "jaxjob",
        "uid": "u",
        "controller": True,
    }
    metadata = {"name": "jaxjob-worker-0", "labels": labels, "ownerReferences": [owner]}
    pod = {"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    cluster.add(PODS, pod)
    done = windlass("requeue", "jaxjob", "--timeout", "1")
    assert done.code != 0
    assert "error[WL-JOB-504]: 1 pod of jaxjob did not end within 1 s" in done.err
    assert spec_of(cluster, JAX_JOBS, "jaxjob")["runPolicy"] == {"suspend": False}
    written = [body["spec"]["runPolicy"] for verb, _, body in cluster.requests if verb == "PATCH"]
    assert written == [{"suspend": True}, {"suspend": False}]


def test_a_job_that_has_ended_and_a_pod_are_refused(windlass, cluster):
    for verb, words in (("suspend", ()), ("resume", ()), ("requeue", ()), ("scale", ("2",))):
        ended = windlass(verb, "hello", *words)
        assert f"cannot {verb} hello" in ended.err
        assert "it has ended (Completed)" in ended.err
        pod = windlass(verb, "bare", *words)
        assert "it is a Pod, and only a job can be changed so" in pod.err
    assert "WL-JOB-404" in windlass("suspend", "nope").err


def test_scale_of_a_volcano_job_keeps_a_whole_gang_whole(windlass, cluster):
    assert windlass("scale", "train", "3").out == "train has 3 pods now\n"
    spec = spec_of(cluster, VOLCANO_JOBS, "train")
    assert (spec["tasks"][0]["replicas"], spec["minAvailable"]) == (3, 3)
    spec["tasks"].append({"name": "ps", "replicas": 2, "minAvailable": 1, "template": TEMPLATE})
    unclear = windlass("scale", "train", "4")
    assert "it has 2 roles (main, ps), and the number does not say which is meant" in unclear.err
    assert "windlass scale train ps=4" in unclear.err
    assert windlass("scale", "train", "PS=4").out == "train has 7 pods now\n"
    spec = spec_of(cluster, VOLCANO_JOBS, "train")
    assert (spec["tasks"][1]["replicas"], spec["tasks"][1]["minAvailable"], spec["minAvailable"]) == (4, 1, 3)
    assert "it has no role x: its roles are main, ps" in windlass("scale", "train", "x=1").err
    assert "'many' is not a number of pods" in windlass("scale", "train", "many").err


def test_scale_of_kubeflow_and_batch_jobs(windlass, cluster):
    refused = windlass("scale", "pytorchjob", "3")
    assert "running ranks of a PyTorchJob know its size, unless it has spec.elasticPolicy" in refused.err
    spec_of(cluster, PYTORCH_JOBS, "pytorchjob")["elasticPolicy"] = {"minReplicas": 1, "maxReplicas": 4}
    assert windlass("scale", "pytorchjob", "3").out == "pytorchjob has 4 pods now\n"
    replicas = spec_of(cluster, PYTORCH_JOBS, "pytorchjob")["pytorchReplicaSpecs"]
    assert (replicas["Worker"]["replicas"], replicas["Master"]["replicas"]) == (3, 1)
    assert replicas["Worker"]["template"] == TEMPLATE
    assert windlass("suspend", "jaxjob").code == 0
    resumed = "It is suspended, and runs with its new size after: windlass resume jaxjob"
    assert windlass("scale", "jaxjob", "worker=4").out == f"jaxjob has 4 pods now. {resumed}\n"
    assert windlass("scale", "indexed", "5").out == "indexed has 5 pods now\n"
    spec = spec_of(cluster, BATCH_JOBS, "indexed")
    assert (spec["parallelism"], spec["completions"]) == (5, 5)


def test_scale_of_ray_clusters_stays_within_the_bounds_of_the_group(windlass, cluster):
    group = {"groupName": "small", "replicas": 1, "minReplicas": 1, "maxReplicas": 3, "template": TEMPLATE}
    spec = {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": [group]}
    cluster.add(RAY_CLUSTERS, {"metadata": {"name": "ray"}, "spec": spec})
    cluster.add(RAY_SERVICES, {"metadata": {"name": "serve"}, "spec": {"rayClusterConfig": spec}})
    assert windlass("scale", "ray", "2").out == "ray has 3 pods now\n"
    assert spec_of(cluster, RAY_CLUSTERS, "ray")["workerGroupSpecs"][0]["replicas"] == 2
    refused = windlass("scale", "ray", "small=4")
    assert "group small has minReplicas 1 and maxReplicas 3" in refused.err
    assert "the numbers of workers are those of its RayCluster" in windlass("scale", "serve", "2").err
    spec_of(cluster, RAY_CLUSTERS, "ray")["enableInTreeAutoscaling"] = True
    assert "Ray's autoscaler decides the numbers of workers" in windlass("scale", "ray", "2").err
    for name, resource in (("ray", RAY_CLUSTERS), ("serve", RAY_SERVICES)):
        assert windlass("suspend", name).out == f"{name} is being suspended\n"
        assert spec_of(cluster, resource, name)["suspend"] is True


def test_results_as_json(windlass):
    (item,) = json.loads(windlass("suspend", "train", "-o", "json").out)["items"]
    assert item == {"name": "train", "namespace": "default", "kind": "Job", "result": "is being suspended"}
    assert json.loads(windlass("scale", "train", "2", "-o", "json").out)["roles"] == {"": 2}
    assert windlass("requeue", "train", "-o", "name").out == "job/train\n"


def test_workload_without_end_changes_its_size_only(windlass, cluster):
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
    for resource in (DEPLOYMENTS, STATEFUL_SETS):
        name = resource.singular
        cluster.add(resource, {"metadata": {"name": name}, "spec": spec})
        assert windlass("scale", name, "3").out == f"{name} has 3 pods now\n"
        assert spec_of(cluster, resource, name)["replicas"] == 3
        assert "has no roles: give the number alone" in windlass("scale", name, "worker=3").err
        remedies = {
            "suspend": f"windlass scale {name} 0",
            "resume": f"windlass scale {name} 1",
            "requeue": f"kubectl rollout restart {name} {name}",
        }
        for verb, remedy in remedies.items():
            done = windlass(verb, name)
            assert done.code != 0
            assert f"try: {remedy}" in done.err


def test_remedies_of_other_workloads_are_commands_that_exist(windlass, cluster):
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE}
    groups = {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": TEMPLATE}}
    cluster.add(REPLICA_SETS, {"metadata": {"name": "rs"}, "spec": spec})
    cluster.add(DAEMON_SETS, {"metadata": {"name": "ds"}, "spec": spec})
    cluster.add(LEADER_WORKER_SETS, {"metadata": {"name": "lws"}, "spec": groups})
    for name, verb, remedy in (
        ("rs", "requeue", "windlass scale rs 1"),
        ("ds", "requeue", "kubectl rollout restart daemonset ds"),
        ("ds", "suspend", "windlass delete daemonset ds"),
        ("lws", "requeue", "kubectl delete pods -l leaderworkerset.sigs.k8s.io/name=lws"),
    ):
        assert f"try: {remedy}" in windlass(verb, name).err


def test_the_completions_of_a_job_limit_its_pods(windlass, cluster):
    spec_of(cluster, BATCH_JOBS, "indexed")["completionMode"] = "NonIndexed"
    assert windlass("scale", "indexed", "5").out == (
        "indexed has 2 pods now: spec.completions is 2, and no more run at once (spec.parallelism is 5)\n"
    )
    assert windlass("scale", "indexed", "2").out == "indexed has 2 pods now\n"


def test_what_is_not_a_number_of_pods_is_told(windlass, cluster):
    for given, words in (("-1", "'-1' is not a number of pods"), ("--foo", "there is no option --foo")):
        done = windlass("scale", "indexed", given)
        assert done.code == 2
        assert words in done.err
