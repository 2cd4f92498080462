"""Kubernetes' protobuf bodies: the envelope, and a decoder driven by the type table.

The envelope is ``k8s\\0`` and a ``runtime.Unknown``. Field numbers come with the type data
(:mod:`windlass.api.wire.schema`); structs that Go inlines in JSON are nested messages here, so a field
number may be a path. Answers are always JSON, hence there is no encoder.
"""

from __future__ import annotations

import base64
import struct as binary
from collections.abc import Iterator
from functools import cache
from typing import Any

from windlass.api.wire.decode import json_value
from windlass.api.wire.field_walk import zero
from windlass.api.wire.schema import SchemaNode, Struct
from windlass.kits.timestamps import rfc3339, rfc3339_micro

MAGIC = b"k8s\x00"
_SIGN = 1 << 63


class NotKubernetesProtobuf(ValueError):
    """The bytes are no such message; the text is the real server's."""


def decode(struct: Struct, body: bytes) -> dict[str, Any]:
    """The object in an enveloped message, in its JSON form. Raises :class:`NotKubernetesProtobuf`."""
    if not body.startswith(MAGIC):
        raise NotKubernetesProtobuf(
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
        )
    try:
        envelope = {number: value for number, _, value in records(body[4:])}
        meta = {number: value.decode() for number, _, value in records(envelope.get(1, b""))}
        raw = envelope.get(2, b"")
        content_type = envelope.get(4, b"").decode()
        if content_type == "application/json":
            value = json_value(raw)
        else:
            value = message(struct, raw)
    except NotKubernetesProtobuf:
        raise
    except (IndexError, ValueError, AttributeError, TypeError, RecursionError, binary.error):
        raise NotKubernetesProtobuf("proto: unexpected EOF") from None
    if meta.get(1):
        value["apiVersion"] = meta[1]
    if meta.get(2):
        value["kind"] = meta[2]
    return value


def message(struct: Struct, raw: bytes) -> dict[str, Any]:
    """One message as the JSON object that Go would write for it."""
    result: dict[str, Any] = {}
    _fill(result, raw, _table(struct))
    return result


@cache
def _table(struct: Struct) -> dict[int, Any]:
    """Field number → (JSON name, node), or a nested table for an inlined struct."""
    table: dict[int, Any] = {}
    for name, node in struct.fields.items():
        if not node.numbers:
            continue
        at = table
        for number in node.numbers[:-1]:
            at = at.setdefault(number, {})
        at[node.numbers[-1]] = (name, node)
    return table


def _fill(result: dict[str, Any], raw: bytes, table: dict[int, Any]) -> None:
    for number, wire, value in records(raw):
        entry = table.get(number)
        if entry is None:
            continue
        if type(entry) is dict:
            _fill(result, value, entry)
            continue
        name, node = entry
        if node.kind == "list":
            items = result.setdefault(name, [])
            if wire == 2 and node.item.kind in ("integer", "boolean"):
                items.extend(_scalar(node.item, number) for number in _varints(value))
            else:
                items.append(_value(node.item, value))
        elif node.kind == "map":
            key, item = _entry(node.item, value)
            result.setdefault(name, {})[key] = item
        else:
            decoded = _value(node, value)
            if decoded is not None and (decoded or not node.omit):
                result[name] = decoded


def _entry(node: SchemaNode, raw: bytes) -> tuple[str, Any]:
    key, item = "", zero(node)
    for number, _, value in records(raw):
        if number == 1:
            key = value.decode()
        elif number == 2:
            item = _value(node, value)
    return key, item


def _value(node: SchemaNode, value: Any) -> Any:
    match node.kind:
        case "string":
            return value.decode()
        case "struct":
            return message(node.struct, value)  # type: ignore[arg-type]
        case "bytes":
            return base64.b64encode(value).decode()
        case "quantity":
            return _first(value, 1, b"").decode() or "0"
        case "time" | "microtime":
            return _time(value, micro=node.kind == "microtime")
        case "int-or-string":
            fields = {number: item for number, _, item in records(value)}
            return fields.get(3, b"").decode() if fields.get(1) else _signed(fields.get(2, 0))
        case "any":
            raw = _first(value, 1, b"")
            return json_value(raw) if raw else None
        case "list":
            return [_value(node.item, item) for _, _, item in records(value)]  # type: ignore[arg-type]
        case "duration":
            return _duration(_signed(_first(value, 1, 0)))
        case "number":
            return binary.unpack("<d", value)[0]
    return _scalar(node, value)


def _scalar(node: SchemaNode, value: int) -> Any:
    return bool(value) if node.kind == "boolean" else _signed(value)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= _SIGN else value


def _first(raw: bytes, wanted: int, default: Any) -> Any:
    for number, _, value in records(raw):
        if number == wanted:
            return value
    return default


def _time(raw: bytes, *, micro: bool) -> str | None:
    fields = {number: value for number, _, value in records(raw)}
    if not raw:
        return None
    seconds, nanos = _signed(fields.get(1, 0)), _signed(fields.get(2, 0))
    if seconds <= -62135596800:  # Go's zero time
        return None
    if not micro:
        return rfc3339(seconds)
    return f"{rfc3339_micro(seconds)[:-8]}.{nanos // 1000:06d}Z"


def _duration(nanoseconds: int) -> str:
    """Go's text of a duration, ``1h30m0s``, ``1.5s``."""
    sign, rest = ("-" if nanoseconds < 0 else ""), abs(nanoseconds)
    minutes, rest = divmod(rest, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{rest / 10**9:.9f}".rstrip("0").rstrip(".")
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}s"
    return f"{sign}{minutes}m{seconds}s" if minutes else f"{sign}{seconds}s"


def _varints(raw: bytes) -> Iterator[int]:
    position = 0
    while position < len(raw):
        value, position = _varint(raw, position)
        yield value


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    byte = raw[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = raw[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position + 1
        shift += 7
        if shift > 63:
            raise NotKubernetesProtobuf("proto: integer overflow")


def records(raw: bytes) -> Iterator[tuple[int, int, Any]]:
    """(field number, wire type, value) of every record; value is bytes or an unsigned integer. Raises ``IndexError``
    and ``ValueError`` where the message breaks off."""
    position, end = 0, len(raw)
    while position < end:
        tag, position = _varint(raw, position)
        wire = tag & 7
        if wire == 2:
            size, position = _varint(raw, position)
            stop = position + size
            if stop > end:
                raise NotKubernetesProtobuf("proto: unexpected EOF")
            yield tag >> 3, 2, raw[position:stop]
            position = stop
        elif wire == 0:
            value, position = _varint(raw, position)
            yield tag >> 3, 0, value
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            yield tag >> 3, wire, raw[position : position + size]
            position += size
        else:
            raise NotKubernetesProtobuf(f"proto: illegal wireType {wire}")
