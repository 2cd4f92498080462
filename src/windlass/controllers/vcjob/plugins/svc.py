"""Plugin ``svc``: the pods of a job find one another by name.

A headless Service named as the job; host name = pod name, subdomain = job name; a ConfigMap
``<job>-svc``, mounted at ``/etc/volcano``, with ``<task>.host`` (one name per line), and the variables
``VC_<TASK>_HOSTS`` and ``VC_<TASK>_NUM`` taken from it.

Volcano also makes a NetworkPolicy that admits only pods of the same job. That kind is not served, so it
is left out; ``--disable-network-policy`` is understood and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.api import annotations as names
from windlass.controllers.vcjob.plugins.position import (
    PodPosition,
    Value,
    add_env,
    containers,
    host_names,
    parse_flags,
)
from windlass.controllers.vcjob.spec import JobSpec, JobTask

MOUNT_PATH = "/etc/volcano"
_DEFAULTS: dict[str, Value] = {
    "publish-not-ready-addresses": False,
    "disable-network-policy": False,
    "inject-hosts-env": True,
}


def config_map_name(spec: JobSpec) -> str:
    return f"{spec.name}-svc"


def problems(arguments: Sequence[str]) -> list[str]:
    return parse_flags(arguments, _DEFAULTS)[1]


def decorate(pod: dict[str, Any], position: PodPosition, arguments: Sequence[str]) -> None:
    spec, body = position.spec, pod["spec"]
    flags, _ = parse_flags(arguments, _DEFAULTS)
    if not body.get("hostname"):
        body["hostname"] = pod["metadata"]["name"]
    if not body.get("subdomain"):
        body["subdomain"] = spec.name
    name = config_map_name(spec)
    if flags["inject-hosts-env"]:
        variables = [
            {"name": key, "valueFrom": {"configMapKeyRef": {"name": name, "key": key}}}
            for task in spec.tasks
            for key in (_hosts_key(task), _number_key(task))
        ]
        for container in containers(pod, init=True):
            add_env(container, *variables)
    body["volumes"] = [*(body.get("volumes") or ()), {"name": name, "configMap": {"name": name}}]
    for container in containers(pod, init=True):
        mount = {"name": name, "mountPath": MOUNT_PATH}
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]


def objects(spec: JobSpec, arguments: Sequence[str], keys: object) -> list[dict[str, Any]]:
    """The ConfigMap and the Service, without their owner."""
    flags, _ = parse_flags(arguments, _DEFAULTS)
    service_spec: dict[str, Any] = {
        "clusterIP": "None",
        "selector": {names.JOB_NAME: spec.name, names.JOB_NAMESPACE: spec.namespace},
    }
    if flags["publish-not-ready-addresses"]:
        service_spec["publishNotReadyAddresses"] = True
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": config_map_name(spec), "namespace": spec.namespace},
            "data": hosts(spec),
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": spec.name, "namespace": spec.namespace},
            "spec": service_spec,
        },
    ]


def hosts(spec: JobSpec) -> dict[str, str]:
    """``<task>.host``, ``VC_<TASK>_HOSTS`` and ``VC_<TASK>_NUM`` of every task."""
    data: dict[str, str] = {}
    for task in spec.tasks:
        found = host_names(spec, task)
        data[f"{_key(task)}.host"] = "\n".join(found)
        data[_hosts_key(task)] = ",".join(found)
        data[_number_key(task)] = str(len(found))
    return data


def _key(task: JobTask) -> str:
    return task.name.replace("-", "_")


def _hosts_key(task: JobTask) -> str:
    return f"VC_{_key(task).upper()}_HOSTS"


def _number_key(task: JobTask) -> str:
    return f"VC_{_key(task).upper()}_NUM"
