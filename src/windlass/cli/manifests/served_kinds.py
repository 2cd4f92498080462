"""Kinds that only the server knows: those of CustomResourceDefinitions, and of a cluster's other APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from windlass.api.errors import StatusError
from windlass.api.resources import Resource
from windlass.client.blocking import BlockingClient
from windlass.client.errors import Unreachable
from windlass.client.transport import Request

ClientSource = Callable[[], BlockingClient]
"""Function that returns the client, called only if a kind is not built in."""
_ACCEPT = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def by_kind(source: ClientSource, api_version: str, kind: str) -> Resource | None:
    """Return a kind that the server serves in this version; ``None`` if there is none."""
    group, _, version = api_version.rpartition("/")
    path = f"/apis/{api_version}" if group else f"/api/{version}"
    document = _document(source, path, "application/json")
    for entry in (document or {}).get("resources") or ():
        if entry.get("kind") == kind and "/" not in entry["name"]:
            names = tuple(entry.get("shortNames") or ())
            singular = entry.get("singularName") or ""
            return Resource(
                group,
                version,
                entry["name"],
                kind,
                bool(entry.get("namespaced")),
                names,
                custom=True,
                singular_name=singular,
            )
    return None


def find(source: ClientSource, word: str) -> Resource | None:
    """Return the kind with this plural, singular, short name, or ``plural.group``; ``None``: there is none."""
    wanted = word.lower()
    document = _document(source, "/apis", _ACCEPT) or {}
    for item in document.get("items") or ():
        group = item["metadata"].get("name", "")
        for version in (item.get("versions") or ())[:1]:
            for entry in version.get("resources") or ():
                plural, singular = entry["resource"], entry.get("singularResource") or ""
                names = (plural, singular, *(entry.get("shortNames") or ()))
                if wanted in names or wanted in (f"{plural}.{group}", f"{singular}.{group}"):
                    return Resource(
                        group,
                        version["version"],
                        plural,
                        entry["responseKind"]["kind"],
                        entry.get("scope") == "Namespaced",
                        tuple(entry.get("shortNames") or ()),
                        custom=True,
                        singular_name=singular,
                    )
    return None


def _document(source: ClientSource, path: str, accept: str) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(source().call(Request("GET", path, "", {"accept": accept})))
    except (StatusError, Unreachable):
        return None
