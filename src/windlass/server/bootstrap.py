"""Objects that every cluster has: namespaces, the storage class, the Service by which pods reach the server."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.api.local_storage import LOCAL_CLASS, local_class
from windlass.api.resources import ENDPOINT_SLICES, NAMESPACES, SERVICES, STORAGE_CLASSES, Resource
from windlass.api.service_network import (
    API_NAMESPACE,
    API_PORT,
    API_SERVICE,
    KUBERNETES_ADDRESS,
    KUBERNETES_SERVICE,
)
from windlass.client.transport import Request
from windlass.server.apiserver import ApiServer
from windlass.server.request.users import ADMIN

FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


async def bootstrap(api: ApiServer) -> None:
    """Create missing namespaces and the local storage class, by requests to the server.

    Raises ``RuntimeError`` if the server rejects one.
    """
    for name in FIRST_NAMESPACES:
        if api.core.store.get(NAMESPACES.qualified, "", name) is not None:
            continue
        body = b'{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"%b"}}' % name.encode()
        response = await api.handle(Request("POST", NAMESPACES.path(), body=body), ADMIN)
        if response.status not in (201, 409):
            raise RuntimeError(f"namespace {name} cannot be created: {response.status} {response.body!r}")
    if api.core.store.get(STORAGE_CLASSES.qualified, "", LOCAL_CLASS) is None:
        body = msgspec.json.encode(local_class())
        response = await api.handle(Request("POST", STORAGE_CLASSES.path(), body=body), ADMIN)
        if response.status not in (201, 409):
            raise RuntimeError(f"class {LOCAL_CLASS} cannot be created: {response.status} {response.body!r}")


async def publish_service(api: ApiServer, port: int) -> None:
    """Let pods reach this server by name. Raises ``RuntimeError`` if the server rejects an object.

    ``port``: of the server on the loopback address.
    """
    ports = [{"name": "https", "port": API_PORT, "targetPort": port, "protocol": "TCP"}]
    await _publish(api, API_NAMESPACE, API_SERVICE, {"ports": ports}, port)
    namespace, _, name = KUBERNETES_SERVICE.partition("/")
    await _publish(api, namespace, name, {"ports": ports, "clusterIP": KUBERNETES_ADDRESS}, port)


async def _publish(api: ApiServer, namespace: str, name: str, spec: dict[str, object], port: int) -> None:
    """Create or update a Service and the EndpointSlice that leads to this server."""
    metadata = {"name": name, "namespace": namespace}
    await _put(api, SERVICES, {"metadata": metadata, "spec": spec})
    labels = {"kubernetes.io/service-name": name}
    endpoint = {"addresses": ["127.0.0.1"], "conditions": {"ready": True}}
    await _put(
        api,
        ENDPOINT_SLICES,
        {
            "metadata": {**metadata, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [endpoint],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        },
    )


async def _put(api: ApiServer, resource: Resource, obj: dict[str, Any]) -> None:
    """Create an object, or give it the present ports."""
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
    body = msgspec.json.encode(whole)
    namespace, name = obj["metadata"]["namespace"], obj["metadata"]["name"]
    if api.core.store.get(resource.qualified, namespace, name) is None:
        request = Request("POST", resource.path(namespace), body=body)
    else:
        headers = {"content-type": "application/merge-patch+json"}
        request = Request("PATCH", resource.path(namespace, name), headers=headers, body=body)
    response = await api.handle(request, ADMIN)
    if response.status not in (200, 201):
        raise RuntimeError(f"{resource.kind} {name} cannot be created: {response.status} {response.body!r}")
