"""Backends of a Service: its pods, by the ports that they serve. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.api.selectors import selects
from windlass.client.informers import key_of

Json = dict[str, Any]


class _Meta(msgspec.Struct, rename="camel", gc=False):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Port(msgspec.Struct, rename="camel", gc=False):
    container_port: int
    name: str = ""
    protocol: str = "TCP"


class _Container(msgspec.Struct, rename="camel", gc=False):
    ports: list[_Port] | None = None
    restart_policy: str | None = None


class _Spec(msgspec.Struct, rename="camel", gc=False):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""


class _Condition(msgspec.Struct, gc=False):
    type: str
    status: str = ""


class _Status(msgspec.Struct, rename="camel", gc=False):
    phase: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: list[_Condition] | None = None


class _PodWire(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_decode = msgspec.json.Decoder(_PodWire)


@dataclass(frozen=True, slots=True)
class BackendPod:
    """Fields of a pod that a Service reads.

    ``ports``: name and protocol of each named container port → number.
    ``over``: the pod has succeeded or failed.
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    address: str
    node: str
    hostname: str
    subdomain: str
    ready: bool
    terminating: bool
    over: bool
    ports: Mapping[tuple[str, str], int]

    @property
    def key(self) -> str:
        return key_of(self.namespace, self.name)


def decode_backend_pod(raw: msgspec.Raw) -> BackendPod:
    pod = _decode.decode(raw)
    meta, spec, status = pod.metadata, pod.spec, pod.status
    sidecars = [one for one in spec.init_containers or () if one.restart_policy == "Always"]
    ports: dict[tuple[str, str], int] = {}
    for container in (*(spec.containers or ()), *sidecars):
        for port in container.ports or ():
            if port.name:
                ports.setdefault((port.name, port.protocol), port.container_port)
    return BackendPod(
        meta.namespace,
        meta.name,
        meta.uid,
        meta.labels or {},
        status.pod_ip,
        spec.node_name,
        spec.hostname,
        spec.subdomain,
        ready=any(c.type == "Ready" and c.status == "True" for c in status.conditions or ()),
        terminating=meta.deletion_timestamp is not None,
        over=status.phase in ("Succeeded", "Failed"),
        ports=ports,
    )


@dataclass(frozen=True, slots=True)
class BackendPort:
    """Port of a backend. ``name`` is that of the port of the Service."""

    name: str
    protocol: str
    number: int
    app_protocol: str = ""

    def as_json(self) -> Json:
        found: Json = {"name": self.name, "port": self.number, "protocol": self.protocol}
        if self.app_protocol:
            found["appProtocol"] = self.app_protocol
        return found


def ports_of(service: Json, pod: BackendPod) -> tuple[BackendPort, ...]:
    """Return the ports of the Service that this pod serves.

    A ``targetPort`` that is a name counts for pods with a container port of this name.
    """
    found = []
    for port in service["spec"].get("ports") or ():
        protocol = port.get("protocol") or "TCP"
        target = port.get("targetPort") or port.get("port")
        number = pod.ports.get((target, protocol)) if isinstance(target, str) else target
        if number:
            found.append(BackendPort(port.get("name") or "", protocol, number, port.get("appProtocol") or ""))
    return tuple(found)


def grouped(service: Json, pods: Iterable[BackendPod]) -> dict[tuple[BackendPort, ...], list[BackendPod]]:
    """Return the Service's pods by the ports that they serve, in the order of their names.

    Pods without an address and ended pods are left out. A Service with ports has no
    backend that serves none of them.
    """
    selector = service["spec"].get("selector") or {}
    has_ports = bool(service["spec"].get("ports"))
    groups: dict[tuple[BackendPort, ...], list[BackendPod]] = {}
    for pod in sorted(pods, key=lambda one: one.name):
        if not pod.address or pod.over or not selects(selector, pod.labels):
            continue
        ports = ports_of(service, pod)
        if ports or not has_ports:
            groups.setdefault(ports, []).append(pod)
    return groups
