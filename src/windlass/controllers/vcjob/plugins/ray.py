"""Plugin ``ray``: a Ray cluster of a head task and a worker task.

It replaces the commands of the container ``head`` in the head task and of the container
``worker`` in the worker task by ``ray start``. The Service ``<job>-head-svc`` gives
access to the ports of the head. Other containers are left unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.api import annotations as names
from windlass.controllers.vcjob.plugins.position import (
    PodPosition,
    Value,
    containers,
    host_name,
    open_port,
    parse_flags,
)
from windlass.controllers.vcjob.spec import JobSpec

_DEFAULTS: dict[str, Value] = {
    "head": "head",
    "headContainer": "head",
    "worker": "worker",
    "workerContainer": "worker",
    "port": 6379,
    "dashboardPort": 8265,
    "clientPort": 10001,
}
_PORTS = (("gcs", "port"), ("dashboard", "dashboardPort"), ("client-server", "clientPort"))
"""Name of a port, and its flag."""


def service_name(spec: JobSpec) -> str:
    return f"{spec.name}-head-svc"


def problems(arguments: Sequence[str]) -> list[str]:
    return parse_flags(arguments, _DEFAULTS)[1]


def decorate(pod: dict[str, Any], position: PodPosition, arguments: Sequence[str]) -> None:
    spec, task = position.spec, position.task
    flags, _ = parse_flags(arguments, _DEFAULTS)
    head = spec.task(str(flags["head"]))
    if head is None:
        return
    for container in containers(pod, init=False):
        if task.name == head.name and container.get("name") == flags["headContainer"]:
            for name, flag in _PORTS:
                open_port(container, name, int(flags[flag]))
            container["command"] = ["sh", "-c", _head_command(flags)]
        if task.name == flags["worker"] and container.get("name") == flags["workerContainer"]:
            address = f"{host_name(spec, head, 0)}:{flags['port']}"
            container["command"] = ["sh", "-c", f"ray start --block --address={address}"]


def objects(spec: JobSpec, arguments: Sequence[str], keys: object) -> list[dict[str, Any]]:
    """Return the Service of the head, without its owner."""
    flags, _ = parse_flags(arguments, _DEFAULTS)
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": service_name(spec), "namespace": spec.namespace},
            "spec": {
                "selector": {
                    names.JOB_NAME: spec.name,
                    names.JOB_NAMESPACE: spec.namespace,
                    names.TASK_SPEC: str(flags["head"]),
                },
                "ports": [
                    {"name": name, "port": int(flags[flag]), "targetPort": name, "protocol": "TCP"}
                    for name, flag in _PORTS
                ],
            },
        }
    ]


def _head_command(flags: dict[str, Value]) -> str:
    return (
        f"ray start --head --block --dashboard-host=0.0.0.0 --port={flags['port']} "
        f"--dashboard-port={flags['dashboardPort']} --ray-client-server-port={flags['clientPort']}"
    )
