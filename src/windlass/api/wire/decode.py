"""Request bodies: JSON, YAML and Kubernetes' protobuf envelope become plain dicts.

Error texts are those of kube-apiserver. Keys that occur twice are remembered in the result's
``duplicates`` (:class:`Body`), since field validation must tell of them; the last value wins.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.api import errors
from windlass.api.resources import Resource
from windlass.api.wire import schema
from windlass.api.wire.schema import Struct

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
ACCEPTED = (JSON, YAML, PROTOBUF)

MAX_DEPTH = 256
"""Maximum nesting of objects and lists in a body.

Go takes 10000. The code that copies, merges and checks objects is recursive, and Python's stack
ends much earlier.
"""

_encode = msgspec.json.Encoder().encode
_TOO_DEEP = "exceeded max depth"
_YAML_WORDS = ("application/yaml", "text/yaml", "application/x-yaml", "application/apply-patch+yaml")


class Body(dict[str, Any]):
    """A decoded object. ``duplicates``: paths of keys that the text held more than once."""

    __slots__ = ("duplicates",)

    def __init__(self, value: dict[str, Any], duplicates: Sequence[str]) -> None:
        super().__init__(value)
        self.duplicates = tuple(duplicates)


def media_type(content_type: str) -> str:
    """The type without parameters, lower case; empty counts as JSON."""
    return content_type.partition(";")[0].strip().lower() or JSON


def unsupported_media_type(accepted: Sequence[str] = ACCEPTED) -> errors.StatusError:
    return errors.failure(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted),
    )


def decode_body(resource: Resource, content_type: str, body: bytes) -> dict[str, Any]:
    """The object in ``body``, with apiVersion and kind checked against ``resource`` (or filled in).

    Raises :class:`StatusError` 400 for what is no such object, 415 for a type that is not understood.
    """
    struct = schema.for_kind(resource.group, resource.version, resource.kind)
    return decode_kind(resource, struct, content_type, body)


def decode_kind(resource: Resource, struct: Struct | None, content_type: str, body: bytes) -> dict[str, Any]:
    """Like :func:`decode_body`, for bodies that are no resource of their own (Binding, Eviction)."""
    match media_type(content_type):
        case "application/json":
            obj = parse_json(resource.kind, body)
        case "application/vnd.kubernetes.protobuf":
            if resource.custom or struct is None:
                raise unsupported_media_type((JSON, YAML))
            obj = _parse_protobuf(resource.kind, struct, body)
        case word if word in _YAML_WORDS:
            obj = parse_yaml(resource.kind, body)
        case _:
            raise unsupported_media_type((JSON, YAML) if resource.custom else ACCEPTED)
    _check_kind(resource, obj, body)
    return obj


def decode_options(content_type: str, body: bytes) -> dict[str, Any]:
    """The DeleteOptions of a DELETE; an empty body gives an empty dict. Unknown fields are ignored.

    Raises :class:`StatusError` 400.
    """
    from windlass.api.wire import field_review  # the walk needs schemas; a DELETE without body does not

    if not body.strip():
        return {}
    struct = schema.builtin(f"{schema.META}DeleteOptions")
    match media_type(content_type):
        case "application/vnd.kubernetes.protobuf":
            obj = _parse_protobuf("DeleteOptions", struct, body)
        case word if word in _YAML_WORDS:
            obj = parse_yaml("DeleteOptions", body)
        case "application/json":
            obj = parse_json("DeleteOptions", body)
        case _:
            raise unsupported_media_type()
    report = field_review.review_struct(struct, obj)
    if report.errors:
        raise errors.bad_request(report.errors[0])
    return report.object


def unrecognized(kind: str, why: str, body: bytes) -> errors.StatusError:
    return errors.bad_request(
        f"the object provided is unrecognized (must be of type {kind}): {why} ({_shown(body)})"
    )


def _shown(body: bytes) -> str:
    """As apimachinery's ``trim``: printable text as it is, else hex; at most 30 characters."""
    if not body:
        return "<empty>"
    if any(byte < 0x20 or byte > 0x7E for byte in body) or not body.lstrip().startswith((b"{", b'"')):
        text = body.hex()
    else:
        text = body.decode()
    return text if len(text) <= 30 else f"{text[:30]} ..."


# --- JSON ---------------------------------------------------------------------------------------------


def parse_json(kind: str, body: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises 400 for other text."""
    try:
        value = json_value(body)
    except JsonError as error:
        raise unrecognized(kind, f"couldn't get version/kind; json parse error: {error}", body) from None
    if type(value) is not dict:
        raise unrecognized(kind, _not_an_object(value), body)
    if may_repeat_keys(body, value):
        duplicates = duplicate_paths(body)
        if duplicates:
            return Body(value, duplicates)
    return value


class JsonError(ValueError):
    """Invalid JSON text. The message is Go's."""


def json_value(body: bytes) -> Any:
    """Return the value of a JSON text of at most :data:`MAX_DEPTH` levels. Raises :class:`JsonError`."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise JsonError(go_syntax(body)) from None
    except RecursionError:
        raise JsonError(_TOO_DEEP) from None
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and deeper_than(value, MAX_DEPTH):
        raise JsonError(_TOO_DEEP)
    return value


def deeper_than(value: Any, depth: int) -> bool:
    """Return whether objects and lists are nested in ``value`` more than ``depth`` levels."""
    level = [value]
    for _ in range(depth + 1):
        level = [
            item
            for inner in level
            if isinstance(inner, dict | list)
            for item in (inner.values() if isinstance(inner, dict) else inner)
        ]
        if not level:
            return False
    return any(isinstance(inner, dict | list) for inner in level)


def may_repeat_keys(body: bytes, value: Any) -> bool:
    """Return whether some key may occur twice in one object of ``body``; ``value`` is what it decodes to.

    Written out again, ``value`` is the body itself, or has as many quotation marks, unless keys got lost.
    Escapes by number, which may hide quotation marks, are left to the exact search.
    """
    written = _encode(value)
    if written == body:
        return False
    if b"\\" in body and b"\\u" in body:
        return True
    return body.count(b'"') != written.count(b'"')


def _not_an_object(value: Any) -> str:
    found = {str: "string", bool: "bool", int: "number", float: "number", list: "array"}.get(
        type(value), "null"
    )
    return (
        f"couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of "
        'type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
        'Kind string "json:\\"kind,omitempty\\"" }'
    )


def duplicate_paths(body: bytes) -> list[str]:
    """Paths of the keys that occur more than once in one object of a valid JSON text."""

    def pairs(items: list[tuple[str, Any]]) -> Any:
        twice = []
        result: dict[str, Any] = {}
        for key, item in items:
            if key in result and key not in twice:
                twice.append(key)
            result[key] = item
        return _Marked(result, twice) if twice else result

    found: list[str] = []
    _collect(json.loads(body, object_pairs_hook=pairs), "", found)
    return found


class _Marked(dict[str, Any]):
    def __init__(self, value: dict[str, Any], twice: list[str]) -> None:
        super().__init__(value)
        self.twice = twice


def _collect(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, dict):
        twice = value.twice if isinstance(value, _Marked) else ()
        for key, item in value.items():
            inner = f"{path}.{key}" if path else key
            if key in twice:
                found.append(inner)
            _collect(item, inner, found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _collect(item, f"{path}[{index}]", found)


def go_syntax(body: bytes) -> str:
    """Go's words for what is wrong with a JSON text."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "invalid character '\\ufffd' in string literal"
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :].lstrip()
        if not rest or error.msg.startswith("Unterminated string"):
            return "unexpected end of JSON input"
        shown = {"'": "'\\''", '"': "'\"'"}.get(rest[0], f"'{rest[0]}'")
        if error.msg == "Extra data":
            return f"invalid character {shown} after top-level value"
        if error.msg.startswith("Expecting property name"):
            return f"invalid character {shown} looking for beginning of object key string"
        if error.msg.startswith("Expecting ':'"):
            return f"invalid character {shown} after object key"
        if error.msg.startswith("Expecting ','"):
            return f"invalid character {shown} after object key:value pair or array element"
        return f"invalid character {shown} looking for beginning of value"
    except RecursionError:
        return _TOO_DEEP
    return "invalid JSON text"  # accepted here and refused by the strict decoder: NaN, lone surrogates


# --- YAML ---------------------------------------------------------------------------------------------


def parse_yaml(kind: str, body: bytes) -> dict[str, Any]:
    """One YAML document as an object, with the rules of sigs.k8s.io/yaml (:mod:`windlass.api.wire.yaml_text`)."""
    from windlass.api.wire import yaml_text  # PyYAML is loaded only when YAML comes

    try:
        value, duplicates = yaml_text.load_one(body)
    except yaml_text.YamlError as error:
        raise unrecognized(kind, f"error converting YAML to JSON: yaml: {error}", body) from None
    if deeper_than(value, MAX_DEPTH):
        raise unrecognized(kind, f"error converting YAML to JSON: {_TOO_DEEP}", body)
    if type(value) is not dict:
        raise unrecognized(kind, _not_an_object(value), body)
    return Body(value, duplicates) if duplicates else value


# --- protobuf -----------------------------------------------------------------------------------------


def _parse_protobuf(kind: str, struct: Struct, body: bytes) -> dict[str, Any]:
    from windlass.api.wire import protobuf

    try:
        return protobuf.decode(struct, body)
    except protobuf.NotKubernetesProtobuf as error:
        raise unrecognized(kind, str(error), body) from None


# --- apiVersion and kind ------------------------------------------------------------------------------


def _check_kind(resource: Resource, obj: dict[str, Any], body: bytes) -> None:
    version, kind = obj.get("apiVersion"), obj.get("kind")
    for name, value in (("apiVersion", version), ("kind", kind)):
        if value is not None and not isinstance(value, str):
            found = {bool: "bool", int: "number", float: "number", list: "array"}.get(type(value), "object")
            raise unrecognized(
                resource.kind,
                f"couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go struct "
                f"field .{name} of type string",
                body,
            )
    if resource.custom:
        _check_custom_kind(resource, version, kind)
    elif (version or resource.api_version) != resource.api_version or (
        kind or resource.kind
    ) != resource.kind:
        _refuse_kind(resource, version or resource.api_version, kind or resource.kind)
    obj["apiVersion"], obj["kind"] = resource.api_version, resource.kind


def _check_custom_kind(resource: Resource, version: str | None, kind: str | None) -> None:
    if not kind:
        raise errors.bad_request("Object 'Kind' is missing: the body of a custom resource names its kind")
    if not version:
        raise errors.bad_request(
            f"Object 'apiVersion' is missing: write apiVersion: {resource.api_version} into the body"
        )
    if version != resource.api_version:
        raise errors.bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    if kind != resource.kind:
        raise errors.bad_request(
            f"the kind in the data ({kind}) does not match the expected kind ({resource.kind})"
        )


def _refuse_kind(resource: Resource, version: str, kind: str) -> None:
    group, _, number = version.rpartition("/")
    shown = number or version
    if schema.for_kind(group, number, kind) is not None:
        why = f"converting ({shown}.{kind}) to ({resource.kind}): unknown conversion"
    else:
        why = f'no kind "{kind}" is registered for version "{version}"'
    raise errors.bad_request(f'{kind} in version "{shown}" cannot be handled as a {resource.kind}: {why}')
