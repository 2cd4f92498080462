"""Distinct ports for the replicas of a Volcano Job on the host network.

On the host network a container's port is a port of the node, so two replicas with one
port exclude each other from a node. With the annotation
``windlass.dev/host-ports: distinct`` on the template, replica *n* of the job gets each
port of its template raised by *n* times the span of these ports. The first replica
keeps the ports of the template. Containers find their ports in ``HOST_PORT`` (first
port) and ``HOST_PORT_<NAME>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.controllers.vcjob.plugins.position import PodPosition

Json = dict[str, Any]
_MAX_PORT = 65_535
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS = ("httpGet", "tcpSocket", "grpc")


def decorate(pod: Json, position: PodPosition) -> None:
    """Give a pod its own ports, if its template asks for that. Changes ``pod`` in place."""
    notes = pod["metadata"].get("annotations") or {}
    if not pod["spec"].get("hostNetwork") or notes.get(names.HOST_PORTS) != names.HOST_PORTS_DISTINCT:
        return
    declared = [port["containerPort"] for one in _containers(pod) for port in one.get("ports") or ()]
    if not declared:
        return
    step = (max(declared) - min(declared) + 1) * _number(position)
    if max(declared) + step > _MAX_PORT:
        step = 0  # no port is left: the replicas share one port, as without the annotation
    for container in _containers(pod):
        _raise_ports(container, step)


def _containers(pod: Json) -> Iterator[Json]:
    yield from pod["spec"].get("containers") or ()


def _number(position: PodPosition) -> int:
    """Return the number of a replica in its job, over all tasks."""
    before = 0
    for task in position.spec.tasks:
        if task.name == position.task.name:
            break
        before += task.replicas
    return before + position.index


def _raise_ports(container: Json, step: int) -> None:
    ports: list[Mapping[str, Any]] = container.get("ports") or []
    if not ports:
        return
    moved = {port["containerPort"]: port["containerPort"] + step for port in ports}
    container["ports"] = [
        {**port, "containerPort": moved[port["containerPort"]], "hostPort": moved[port["containerPort"]]}
        for port in ports
    ]
    for name in _PROBES:
        if container.get(name):
            container[name] = _moved_probe(container[name], moved)
    first = ports[0]["containerPort"]
    told = {"HOST_PORT": moved[first]}
    for port in ports:
        word = re.sub(r"[^A-Z0-9]", "_", str(port.get("name") or port["containerPort"]).upper())
        told[f"HOST_PORT_{word}"] = moved[port["containerPort"]]
    own = {variable.get("name") for variable in container.get("env") or ()}
    added = [{"name": name, "value": str(number)} for name, number in told.items() if name not in own]
    container["env"] = [*added, *(container.get("env") or ())]  # first: other values may refer to them


def _moved_probe(probe: Mapping[str, Any], moved: Mapping[int, int]) -> Json:
    """Return the probe with the container's new port."""
    changed = dict(probe)
    for handler in _HANDLERS:
        action = probe.get(handler)
        if action and action.get("port") in moved:
            changed[handler] = {**action, "port": moved[action["port"]]}
    return changed
