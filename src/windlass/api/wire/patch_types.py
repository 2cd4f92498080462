"""The patch types of the Kubernetes API: JSON patch, JSON merge patch, strategic merge patch.

Neither the original nor the patch is changed; results share nothing with them. What comes out still
has to be reviewed (:mod:`windlass.api.wire.field_review`), defaulted and validated like any body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import errors
from windlass.api.resources import Resource
from windlass.api.wire import decode, schema
from windlass.api.wire.patch_strategic import BadPatchFormat, StrategicMergeError, merge_strategically

CONTENT_TYPES: Mapping[str, str] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
}
"""Media type → the kind of patch that :func:`apply_patch` takes."""

MAX_OPERATIONS = 10_000
_NOT_APPLICABLE = "the server rejected our request due to an error in our request"


def kind_of(resource: Resource, content_type: str) -> str:
    """The kind of a PATCH by its content type. Raises the 415 for types that ``resource`` does not take."""
    kind = CONTENT_TYPES.get(decode.media_type(content_type))
    if kind is None or (kind == "strategic" and resource.custom):
        accepted = [t for t, k in CONTENT_TYPES.items() if not (k == "strategic" and resource.custom)]
        if decode.media_type(content_type) == "application/json":
            raise errors.failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        raise decode.unsupported_media_type(accepted)
    return kind


def parse_patch(kind: str, resource: Resource, body: bytes) -> Any:
    """The patch in ``body``: a list for JSON patch, else an object. Raises 400 in the real server's words."""
    prefix = "" if kind == "strategic" else "error decoding patch: "
    try:
        patch = decode.json_value(body)
    except decode.JsonError as error:
        raise errors.bad_request(f"{prefix}{error}") from None
    found = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
    if kind == "json":
        if not isinstance(patch, list) or not all(isinstance(step, dict) for step in patch):
            word = found.get(type(patch), "null")
            raise errors.bad_request(
                f"{prefix}json: cannot unmarshal {word} into Go value of type []handlers.jsonPatchOp"
            )
        if len(patch) > MAX_OPERATIONS:
            raise errors.failure(
                413,
                "RequestEntityTooLarge",
                f"Request entity too large: the allowed maximum operations in a JSON patch is "
                f"{MAX_OPERATIONS}, got {len(patch)}",
            )
        return patch
    if not isinstance(patch, dict):
        word = found.get(type(patch), "null")
        raise errors.bad_request(
            f"{prefix}json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
        )
    duplicates = decode.duplicate_paths(body) if decode.may_repeat_keys(body, patch) else ()
    return decode.Body(patch, duplicates) if duplicates else patch


def apply_patch(
    kind: str, resource: Resource, original: Mapping[str, Any], patch: Any, *, fresh: bool = False
) -> dict[str, Any]:
    """``original`` with ``patch`` applied. ``kind``: json, merge or strategic.

    ``fresh``: no other code holds ``original`` and ``patch``; they may be modified instead of copied.

    The result is a :class:`windlass.api.wire.decode.Body` when the patch's text held keys twice, so that field
    validation can tell. Raises :class:`StatusError`: 422 for a JSON patch that does not apply or a
    strategic patch of a wrong shape, 415 for a strategic patch of a custom kind.
    """
    base: dict[str, Any] = dict(original) if fresh else copy(original)
    if kind == "json":
        result = json_patch(base, patch)
        if decode.deeper_than(result, decode.MAX_DEPTH):  # a patch may copy a value into itself
            raise errors.bad_request(_NOT_APPLICABLE)
        return result
    if kind == "merge":
        result = merge_patch(base, patch)
    else:
        struct = schema.for_kind(resource.group, resource.version, resource.kind)
        if resource.custom or struct is None:
            raise kind_of_custom_error()
        try:
            result = merge_strategically(base, patch if fresh else copy(patch), struct)
        except BadPatchFormat as error:
            raise errors.bad_request(str(error)) from None
        except StrategicMergeError as error:
            raise errors.failure(
                422,
                "Invalid",
                f' "" is invalid: patch: Invalid value: "patch": {error}',
                {"causes": [{"reason": "FieldValueInvalid", "message": str(error), "field": "patch"}]},
            ) from None
    duplicates = getattr(patch, "duplicates", ())
    return decode.Body(result, duplicates) if duplicates else result


def kind_of_custom_error() -> errors.StatusError:
    return decode.unsupported_media_type([t for t, kind in CONTENT_TYPES.items() if kind != "strategic"])


def copy(value: Any) -> Any:
    """A deep copy of plain JSON."""
    if isinstance(value, Mapping):
        return {key: copy(item) if isinstance(item, dict | list) else item for key, item in value.items()}
    if isinstance(value, list):
        return [copy(item) if isinstance(item, dict | list) else item for item in value]
    return value


# --- JSON merge patch (RFC 7386) ----------------------------------------------------------------------


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386. Changes ``target`` where it is an object."""
    if not isinstance(patch, Mapping):
        return copy(patch)
    result: dict[str, Any] = target if isinstance(target, dict) else {}
    for key, item in patch.items():
        if item is None:
            result.pop(key, None)
        elif isinstance(item, Mapping):
            result[key] = merge_patch(result.get(key), item)
        else:
            result[key] = copy(item)
    return result


# --- JSON patch (RFC 6902) ----------------------------------------------------------------------------


class _Inapplicable(Exception):
    pass


def json_patch(target: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """RFC 6902, in place. Raises the 422 of a patch that does not apply, the 400 of one that is none."""
    document: Any = target
    for operation in operations:
        name, path = operation.get("op"), operation.get("path")
        if name not in ("add", "remove", "replace", "move", "copy", "test") or not isinstance(path, str):
            raise errors.bad_request(
                f"json patch: operation {name!r} at path {path!r} is none of add, remove, replace, move, "
                "copy, test"
            )
        try:
            document = _operate(document, name, path, operation)
        except _Inapplicable:
            raise errors.failure(422, "Invalid", _NOT_APPLICABLE, {}) from None
    if not isinstance(document, dict):
        raise errors.failure(422, "Invalid", _NOT_APPLICABLE, {})
    return document


def _operate(document: Any, name: str, path: str, operation: Mapping[str, Any]) -> Any:
    steps = _pointer(path)
    if name in ("add", "replace", "test"):
        if "value" not in operation and name != "test":
            raise _Inapplicable
        value = copy(operation.get("value"))
    elif name in ("move", "copy"):
        origin = operation.get("from")
        if not isinstance(origin, str):
            raise _Inapplicable
        source = _pointer(origin)
        if name == "move" and steps[: len(source)] == source and steps != source:
            raise _Inapplicable  # into its own child
        value = copy(_get(document, source))
        if name == "move":
            document = _remove(document, source)
    else:
        return _remove(document, steps)
    if name == "test":
        if not same(_get(document, steps, missing=None), value):
            raise _Inapplicable
        return document
    if (
        name == "replace"
    ):  # of a field that is not there: as in kube-apiserver (evanphx/json-patch v4), it is added
        _get(document, steps, missing=None)
        return _put(document, steps, value, insert=False)
    return _put(document, steps, value, insert=True)


def same(left: Any, right: Any) -> bool:
    """Equality of JSON values: ``1`` is not ``true``, ``1`` is ``1.0``."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return left == right


def _pointer(path: str) -> list[str]:
    if path == "":
        return []
    if not path.startswith("/"):
        raise _Inapplicable
    return [part.replace("~1", "/").replace("~0", "~") for part in path[1:].split("/")]


_MISSING = object()


def _get(document: Any, steps: list[str], missing: Any = _MISSING) -> Any:
    for depth, step in enumerate(steps):
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list):
            document = document[_index(step, len(document))]
        elif isinstance(document, dict) and depth == len(steps) - 1 and missing is not _MISSING:
            return missing
        else:
            raise _Inapplicable
    return document


def _index(step: str, length: int, *, insert: bool = False) -> int:
    if insert and step == "-":
        return length
    if not (step.isascii() and step.isdigit()) or (len(step) > 1 and step[0] == "0"):
        raise _Inapplicable
    index = int(step)
    if index >= length + insert:
        raise _Inapplicable
    return index


def _put(document: Any, steps: list[str], value: Any, *, insert: bool) -> Any:
    if not steps:
        return value
    parent = _get(document, steps[:-1])
    if isinstance(parent, dict):
        parent[steps[-1]] = value
    elif isinstance(parent, list):
        index = _index(steps[-1], len(parent), insert=insert)
        if insert:
            parent.insert(index, value)
        else:
            parent[index] = value
    else:
        raise _Inapplicable
    return document


def _remove(document: Any, steps: list[str]) -> Any:
    if not steps:
        raise _Inapplicable
    parent = _get(document, steps[:-1])
    if isinstance(parent, dict) and steps[-1] in parent:
        del parent[steps[-1]]
    elif isinstance(parent, list):
        del parent[_index(steps[-1], len(parent))]
    else:
        raise _Inapplicable
    return document
