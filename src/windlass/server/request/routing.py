"""From a URL path to what it names: a kind, a namespace, a name, a subresource.

A path below a group that is not served raises :class:`NotServed` (plain text 404, as the real server
does); an unknown version, resource or subresource below a served group raises a Status 404.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from windlass.api import resources
from windlass.api.errors import StatusError, failure
from windlass.api.resources import ALIASES, EVENTS, EVENTS_V1, NAMESPACES, Resource

_GROUPS = frozenset(resource.group for resource in resources.ALL)
_STORED_AS: dict[Resource, Resource] = {**ALIASES, EVENTS_V1: EVENTS}
_WRITE_ONLY: dict[tuple[str, str, str], Resource] = {}
_WRITE_ONLY_GROUPS: set[str] = set()
_COLLECTIONS: dict[str, RequestTarget] = {}
_COLLECTIONS_KEPT = 4_096


class NotServed(Exception):
    """Nothing is served below this path."""


@dataclass(slots=True)
class RequestTarget:
    """``resource`` as the URL says it; ``stored`` is the kind whose objects these are; ``table`` the
    store's name of that kind. ``watch``: the old path form ``/api/v1/watch/…``. Not to be changed."""

    resource: Resource
    stored: Resource
    table: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    watch: bool = False


def register_write_only(resource: Resource) -> None:
    """Serve a kind that is never stored (reviews): POST only."""
    _WRITE_ONLY[(resource.group, resource.version, resource.plural)] = resource
    _WRITE_ONLY_GROUPS.add(resource.group)


def write_only() -> tuple[Resource, ...]:
    """The kinds that are served and never stored."""
    return tuple(_WRITE_ONLY.values())


def is_write_only(resource: Resource) -> bool:
    return (resource.group, resource.version, resource.plural) in _WRITE_ONLY


def unknown_resource() -> StatusError:
    return failure(404, "NotFound", "the server could not find the requested resource", {})


_INSTEAD = {
    "exec": "its pods are processes of this machine: have the command itself tell, and read windlass logs -f",
    "attach": "read windlass logs -f",
    "portforward": "submit with hostNetwork: true (windlass run --host-network), then its ports are this machine's",
    "proxy": "submit with hostNetwork: true (windlass run --host-network), then its ports are this machine's",
    "ephemeralcontainers": "its pods are processes of this machine, which any debugger here can look into",
}


def _not_on_a_box(subresource: str) -> StatusError:
    """What a kubelet's stream server does, with what does the like here."""
    if (instead := _INSTEAD.get(subresource)) is None:
        return unknown_resource()
    return failure(404, "NotFound", f"pods/{subresource} is not served by a box: {instead}", {})


def known(path: str) -> RequestTarget | None:
    """The target of a collection that was asked for before: most requests go to few of them."""
    return _COLLECTIONS.get(path)


def route(path: str) -> RequestTarget:
    """The target of a path below ``/api/V/…`` or ``/apis/G/V/…``. Raises :class:`NotServed`, StatusError."""
    target = _parse(path)
    if not target.name:
        if len(_COLLECTIONS) >= _COLLECTIONS_KEPT:
            _COLLECTIONS.clear()
        _COLLECTIONS[path] = target
    return target


def _parse(path: str) -> RequestTarget:
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise NotServed(path)
    if group not in _GROUPS and group not in _WRITE_ONLY_GROUPS:
        raise NotServed(path)
    if "%" in path:
        rest = [unquote(part) for part in rest]
    watch = False
    if rest[0] == "watch" and len(rest) > 1:
        watch, rest = True, rest[1:]
    return _below(group, version, rest, watch)


def _below(group: str, version: str, rest: list[str], watch: bool) -> RequestTarget:
    namespace = ""
    in_namespace = rest[0] == "namespaces" and not group
    if (
        rest[0] == "namespaces"
        and len(rest) > 2
        and not (in_namespace and rest[2] in NAMESPACES.subresources)
    ):
        namespace, rest = rest[1], rest[2:]
    resource = _find(group, version, rest[0])
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if resource is None or len(rest) > 3 or "" in rest:
        raise unknown_resource()
    if resource.namespaced != bool(namespace) and (namespace or name):
        raise unknown_resource()
    if subresource and subresource not in resource.subresources:
        raise _not_on_a_box(subresource) if resource is resources.PODS else unknown_resource()
    stored = _STORED_AS.get(resource, resource)
    return RequestTarget(resource, stored, stored.qualified, namespace, name, subresource, watch)


def _find(group: str, version: str, plural: str) -> Resource | None:
    return resources.by_plural(group, version, plural) or _WRITE_ONLY.get((group, version, plural))
