"""Environment that each kind gives to its pods, compared with the training operator's."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from windlass.api import annotations as names
from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import JAX_JOBS, PADDLE_JOBS, PYTORCH_JOBS, TF_JOBS, XGBOOST_JOBS, Resource
from windlass.jobs.kubeflow.job import HeldRendezvous, KubeflowJob, read_job
from windlass.jobs.kubeflow.kinds import KINDS
from windlass.jobs.kubeflow.pods import build_pod
from windlass.jobs.members import RolePod
from windlass.jobs.rendezvous.announce import MASTER


def job(resource: Resource, spec: dict[str, Any] | None = None, **replicas: int) -> KubeflowJob:
    fields = FIELDS[resource]
    template = {"spec": {"containers": [{"name": fields.container, "image": "i"}]}}
    obj = {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
        "spec": {
            fields.field: {
                role: {"replicas": count, "template": template} for role, count in replicas.items()
            },
            **(spec or {}),
        },
    }
    return read_job(KINDS[resource], obj)


def environment(found: KubeflowJob, role: str, index: int) -> dict[str, str]:
    wanted = found.role(role)
    assert wanted is not None
    pod = build_pod(found, wanted, index, "volcano")
    entries = pod["spec"]["containers"][0].get("env") or []
    return {entry["name"]: entry.get("value", "") for entry in entries}


def test_pytorch_with_a_master():
    found = job(PYTORCH_JOBS, {"nprocPerNode": "4"}, Master=1, Worker=2)
    assert environment(found, "Worker", 1) == {
        "PYTHONUNBUFFERED": "1",
        "MASTER_PORT": "23456",
        "PET_MASTER_PORT": "23456",
        "MASTER_ADDR": "j-master-0",
        "PET_MASTER_ADDR": "j-master-0",
        "WORLD_SIZE": "12",
        "RANK": "2",
        "PET_NODE_RANK": "2",
        "NODE_RANK": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NNODES": "3",
    }


def test_pytorch_counts_one_process_for_auto():
    env = environment(job(PYTORCH_JOBS, Master=1, Worker=3), "Master", 0)
    assert (env["WORLD_SIZE"], env["RANK"], env["PET_NPROC_PER_NODE"]) == ("4", "0", "auto")


def test_elastic_pytorch_without_a_master():
    policy = {
        "minReplicas": 2,
        "maxReplicas": 4,
        "maxRestarts": 3,
        "rdzvBackend": "c10d",
        "rdzvId": "run",
        "rdzvConf": [{"key": "last_call_timeout", "value": "5"}, {"key": "join_timeout", "value": "60"}],
    }
    found = job(PYTORCH_JOBS, {"elasticPolicy": policy}, Worker=3)
    assert environment(found, "Worker", 2) == {
        "PYTHONUNBUFFERED": "1",
        "PET_NPROC_PER_NODE": "auto",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "j-worker-0:23456",
        "PET_NNODES": "2:4",
        "PET_MAX_RESTARTS": "3",
        "PET_RDZV_ID": "run",
        "PET_RDZV_CONF": "last_call_timeout=5,join_timeout=60",
        "PET_MONITOR_INTERVAL": "0.5",
    }
    assert found.definition.min_available == 2


@pytest.mark.parametrize(
    ("policy", "bounds"),
    [
        ({}, "3:3"),
        ({"minReplicas": 2}, "2:2"),
        ({"maxReplicas": 5}, "5:5"),
        ({"minReplicas": 1, "maxReplicas": 8}, "1:8"),
    ],
)
def test_bounds_that_are_not_set(policy, bounds):
    env = environment(job(PYTORCH_JOBS, {"elasticPolicy": policy}, Worker=3), "Worker", 0)
    assert env["PET_NNODES"] == bounds


def test_tf_config():
    found = job(TF_JOBS, Chief=1, PS=1, Worker=2, Evaluator=1)
    config = json.loads(environment(found, "Worker", 1)["TF_CONFIG"])
    assert config == {
        "cluster": {
            "chief": ["j-chief-0.ns.svc:2222"],
            "ps": ["j-ps-0.ns.svc:2222"],
            "worker": ["j-worker-0.ns.svc:2222", "j-worker-1.ns.svc:2222"],
            "evaluator": ["j-evaluator-0.ns.svc:2222"],
        },
        "task": {"type": "worker", "index": 1},
        "environment": "cloud",
    }


def test_tf_config_is_absent_for_a_single_replica():
    assert environment(job(TF_JOBS, Worker=1), "Worker", 0) == {}


def test_tf_config_of_dynamic_workers_names_the_own_host_only():
    found = job(TF_JOBS, {"enableDynamicWorker": True}, PS=2, Worker=2)
    worker = json.loads(environment(found, "Worker", 1)["TF_CONFIG"])
    assert worker["cluster"] == {
        "worker": {"1": "j-worker-1.ns.svc:2222"},
        "ps": ["j-ps-0.ns.svc:2222", "j-ps-1.ns.svc:2222"],
    }
    server = json.loads(environment(found, "PS", 1)["TF_CONFIG"])
    assert server["cluster"] == {"worker": {}, "ps": ["j-ps-1.ns.svc:2222"]}


def test_tf_config_goes_to_the_main_container_only():
    found = job(TF_JOBS, Worker=2)
    role = found.role("Worker")
    assert role is not None
    role.template["spec"]["containers"].append({"name": "sidecar", "image": "i"})
    containers = build_pod(found, role, 0, "volcano")["spec"]["containers"]
    assert [bool(container.get("env")) for container in containers] == [True, False]


def test_xgboost():
    assert environment(job(XGBOOST_JOBS, Master=1, Worker=2), "Worker", 1) == {
        "MASTER_PORT": "9999",
        "MASTER_ADDR": "j-master-0",
        "WORLD_SIZE": "3",
        "RANK": "2",
        "PYTHONUNBUFFERED": "1",
        "WORKER_PORT": "9999",
        "WORKER_ADDRS": "j-worker-0,j-worker-1",
    }


@pytest.mark.parametrize(
    ("replicas", "role", "index", "expected"),
    [
        ({"Worker": 2}, "Worker", 0, {"PADDLE_MASTER": "$(POD_IP_DUMMY):36543"}),
        ({"Worker": 2}, "Worker", 1, {"PADDLE_MASTER": "j-worker-0:36543"}),
        (
            {"Master": 1, "Worker": 2},
            "Master",
            0,
            {"PADDLE_MASTER": "$(POD_IP_DUMMY):36543", "PADDLE_SERVER_NUM": "1"},
        ),
        (
            {"Master": 1, "Worker": 2},
            "Worker",
            0,
            {"PADDLE_MASTER": "j-master-0:36543", "PADDLE_TRAINER_NUM": "1"},
        ),
    ],
)
def test_paddle(replicas, role, index, expected):
    env = environment(job(PADDLE_JOBS, **replicas), role, index)
    env.pop("POD_IP_DUMMY", None)
    assert env == {
        "PADDLE_JOB_ID": "j",
        "PADDLE_NNODES": str(sum(replicas.values())),
        "PYTHONUNBUFFERED": "1",
        **expected,
    }


def test_jax():
    assert environment(job(JAX_JOBS, Worker=2), "Worker", 1) == {
        "PYTHONUNBUFFERED": "1",
        "COORDINATOR_PORT": "6666",
        "COORDINATOR_ADDRESS": "j-worker-0",
        "NUM_PROCESSES": "2",
        "PROCESS_ID": "1",
    }


def test_keys_of_roles_are_compared_without_case():
    found = job(PYTORCH_JOBS, master=1, WORKER=1)
    assert [role.name for role in found.definition.roles] == ["Master", "Worker"]


def test_port_of_the_template_is_used():
    found = job(PYTORCH_JOBS, Master=1, Worker=1)
    role = found.role("Master")
    assert role is not None
    role.template["spec"]["containers"][0]["ports"] = [{"name": "pytorchjob-port", "containerPort": 29500}]
    assert environment(found, "Worker", 0)["MASTER_PORT"] == "29500"


def test_a_rendezvous_that_is_left_to_torchrun():
    policy = {"minReplicas": 2, "maxReplicas": 4}
    told = job(PYTORCH_JOBS, {"elasticPolicy": policy}, Worker=3)
    assert told.kind.rendezvous(told) == HeldRendezvous(23456)
    etcd = job(PYTORCH_JOBS, {"elasticPolicy": {**policy, "rdzvBackend": "etcd-v2"}}, Worker=3)
    elsewhere = job(PYTORCH_JOBS, {"elasticPolicy": {**policy, "rdzvHost": "etcd"}}, Worker=3)
    definition = replace(told.definition, annotations={"windlass.dev/rendezvous": "off"})
    for left in (etcd, elsewhere, replace(told, definition=definition)):
        assert left.kind.rendezvous(left) is None
        assert "PET_MONITOR_INTERVAL" not in environment(left, "Worker", 0)


def test_a_master_takes_part_in_the_rendezvous_as_rank_zero():
    policy = {"minReplicas": 2, "maxReplicas": 4}
    found = job(PYTORCH_JOBS, {"elasticPolicy": policy}, Master=1, Worker=4)
    assert found.kind.rendezvous(found) == HeldRendezvous(23456, "", "Worker", 0)
    assert environment(found, "Master", 0)["PET_RDZV_ENDPOINT"] == "j-worker-0:23456"
    assert "PET_MONITOR_INTERVAL" in environment(found, "Master", 0)
    pods = [RolePod(f"j-worker-{index}", "u", "Worker", index, "Running", node="n") for index in range(4)]
    assert found.kind.world(found, pods) == {0, 1, 2, 3}
    master = RolePod("j-master-0", "u", "Master", 0, "Running", node="n")
    assert found.kind.world(found, [*pods, master]) == {MASTER, 0, 1, 2}  # torchrun admits four agents


@pytest.mark.parametrize(
    ("host", "place"),
    [
        ("j-master-0", ("Master", 0)),
        ("j-worker-1", ("Worker", 1)),
        ("j-worker-0.default.svc.cluster.local", ("Worker", 0)),
        ("j-worker-9", None),
        ("store.example", None),
    ],
)
def test_rendezvous_is_in_the_pod_that_its_host_names(host: str, place: tuple[str, int] | None):
    policy = {"minReplicas": 2, "maxReplicas": 4, "rdzvHost": host, "rdzvPort": 4000, "rdzvId": "run"}
    found = job(PYTORCH_JOBS, {"elasticPolicy": policy}, Master=1, Worker=3)
    held = found.kind.rendezvous(found)
    assert held == (HeldRendezvous(4000, "run", *place) if place else None)
    assert environment(found, "Worker", 1)["PET_RDZV_ENDPOINT"] == f"{host}:4000"
    pods = {
        (role.name, index): build_pod(found, role, index, "windlass")["metadata"]["annotations"]
        for role in found.definition.roles
        for index in range(role.replicas)
    }
    assert [key for key, notes in pods.items() if names.RENDEZVOUS in notes] == ([place] if place else [])
