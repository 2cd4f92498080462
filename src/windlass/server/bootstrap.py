"""Objects that every cluster has: namespaces, the storage class, the Service by which pods reach the server."""

from __future__ import annotations

import msgspec

from windlass.api.local_storage import LOCAL_CLASS, local_class
from windlass.api.resources import ENDPOINT_SLICES, NAMESPACES, SERVICES, STORAGE_CLASSES, Resource
from windlass.api.service_network import API_NAMESPACE, API_PORT, API_SERVICE
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
    metadata = {"name": API_SERVICE, "namespace": API_NAMESPACE}
    ports = [{"name": "https", "port": API_PORT, "targetPort": port, "protocol": "TCP"}]
    await _put(api, SERVICES, {"metadata": metadata, "spec": {"ports": ports}})
    labels = {"kubernetes.io/service-name": API_SERVICE}
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


async def _put(api: ApiServer, resource: Resource, obj: dict[str, object]) -> None:
    """Create an object, or give it the present ports."""
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
    body = msgspec.json.encode(whole)
    response = await api.handle(Request("POST", resource.path(API_NAMESPACE), body=body), ADMIN)
    if response.status == 409:
        headers = {"content-type": "application/merge-patch+json"}
        path = resource.path(API_NAMESPACE, API_SERVICE)
        response = await api.handle(Request("PATCH", path, headers=headers, body=body), ADMIN)
    if response.status not in (200, 201):
        raise RuntimeError(
            f"{resource.kind} {API_SERVICE} cannot be created: {response.status} {response.body!r}"
        )
