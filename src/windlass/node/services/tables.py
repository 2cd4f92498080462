"""Listeners of the Services of this node, from Services and EndpointSlices. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

_PROTOCOLS = ("TCP", "UDP")
LABEL = "kubernetes.io/service-name"
NODE_ADDRESS = "127.0.0.1"
"""Address on which node ports are served."""


class _Meta(msgspec.Struct, rename="camel", gc=False):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None


class ServicePort(msgspec.Struct, rename="camel", gc=False):
    port: int = 0
    name: str = ""
    protocol: str = "TCP"
    node_port: int = 0


class _ClientIp(msgspec.Struct, rename="camel", gc=False):
    timeout_seconds: int | None = None


class _AffinityConfig(msgspec.Struct, gc=False):
    client: _ClientIp | None = msgspec.field(name="clientIP", default=None)


class _ServiceSpec(msgspec.Struct, rename="camel", gc=False):
    type: str = "ClusterIP"
    cluster_ip: str | None = msgspec.field(name="clusterIP", default=None)
    external_name: str = ""
    selector: dict[str, str] | None = None
    publish_not_ready_addresses: bool | None = None
    session_affinity: str = "None"
    session_affinity_config: _AffinityConfig | None = None
    ports: list[ServicePort] | None = None


class _ServiceWire(msgspec.Struct, gc=False):
    metadata: _Meta
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)


_decode_service = msgspec.json.Decoder(_ServiceWire)
_DEFAULT_AFFINITY_SECONDS = 10_800


@dataclass(frozen=True, slots=True)
class NodeService:
    """Fields of a Service that this node reads.

    ``cluster_address``: empty for headless Services and those of type ExternalName.
    ``affinity_seconds``: 0 without session affinity.
    """

    namespace: str
    name: str
    uid: str
    cluster_address: str
    external_name: str
    selector: Mapping[str, str]
    publishes_unready: bool
    affinity_seconds: int
    ports: tuple[ServicePort, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def headless(self) -> bool:
        return not self.cluster_address and not self.external_name


def decode_node_service(raw: msgspec.Raw) -> NodeService:
    wire = _decode_service.decode(raw)
    spec = wire.spec
    external = spec.external_name if spec.type == "ExternalName" else ""
    affinity = 0
    if spec.session_affinity == "ClientIP":
        config = spec.session_affinity_config
        client = config.client if config is not None else None
        affinity = (client.timeout_seconds if client is not None else None) or _DEFAULT_AFFINITY_SECONDS
    return NodeService(
        wire.metadata.namespace,
        wire.metadata.name,
        wire.metadata.uid,
        cluster_address="" if external or spec.cluster_ip in (None, "", "None") else spec.cluster_ip or "",
        external_name=external.removesuffix("."),
        selector=spec.selector or {},
        publishes_unready=bool(spec.publish_not_ready_addresses),
        affinity_seconds=affinity,
        ports=tuple(spec.ports or ()),
    )


class _SlicePort(msgspec.Struct, rename="camel", gc=False):
    port: int | None = None
    name: str | None = None
    protocol: str | None = None


class _Conditions(msgspec.Struct, gc=False):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class _Endpoint(msgspec.Struct, rename="camel", gc=False):
    addresses: list[str] | None = None
    conditions: _Conditions = msgspec.field(default_factory=_Conditions)
    hostname: str | None = None


class _SliceWire(msgspec.Struct, rename="camel", gc=False):
    metadata: _Meta
    address_type: str = "IPv4"
    endpoints: list[_Endpoint] | None = None
    ports: list[_SlicePort] | None = None


_decode_slice = msgspec.json.Decoder(_SliceWire)


@dataclass(frozen=True, slots=True)
class SliceEndpoint:
    """One address. ``fallback``: it ends but still serves, and counts if no address is ready."""

    address: str
    ready: bool
    fallback: bool
    hostname: str


@dataclass(frozen=True, slots=True)
class EndpointSlice:
    """IPv4 endpoints of a Service. ``ports``: name and protocol → number."""

    namespace: str
    name: str
    service: str
    endpoints: tuple[SliceEndpoint, ...]
    ports: Mapping[tuple[str, str], int]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def decode_endpoint_slice(raw: msgspec.Raw) -> EndpointSlice | None:
    """Return the slice, or None if it belongs to no Service or has no IPv4 addresses."""
    wire = _decode_slice.decode(raw)
    service = (wire.metadata.labels or {}).get(LABEL)
    if not service or wire.address_type != "IPv4":
        return None
    endpoints = []
    for found in wire.endpoints or ():
        states = found.conditions
        ready = states.ready is not False
        fallback = bool(states.terminating) and bool(states.serving)
        if found.addresses:
            endpoints.append(SliceEndpoint(found.addresses[0], ready, fallback, found.hostname or ""))
    ports = {(one.name or "", one.protocol or "TCP"): one.port or 0 for one in wire.ports or ()}
    return EndpointSlice(wire.metadata.namespace, wire.metadata.name, service, tuple(endpoints), ports)


def ready_addresses(slices: Iterable[EndpointSlice]) -> list[SliceEndpoint]:
    """Return the endpoints that count: the ready ones, else those that end but still serve."""
    every = [endpoint for found in slices for endpoint in found.endpoints]
    return [one for one in every if one.ready] or [one for one in every if one.fallback]


def backends(slices: Iterable[EndpointSlice], port: ServicePort) -> list[tuple[str, int]]:
    """Return address and port of the endpoints that serve this port of the Service."""
    serving = [found for found in slices if found.ports.get((port.name, port.protocol))]
    pairs = [(found, one) for found in serving for one in found.endpoints]
    chosen = [pair for pair in pairs if pair[1].ready] or [pair for pair in pairs if pair[1].fallback]
    result = {(one.address, found.ports[port.name, port.protocol]): None for found, one in chosen}
    return sorted(address for address in result if _is_address(address[0]))


def _is_address(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class ServiceAddresses:
    """Addresses at which pods reach Services.

    ``loopback``: first two octets of the loopback addresses that stand for cluster
        addresses in the machine's network, such as ``127.30``. Empty in the pod network,
        where cluster addresses are served.
    """

    loopback: str = ""

    def address(self, cluster_address: str) -> str:
        """Return the address at which a pod reaches the Service."""
        if not self.loopback or not cluster_address:
            return cluster_address
        return f"{self.loopback}.{cluster_address.split('.', 2)[2]}"


Listener = dict[str, Any]


def listeners(
    services: Iterable[NodeService],
    slices_of: Mapping[str, Mapping[str, EndpointSlice]],
) -> tuple[list[Listener], list[Listener]]:
    """Return the listeners for cluster addresses, and those for node ports.

    Without ready endpoints a Service has no listener, so connections are refused.
    """
    cluster: list[Listener] = []
    node: list[Listener] = []
    for service in sorted(services, key=lambda one: one.key):
        slices = list(slices_of.get(service.key, {}).values())
        for port in service.ports:
            found = backends(slices, port) if port.protocol in _PROTOCOLS else []
            if not found or not service.cluster_address:
                continue
            entry = {
                "service": service.key,
                "protocol": port.protocol,
                "affinity_seconds": service.affinity_seconds,
                "backends": [list(pair) for pair in found],
            }
            cluster.append({**entry, "address": service.cluster_address, "number": port.port})
            if port.node_port:
                node.append({**entry, "address": NODE_ADDRESS, "number": port.node_port})
    return cluster, node
