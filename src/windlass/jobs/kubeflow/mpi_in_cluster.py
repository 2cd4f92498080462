"""MPIJob ``v1`` in a cluster: kubectl for the launcher, and the right to enter the workers.

The launcher starts remote processes by ``kubectl exec``. As in the training operator, an
init container delivers ``kubectl``, and the launcher runs with a ServiceAccount of its own
that may enter the workers of its job only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from windlass.api.fields.kubeflow import LAUNCHER, WORKER
from windlass.jobs.definition import Role
from windlass.jobs.kubeflow.job import KubeflowJob, KubeflowKind
from windlass.jobs.kubeflow.mpi import CONFIG_MOUNT, MPI_JOB, is_first_version
from windlass.kits.ssh_keys import SshKeyPair

DELIVERY_IMAGE = "kubeflow/kubectl-delivery:latest"
KUBECTL_MOUNT = "/opt/kube"
_VOLUME, _CONFIG = "mpi-job-kubectl", "mpi-job-config"
_AMOUNTS = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}
"""Resources of the init container, as in the training operator."""
RBAC = "rbac.authorization.k8s.io"
Json = dict[str, Any]


def launcher_name(job: KubeflowJob) -> str:
    """Return the name of the launcher's ServiceAccount, of its Role and of their binding."""
    return f"{job.definition.name}-launcher"


def _own_account(job: KubeflowJob) -> bool:
    """Return whether the launcher needs a ServiceAccount: its template names none."""
    launcher = job.role(LAUNCHER)
    return launcher is not None and not launcher.pod_spec.get("serviceAccountName")


def _objects(job: KubeflowJob, keys: SshKeyPair | None) -> list[Json]:
    assert MPI_JOB.extras is not None
    found = MPI_JOB.extras.objects(job, keys)
    if not is_first_version(job) or not _own_account(job):
        return found
    name, namespace = launcher_name(job), job.definition.namespace
    definition = job.definition
    workers = [definition.pod_name(role, index) for role, index in definition.pods() if role.name == WORKER]
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "resourceNames": workers, "verbs": ["create"]},
    ]
    role = {"apiGroup": RBAC, "kind": "Role", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    metadata = {"name": name}
    return [
        *found,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": dict(metadata)},
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": dict(metadata), "rules": rules},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": dict(metadata),
            "roleRef": role,
            "subjects": [subject],
        },
    ]


def _complete_pod(job: KubeflowJob, role: Role, index: int, pod: Json) -> None:
    assert MPI_JOB.extras is not None
    MPI_JOB.extras.complete_pod(job, role, index, pod)
    if role.name != LAUNCHER or not is_first_version(job):
        return
    body = pod["spec"]
    if _own_account(job):
        body["serviceAccountName"] = launcher_name(job)
    mount = {"name": _VOLUME, "mountPath": KUBECTL_MOUNT}
    main = job.kind.fields.main_container(body)
    for container in body.get("containers") or ():
        if container.get("name") == main.get("name"):
            container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
    delivery = {
        "name": "kubectl-delivery",
        "image": DELIVERY_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "TARGET_DIR", "value": KUBECTL_MOUNT},
            {"name": "NAMESPACE", "value": job.definition.namespace},
        ],
        "volumeMounts": [mount, {"name": _CONFIG, "mountPath": CONFIG_MOUNT}],
        "resources": {"limits": dict(_AMOUNTS), "requests": dict(_AMOUNTS)},
    }
    body["initContainers"] = [*(body.get("initContainers") or ()), delivery]
    body["volumes"] = [*(body.get("volumes") or ()), {"name": _VOLUME, "emptyDir": {}}]


def in_cluster(kind: KubeflowKind) -> KubeflowKind:
    """Return a kind as it is in a cluster."""
    if kind is not MPI_JOB or kind.extras is None:
        return kind
    return replace(kind, extras=replace(kind.extras, objects=_objects, complete_pod=_complete_pod))
