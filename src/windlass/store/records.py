"""Records of the store: one version of an object, and one change.

Invariant: ``data`` is a JSON object that starts with
``{"metadata":{"resourceVersion":"N"`` and has neither ``kind`` nor ``apiVersion``. They
follow from the resource and are prepended where a representation needs them. So the
version can be replaced without decoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import msgspec

from windlass.store.index import Fields

_HEAD = b'{"metadata":{"resourceVersion":"'
_OUTSIDE = frozenset(("metadata", "kind", "apiVersion"))
_encode = msgspec.json.Encoder().encode


class Op(IntEnum):
    ADDED = 0
    MODIFIED = 1
    DELETED = 2


class Entry(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One version of one object. ``row`` is the same for all its versions, and never reused."""

    namespace: str
    name: str
    rv: int
    row: int
    data: bytes
    labels: dict[str, str]
    fields: Fields

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def at(self, rv: int) -> Entry:
        """Return this version with another resourceVersion (for an object that leaves a selection)."""
        return Entry(
            self.namespace, self.name, rv, self.row, restamp(self.data, rv), self.labels, self.fields
        )


class StoreEvent(msgspec.Struct, gc=False, eq=False):
    """One committed change.

    ``entry``: new state; for a deletion the last state with the new version.
    ``reindexed``: labels or selectable fields changed.
    ``previous``: absent for ADDED, and if the log no longer has it. Then ``reindexed``
        tells whether that matters.
    ``offset``: bytes of all earlier events of the same table.
    """

    rv: int
    op: Op
    entry: Entry
    previous: Entry | None
    reindexed: bool
    offset: int = 0


def key_of(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def encode(obj: Mapping[str, Any], rv: int) -> bytes:
    """Return the stored form of an object at version ``rv``, without kind and apiVersion."""
    metadata = {"resourceVersion": str(rv)}
    metadata |= {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    out: dict[str, Any] = {"metadata": metadata}
    out |= {key: value for key, value in obj.items() if key not in _OUTSIDE}
    return _encode(out)


def preview(namespace: str, name: str, obj: Mapping[str, Any], head: Entry | None = None) -> Entry:
    """Return the entry of a dry run: at ``head``'s version, or without one."""
    if head is not None:
        return Entry(namespace, name, head.rv, head.row, encode(obj, head.rv), head.labels, head.fields)
    metadata = {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}
    rest = {key: value for key, value in obj.items() if key not in _OUTSIDE}
    return Entry(namespace, name, 0, 0, _encode({"metadata": metadata, **rest}), {}, ())


def restamp(data: bytes, rv: int) -> bytes:
    """Return ``data`` with another resourceVersion. Raises ``ValueError`` on any other form."""
    if not data.startswith(_HEAD):
        raise ValueError("not in the stored form: resourceVersion does not come first")
    return b"%b%d%b" % (_HEAD, rv, data[data.index(b'"', len(_HEAD)) :])


def version_of(data: bytes) -> int:
    """The resourceVersion inside stored bytes. Raises ``ValueError``."""
    if not data.startswith(_HEAD):
        raise ValueError("not in the stored form: resourceVersion does not come first")
    return int(data[len(_HEAD) : data.index(b'"', len(_HEAD))])
