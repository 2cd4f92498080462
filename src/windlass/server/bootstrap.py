"""Namespaces that every cluster has, created before the first request."""

from __future__ import annotations

from windlass.api.resources import NAMESPACES
from windlass.client.transport import Request
from windlass.server.apiserver import ApiServer
from windlass.server.request.users import ADMIN

FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


async def bootstrap(api: ApiServer) -> None:
    """Create missing namespaces, by requests to the server.

    Raises ``RuntimeError`` if the server rejects one.
    """
    for name in FIRST_NAMESPACES:
        if api.core.store.get(NAMESPACES.qualified, "", name) is not None:
            continue
        body = b'{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"%b"}}' % name.encode()
        response = await api.handle(Request("POST", NAMESPACES.path(), body=body), ADMIN)
        if response.status not in (201, 409):
            raise RuntimeError(f"namespace {name} cannot be created: {response.status} {response.body!r}")
