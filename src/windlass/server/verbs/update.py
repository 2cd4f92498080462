"""PUT and PATCH: changes of objects and of their status."""

from __future__ import annotations

from typing import Any

from windlass.api.errors import FieldError, bad_request, conflict, invalid, not_found
from windlass.api.resources import EVENTS_V1, NAMESPACES, Resource
from windlass.api.wire import patch_types
from windlass.client.transport import Response
from windlass.server import object_meta
from windlass.server.core import Call, ServerCore, decoded, metadata_of, translated
from windlass.server.presentation import responses
from windlass.server.presentation.presenter import object_presenter
from windlass.server.request.events_v1 import to_events_v1
from windlass.server.request.params import WriteOptions, options_invalid, version, write_options
from windlass.server.verbs.create import OTHER_NAMESPACE, create_object, inbound, reviewed
from windlass.store import errors as store_errors
from windlass.store.records import Entry, preview


async def update(core: ServerCore, call: Call) -> Response:
    """Handle PUT. Raises StatusError."""
    target = call.target
    options = write_options(call.params, "UpdateOptions")
    obj = inbound(call, options.validation)
    metadata = metadata_of(obj)
    _check_name(target.resource, target.name, target.namespace, metadata)
    head = core.head(target)
    if head is None:
        if target.stored not in object_meta.CREATED_BY_UPDATE or target.subresource or metadata.get("uid"):
            raise not_found(target.resource, target.name)
        metadata.pop("resourceVersion", None)
        entry = await create_object(core, call, obj, dry_run=options.dry_run)
        return responses.body(201, object_presenter(target.resource).single(entry), call.form)
    requested = version(str(metadata.get("resourceVersion") or ""))
    if not requested and object_meta.needs_version(target.stored):
        raise invalid(
            target.resource,
            target.name,
            [FieldError.invalid("metadata.resourceVersion", 0, "must be specified for an update")],
        )
    entry = await change(core, call, head, obj, options)
    return responses.body(200, object_presenter(target.resource).single(entry), call.form)


async def patch(core: ServerCore, call: Call) -> Response:
    """Handle PATCH. Raises StatusError."""
    target = call.target
    kind = patch_types.kind_of(target.resource, call.content_type)
    options = write_options(call.params, "PatchOptions")
    if options.force:
        raise options_invalid(
            "PatchOptions", [FieldError.forbidden("force", "may not be specified for non-apply patch")]
        )
    head = core.head(target)
    if head is None:
        raise not_found(target.resource, target.name)
    original = outbound(target.resource, target.stored, decoded(target.stored, head))
    body = patch_types.parse_patch(kind, target.resource, call.request.body)
    touched = _touched(kind, body)
    obj = patch_types.apply_patch(kind, target.resource, original, body, fresh=True)
    obj["kind"], obj["apiVersion"] = target.resource.kind, target.resource.api_version
    metadata = metadata_of(obj)
    _check_name(target.resource, target.name, target.namespace, metadata)
    obj = reviewed(call, obj, options.validation, patch=True, touched=touched)
    entry = await change(core, call, head, obj, options)
    return responses.body(200, object_presenter(target.resource).single(entry), call.form)


async def change(
    core: ServerCore, call: Call, head: Entry, new: dict[str, Any], options: WriteOptions
) -> Entry:
    """Store ``new`` in place of ``head``, after rules and admission.

    Nothing is stored if nothing changes.
    """
    target, resource = call.target, call.target.stored
    requested = version(str(new["metadata"].get("resourceVersion") or ""))
    if requested and requested != head.rv:
        raise conflict(target.resource, target.name)
    old = decoded(resource, head)
    object_meta.prepare_update(resource, new, old, target.subresource)
    new = core.admit(call, "UPDATE", new, old, dry_run=options.dry_run)
    if object_meta.unchanged(new, old):
        if not options.dry_run:
            await core.store.reached(head.rv)
        return head
    try:
        if options.dry_run:
            return preview(target.namespace, target.name, new, head)
        if completes_deletion(resource, new, old):
            return await core.store.delete(
                target.table, target.namespace, target.name, expected=head.rv, last=new
            )
        return await core.store.update(target.table, target.namespace, target.name, new, expected=head.rv)
    except store_errors.StoreError as error:
        raise translated(error, target.resource, target.name)


def completes_deletion(resource: Resource, new: dict[str, Any], old: dict[str, Any]) -> bool:
    """Return whether this update removes the last finalizer of a deleted object."""
    metadata = new["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if resource is NAMESPACES:
        return not (new.get("spec") or {}).get("finalizers")
    return not old["metadata"].get("deletionGracePeriodSeconds")


def outbound(resource: Resource, stored: Resource, obj: dict[str, Any]) -> dict[str, Any]:
    """Return a stored object as the URL's kind."""
    if resource is EVENTS_V1:
        return to_events_v1(obj)
    if stored is not resource:
        obj["apiVersion"] = resource.api_version
    return obj


def _touched(kind: str, patch: Any) -> frozenset[str] | None:
    """Return the top-level fields that a patch may change; ``None``: any field."""
    if kind == "json":
        pointers = [step[key] for step in patch for key in ("path", "from") if isinstance(step.get(key), str)]
        if "" in pointers:
            return None
        return frozenset(pointer.split("/", 2)[1] for pointer in pointers if pointer.startswith("/"))
    if any(key.startswith("$") for key in patch):
        return None
    return frozenset(patch)


def _check_name(resource: Resource, name: str, namespace: str, metadata: dict[str, Any]) -> None:
    requested = metadata.get("name")
    if not requested:
        raise bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    if requested != name:
        raise bad_request(f"the name of the object ({requested}) does not match the name on the URL ({name})")
    if metadata.get("namespace") and metadata["namespace"] != namespace:
        raise bad_request(OTHER_NAMESPACE)
    if resource.namespaced:
        metadata["namespace"] = namespace
