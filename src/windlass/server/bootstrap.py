"""Namespaces that every cluster has, and the storage class, created before the first request."""

from __future__ import annotations

import msgspec

from windlass.api.local_storage import LOCAL_CLASS, local_class
from windlass.api.resources import NAMESPACES, STORAGE_CLASSES
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
