"""POST: creation of objects."""

from __future__ import annotations

from typing import Any

from windlass.api.annotations import WRITTEN_AS
from windlass.api.errors import already_exists, bad_request, failure
from windlass.api.resources import EVENTS_V1, MPI_JOBS, PODS, Resource
from windlass.api.wire import decode, field_review
from windlass.client.transport import Response
from windlass.kits.rng import name_suffix
from windlass.server import object_meta
from windlass.server.admission import claims
from windlass.server.core import Call, ServerCore, decoded, metadata_of, require_name, translated
from windlass.server.presentation import responses
from windlass.server.presentation.presenter import object_presenter
from windlass.server.request.events_v1 import to_core
from windlass.server.request.params import write_options
from windlass.server.request.routing import RequestTarget
from windlass.store import errors as store_errors
from windlass.store.records import Entry, preview

OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"
_GENERATED_BASE = 58
"""Maximum length of the prefix from ``generateName``: 63 less five random characters."""
_GENERATE_ATTEMPTS = 8
_ALWAYS_REVIEWED = frozenset(("kind", "apiVersion", "metadata"))


async def create(core: ServerCore, call: Call) -> Response:
    """Handle POST of an object. Raises StatusError."""
    target = call.target
    options = write_options(call.params, "CreateOptions")
    obj = inbound(call, options.validation)
    metadata = metadata_of(obj)
    _place(target.resource, target.namespace, metadata)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = _free_name(core, call.target, str(metadata["generateName"]))
    entry = await create_object(core, call, obj, dry_run=options.dry_run)
    return responses.body(201, object_presenter(target.resource).single(entry), call.form)


def _free_name(core: ServerCore, target: RequestTarget, base: str) -> str:
    """Return a random free name.

    After a few attempts, the name may be taken (the response is then 409).
    """
    name = ""
    for _ in range(_GENERATE_ATTEMPTS):
        name = base[:_GENERATED_BASE] + name_suffix(core.rng)
        if core.store.head(target.table, target.namespace, name) is None:
            break
    return name


async def create_object(core: ServerCore, call: Call, obj: dict[str, Any], *, dry_run: bool) -> Entry:
    """Admit and store a new object in the stored form. Raises StatusError."""
    resource, target = call.target.stored, call.target
    name = str(obj["metadata"].get("name") or "")
    object_meta.prepare_create(resource, obj, core.rng, core.clock.now())
    admitted = core.admit(call, "CREATE", obj, None, dry_run=dry_run, name=name)
    name = require_name(resource, admitted["metadata"])
    store = core.store
    try:
        if dry_run:
            if store.head(target.table, target.namespace, name) is not None:
                raise store_errors.Exists(name)
            return preview(target.namespace, name, admitted)
        return await store.create(target.table, target.namespace, name, admitted)
    except store_errors.Exists:
        present = store.head(target.table, target.namespace, name)
        deleting = present is not None and "deletionTimestamp" in decoded(resource, present)["metadata"]
        raise already_exists(resource, name, deleting=deleting)
    except store_errors.StoreError as error:
        raise translated(error, resource, name)


def inbound(call: Call, validation: str) -> dict[str, Any]:
    """Decode and review a body, and return it in the stored form. Raises 400, 415, 422."""
    target = call.target
    body = call.request.body
    obj = decode.decode_body(target.resource, call.content_type, body)
    return reviewed(call, obj, validation)


def reviewed(
    call: Call,
    obj: dict[str, Any],
    validation: str,
    *,
    patch: bool = False,
    touched: frozenset[str] | None = None,
) -> dict[str, Any]:
    """Review the fields of an object of the URL's kind, and return it in the stored form.

    ``touched``: fields that a patch changes; the other fields are as stored.
    """
    target = call.target
    shape = target.resource
    if shape is PODS and (touched is None or "spec" in touched):
        call.warnings.extend(claims.rewrite(obj))
    if shape is EVENTS_V1:
        report = field_review.review(shape, obj)
        call.warnings.extend(field_review.enforce(shape, report, validation, patch=patch))
        return to_core(report.object)
    if target.stored is not shape:
        obj["apiVersion"] = target.stored.api_version
        if target.stored is not MPI_JOBS:
            call.warnings.append(f"alias: {shape.api_version} -> {target.stored.version}")
    if touched is not None and not shape.custom:
        return _review_part(call, obj, validation, touched)
    report = field_review.review(target.stored, obj)
    call.warnings.extend(field_review.enforce(target.stored, report, validation, patch=patch))
    if target.stored is MPI_JOBS and not target.subresource:
        _record_version(report.object, shape)
    return report.object


def _record_version(obj: dict[str, Any], shape: Resource) -> None:
    """Record the version in which an MPIJob was first written: both versions are one stored kind."""
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict) or metadata.get("uid"):
        return
    annotations = metadata.get("annotations")
    metadata["annotations"] = {**(annotations or {}), WRITTEN_AS: shape.version}


def _review_part(call: Call, obj: dict[str, Any], validation: str, touched: frozenset[str]) -> dict[str, Any]:
    """Review only fields that a patch changes.

    A short status patch should not cost the review of a whole pod.
    """
    stored = call.target.stored
    reviewed_keys = touched | _ALWAYS_REVIEWED
    part: dict[str, Any] = {key: value for key, value in obj.items() if key in reviewed_keys}
    duplicates = getattr(obj, "duplicates", ())
    report = field_review.review(stored, decode.Body(part, duplicates) if duplicates else part)
    call.warnings.extend(field_review.enforce(stored, report, validation, patch=True))
    unchanged = {key: value for key, value in obj.items() if key not in reviewed_keys}
    return {**report.object, **unchanged}


def _place(resource: Resource, namespace: str, metadata: dict[str, Any]) -> None:
    requested = metadata.get("namespace")
    if not resource.namespaced:
        if requested:
            raise bad_request(OTHER_NAMESPACE)
        metadata.pop("namespace", None)
        return
    if not namespace:
        raise failure(
            405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {}
        )
    if requested and requested != namespace:
        raise bad_request(OTHER_NAMESPACE)
    metadata["namespace"] = namespace
