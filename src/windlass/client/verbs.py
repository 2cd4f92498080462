"""Verbs of the Kubernetes API as :class:`Request` objects: paths, query parameters, bodies.

No I/O.

The asyncio client and the blocking one share them. Their writing verbs take exactly
these parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import quote, urlencode

import msgspec

from windlass.api.resources import Resource
from windlass.client.transport import Request

PatchKind = Literal["merge", "json", "strategic", "apply"]

PATCH_TYPES: dict[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_ACCEPT = {"accept": "application/json"}
_JSON = {"accept": "application/json", "content-type": "application/json"}

_encode = msgspec.json.Encoder().encode


def path(
    resource: Resource, namespace: str | None = None, name: str | None = None, subresource: str | None = None
) -> str:
    """Like ``Resource.path``, with quoted names. Raises ``ValueError`` on an empty name."""
    if name is not None and not name:
        raise ValueError(f"a {resource.kind} without a name")
    text = resource.path(namespace, name, subresource)
    return text if text.isascii() and text.isprintable() and not _needs_quoting(text) else quote(text)


def _needs_quoting(text: str) -> bool:
    return any(letter in text for letter in ' %?#"<>\\^`{|}')


def query(**parameters: str | int | bool | None) -> str:
    """Return the encoded query. ``None`` and "" are omitted; booleans are ``true``/``false``."""
    pairs = []
    for name, value in parameters.items():
        if value is None or value == "":
            continue
        pairs.append((name, ("true" if value else "false") if isinstance(value, bool) else str(value)))
    return urlencode(pairs) if pairs else ""


def get(resource: Resource, name: str, namespace: str | None, subresource: str | None = None) -> Request:
    return Request("GET", path(resource, namespace, name, subresource), headers=_ACCEPT)


def list_(
    resource: Resource,
    namespace: str | None,
    *,
    labels: str = "",
    fields: str = "",
    limit: int = 0,
    continue_token: str = "",
    resource_version: str = "",
    match: str = "",
) -> Request:
    text = query(
        labelSelector=labels,
        fieldSelector=fields,
        limit=limit or None,
        resourceVersion=resource_version,
        resourceVersionMatch=match,
    )
    if continue_token:
        text += ("&" if text else "") + "continue=" + quote(continue_token, safe="")
    return Request("GET", path(resource, namespace), text, _ACCEPT)


def watch(
    resource: Resource,
    namespace: str | None,
    *,
    labels: str = "",
    fields: str = "",
    resource_version: str = "",
    timeout_seconds: int | None = None,
    bookmarks: bool = True,
    initial_events: bool = False,
) -> Request:
    """Return a watch.

    ``initial_events``: existing objects first (WatchList), up to a marked bookmark.
    """
    text = query(
        watch=True,
        allowWatchBookmarks=bookmarks or None,
        labelSelector=labels,
        fieldSelector=fields,
        resourceVersion=resource_version,
        resourceVersionMatch="NotOlderThan" if initial_events else None,
        sendInitialEvents=True if initial_events else None,
        timeoutSeconds=timeout_seconds,
    )
    return Request("GET", path(resource, namespace), text, _ACCEPT)


def create(
    resource: Resource,
    obj: Mapping[str, Any],
    namespace: str | None = None,
    *,
    dry_run: bool = False,
    field_validation: str | None = None,
    field_manager: str | None = None,
) -> Request:
    """Return a create. ``namespace`` ``None``: the object's own, else ``default``."""
    text = query(
        fieldManager=field_manager,
        fieldValidation=field_validation,
        dryRun="All" if dry_run else None,
    )
    where = _namespace_of(resource, obj, namespace)
    return Request("POST", path(resource, where), text, _JSON, _encode(_typed(resource, obj)))


def update(
    resource: Resource,
    obj: Mapping[str, Any],
    *,
    subresource: str | None = None,
    dry_run: bool = False,
    field_validation: str | None = None,
    field_manager: str | None = None,
) -> Request:
    """Return a PUT of the whole object.

    With ``metadata.resourceVersion`` it is rejected if the object has changed.
    """
    metadata = obj["metadata"]
    text = query(
        fieldManager=field_manager,
        fieldValidation=field_validation,
        dryRun="All" if dry_run else None,
    )
    target = path(resource, _namespace_of(resource, obj, None), metadata["name"], subresource)
    return Request("PUT", target, text, _JSON, _encode(_typed(resource, obj)))


def patch(
    resource: Resource,
    name: str,
    body: Any,
    namespace: str | None = None,
    *,
    kind: PatchKind = "merge",
    subresource: str | None = None,
    field_validation: str | None = None,
    field_manager: str | None = None,
    dry_run: bool = False,
    force: bool | None = None,
) -> Request:
    """Return a patch. ``force`` only applies to ``apply``, which also needs a field manager."""
    text = query(
        fieldManager=field_manager,
        fieldValidation=field_validation,
        dryRun="All" if dry_run else None,
        force=force if kind == "apply" else None,
    )
    headers = {"accept": "application/json", "content-type": PATCH_TYPES[kind]}
    return Request("PATCH", path(resource, namespace, name, subresource), text, headers, _encode(body))


def delete(
    resource: Resource,
    name: str,
    namespace: str | None = None,
    *,
    propagation: str | None = None,
    grace_seconds: int | None = None,
    uid: str | None = None,
    resource_version: str | None = None,
    dry_run: bool = False,
) -> Request:
    """Return a delete.

    The response is a Status, or the object if its deletion takes time (finalizers,
    grace).
    """
    options = delete_options(propagation, grace_seconds, uid, resource_version, dry_run)
    return Request("DELETE", path(resource, namespace, name), "", _JSON, _encode(options))


def delete_collection(
    resource: Resource,
    namespace: str | None = None,
    *,
    labels: str = "",
    fields: str = "",
    propagation: str | None = None,
    grace_seconds: int | None = None,
) -> Request:
    options = delete_options(propagation, grace_seconds)
    text = query(labelSelector=labels, fieldSelector=fields)
    return Request("DELETE", path(resource, namespace), text, _JSON, _encode(options))


def delete_options(
    propagation: str | None = None,
    grace_seconds: int | None = None,
    uid: str | None = None,
    resource_version: str | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """``propagation`` is Background, Foreground or Orphan."""
    options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if propagation is not None:
        options["propagationPolicy"] = propagation
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    preconditions = {name: value for name, value in preconditions.items() if value is not None}
    if preconditions:
        options["preconditions"] = preconditions
    if dry_run:
        options["dryRun"] = ["All"]
    return options


def bind(
    namespace: str, name: str, node: str, *, uid: str, annotations: Mapping[str, str] | None = None
) -> Request:
    """Bind a pod to a node.

    ``uid`` is a precondition. ``annotations`` are merged into the pod's. The response
    is 409 if the pod is already bound, gated, deleted, or another one by now.
    """
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if uid:
        metadata["uid"] = uid
    if annotations:
        metadata["annotations"] = dict(annotations)
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata,
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    return Request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/binding", "", _JSON, _encode(body))


def evict(namespace: str, name: str, *, uid: str | None = None, grace_seconds: int | None = None) -> Request:
    """Evict a pod through its Eviction subresource. The response is 429 if a budget forbids it."""
    body: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
    }
    if uid is not None or grace_seconds is not None:
        body["deleteOptions"] = delete_options(None, grace_seconds, uid)
    return Request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", "", _JSON, _encode(body))


def logs(
    namespace: str,
    name: str,
    *,
    container: str | None = None,
    follow: bool = False,
    previous: bool = False,
    tail_lines: int | None = None,
    since_seconds: int | None = None,
    timestamps: bool = False,
    limit_bytes: int | None = None,
) -> Request:
    text = query(
        container=container,
        follow=follow or None,
        previous=previous or None,
        tailLines=tail_lines,
        sinceSeconds=since_seconds,
        timestamps=timestamps or None,
        limitBytes=limit_bytes,
    )
    return Request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}/log", text, {"accept": "*/*"})


def _namespace_of(resource: Resource, obj: Mapping[str, Any], namespace: str | None) -> str | None:
    if not resource.namespaced:
        return None
    return namespace or (obj.get("metadata") or {}).get("namespace") or "default"


def _typed(resource: Resource, obj: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object with apiVersion and kind. An object of a custom kind must have them."""
    if "kind" in obj and "apiVersion" in obj:
        return obj
    return {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
