"""Subresources that the server serves: one table for routing, discovery and OpenAPI.

:class:`windlass.api.resources.Resource` names the subresources of a kind. This table
defines their handlers and bodies.
A name without an entry is not served: requests get 404, and discovery and OpenAPI leave
it out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass

from windlass.api.resources import Resource
from windlass.client.transport import Response
from windlass.server.core import Call, ServerCore
from windlass.server.verbs.binding import bind
from windlass.server.verbs.ephemeral import patch_containers, update_containers
from windlass.server.verbs.eviction import evict
from windlass.server.verbs.pod_attach import attach
from windlass.server.verbs.pod_exec import execute
from windlass.server.verbs.pod_log import read_log
from windlass.server.verbs.pod_ports import forward_ports
from windlass.server.verbs.read import get
from windlass.server.verbs.scale import get_scale, patch_scale, update_scale
from windlass.server.verbs.tokens import request_token
from windlass.server.verbs.update import patch, update

Handler = Callable[[ServerCore, Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Subresource:
    """Subresource: its handlers by verb, and the form of its body.

    ``body``: (group, version, kind) of the body if it is another kind than the
    resource. An empty version stands for the
    resource's own group and version. ``text``: the response is plain text, whatever the
    client accepts. ``upgrades``: the connection becomes a WebSocket.
    """

    handlers: Mapping[str, Handler]
    body: tuple[str, str, str] | None = None
    text: bool = False
    upgrades: bool = False

    @property
    def verbs(self) -> list[str]:
        return sorted(self.handlers)

    @property
    def is_view(self) -> bool:
        """True if requests and responses hold the object itself, as for ``status``."""
        return self.body is None and not self.text


SUBRESOURCES: Mapping[str, Subresource] = {
    "status": Subresource({"get": get, "update": update, "patch": patch}),
    "finalize": Subresource({"update": update}),
    "scale": Subresource(
        {"get": get_scale, "update": update_scale, "patch": patch_scale}, body=("autoscaling", "v1", "Scale")
    ),
    "ephemeralcontainers": Subresource({"get": get, "update": update_containers, "patch": patch_containers}),
    "binding": Subresource({"create": bind}, body=("", "", "Binding")),
    "eviction": Subresource({"create": evict}, body=("policy", "v1", "Eviction")),
    "token": Subresource({"create": request_token}, body=("authentication.k8s.io", "v1", "TokenRequest")),
    "log": Subresource({"get": read_log}, text=True),
    "attach": Subresource(
        {"get": attach, "create": attach}, body=("", "", "PodAttachOptions"), upgrades=True
    ),
    "portforward": Subresource(
        {"get": forward_ports, "create": forward_ports}, body=("", "", "PodPortForwardOptions"), upgrades=True
    ),
    "exec": Subresource({"get": execute, "create": execute}, body=("", "", "PodExecOptions"), upgrades=True),
}


def served(resource: Resource) -> Iterator[tuple[str, Subresource]]:
    """Yield name and entry of each served subresource of a kind, by name."""
    for name in sorted(resource.subresources):
        if (entry := SUBRESOURCES.get(name)) is not None:
            yield name, entry
