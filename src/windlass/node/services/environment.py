"""Variables of Services in containers (``enableServiceLinks``), as the kubelet sets them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.api.service_network import KUBERNETES_SERVICE
from windlass.node.services.tables import NodeService, ServiceAddresses


def service_environment(
    services: Iterable[NodeService], namespace: str, addresses: ServiceAddresses, *, links: bool
) -> dict[str, str]:
    """Return the variables of the Services of the namespace, and of ``kubernetes``.

    ``links``: False leaves only those of ``kubernetes``.
    """
    values: dict[str, str] = {}
    for service in sorted(services, key=lambda one: (one.key != KUBERNETES_SERVICE, one.name)):
        master = service.key == KUBERNETES_SERVICE
        if (
            not service.cluster_address
            or not service.ports
            or not (master or (links and service.namespace == namespace))
        ):
            continue
        for name, value in _variables(service, addresses.address(service.cluster_address)).items():
            if master:
                values.setdefault(name, value)
            else:
                values[name] = value
    return values


def _variables(service: NodeService, address: str) -> dict[str, str]:
    prefix = service.name.replace("-", "_").upper()
    first = service.ports[0]
    values = {f"{prefix}_SERVICE_HOST": address, f"{prefix}_SERVICE_PORT": str(first.port)}
    for port in service.ports:
        if port.name:
            values[f"{prefix}_SERVICE_PORT_{port.name.replace('-', '_').upper()}"] = str(port.port)
    for index, port in enumerate(service.ports):
        protocol = port.protocol.lower()
        url = f"{protocol}://{address}:{port.port}"
        if index == 0:
            values[f"{prefix}_PORT"] = url
        part = f"{prefix}_PORT_{port.port}_{port.protocol}"
        values[part] = url
        values[f"{part}_PROTO"] = protocol
        values[f"{part}_PORT"] = str(port.port)
        values[f"{part}_ADDR"] = address
    return values
