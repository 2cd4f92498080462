"""GET, PUT and PATCH of the subresource ``scale``: the replicas of an object, whatever its kind.

A change of the scale is a write of the object itself, with its defaults, validation and
admission.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.api.errors import FieldError, bad_request, conflict, failure, invalid, not_found
from windlass.api.resources import SCALES, Resource
from windlass.api.wire import decode, field_review, patch_types, schema
from windlass.api.wire.scale import ScalePaths, replicas_of, scale_of, scale_paths, with_replicas
from windlass.client.transport import Response
from windlass.server.core import Call, ServerCore, decoded, metadata_of
from windlass.server.presentation import responses
from windlass.server.presentation.tables import TablePresenter
from windlass.server.request.negotiation import ResponseShape
from windlass.server.request.params import WriteOptions, version, write_options
from windlass.server.request.routing import unknown_resource
from windlass.server.verbs.update import change
from windlass.store.records import Entry

_encode = msgspec.json.Encoder().encode
Json = dict[str, Any]


async def get_scale(core: ServerCore, call: Call) -> Response:
    """Handle GET. Raises StatusError."""
    paths, head = _found(core, call)
    obj = _object(call, head)
    if replicas_of(obj, paths) is None and call.target.resource.custom:
        raise failure(
            500,
            "InternalError",
            f'Internal error occurred: the spec replicas field "{paths.field}" does not exist',
        )
    return _shown(core, call, scale_of(obj, paths), head)


async def update_scale(core: ServerCore, call: Call) -> Response:
    """Handle PUT. Raises StatusError."""
    options = write_options(call.params, "UpdateOptions")
    paths, head = _found(core, call)
    body = decode.decode_kind(
        SCALES, schema.for_kind("autoscaling", "v1", "Scale"), call.content_type, call.request.body
    )
    return await _store(core, call, head, paths, body, options)


async def patch_scale(core: ServerCore, call: Call) -> Response:
    """Handle PATCH. Raises StatusError."""
    kind = patch_types.kind_of(SCALES, call.content_type)
    options = write_options(call.params, "PatchOptions")
    paths, head = _found(core, call)
    body = patch_types.parse_patch(kind, SCALES, call.request.body)
    scale = scale_of(_object(call, head), paths)
    if "resourceVersion" not in ((body.get("metadata") or {}) if isinstance(body, dict) else {}):
        scale["metadata"].pop("resourceVersion", None)
    patched = patch_types.apply_patch(kind, SCALES, scale, body, fresh=True)
    return await _store(core, call, head, paths, patched, options)


def _found(core: ServerCore, call: Call) -> tuple[ScalePaths, Entry]:
    paths = scale_paths(call.target.resource)
    if paths is None:
        raise unknown_resource()
    head = core.head(call.target)
    if head is None:
        raise not_found(call.target.resource, call.target.name)
    return paths, head


def _object(call: Call, head: Entry) -> Json:
    obj = decoded(call.target.stored, head)
    obj["metadata"] = {**obj["metadata"], "resourceVersion": str(head.rv)}
    return obj


async def _store(
    core: ServerCore, call: Call, head: Entry, paths: ScalePaths, scale: Json, options: WriteOptions
) -> Response:
    """Write the replicas of ``scale`` into the object, and respond with the new scale."""
    target = call.target
    report = field_review.review_struct(schema.builtin("io.k8s.api.autoscaling.v1.Scale"), scale)
    call.warnings.extend(field_review.enforce(SCALES, report, options.validation))
    metadata = metadata_of(scale)
    obj = _object(call, head)
    _check(target.resource, target.name, metadata, obj["metadata"])
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if replicas < 0:
        raise invalid(
            SCALES,
            target.name,
            [FieldError.invalid("spec.replicas", replicas, "must be greater than or equal to 0")],
        )
    obj["metadata"].pop("resourceVersion")
    given = str(metadata.get("resourceVersion") or "")
    if given:
        obj["metadata"]["resourceVersion"] = given
    whole = msgspec.structs.replace(call, target=_whole(call))
    entry = await change(core, whole, head, with_replicas(obj, paths, replicas), options)
    stored = _object(call, entry)
    return _shown(core, call, scale_of(stored, paths), entry)


def _whole(call: Call) -> Any:
    """Return the target of a write of the object itself."""
    target = call.target
    return type(target)(target.resource, target.stored, target.table, target.namespace, target.name)


def _check(resource: Resource, name: str, given: Json, present: Json) -> None:
    if given.get("name") not in (None, "", name):
        raise bad_request(
            f"the name of the object ({given['name']}) does not match the name on the URL ({name})"
        )
    if given.get("uid") and given["uid"] != present.get("uid"):
        raise conflict(
            resource,
            name,
            f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {present.get('uid')}",
        )
    version(str(given.get("resourceVersion") or ""))


def _shown(core: ServerCore, call: Call, scale: Json, entry: Entry) -> Response:
    if call.form.shape is not ResponseShape.TABLE:
        return responses.json(200, scale, call.form)
    data = _encode({name: value for name, value in scale.items() if name not in ("kind", "apiVersion")})
    row = Entry(entry.namespace, entry.name, entry.rv, entry.row, data, entry.labels, entry.fields)
    presenter = TablePresenter(
        SCALES, core.clock, version=call.form.version, include=call.params.get("includeObject", "")
    )
    response = responses.body(200, presenter.single(row), call.form)
    response.headers = {"content-type": presenter.content_type}
    return response
