"""Routing of URL paths to kind, namespace, name and subresource.

A path of an unknown group raises :class:`NotServed` (plain text 404, as kube-apiserver
returns). An unknown version,
resource or subresource of a known group raises a Status 404.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from windlass.api import resources
from windlass.api.errors import StatusError, failure
from windlass.api.resources import ALIASES, EVENTS, EVENTS_V1, NAMESPACES, Resource
from windlass.server.custom_kinds import BUILT_IN_ONLY, ServedKinds

_GROUPS = frozenset(resource.group for resource in resources.ALL)
_STORED_AS: dict[Resource, Resource] = {**ALIASES, EVENTS_V1: EVENTS}
_WRITE_ONLY: dict[tuple[str, str, str], Resource] = {}
_WRITE_ONLY_GROUPS: set[str] = set()
_COMPUTED: dict[Resource, Any] = {}
_COLLECTIONS: dict[str, RequestTarget] = {}
_COLLECTIONS_KEPT = 4_096


class NotServed(Exception):
    """The server does not serve this path."""


@dataclass(slots=True)
class RequestTarget:
    """Target of a request. Must not be changed.

    ``resource``: kind in the URL. ``stored``: kind of the stored objects. ``table``:
    name of that kind in the store.
    ``watch``: the deprecated path ``/api/v1/watch/…``.
    """

    resource: Resource
    stored: Resource
    table: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False


def register_write_only(resource: Resource) -> None:
    """Serve a kind that is never stored (reviews), for POST only."""
    _WRITE_ONLY[(resource.group, resource.version, resource.plural)] = resource
    _WRITE_ONLY_GROUPS.add(resource.group)


def register_computed(resource: Resource, handler: Any) -> None:
    """Serve a kind that is computed at each request, for GET only. ``handler``: of the server's verbs."""
    register_write_only(resource)
    _COMPUTED[resource] = handler


def computed(resource: Resource) -> Any:
    """Return the handler of a computed kind; ``None`` for other kinds."""
    return _COMPUTED.get(resource)


def write_only() -> tuple[Resource, ...]:
    """Return the kinds that are served and never stored."""
    return tuple(_WRITE_ONLY.values())


def is_write_only(resource: Resource) -> bool:
    return (resource.group, resource.version, resource.plural) in _WRITE_ONLY


def unknown_resource() -> StatusError:
    return failure(404, "NotFound", "the server could not find the requested resource", {})


_INSTEAD = {
    "proxy": "use kubectl port-forward POD PORT",
}


def _not_in_single_node_mode(subresource: str) -> StatusError:
    """Return the 404 for a subresource of the kubelet's stream server, with an alternative."""
    if (instead := _INSTEAD.get(subresource)) is None:
        return unknown_resource()
    return failure(404, "NotFound", f"pods/{subresource} is not served in single-node mode: {instead}", {})


def known(path: str) -> RequestTarget | None:
    """Return the cached target of a collection.

    Most requests go to few collections.
    """
    return _COLLECTIONS.get(path)


def route(path: str, kinds: ServedKinds = BUILT_IN_ONLY) -> RequestTarget:
    """Return the target of a path below ``/api/V/…`` or ``/apis/G/V/…``.

    Raises :class:`NotServed`, StatusError.
    """
    target = _parse(path, kinds)
    if not target.name and target.resource.definition is None:
        if len(_COLLECTIONS) >= _COLLECTIONS_KEPT:
            _COLLECTIONS.clear()
        _COLLECTIONS[path] = target
    return target


def _parse(path: str, kinds: ServedKinds) -> RequestTarget:
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise NotServed(path)
    if group not in _GROUPS and group not in _WRITE_ONLY_GROUPS and group not in kinds.groups:
        raise NotServed(path)
    if "%" in path:
        rest = [unquote(part) for part in rest]
    watch = False
    if rest[0] == "watch" and len(rest) > 1:
        watch, rest = True, rest[1:]
    return _below(group, version, rest, watch, kinds)


def _below(group: str, version: str, rest: list[str], watch: bool, kinds: ServedKinds) -> RequestTarget:
    namespace = ""
    in_namespace = rest[0] == "namespaces" and not group
    if (
        rest[0] == "namespaces"
        and len(rest) > 2
        and not (in_namespace and rest[2] in NAMESPACES.subresources)
    ):
        namespace, rest = rest[1], rest[2:]
    resource = _find(group, version, rest[0]) or kinds.find(group, version, rest[0])
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if resource is None or len(rest) > 3 or "" in rest:
        raise unknown_resource()
    if resource.namespaced != bool(namespace) and (namespace or name):
        raise unknown_resource()
    if subresource and subresource not in resource.subresources:
        raise _not_in_single_node_mode(subresource) if resource is resources.PODS else unknown_resource()
    stored = _STORED_AS.get(resource, resource)
    return RequestTarget(resource, stored, stored.qualified, namespace, name, subresource, watch)


def _find(group: str, version: str, plural: str) -> Resource | None:
    return resources.by_plural(group, version, plural) or _WRITE_ONLY.get((group, version, plural))
