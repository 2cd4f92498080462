"""MPIJob of ``kubeflow.org/v1`` and ``v2beta1``: host file, remote shell, launcher and workers.

The first version starts remote processes by ``kubectl exec`` (``kubexec.sh``), the second one by
SSH with keys from a Secret. On a node of single-node mode both enter the worker through the node
agent (annotation :data:`windlass.api.annotations.REMOTE_SHELL`), unless the worker serves SSH.

Sources: training operator 1.9, ``pkg/controller.v1/mpi``; MPI operator 0.6,
``pkg/controller/mpi_job_controller.go``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields.kubeflow import FIELDS, JOB_NAME, JOB_ROLE, LAUNCHER, OPERATOR_NAME, WORKER
from windlass.api.resources import MPI_JOBS, MPI_JOBS_V2BETA1
from windlass.jobs.definition import CleanPodPolicy, JobDefinition, Json, RestartRule, Role, SuccessRule
from windlass.jobs.kubeflow.job import Environment, KindExtras, KubeflowJob, KubeflowKind
from windlass.jobs.members import RolePod
from windlass.kits.ssh_keys import SshKeyPair

CONFIG_MOUNT = "/etc/mpi"
SSH_MOUNT = "/root/.ssh"
KUBECTL_EXEC = "kubexec.sh"
V1, V2 = MPI_JOBS.version, MPI_JOBS_V2BETA1.version
OPEN_MPI, INTEL, MPICH = "OpenMPI", "Intel", "MPICH"
WAIT_FOR_WORKERS = "WaitForWorkersReady"
_SSH_ARGUMENTS = "-o ConnectionAttempts=10"
_DEFAULT_BACKOFF_LIMIT = 6
"""Default of a ``batch/v1`` Job, which the MPI operator's launcher is."""
_V2_FIELDS = ("sshAuthMountPath", "launcherCreationPolicy", "mpiImplementation", "runLauncherAsWorker")
_DISCOVER, _HOSTS = "discover_hosts.sh", "hostfile"
_CONFIG_VOLUME, _SSH_VOLUME = "mpi-job-config", "ssh-auth"


def version_of(metadata_annotations: Mapping[str, str], spec: Json) -> str:
    """Return the version in which a job was written.

    The server records it. Where a real API server has stored the job, a field that only the second
    version has tells it.
    """
    recorded = metadata_annotations.get(names.WRITTEN_AS, "")
    if recorded in (V1, V2):
        return recorded
    return V2 if any(spec.get(field) for field in _V2_FIELDS) else V1


def _version(job: KubeflowJob) -> str:
    return version_of(job.definition.annotations, job.spec)


def is_first_version(job: KubeflowJob) -> bool:
    """Return whether a job was written for the training operator's MPIJob of version ``v1``."""
    return _version(job) == V1


def _slots(job: KubeflowJob) -> int:
    slots = job.spec.get("slotsPerWorker")
    return 1 if slots is None else int(slots)


def _implementation(job: KubeflowJob) -> str:
    return job.spec.get("mpiImplementation") or OPEN_MPI


def _launcher_works(job: KubeflowJob) -> bool:
    return bool(job.spec.get("runLauncherAsWorker"))


# Definition.


def _success(roles: Mapping[str, Role], _spec: Json) -> tuple[SuccessRule, ...]:
    return (SuccessRule((LAUNCHER,)),)


def _adjust(definition: JobDefinition, spec: Json) -> JobDefinition:
    """Give the launcher its name without index and, in the second version, its own back-off."""
    second = version_of(definition.annotations, spec) == V2
    run = definition.run
    if second and run.backoff_limit is None:
        run = replace(run, backoff_limit=_DEFAULT_BACKOFF_LIMIT)
    if not (spec.get("runPolicy") or {}).get("cleanPodPolicy") and spec.get("cleanPodPolicy"):
        run = replace(run, clean_pods=CleanPodPolicy(spec["cleanPodPolicy"]))
    gang = definition.gang
    workers = sum(role.minimum for role in definition.roles if role.name == WORKER)
    if (
        second
        and spec.get("launcherCreationPolicy") == WAIT_FOR_WORKERS
        and gang.min_available is None
        and workers
    ):
        gang = replace(gang, min_available=workers)  # the launcher does not exist when the gang starts
    roles = tuple(_adjusted(role, second) for role in definition.roles)
    return replace(definition, run=run, gang=gang, roles=roles)


def _adjusted(role: Role, second: bool) -> Role:
    if role.name != LAUNCHER:
        return role
    replaced = second and role.restart is RestartRule.NEVER
    return replace(role, numbered=False, restart=RestartRule.REPLACE if replaced else role.restart)


def _may_create(job: KubeflowJob, role: Role, pods: Sequence[RolePod]) -> bool:
    if role.name != LAUNCHER or job.spec.get("launcherCreationPolicy") != WAIT_FOR_WORKERS:
        return True
    worker = job.role(WORKER)
    ready = sum(pod.ready and pod.running for pod in pods if pod.role == WORKER)
    return worker is None or ready >= worker.replicas


# Environment.


def _environment(job: KubeflowJob, role: Role, _index: int) -> Environment:
    second = _version(job) == V2
    env: Environment = [("K_MPI_JOB_ROLE", role.key)] if second else []
    if role.name != LAUNCHER:
        return env
    env += _second_environment(job) if second else _first_environment(job)
    if not _launcher_works(job) and not _asks_for_devices(role):
        env += [("NVIDIA_VISIBLE_DEVICES", ""), ("NVIDIA_DRIVER_CAPABILITIES", "")]
    return env


def _asks_for_devices(role: Role) -> bool:
    containers = role.pod_spec.get("containers") or ()
    return any(
        "/gpu" in str(name)
        for container in containers
        for name in ((container.get("resources") or {}).get("limits") or {})
    )


def _first_environment(job: KubeflowJob) -> Environment:
    shell, hosts = f"{CONFIG_MOUNT}/{KUBECTL_EXEC}", f"{CONFIG_MOUNT}/{_HOSTS}"
    return [
        ("OMPI_MCA_plm_rsh_agent", shell),
        ("OMPI_MCA_orte_default_hostfile", hosts),
        ("I_MPI_HYDRA_BOOTSTRAP", "rsh"),
        ("I_MPI_HYDRA_BOOTSTRAP_EXEC", shell),
        ("I_MPI_HYDRA_HOST_FILE", hosts),
    ]


def _second_environment(job: KubeflowJob) -> Environment:
    hosts, implementation = f"{CONFIG_MOUNT}/{_HOSTS}", _implementation(job)
    if implementation == INTEL:
        return [
            ("I_MPI_HYDRA_HOST_FILE", hosts),
            ("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", _SSH_ARGUMENTS),
            ("I_MPI_PERHOST", str(_slots(job))),
        ]
    if implementation == MPICH:
        return [("HYDRA_HOST_FILE", hosts), ("HYDRA_LAUNCH_EXTRA_ARGS", _SSH_ARGUMENTS)]
    return [
        ("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
        ("OMPI_MCA_orte_default_hostfile", hosts),
        ("OMPI_MCA_plm_rsh_args", _SSH_ARGUMENTS),
        ("OMPI_MCA_orte_set_default_slots", str(_slots(job))),
    ]


# Hosts.


def hosts(job: KubeflowJob) -> list[str]:
    """Return the hosts that run processes, in the order of the host file."""
    found = [
        (role, index)
        for role, index in job.definition.pods()
        if role.name == WORKER or (_launcher_works(job) and _version(job) == V2)
    ]
    return [_host(job, role, index) for role, index in found]


def _host(job: KubeflowJob, role: Role, index: int) -> str:
    pod = job.definition.pod_name(role, index)
    if _version(job) == V1:
        return pod
    return f"{pod}.{job.definition.name}.{job.definition.namespace}.svc"


def host_file(job: KubeflowJob) -> str:
    """Return the host file, in the form of the MPI implementation."""
    slots = _slots(job)
    colon = _version(job) == V2 and _implementation(job) in (INTEL, MPICH)
    lines = (f"{host}:{slots}" if colon else f"{host} slots={slots}" for host in hosts(job))
    return "".join(f"{line}\n" for line in lines)


def _discover_script(job: KubeflowJob) -> str:
    return "#!/bin/sh\n" + "".join(f"echo {host}:{_slots(job)}\n" for host in hosts(job))


_KUBECTL_EXEC_SCRIPT = """\
#!/bin/sh
POD_NAME=$1
shift
if command -v windlass-rsh >/dev/null 2>&1; then exec windlass-rsh "${POD_NAME}" "$*"; fi
exec /opt/kube/kubectl exec "${POD_NAME}" -- /bin/sh -c "$*"
"""


def _config_name(job: KubeflowJob) -> str:
    return f"{job.definition.name}-config"


def _secret_name(job: KubeflowJob) -> str:
    return f"{job.definition.name}-ssh"


def _objects(job: KubeflowJob, keys: SshKeyPair | None) -> list[dict[str, Any]]:
    data = {_HOSTS: host_file(job), _DISCOVER: _discover_script(job)}
    if _version(job) == V1:
        data[KUBECTL_EXEC] = _KUBECTL_EXEC_SCRIPT
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _config_name(job)}, "data": data}
    if keys is None or not _needs_keys(job):
        return [config]
    files = {"ssh-privatekey": keys.private, "ssh-publickey": keys.public}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/ssh-auth",
        "metadata": {"name": _secret_name(job)},
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in files.items()},
    }
    return [config, secret]


def _needs_keys(job: KubeflowJob) -> bool:
    return _version(job) == V2


def _services(job: KubeflowJob) -> list[dict[str, Any]]:
    """Return the headless Service of the job, under which all its pods are found."""
    from windlass.jobs.kubeflow.pods import owner_reference

    definition = job.definition
    labels = {OPERATOR_NAME: _operator(job), JOB_NAME: definition.name}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": definition.name,
                "namespace": definition.namespace,
                "labels": labels,
                "ownerReferences": [owner_reference(job)],
            },
            "spec": {"clusterIP": "None", "selector": labels, "publishNotReadyAddresses": True},
        }
    ]


def _operator(job: KubeflowJob) -> str:
    return "mpi-operator" if _version(job) == V2 else job.kind.fields.operator


# Pods.


def _complete_pod(job: KubeflowJob, role: Role, _index: int, pod: dict[str, Any]) -> None:
    second = _version(job) == V2
    metadata, body = pod["metadata"], pod["spec"]
    metadata["labels"][JOB_ROLE] = role.key
    metadata["annotations"][names.REMOTE_SHELL] = "exec"
    body.setdefault("hostname", metadata["name"])
    body.setdefault("subdomain", job.definition.name)
    containers = body.get("containers") or []
    main = job.kind.fields.main_container(body)
    for container in containers:
        if container.get("name") == main.get("name"):
            _mount(job, role, container)
            if role.name == WORKER and not container.get("command") and not container.get("args"):
                container["command"] = ["/usr/sbin/sshd", "-De"] if second else ["sleep", "365d"]
    _add_volumes(job, role, body)


def _mount(job: KubeflowJob, role: Role, container: dict[str, Any]) -> None:
    mounts: list[Json] = list(container.get("volumeMounts") or ())
    if _has_config(job, role):
        mounts.append({"name": _CONFIG_VOLUME, "mountPath": CONFIG_MOUNT})
    if _needs_keys(job):
        mounts.append({"name": _SSH_VOLUME, "mountPath": job.spec.get("sshAuthMountPath") or SSH_MOUNT})
    if mounts:
        container["volumeMounts"] = mounts


def _has_config(job: KubeflowJob, role: Role) -> bool:
    """Return whether the pods of a role have the host file and the scripts.

    In the first version the daemons of workers look for the remote shell, too.
    """
    return role.name == LAUNCHER or _version(job) == V1


def _add_volumes(job: KubeflowJob, role: Role, body: dict[str, Any]) -> None:
    volumes: list[Json] = list(body.get("volumes") or ())
    if _has_config(job, role):
        modes = {_HOSTS: 0o444, _DISCOVER: 0o555}
        if _version(job) == V1:
            modes[KUBECTL_EXEC] = 0o555
        items = [{"key": key, "path": key, "mode": mode} for key, mode in modes.items()]
        volumes.append({"name": _CONFIG_VOLUME, "configMap": {"name": _config_name(job), "items": items}})
    if _needs_keys(job):
        paths = (
            ("ssh-privatekey", "id_rsa"),
            ("ssh-publickey", "id_rsa.pub"),
            ("ssh-publickey", "authorized_keys"),
        )
        items = [{"key": key, "path": path} for key, path in paths]
        source: dict[str, Any] = {"secretName": _secret_name(job), "items": items}
        if (job.spec.get("sshAuthMountPath") or SSH_MOUNT) == SSH_MOUNT:
            source["defaultMode"] = 0o600
        volumes.append({"name": _SSH_VOLUME, "secret": source})
    if volumes:
        body["volumes"] = volumes


MPI_JOB = KubeflowKind(
    fields=FIELDS[MPI_JOBS],
    success=_success,
    environment=_environment,
    every_container=False,
    counts=lambda role, _spec: role == LAUNCHER,
    adjust=_adjust,
    extras=KindExtras(
        operator=_operator,
        complete_pod=_complete_pod,
        services=_services,
        needs_keys=_needs_keys,
        objects=_objects,
        may_create=_may_create,
    ),
)
