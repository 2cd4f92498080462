"""Encoding of stored objects into the representation that the client accepts.

The plain representation needs no decoding: ``kind`` and ``apiVersion`` are prepended to
the stored object. Alias
versions of a kind are served in the same way. Other representations decode the parts
that they need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from windlass.api.resources import Resource
from windlass.server.request.events_v1 import to_events_v1
from windlass.store.records import Entry, Op

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_LINE = {op: b'{"type":"%b","object":' % op.name.encode() for op in Op}
_BOOKMARK = b'{"type":"BOOKMARK","object":'
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Presenter(Protocol):
    """Representation of one kind.

    ``key``: identifies presenters with equal output.
    """

    key: str
    content_type: str

    def single(self, entry: Entry) -> bytes:
        """Return the body of a response with one object, ending in a newline."""
        ...

    def open_list(self, metadata: dict[str, Any]) -> bytes:
        """Return the part before the items. ``metadata``: the list's metadata."""
        ...

    def items(self, entries: Sequence[Entry]) -> bytes:
        """Return items, separated by commas."""
        ...

    def close_list(self) -> bytes: ...

    def line(self, op: Op, entry: Entry, *, first: bool) -> bytes:
        """Return one line of a watch. ``first``: it is the first line of its stream."""
        ...

    def bookmark(self, rv: int, *, initial_end: bool, first: bool) -> bytes: ...


class ObjectPresenter:
    """Presenter of the objects themselves."""

    content_type = "application/json"

    def __init__(self, resource: Resource) -> None:
        self.key = f"object:{resource.api_version}"
        self._resource = resource
        self._head = b'{"kind":"%b","apiVersion":"%b",' % (
            resource.kind.encode(),
            resource.api_version.encode(),
        )
        self._lines = {op: line + self._head for op, line in _LINE.items()}
        self._between = b"," + self._head

    def single(self, entry: Entry) -> bytes:
        return b"%b%b\n" % (self._head, entry.data[1:])

    def open_list(self, metadata: dict[str, Any]) -> bytes:
        resource = self._resource
        if resource.custom:
            metadata = {"continue": "", **metadata}
        head = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata}
        return _encode(head)[:-1] + b',"items":['

    def items(self, entries: Sequence[Entry]) -> bytes:
        if not self._resource.custom:
            return b",".join([entry.data for entry in entries])
        return self._head + self._between.join([entry.data[1:] for entry in entries]) if entries else b""

    def close_list(self) -> bytes:
        return b"]}\n"

    def line(self, op: Op, entry: Entry, *, first: bool) -> bytes:
        return b"%b%b}\n" % (self._lines[op], entry.data[1:])

    def bookmark(self, rv: int, *, initial_end: bool, first: bool) -> bytes:
        resource = self._resource
        return b"%b%b}\n" % (
            _BOOKMARK,
            _encode(
                {
                    "kind": resource.kind,
                    "apiVersion": resource.api_version,
                    "metadata": bookmark_metadata(rv, initial_end),
                }
            ),
        )


def bookmark_metadata(rv: int, initial_end: bool) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": str(rv)}
    if initial_end:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return metadata


class ConvertingPresenter(ObjectPresenter):
    """Presenter of objects that are stored in another form: decodes and converts each."""

    def __init__(self, resource: Resource, convert: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        super().__init__(resource)
        if resource.definition is not None:
            self.key += f":{resource.definition.revision}"
        self._convert = convert

    def _converted(self, entry: Entry) -> Entry:
        obj = self._convert(_decode(entry.data))
        obj.pop("kind", None)
        obj.pop("apiVersion", None)
        metadata = obj.pop("metadata")
        data = _encode({"metadata": metadata, **obj})
        return Entry(entry.namespace, entry.name, entry.rv, entry.row, data, entry.labels, entry.fields)

    def single(self, entry: Entry) -> bytes:
        return super().single(self._converted(entry))

    def items(self, entries: Sequence[Entry]) -> bytes:
        return super().items([self._converted(entry) for entry in entries])

    def line(self, op: Op, entry: Entry, *, first: bool) -> bytes:
        return super().line(op, self._converted(entry), first=first)


class _MetadataOnly(msgspec.Struct, gc=False):
    metadata: msgspec.Raw


class MetadataPresenter:
    """Presenter of ``PartialObjectMetadata``: metadata only."""

    content_type = "application/json"
    _read = msgspec.json.Decoder(_MetadataOnly).decode

    def __init__(self, version: str) -> None:
        self.key = f"metadata:{version}"
        self._version = version
        self._head = (
            b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/%b","metadata":' % version.encode()
        )

    def _object(self, entry: Entry) -> bytes:
        return b"%b%b}" % (self._head, bytes(self._read(entry.data).metadata))

    def single(self, entry: Entry) -> bytes:
        return self._object(entry) + b"\n"

    def open_list(self, metadata: dict[str, Any]) -> bytes:
        head = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": f"meta.k8s.io/{self._version}",
            "metadata": metadata,
        }
        return _encode(head)[:-1] + b',"items":['

    def items(self, entries: Sequence[Entry]) -> bytes:
        return b",".join([self._object(entry) for entry in entries])

    def close_list(self) -> bytes:
        return b"]}\n"

    def line(self, op: Op, entry: Entry, *, first: bool) -> bytes:
        return b"%b%b}\n" % (_LINE[op], self._object(entry))

    def bookmark(self, rv: int, *, initial_end: bool, first: bool) -> bytes:
        return b"%b%b%b}}\n" % (_BOOKMARK, self._head, _encode(bookmark_metadata(rv, initial_end)))


def error_line(status: dict[str, Any]) -> bytes:
    """Return the ERROR event that ends a watch."""
    return b'{"type":"ERROR","object":%b}\n' % _encode(status)


def to_yaml(body: bytes) -> bytes:
    """Return a JSON response as YAML."""
    import yaml

    return yaml.safe_dump(_decode(body), default_flow_style=False, sort_keys=True).encode()


@lru_cache(maxsize=1024)
def object_presenter(resource: Resource) -> ObjectPresenter:
    """Return the presenter of plain objects.

    It converts kinds that are stored in another form.
    """
    if resource.group == "events.k8s.io":
        return ConvertingPresenter(resource, to_events_v1)
    definition = resource.definition
    if definition is not None and definition.changed:
        return ConvertingPresenter(resource, definition.read)
    return ObjectPresenter(resource)
