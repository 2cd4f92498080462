"""What a pod of a job looks like: names, labels, annotations, volumes, plugins."""

from __future__ import annotations

from typing import Any

import pytest
from vcjob_cluster import build, env_of, spec_of, task

from windlass.controllers.vcjob import pods
from windlass.controllers.vcjob.plugins import svc
from windlass.controllers.vcjob.plugins.position import parse_flags

Json = dict[str, Any]


def test_names_labels_and_annotations() -> None:
    template = task("worker", 4, topologyPolicy="best-effort")
    template["template"]["metadata"] = {"labels": {"mine": "1"}, "annotations": {"note": "2"}}
    spec = spec_of(
        template,
        queue="gold",
        annotations={
            "volcano.sh/preemptable": "true",
            "volcano.sh/jdb-max-unavailable": "1",
            "volcano.sh/jdb-min-available": "2",
            "other": "x",
        },
        labels={"volcano.sh/preemptable": "true", "volcano.sh/cooldown-time": "60s", "other": "x"},
    )
    pod = build(spec, index=3)
    assert pod["metadata"]["name"] == "train-worker-3"
    assert pod["metadata"]["namespace"] == "team"
    assert pod["metadata"]["labels"] == {
        "mine": "1",
        "volcano.sh/task-index": "3",
        "volcano.sh/job-name": "train",
        "volcano.sh/task-spec": "worker",
        "volcano.sh/job-namespace": "team",
        "volcano.sh/queue-name": "gold",
        "volcano.sh/preemptable": "true",
        "volcano.sh/cooldown-time": "60s",
    }
    assert pod["metadata"]["annotations"] == {
        "note": "2",
        "volcano.sh/task-index": "3",
        "volcano.sh/task-spec": "worker",
        "volcano.sh/job-name": "train",
        "volcano.sh/queue-name": "gold",
        "volcano.sh/job-version": "2",
        "volcano.sh/job-retry-count": "1",
        "volcano.sh/template-uid": "train-worker",
        "volcano.sh/numa-topology-policy": "best-effort",
        "volcano.sh/preemptable": "true",
        "volcano.sh/jdb-min-available": "2",
        "scheduling.k8s.io/group-name": "train-u1",
    }
    (owner,) = pod["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "train",
        "uid": "u1",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_partition_label() -> None:
    policy = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}
    assert (
        build(spec_of(task("worker", 4, partitionPolicy=policy)), index=3)["metadata"]["labels"][
            "volcano.sh/partition-id"
        ]
        == "1"
    )


@pytest.mark.parametrize(
    ("in_template", "in_job", "expected"),
    [("", "", "volcano"), ("", "windlass", "windlass"), ("other", "windlass", "other")],
)
def test_scheduler_name(in_template: str, in_job: str, expected: str) -> None:
    one = task()
    if in_template:
        one["template"]["spec"]["schedulerName"] = in_template
    assert build(spec_of(one, schedulerName=in_job))["spec"]["schedulerName"] == expected


def test_restart_policy_of_a_batch_pod() -> None:
    assert build(spec_of(task()))["spec"]["restartPolicy"] == "OnFailure"
    never = task()
    never["template"]["spec"]["restartPolicy"] = "Never"
    assert build(spec_of(never))["spec"]["restartPolicy"] == "Never"


def test_a_priority_class_that_does_not_exist_is_left_out() -> None:
    spec = spec_of(task(), priorityClassName="high")
    assert build(spec, high=10)["spec"]["priorityClassName"] == "high"
    assert "priorityClassName" not in build(spec)["spec"]
    assert pods.classes_not_found(spec, {}) == ["high"]
    assert pods.classes_not_found(spec, {"high": 1}) == []


def test_the_template_is_not_changed() -> None:
    one = task()
    before = str(one)
    spec = spec_of(
        one, plugins={"env": [], "pytorch": []}, volumes=[{"mountPath": "/d", "volumeClaimName": "c"}]
    )
    build(spec)
    build(spec, index=1)
    assert str(one) == before


def test_volumes() -> None:
    claim = {"accessModes": ["ReadWriteOnce"]}
    spec = spec_of(
        task(),
        volumes=[
            {"mountPath": "/data", "volumeClaimName": "mine"},
            {"mountPath": "/again", "volumeClaimName": "mine"},
            {"mountPath": "/out", "volumeClaim": claim},
        ],
    )
    body = build(spec)["spec"]
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in body["volumes"]]
    made = pods.claim_name(spec, 2, spec.volumes[2])
    assert claims == ["mine", made]
    assert made.startswith("train-pvc-")
    assert made == pods.claim_name(spec, 2, spec.volumes[2])
    assert [mount["mountPath"] for mount in body["containers"][0]["volumeMounts"]] == ["/data", "/out"]
    assert [m["name"] for m in body["containers"][0]["volumeMounts"]] == [v["name"] for v in body["volumes"]]


def test_plugin_env() -> None:
    one = task()
    one["template"]["spec"]["initContainers"] = [{"name": "prepare", "image": "x"}]
    body = build(spec_of(one, plugins={"env": []}), index=1)["spec"]
    for container in (body["containers"][0], body["initContainers"][0]):
        assert env_of(container) == {"VK_TASK_INDEX": "1", "VC_TASK_INDEX": "1"}


def test_plugin_svc() -> None:
    spec = spec_of(task("ps", 1), task("my-worker", 2), plugins={"svc": []})
    body = build(spec, "my-worker", 1)["spec"]
    assert (body["hostname"], body["subdomain"]) == ("train-my-worker-1", "train")
    assert body["volumes"] == [{"name": "train-svc", "configMap": {"name": "train-svc"}}]
    container = body["containers"][0]
    assert container["volumeMounts"] == [{"name": "train-svc", "mountPath": "/etc/volcano"}]
    assert env_of(container) == {
        name: {"configMapKeyRef": {"name": "train-svc", "key": name}}
        for name in ("VC_PS_HOSTS", "VC_PS_NUM", "VC_MY_WORKER_HOSTS", "VC_MY_WORKER_NUM")
    }
    hosts, service = svc.objects(spec, [], None)
    assert hosts["data"] == {
        "ps.host": "train-ps-0.train",
        "VC_PS_HOSTS": "train-ps-0.train",
        "VC_PS_NUM": "1",
        "my_worker.host": "train-my-worker-0.train\ntrain-my-worker-1.train",
        "VC_MY_WORKER_HOSTS": "train-my-worker-0.train,train-my-worker-1.train",
        "VC_MY_WORKER_NUM": "2",
    }
    assert service["metadata"] == {"name": "train", "namespace": "team"}
    assert service["spec"] == {
        "clusterIP": "None",
        "selector": {"volcano.sh/job-name": "train", "volcano.sh/job-namespace": "team"},
    }


def test_plugin_svc_arguments() -> None:
    spec = spec_of(task(), plugins={"svc": ["--inject-hosts-env=false"]})
    assert "env" not in build(spec)["spec"]["containers"][0]
    _, service = svc.objects(spec, ["--publish-not-ready-addresses=true"], None)
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert svc.problems(["--disable-network-policy=true"]) == []
    assert svc.problems(["--what=1"]) == ["flag provided but not defined: -what"]


def test_a_host_name_of_the_template_is_one_host() -> None:
    one = task("worker", 3)
    one["template"]["spec"].update(hostname="box", subdomain="net")
    assert svc.hosts(spec_of(one))["VC_WORKER_HOSTS"] == "box.net"


def test_plugin_pytorch() -> None:
    spec = spec_of(task("master", 1), task("worker", 3), task("other", 5), plugins={"pytorch": []})
    common = {"MASTER_ADDR": "train-master-0.train", "MASTER_PORT": "23456", "WORLD_SIZE": "4"}
    expected = [("master", 0, "0"), ("worker", 0, "1"), ("worker", 2, "3"), ("other", 0, None)]
    for name, index, rank in expected:
        body = build(spec, name, index)["spec"]
        env = env_of(body["containers"][0])
        assert {key: env[key] for key in common} == common
        assert env.get("RANK") == rank
        assert body["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 23456}]
        assert body["subdomain"] == "train"  # pytorch brings svc with it


def test_plugin_pytorch_arguments() -> None:
    arguments = ["--master=chief", "--worker", "node", "--port=5000", "--wait-master-enabled"]
    spec = spec_of(task("chief", 1), task("node", 2), plugins={"pytorch": arguments})
    body = build(spec, "node", 1)["spec"]
    env = env_of(body["containers"][0])
    assert env["MASTER_ADDR"] == "train-chief-0.train"
    assert (env["MASTER_PORT"], env["WORLD_SIZE"], env["RANK"]) == ("5000", "3", "2")
    (waiter,) = body["initContainers"]
    assert waiter["name"] == "wait-for-master"
    assert "train-chief-0.train 5000" in waiter["command"][2]
    assert "initContainers" not in build(spec, "chief", 0)["spec"]


def test_plugin_pytorch_without_its_master_does_nothing() -> None:
    spec = spec_of(task("worker", 2), plugins={"pytorch": []})
    assert "RANK" not in env_of(build(spec)["spec"]["containers"][0])


def test_an_open_port_is_not_opened_twice() -> None:
    one = task("master", 1)
    one["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 23456, "name": "mine"}]
    body = build(spec_of(one, plugins={"pytorch": []}), "master")["spec"]
    assert [port["name"] for port in body["containers"][0]["ports"]] == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "values", "problems"),
    [
        ([], {"a": "x", "n": 1, "b": False}, []),
        (["-a=y", "--n=0x10", "--b"], {"a": "y", "n": 16, "b": True}, []),
        (["--b=T", "--a", "z", "rest"], {"a": "z", "n": 1, "b": True}, []),
        (["--n=five"], {"a": "x", "n": 1, "b": False}, ['invalid value "five" for flag -n']),
        (["--n"], {"a": "x", "n": 1, "b": False}, ["flag needs an argument: -n"]),
        (["--b=maybe", "--a=y"], {"a": "x", "n": 1, "b": False}, ['invalid value "maybe" for flag -b']),
    ],
)
def test_flags_of_go(arguments: list[str], values: Json, problems: list[str]) -> None:
    assert parse_flags(arguments, {"a": "x", "n": 1, "b": False}) == (values, problems)
