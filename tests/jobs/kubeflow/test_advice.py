"""Warnings about published manifests, and that the pods are corrected as the warnings say."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.api.resources import PYTORCH_JOBS, TF_JOBS
from windlass.jobs.kubeflow.advice import advice
from windlass.jobs.kubeflow.job import KubeflowJob, read_job
from windlass.jobs.kubeflow.kinds import KINDS
from windlass.jobs.kubeflow.pods import build_pod, expanded


def replica(replicas: int = 1, container: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    main = {"name": "pytorch", "image": "i", **(container or {})}
    return {"replicas": replicas, "template": {"spec": {"containers": [main], **spec}}}


def job(spec: dict[str, Any] | None = None, **roles: dict[str, Any]) -> KubeflowJob:
    obj = {"metadata": {"name": "j", "uid": "u"}, "spec": {"pytorchReplicaSpecs": roles, **(spec or {})}}
    return read_job(KINDS[PYTORCH_JOBS], obj)


def pod_spec(found: KubeflowJob, role: str) -> dict[str, Any]:
    wanted = found.role(role)
    assert wanted is not None
    return build_pod(found, wanted, 0, "volcano")["spec"]


def test_plain_job_has_none():
    assert advice(job(Master=replica(), Worker=replica(2))) == []


def test_variables_in_braces_are_expanded():
    found = job(Master=replica(container={"args": ["--a=${MASTER_ADDR}", "${HOME}", "$(RANK)"]}))
    assert advice(found) == ["alias: ${MASTER_ADDR} in args -> expanded like $(NAME)"]
    assert pod_spec(found, "Master")["containers"][0]["args"] == ["--a=$(MASTER_ADDR)", "${HOME}", "$(RANK)"]


def test_only_named_variables_are_expanded():
    assert expanded("${A}:${B}:$A:$${A}", {"A"}) == "$(A):${B}:$A:$$(A)"


def test_only_container_with_another_name_is_used():
    found = job(Master=replica(container={"name": "train"}))
    assert advice(found) == [
        "alias: Master container is named train, not pytorch -> the only container is used"
    ]
    assert any(entry["name"] == "RANK" for entry in pod_spec(found, "Master")["containers"][0]["env"])


def test_scheduler_of_one_role_is_that_of_all():
    found = job(Master=replica(), Worker=replica(schedulerName="windlass"))
    assert advice(found) == ["default: Master has no schedulerName -> windlass, taken from Worker"]
    assert pod_spec(found, "Master")["schedulerName"] == "windlass"


def test_volume_of_another_role_is_lent():
    volume = {"name": "data", "emptyDir": {}}
    mounted = {"volumeMounts": [{"name": "data", "mountPath": "/d"}]}
    found = job(Master=replica(container=mounted), Worker=replica(volumes=[volume]))
    assert advice(found) == [
        "default: Master mounts volume data but declares none -> volume data taken from Worker"
    ]
    assert pod_spec(found, "Master")["volumes"] == [volume]


def test_port_that_the_workers_name_is_the_masters():
    found = job(
        Master=replica(container={"args": ["--master_port=${MASTER_PORT}"]}),
        Worker=replica(container={"args": ["--master_port=29500"]}),
    )
    assert advice(found)[-1] == (
        "default: MASTER_PORT -> 29500, because the worker args name it "
        "(upstream default 23456 would not match)"
    )
    env = {entry["name"]: entry["value"] for entry in pod_spec(found, "Master")["containers"][0]["env"]}
    assert env["MASTER_PORT"] == "29500"


def test_host_network_resolves_names():
    found = job(Master=replica(), Worker=replica(hostNetwork=True))
    assert advice(found) == [
        "default: hostNetwork without dnsPolicy on Worker -> ClusterFirstWithHostNet, "
        "so that the name of the master resolves",
        "advice: Worker uses the host network, Master does not",
    ]
    assert pod_spec(found, "Worker")["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_fixed_sizes_of_torchrun():
    args = ["torchrun", "--nnodes=2", "--nproc-per-node=8", "--master-addr=j-master-0"]
    gpus = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    found = job(
        {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2}},
        Master=replica(container={"args": args, **gpus}),
        Worker=replica(2),
    )
    assert advice(found) == [
        "advice: 3 pods but --nnodes=2; args are not rewritten",
        "advice: Master has 2 GPUs but --nproc_per_node=8",
        "advice: fixed --nnodes and --master_addr override elasticPolicy, so the job will not resize",
        "advice: elasticPolicy.maxReplicas 2 counts the agents of torchrun, and the Master is one -> "
        "at most 1 of 2 workers take part; raise maxReplicas",
    ]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"rdzvBackend": "etcd"}, "elasticPolicy.rdzvBackend etcd is the job's own"),
        ({"rdzvHost": "store.example"}, "elasticPolicy.rdzvHost store.example is no pod of the job"),
        ({"rdzvHost": "j-worker-1"}, ""),
        ({"standalone": True, "rdzvBackend": "etcd"}, ""),
    ],
)
def test_rendezvous_that_is_not_told_its_world(policy: dict[str, Any], words: str):
    found = advice(job({"elasticPolicy": {"minReplicas": 1, "maxReplicas": 4, **policy}}, Worker=replica(2)))
    assert [words in text and "it waits for its own time-outs" in text for text in found] == [True] * bool(
        words
    )


def test_torchruns_flags_are_no_matter_for_other_kinds():
    spec = {"containers": [{"name": "tensorflow", "image": "i", "args": ["--nnodes=9"]}]}
    obj = {
        "metadata": {"name": "j", "uid": "u"},
        "spec": {"tfReplicaSpecs": {"Worker": {"template": {"spec": spec}}}},
    }
    assert advice(read_job(KINDS[TF_JOBS], obj)) == []
