"""Discovery of the served kinds: legacy form, and aggregated form (v2 and v2beta1).

Aggregated documents must have exactly the content type that the client requested,
including parameters. Otherwise
clients mistake them for legacy documents. Documents are created once for each set of
kinds (:class:`~windlass.server.custom_kinds.ServedKinds`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from windlass.api import resources
from windlass.api.errors import failure
from windlass.api.resources import Resource
from windlass.api.structural.definition import version_rank
from windlass.client.transport import Request, Response
from windlass.server.custom_kinds import BUILT_IN_ONLY, ServedKinds
from windlass.server.presentation import responses
from windlass.server.request.routing import write_only
from windlass.server.subresources import served

_encode = msgspec.json.Encoder().encode
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
_VERSIONS = ("v2", "v2beta1")


def answer(request: Request, kinds: ServedKinds = BUILT_IN_ONLY) -> Response | None:
    """Return the response for a discovery request; ``None`` for other paths.

    Raises StatusError 404, 406.
    """
    if request.method not in ("GET", "HEAD"):
        return None
    parts = [part for part in request.path.split("/") if part]
    if not parts or parts[0] not in ("api", "apis"):
        return None
    version = _aggregated_version(request.headers.get("accept", "")) if len(parts) == 1 else ""
    if version:
        return _aggregated(kinds, parts[0], version, request.headers.get("if-none-match", ""))
    document = _legacy(kinds, parts, request.headers.get("host", ""))
    if document is None:
        return None
    response = responses.json(200, document)
    if len(parts) == 1:
        response.headers = {**response.headers, "vary": "Accept"}
    return response


def _aggregated_version(accept: str) -> str:
    """Return the preferred aggregated version; empty for the legacy form. Raises 406."""
    refused = False
    for clause in accept.split(","):
        media, *rest = (piece.strip() for piece in clause.split(";"))
        parameters: dict[str, str] = {}
        for piece in rest:
            key, _, value = piece.partition("=")
            parameters[key] = value
        kind = parameters.get("as")
        if media not in ("application/json", "application/*", "*/*"):
            refused = refused or bool(media)
        elif kind is None:
            return ""
        elif kind == "APIGroupDiscoveryList" and parameters.get("v") in _VERSIONS:
            return parameters["v"]
        else:
            refused = True
    if refused:
        raise failure(
            406,
            "NotAcceptable",
            "only the following media types are accepted: application/json, application/yaml, "
            "application/vnd.kubernetes.protobuf",
        )
    return ""


def _served(kinds: ServedKinds) -> tuple[Resource, ...]:
    return (*resources.ALL, *write_only(), *kinds.custom)


def groups(kinds: ServedKinds = BUILT_IN_ONLY) -> dict[str, list[str]]:
    """Return the versions of each group, preferred first, in the order of declaration."""
    return kinds.document("groups", lambda: _groups(kinds))


def _groups(kinds: ServedKinds) -> dict[str, list[str]]:
    versions_of: dict[str, list[str]] = {}
    for resource in _served(kinds):
        versions = versions_of.setdefault(resource.group, [])
        if resource.version not in versions:
            versions.append(resource.version)
    for group in kinds.groups:
        versions_of[group].sort(key=version_rank)
    return versions_of


def of_version(group: str, version: str, kinds: ServedKinds = BUILT_IN_ONLY) -> list[Resource]:
    """Return the kinds of one group and version, by plural."""
    found = [r for r in _served(kinds) if (r.group, r.version) == (group, version)]
    return sorted(found, key=lambda r: r.plural)


def verbs(resource: Resource) -> list[str]:
    return sorted(resource.verbs)


def _subresources(resource: Resource) -> Iterable[tuple[str, tuple[str, str, str], list[str]]]:
    """Yield name, (group, version, kind) of the body, and verbs of each subresource.

    An empty version stands for the resource's own group and version.
    """
    for name, entry in served(resource):
        yield name, entry.body or ("", "", resource.kind), entry.verbs


# --- aggregated ---------------------------------------------------------------------------------------


def _aggregated(kinds: ServedKinds, root: str, version: str, known: str) -> Response:
    body, tag = kinds.document(("discovery", root, version), lambda: _aggregated_body(kinds, root, version))
    headers = {
        "content-type": _AGGREGATED.format(version=version),
        "vary": "Accept",
        "etag": tag,
        "cache-control": "public",
    }
    if known == tag:
        return Response(304, headers)
    return Response(200, headers, body)


def _aggregated_body(kinds: ServedKinds, root: str, version: str) -> tuple[bytes, str]:
    wanted = {group: v for group, v in groups(kinds).items() if bool(group) == (root == "apis")}
    document = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [_aggregated_group(kinds, group, versions) for group, versions in wanted.items()],
    }
    body = _encode(document) + b"\n"
    return body, f'"{hashlib.sha512(body).hexdigest().upper()}"'


def _aggregated_group(kinds: ServedKinds, group: str, versions: list[str]) -> dict[str, Any]:
    return {
        "metadata": {"name": group} if group else {},
        "versions": [
            {
                "version": version,
                "resources": [
                    _aggregated_resource(resource) for resource in of_version(group, version, kinds)
                ],
                "freshness": "Current",
            }
            for version in versions
        ],
    }


def _aggregated_resource(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource, ("", "", resource.kind)),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    below = [
        {"subresource": name, "responseKind": _response_kind(resource, kind), "verbs": allowed}
        for name, kind, allowed in _subresources(resource)
    ]
    if below:
        entry["subresources"] = below
    return entry


def _response_kind(resource: Resource, kind: tuple[str, str, str]) -> dict[str, str]:
    group, version, name = kind
    if resource.custom and not version:
        group, version = resource.group, resource.version
    return {"group": group, "version": version, "kind": name}


# --- legacy -------------------------------------------------------------------------------------------


def _legacy(kinds: ServedKinds, parts: list[str], host: str) -> dict[str, Any] | None:
    match parts:
        case ["api"]:
            return {
                "kind": "APIVersions",
                "versions": groups(kinds)[""],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
            }
        case ["api", version]:
            return _resource_list(kinds, "", version)
        case ["apis"]:
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(kinds, name) for name in groups(kinds) if name],
            }
        case ["apis", group] if group in groups(kinds):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(kinds, group)}
        case ["apis", group, version] if group in groups(kinds):
            return _resource_list(kinds, group, version)
    return None


def _group(kinds: ServedKinds, name: str) -> dict[str, Any]:
    versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in groups(kinds)[name]]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resource_list(kinds: ServedKinds, group: str, version: str) -> dict[str, Any]:
    if version not in groups(kinds)[group]:
        raise failure(404, "NotFound", "the server could not find the requested resource", {})
    entries: list[dict[str, Any]] = []
    for resource in of_version(group, version, kinds):
        entry: dict[str, Any] = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": verbs(resource),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        entries.append(entry)
        for name, (kind_group, kind_version, kind), allowed in _subresources(resource):
            below: dict[str, Any] = {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
            }
            if kind_version:
                below |= {"group": kind_group, "version": kind_version}
            entries.append({**below, "kind": kind, "verbs": allowed})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": entries,
    }
