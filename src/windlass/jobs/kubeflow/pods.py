"""Pods, Services and the PodGroup of a ``kubeflow.org/v1`` job.

Each pod has a headless Service of its own name, as in the training operator, so the
pods find one another by name. Published manifests often contain small mistakes that
this module corrects in the pods, never in the object: ``jobs.kubeflow.advice`` names
each of them to the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api import annotations as names
from windlass.api import owner_references
from windlass.api.fields.kubeflow import (
    JOB_NAME,
    JOB_ROLE,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    lent_volumes,
)
from windlass.api.resources import POD_GROUPS
from windlass.jobs.definition import RestartRule, Role
from windlass.jobs.gang import min_resources
from windlass.jobs.kubeflow.job import KubeflowJob
from windlass.jobs.kubeflow.paddle import POD_IP
from windlass.kits.ssh_keys import SshKeyPair

DOLLAR_BRACE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_GIVEN_FIRST = frozenset({"NODE_RANK", "PET_MONITOR_INTERVAL"})
"""Variables that the training operator does not set: the template's value takes precedence."""
_MASTERS = ("Master", "Chief", "Launcher")


def owner_reference(job: KubeflowJob) -> dict[str, Any]:
    return owner_references.owner_reference(job.kind.resource, job.definition.name, job.definition.uid)


def job_labels(job: KubeflowJob) -> dict[str, str]:
    """Return the labels that all objects of the job carry."""
    extras = job.kind.extras
    operator = job.kind.fields.operator if extras is None else extras.operator(job)
    return {OPERATOR_NAME: operator, JOB_NAME: job.definition.name}


def replica_labels(job: KubeflowJob, role: Role, index: int) -> dict[str, str]:
    labels = {**job_labels(job), REPLICA_TYPE: role.key, REPLICA_INDEX: str(index)}
    if role.name == _leading_role(job):
        labels[JOB_ROLE] = "master"
    return labels


def _leading_role(job: KubeflowJob) -> str:
    """Return the role of the pods that carry ``job-role: master``; ``""`` if there is none."""
    return next((role.name for role in job.definition.roles if role.name in _MASTERS), "")


def build_pod(job: KubeflowJob, role: Role, index: int, scheduler: str) -> dict[str, Any]:
    """Return the pod ``<job>-<role>-<index>``. ``scheduler``: used if the job names none."""
    template = role.template.get("metadata") or {}
    labels = {**(template.get("labels") or {}), **replica_labels(job, role, index)}
    stated = job.definition.annotations
    annotations = {
        **{name: stated[name] for name in names.FOR_PODS if name in stated},
        **(template.get("annotations") or {}),
        names.GROUP_NAME: job.definition.name,
        names.TASK_SPEC: role.key,
    }
    rendezvous = job.kind.rendezvous(job)
    if rendezvous is not None and (role.name, index) == (rendezvous.role, rendezvous.index):
        annotations[names.RENDEZVOUS] = "/".join(filter(None, (str(rendezvous.port), rendezvous.run_id)))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": job.definition.pod_name(role, index),
            "namespace": job.definition.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": _pod_spec(job, role, index, scheduler),
    }
    if job.kind.extras is not None:
        job.kind.extras.complete_pod(job, role, index, pod)
    return pod


def _pod_spec(job: KubeflowJob, role: Role, index: int, scheduler: str) -> dict[str, Any]:
    body = dict(role.pod_spec)
    env = job.kind.environment(job, role, index)
    main = job.kind.fields.main_container(role.pod_spec)
    for field in ("containers", "initContainers"):
        if body.get(field):
            body[field] = [dict(container) for container in body[field]]
    for container in body.get("containers") or ():
        is_main = container.get("name") == main.get("name")
        if is_main:
            _declare_port(job, container)
        if is_main or job.kind.every_container:
            _set_environment(container, env)
    body["restartPolicy"] = _restart_policy(role)
    body["schedulerName"] = body.get("schedulerName") or _scheduler_of(job) or scheduler
    if job.definition.gang.priority_class and not body.get("priorityClassName"):
        body["priorityClassName"] = job.definition.gang.priority_class
    if body.get("hostNetwork") and not body.get("dnsPolicy"):
        body["dnsPolicy"] = "ClusterFirstWithHostNet"
    lent = lent_volumes(job.replica_specs, role.name)
    if lent:
        body["volumes"] = [*(body.get("volumes") or ()), *lent]
    return body


def _restart_policy(role: Role) -> str:
    """Return the policy of the pod: Never if the controller replaces pods, not the node."""
    by_controller = role.restart in (RestartRule.EXIT_CODE, RestartRule.REPLACE)
    return "Never" if by_controller else str(role.restart)


def _declare_port(job: KubeflowJob, container: dict[str, Any]) -> None:
    ports = container.get("ports") or []
    if not job.kind.fields.port:
        return
    if not any(port.get("name") == job.kind.fields.port_name for port in ports):
        container["ports"] = [
            *ports,
            {"name": job.kind.fields.port_name, "containerPort": job.kind.fields.port},
        ]


def _set_environment(container: dict[str, Any], env: Sequence[tuple[str, str]]) -> None:
    """Add the variables of the kind, and expand ``${NAME}`` of them in command and arguments.

    They precede those of the template, which may refer to them. A variable that the
    template sets itself keeps the template's value only for :data:`_GIVEN_FIRST`.
    """
    given = list(container.get("env") or ())
    own = {entry.get("name") for entry in given}
    added: list[dict[str, Any]] = []
    if any(f"$({POD_IP})" in value for _, value in env):
        added.append({"name": POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    added += [
        {"name": name, "value": value} for name, value in env if not (name in _GIVEN_FIRST and name in own)
    ]
    replaced = {entry["name"] for entry in added}
    container["env"] = [*added, *(entry for entry in given if entry.get("name") not in replaced)]
    for field in ("command", "args"):
        if container.get(field):
            container[field] = [expanded(str(word), replaced) for word in container[field]]


def expanded(word: str, variables: frozenset[str] | set[str]) -> str:
    """Return a word of a command with ``${NAME}`` of injected variables as ``$(NAME)``.

    Kubernetes expands only the second form.
    """
    return DOLLAR_BRACE.sub(
        lambda match: f"$({match[1]})" if match[1] in variables else match[0],
        word,
    )


def _scheduler_of(job: KubeflowJob) -> str:
    """Return the scheduler that a template of the job names. The pods of a gang need the same one."""
    named = (role.pod_spec.get("schedulerName") for role in job.definition.roles)
    return next((name for name in named if name), "")


def build_services(job: KubeflowJob) -> list[dict[str, Any]]:
    """Return the Services of the job: one for each pod, unless the kind has others."""
    if job.kind.extras is not None:
        return job.kind.extras.services(job)
    return [build_service(job, role, index) for role, index in job.definition.pods()]


def build_objects(job: KubeflowJob, keys: SshKeyPair | None) -> list[dict[str, Any]]:
    """Return the ConfigMaps and Secrets of the job."""
    extras = job.kind.extras
    found = extras.objects(job, keys) if extras is not None else []
    for obj in found:
        obj["metadata"] = {
            "namespace": job.definition.namespace,
            "labels": job_labels(job),
            "ownerReferences": [owner_reference(job)],
            **obj["metadata"],
        }
    return found


def build_service(job: KubeflowJob, role: Role, index: int) -> dict[str, Any]:
    """Return the headless Service of a pod. It resolves before the pod is ready."""
    labels = replica_labels(job, role, index)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": job.definition.pod_name(role, index),
            "namespace": job.definition.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": labels,
            "publishNotReadyAddresses": True,
            "ports": _service_ports(job, role),
        },
    }


def _service_ports(job: KubeflowJob, role: Role) -> list[dict[str, Any]]:
    main = job.kind.fields.main_container(role.pod_spec)
    ports: dict[str, int] = {job.kind.fields.port_name: job.port(role)}
    for port in main.get("ports") or ():
        if port.get("name") and port.get("containerPort"):
            ports[port["name"]] = int(port["containerPort"])
    return [{"name": name, "port": number, "targetPort": number} for name, number in ports.items()]


def build_group(job: KubeflowJob, priorities: Mapping[str, int]) -> dict[str, Any]:
    """Return the PodGroup of the job, which has its name. ``priorities``: PriorityClass → value."""
    definition = job.definition
    annotations = {
        name: text for name, text in definition.annotations.items() if name not in names.OF_JOBS_ALONE
    }
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": definition.name,
            "namespace": definition.namespace,
            "labels": dict(definition.labels),
            "annotations": annotations,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": group_spec(job, priorities),
    }


def group_spec(job: KubeflowJob, priorities: Mapping[str, int]) -> dict[str, Any]:
    definition = job.definition
    spec: dict[str, Any] = {
        "minMember": definition.min_available,
        "queue": definition.gang.queue,
        "minResources": dict(definition.gang.min_resources or min_resources(definition, priorities)),
    }
    if definition.gang.min_available is None:
        spec["minTaskMember"] = {role.key: role.minimum for role in definition.roles}
    if definition.gang.priority_class:
        spec["priorityClassName"] = definition.gang.priority_class
    return spec
