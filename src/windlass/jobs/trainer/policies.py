"""Policies of a training runtime: how the processes of each framework find one another.

Sources are the plugins of Kubeflow Trainer 2.3. Unlike there, the variables are set
whether or not the TrainJob has ``spec.trainer``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields import trainer
from windlass.jobs.trainer.runtime import (
    JsonObject,
    RuntimeProblem,
    TrainTemplate,
    containers_of,
    count_of,
    cpus_per_node,
    gpus_per_node,
    pod_of,
    set_count,
    set_variables,
    variable,
)

INDEX_PATH = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
SSH_SECRET = "-mpi-ssh-auth"
HOST_FILE = "-mpi-hostfile"
_HOST_FILE_DIRECTORY = "/etc/mpi"
ELASTIC_BACKEND = "c10d"
CLUSTER_DOMAIN = "cluster.local"


@dataclass(frozen=True, slots=True)
class ElasticNodes:
    """Bounds of the number of nodes of an elastic TrainJob."""

    minimum: int
    maximum: int
    max_restarts: int | None


def apply_policy(found: TrainTemplate) -> None:
    """Apply the policy of the framework. Raises :class:`RuntimeProblem`."""
    for name, apply in _POLICIES.items():
        if name in found.policy:
            apply(found)
            return


def _index(name: str) -> JsonObject:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": INDEX_PATH}}}


def _open_port(container: JsonObject) -> None:
    ports = list(container.get("ports") or ())
    if not any(port.get("containerPort") == trainer.PORT for port in ports):
        container["ports"] = [*ports, {"containerPort": trainer.PORT}]


# torchrun


def elastic_nodes(found: TrainTemplate) -> ElasticNodes | None:
    """Return the bounds of an elastic TrainJob; ``None`` if it is not elastic."""
    policy = (found.policy.get("torch") or {}).get("elasticPolicy")
    main = found.trainer_job()
    if policy is None or main is None:
        return None
    count = count_of(main)
    least = policy.get("minNodes") or policy.get("maxNodes") or count
    most = max(policy.get("maxNodes") or least, least)
    return ElasticNodes(int(least), int(most), policy.get("maxRestarts"))


def processes_per_node(found: TrainTemplate) -> str:
    """Return ``PET_NPROC_PER_NODE``: a number, or ``auto`` or ``gpu`` where each node counts its GPUs."""
    policy = found.policy.get("torch") or {}
    wanted = found.trainer.get("numProcPerNode")
    wanted = policy.get("numProcPerNode") if wanted is None else wanted
    text = "auto" if wanted is None else str(wanted)
    if text == "cpu" or (text == "auto" and not gpus_per_node(found)):
        return str(max(1, cpus_per_node(found)))
    return text


def _torch(found: TrainTemplate) -> None:
    main = found.trainer_job()
    if main is None:
        return
    elastic = elastic_nodes(found)
    nodes = str(count_of(main))
    if elastic is not None:
        set_count(main, elastic.maximum)
        nodes = f"{elastic.minimum}:{elastic.maximum}"
        # The job has succeeded once as many nodes have ended well as it needs at least.
        rule = {"succeededCount": elastic.minimum}
        main["template"]["spec"]["successPolicy"] = {"rules": [rule]}
        metadata = main["template"]["spec"]["template"].setdefault("metadata", {})
        rendezvous = {names.RENDEZVOUS: f"{trainer.PORT}/{found.name}"}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **rendezvous}
    host = found.host(main["name"], 0)
    variables = [
        variable("PET_NNODES", nodes),
        variable("PET_NPROC_PER_NODE", processes_per_node(found)),
        _index("PET_NODE_RANK"),
        variable("PET_MASTER_ADDR", host),
        variable("PET_MASTER_PORT", trainer.PORT),
    ]
    if elastic is not None:
        variables += [
            variable("PET_RDZV_BACKEND", ELASTIC_BACKEND),
            # torchrun serves the rendezvous where this equals the canonical name of its own host.
            variable("PET_RDZV_ENDPOINT", f"{host}.{found.namespace}.svc.{CLUSTER_DOMAIN}:{trainer.PORT}"),
            variable("PET_RDZV_ID", found.name),
        ]
        if elastic.max_restarts is not None:
            variables.append(variable("PET_MAX_RESTARTS", elastic.max_restarts))
    for container in containers_of(main, trainer.NODE):
        set_variables(container, variables)
        _open_port(container)
    _inject(found, variables)


def _inject(found: TrainTemplate, variables: list[JsonObject]) -> None:
    """Set the variables of torchrun in the containers that ``envInjection`` names."""
    injection = (found.policy.get("torch") or {}).get("envInjection") or {}
    for target in injection.get("targets") or ():
        job = found.job(str(target.get("jobName")))
        for name in target.get("containerNames") or ():
            containers = list(containers_of(job, name)) if job is not None else []
            if not containers:
                raise RuntimeProblem(
                    f'envInjection target podSet "{target.get("jobName")}" container "{name}" not found in '
                    "runtime template"
                )
            for container in containers:
                set_variables(container, variables)


# JAX, XGBoost


def _jax(found: TrainTemplate) -> None:
    main = found.trainer_job()
    if main is None:
        return
    variables = [
        variable("JAX_NUM_PROCESSES", count_of(main)),
        _index("JAX_PROCESS_ID"),
        variable("JAX_COORDINATOR_ADDRESS", f"{found.host(main['name'], 0)}:{trainer.PORT}"),
    ]
    for container in containers_of(main, trainer.NODE):
        set_variables(container, variables)
        _open_port(container)


def _xgboost(found: TrainTemplate) -> None:
    main = found.trainer_job()
    if main is None:
        return
    variables = [
        variable("DMLC_TRACKER_URI", found.host(main["name"], 0)),
        variable("DMLC_TRACKER_PORT", trainer.PORT),
        _index("DMLC_TASK_ID"),
        variable("DMLC_NUM_WORKER", count_of(main) * max(1, gpus_per_node(found))),
    ]
    for container in containers_of(main, trainer.NODE):
        set_variables(container, variables)
        _open_port(container)


# MPI


def slots_per_node(found: TrainTemplate) -> int:
    """Return the number of MPI processes of each node."""
    wanted = found.trainer.get("numProcPerNode")
    if isinstance(wanted, int) or (isinstance(wanted, str) and wanted.isdecimal()):
        return int(wanted)
    slots = int((found.policy.get("mpi") or {}).get("numProcPerNode") or 1)
    return max(slots, gpus_per_node(found)) if slots == 1 else slots


def _mpi(found: TrainTemplate) -> None:
    policy = found.policy["mpi"]
    implementation = policy.get("mpiImplementation") or "OpenMPI"
    if implementation != "OpenMPI":
        raise RuntimeProblem(f"mpiImplementation {implementation} is not supported: use OpenMPI")
    wanted = found.trainer.get("numNodes")
    nodes = int(found.policy.get("numNodes") or 1) if wanted is None else int(wanted)
    node = found.job(trainer.NODE)
    if node is not None and trainer.step_of(node) != trainer.TRAINER_STEP:
        set_count(node, max(nodes - 1, 1) if policy.get("runLauncherAsNode") else nodes)
    main = found.trainer_job()
    if main is not None:
        set_count(main, nodes if main["name"] == trainer.NODE else 1)
    for job in found.jobs:
        if job["name"] in (trainer.NODE, trainer.LAUNCHER):
            metadata = job["template"]["spec"]["template"].setdefault("metadata", {})
            metadata["annotations"] = {**(metadata.get("annotations") or {}), names.REMOTE_SHELL: "exec"}
            _mount_keys(found, job, policy.get("sshAuthMountPath") or "/root/.ssh")
        if job["name"] == trainer.LAUNCHER:
            _mount_hosts(found, job)


def _mount_keys(found: TrainTemplate, job: JsonObject, path: str) -> None:
    items = [
        {"key": "ssh-privatekey", "path": "id_rsa", "mode": 0o640},
        {"key": "ssh-publickey", "path": "id_rsa.pub", "mode": 0o644},
        {"key": "ssh-publickey", "path": "authorized_keys", "mode": 0o644},
    ]
    secret = {"secretName": f"{found.name}{SSH_SECRET}", "defaultMode": 0o400, "items": items}
    _add(pod_of(job), "volumes", {"name": "mpi-ssh-auth", "secret": secret})
    for container in containers_of(job, trainer.NODE):
        _add(container, "volumeMounts", {"name": "mpi-ssh-auth", "mountPath": path})


def _mount_hosts(found: TrainTemplate, job: JsonObject) -> None:
    items = [{"key": "hostfile", "path": "hostfile", "mode": 0o444}]
    source = {"name": f"{found.name}{HOST_FILE}", "items": items}
    _add(pod_of(job), "volumes", {"name": "mpi-hostfile", "configMap": source})
    path = f"{_HOST_FILE_DIRECTORY}/hostfile"
    slots = slots_per_node(found)
    variables = [
        variable("OMPI_MCA_orte_default_hostfile", path),
        variable("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
        variable("OMPI_MCA_orte_set_default_slots", slots),
        variable("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"),
        # The same for Open MPI 5, which starts its processes by PRRTE.
        variable("PRTE_MCA_prte_default_hostfile", path),
        variable("PRTE_MCA_prte_keep_fqdn_hostnames", "true"),
        variable("PRTE_MCA_prte_set_default_slots", slots),
        variable("PRTE_MCA_plm_ssh_args", "-o ConnectionAttempts=10"),
    ]
    for container in containers_of(job, trainer.NODE):
        _add(container, "volumeMounts", {"name": "mpi-hostfile", "mountPath": _HOST_FILE_DIRECTORY})
        set_variables(container, variables)


def _add(target: JsonObject, field: str, item: JsonObject) -> None:
    """Add an item to a list, instead of one of the same name."""
    target[field] = [
        *(entry for entry in target.get(field) or () if entry.get("name") != item["name"]),
        item,
    ]


def host_file(found: TrainTemplate) -> str:
    """Return the lines of the MPI host file; empty if the job does not use MPI."""
    policy = found.policy.get("mpi")
    if policy is None:
        return ""
    slots = slots_per_node(found)
    lines = []
    for job in found.jobs:
        if job["name"] == trainer.NODE or (
            job["name"] == trainer.LAUNCHER and policy.get("runLauncherAsNode")
        ):
            lines += [f"{found.host(job['name'], index)} slots={slots}\n" for index in range(count_of(job))]
    return "".join(lines)


_POLICIES: Mapping[str, Callable[[TrainTemplate], None]] = {
    "torch": _torch,
    "mpi": _mpi,
    "jax": _jax,
    "xgboost": _xgboost,
}


def unenforced(policy: Mapping[str, Any]) -> str:
    """Return the name of a policy that has no effect; empty if there is none."""
    return "flux" if "flux" in policy else ""
