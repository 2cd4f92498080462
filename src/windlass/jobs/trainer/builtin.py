"""Runtimes that are present in single-node mode: those that Kubeflow Trainer installs, and a plain one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.fields import trainer
from windlass.api.resources import CLUSTER_TRAINING_RUNTIMES

JsonObject = dict[str, Any]
_KUBEFLOW_IMAGES = "ghcr.io/kubeflow/trainer"


def _runtime(name: str, framework: str, policy: JsonObject, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": CLUSTER_TRAINING_RUNTIMES.api_version,
        "kind": CLUSTER_TRAINING_RUNTIMES.kind,
        "metadata": {"name": name, "labels": {trainer.FRAMEWORK: framework}},
        "spec": {"mlPolicy": {"numNodes": 1, **policy}, "template": {"spec": spec}},
    }


def _job(name: str, container: JsonObject, *, trains: bool, depends_on: str = "") -> JsonObject:
    template: JsonObject = {
        "spec": {"template": {"spec": {"containers": [{"name": trainer.NODE, **container}]}}}
    }
    if trains:
        template["metadata"] = {"labels": {trainer.ANCESTOR: trainer.TRAINER_STEP}}
    job: JsonObject = {"name": name, "groupName": "default", "replicas": 1, "template": template}
    if depends_on:
        job["dependsOn"] = [{"name": depends_on, "status": "Ready"}]
    return job


def _simple(name: str, framework: str, policy: JsonObject, image: str) -> JsonObject:
    job = _job(trainer.NODE, {"image": image}, trains=True)
    return _runtime(name, framework, policy, {"replicatedJobs": [job]})


def _mpi(framework: str) -> JsonObject:
    image = f"{_KUBEFLOW_IMAGES}/{framework}-runtime"
    policy = {
        "numProcPerNode": 1,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": "/home/mpiuser/.ssh",
        "runLauncherAsNode": True,
    }
    server = {
        "image": image,
        "command": ["/usr/sbin/sshd"],
        "args": ["-De", "-f", "/home/mpiuser/.sshd_config"],
    }
    # Kubeflow's runtimes have a user of their image, and wait until the servers of SSH are ready. Pods of
    # a single machine need neither: the node agent is their remote shell.
    jobs = [
        _job(trainer.NODE, server, trains=False),
        _job(trainer.LAUNCHER, {"image": image}, trains=True, depends_on=trainer.NODE),
    ]
    spec = {
        "network": {"publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [trainer.LAUNCHER]},
        "replicatedJobs": jobs,
    }
    return _runtime(f"{framework}-distributed", framework, {"mpi": policy}, spec)


_ALL = (
    _simple("torch-distributed", "torch", {"torch": {}}, "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"),
    _simple("jax-distributed", "jax", {"jax": {}}, "nvcr.io/nvidia/jax:25.10-py3"),
    _simple("xgboost-distributed", "xgboost", {"xgboost": {}}, f"{_KUBEFLOW_IMAGES}/xgboost-runtime"),
    _simple("plain", "plain", {}, "python:3.12"),
    _mpi("deepspeed"),
    _mpi("mlx"),
)
BUILT_IN: Mapping[str, JsonObject] = {runtime["metadata"]["name"]: runtime for runtime in _ALL}
"""Name → ClusterTrainingRuntime."""
