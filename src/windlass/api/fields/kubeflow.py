"""Fields and names of the job kinds of ``kubeflow.org/v1``, as in the training operator 1.9."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.resources import (
    JAX_JOBS,
    MPI_JOBS,
    PADDLE_JOBS,
    PYTORCH_JOBS,
    TF_JOBS,
    XGBOOST_JOBS,
    Resource,
)

JOB_NAME = "training.kubeflow.org/job-name"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"
MASTER, WORKER = "Master", "Worker"
PS, CHIEF, EVALUATOR = "PS", "Chief", "Evaluator"
LAUNCHER = "Launcher"


@dataclass(frozen=True, slots=True)
class KubeflowFields:
    """Fields and names of one kind.

    ``field``: field of the spec with the replica specs.
    ``roles``: names in the order of their ranks.
    ``single``: roles of at most one pod.
    ``required``: role without which the job is rejected.
    ``container``: name of the container that runs the program.
    ``restart``: default of ``restartPolicy``.
    ``port``: 0 if the pods of the kind need no port.
    ``first_container``: the first container runs the program if none has the name.
    """

    resource: Resource
    field: str
    roles: tuple[str, ...]
    single: tuple[str, ...]
    required: str
    container: str
    port_name: str
    port: int
    restart: str
    first_container: bool = False

    @property
    def operator(self) -> str:
        """Value of the label :data:`OPERATOR_NAME` of its pods."""
        return f"{self.resource.singular}-controller"

    def replica_specs(self, spec: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
        """Return role → replica spec in the order of the ranks. Keys are compared without case."""
        given = spec.get(self.field)
        found = (
            {str(name).lower(): body for name, body in given.items()} if isinstance(given, Mapping) else {}
        )
        return {name: found[name.lower()] or {} for name in self.roles if name.lower() in found}

    def main_container(self, pod_spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the container with the name of the kind, or else the only one; empty if there is neither."""
        containers = [found for found in pod_spec.get("containers") or () if isinstance(found, Mapping)]
        named = next((found for found in containers if found.get("name") == self.container), None)
        if named is not None:
            return named
        return containers[0] if len(containers) == 1 or (containers and self.first_container) else {}


_ALL = (
    KubeflowFields(
        PYTORCH_JOBS,
        "pytorchReplicaSpecs",
        (MASTER, WORKER),
        (MASTER,),
        "",
        "pytorch",
        "pytorchjob-port",
        23456,
        "OnFailure",
    ),
    KubeflowFields(
        TF_JOBS,
        "tfReplicaSpecs",
        (CHIEF, MASTER, PS, WORKER, EVALUATOR),
        (CHIEF, MASTER),
        "",
        "tensorflow",
        "tfjob-port",
        2222,
        "Never",
    ),
    KubeflowFields(
        XGBOOST_JOBS,
        "xgbReplicaSpecs",
        (MASTER, WORKER),
        (MASTER,),
        MASTER,
        "xgboost",
        "xgboostjob-port",
        9999,
        "Never",
    ),
    KubeflowFields(
        PADDLE_JOBS,
        "paddleReplicaSpecs",
        (MASTER, WORKER),
        (MASTER,),
        "",
        "paddle",
        "master",
        36543,
        "OnFailure",
    ),
    KubeflowFields(JAX_JOBS, "jaxReplicaSpecs", (WORKER,), (), WORKER, "jax", "jaxjob-port", 6666, "Never"),
    KubeflowFields(
        MPI_JOBS,
        "mpiReplicaSpecs",
        (LAUNCHER, WORKER),
        (LAUNCHER,),
        LAUNCHER,
        "mpi",
        "",
        0,
        "Never",
        first_container=True,
    ),
)
FIELDS: Mapping[Resource, KubeflowFields] = {entry.resource: entry for entry in _ALL}


def replicas_of(replica_spec: Mapping[str, Any]) -> int:
    """Return the number of pods of a role; 1 if it is not set."""
    replicas = replica_spec.get("replicas")
    return 1 if replicas is None else int(replicas)


def lent_volumes(replica_specs: Mapping[str, Mapping[str, Any]], role: str) -> list[Mapping[str, Any]]:
    """Return the volumes that a role mounts and does not declare, and that another role declares."""
    own = _pod_spec(replica_specs[role])
    declared = {volume.get("name") for volume in own.get("volumes") or ()}
    mounted = {
        mount.get("name")
        for container in own.get("containers") or ()
        for mount in container.get("volumeMounts") or ()
    }
    found: dict[str, Mapping[str, Any]] = {}
    for other, replica_spec in replica_specs.items():
        for volume in _pod_spec(replica_spec).get("volumes") or () if other != role else ():
            if volume.get("name") in mounted - declared:
                found.setdefault(volume["name"], volume)
    return list(found.values())


def _pod_spec(replica_spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return (replica_spec.get("template") or {}).get("spec") or {}
