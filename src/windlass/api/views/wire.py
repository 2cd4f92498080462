"""Common parts of all views: object metadata on the wire, interning, and errors that name their field.

Views decode only what Windlass reads. Strings that repeat over many objects (namespaces, label keys
and values, resource names, node names) are interned, so that 100 000 pods stay small. A field of the
wrong type never hides the object: the part that holds it is left empty and a
:class:`~windlass.api.errors.FieldError` says where and why.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from windlass.api.errors import FieldError
from windlass.api.quantities import QuantityError, to_units, to_whole_units
from windlass.kits.timestamps import parse_rfc3339

T = TypeVar("T")
Amounts = dict[str, str | int | float]
"""Quantities by resource, as JSON has them."""
intern = sys.intern
NO_LABELS: Mapping[str, str] = {}
EMPTY = msgspec.Raw(b"")


class OwnerReference(msgspec.Struct, frozen=True, gc=False):
    """An owner reference."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    blocks: bool = False
    """``blockOwnerDeletion``: a foreground deletion of the owner waits for this dependent."""


class OwnerWire(msgspec.Struct, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class MetaWire(msgspec.Struct, gc=False, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerWire] | None = None
    finalizers: list[str] | None = None


class _MetaNames(msgspec.Struct, gc=False, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: Any = None


class ObjectWire(msgspec.Struct, gc=False):
    """Any object, its parts still undecoded."""

    metadata: msgspec.Raw = EMPTY
    spec: msgspec.Raw = EMPTY
    status: msgspec.Raw = EMPTY


_object_decoder = msgspec.json.Decoder(ObjectWire)
_meta_decoder = msgspec.json.Decoder(MetaWire)
_names_decoder = msgspec.json.Decoder(_MetaNames)


def split(raw: bytes | msgspec.Raw) -> ObjectWire:
    """The three parts of an object. Raises ``msgspec.DecodeError`` on what is no JSON object."""
    return _object_decoder.decode(raw)


def metadata(raw: msgspec.Raw, problems: list[FieldError]) -> MetaWire:
    """Metadata; of damaged metadata at least the names.

    Raises ``msgspec.DecodeError`` if the object has no name: nothing can be said about it then.
    """
    try:
        return _meta_decoder.decode(raw)
    except msgspec.ValidationError as error:
        names = _names_decoder.decode(raw)
        problems.append(field_error("metadata", error))
        deleted = names.deletion_timestamp
        return MetaWire(
            names.name,
            names.namespace,
            names.uid,
            names.resource_version,
            deletion_timestamp=deleted if isinstance(deleted, str) else None,
        )


def part(
    decoder: msgspec.json.Decoder[T],
    raw: msgspec.Raw,
    field: str,
    default: Callable[[], T],
    problems: list[FieldError],
) -> T:
    """Decode ``raw``, absent or null meaning ``default()``; so does a wrong shape, with a problem."""
    if raw is EMPTY:
        return default()
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        if bytes(raw) not in (b"", b"null"):
            problems.append(field_error(field, error))
        return default()


def field_error(field: str, error: Exception) -> FieldError:
    """``Expected `int`, got `str` - at `$.spec.x[0]` `` → field ``FIELD.spec.x[0]``, and its words."""
    words, _, place = str(error).partition(" - at ")
    path = place.strip("`").removeprefix("$")
    return FieldError(f"{field}{path}", words or type(error).__name__, "FieldValueTypeInvalid")


@lru_cache(maxsize=8192)
def moment(text: str | None) -> float:
    """Unix seconds of a time stamp; 0.0 if it is absent or no time."""
    if not text:
        return 0.0
    try:
        return parse_rfc3339(text)
    except (ValueError, OverflowError):
        return 0.0


def interned(labels: Mapping[str, str] | None) -> Mapping[str, str]:
    """The same mapping with shared strings."""
    if not labels:
        return NO_LABELS
    return {intern(key): intern(value) for key, value in labels.items()}


_KEPT_PREFIXES = (
    "windlass.dev/",
    "jobset.sigs.k8s.io/in-place-restart-attempt",
    "volcano.sh/",
    "scheduling.k8s.io/",
    "scheduling.volcano.sh/",
    "kai.scheduler/",
    "kueue.x-k8s.io/",
    "batch.kubernetes.io/",
    "gpu-",
    "pod-group-name",
    "nvidia.com/",
    "aliyun.com/",
    "hami.io/",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "controller.kubernetes.io/pod-deletion-cost",
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "provreq.kueue.x-k8s.io/",
    "sla-waiting-time",
)


@lru_cache(maxsize=4096)
def _kept_key(key: str) -> str:
    """The shared key, or ``""`` for an annotation that is not kept."""
    return intern(key) if key.startswith(_KEPT_PREFIXES) else ""


def kept(annotations: Mapping[str, str] | None) -> Mapping[str, str]:
    """The annotations that Windlass reads; others (applied configurations …) are not held in memory."""
    if not annotations:
        return NO_LABELS
    found = {shared: intern(value) for key, value in annotations.items() if (shared := _kept_key(key))}
    return found or NO_LABELS


@lru_cache(maxsize=8192)
def _owner(
    api_version: str, kind: str, name: str, uid: str, controller: bool, blocks: bool
) -> tuple[OwnerReference, ...]:
    return (OwnerReference(intern(api_version), intern(kind), intern(name), intern(uid), controller, blocks),)


def _shared(r: OwnerWire) -> tuple[OwnerReference, ...]:
    return _owner(r.api_version, r.kind, r.name, r.uid, bool(r.controller), bool(r.block_owner_deletion))


def owners(references: list[OwnerWire] | None) -> tuple[OwnerReference, ...]:
    if not references:
        return ()
    if len(references) == 1:
        return _shared(references[0])
    return tuple(_shared(reference)[0] for reference in references)


def controller_of(references: tuple[OwnerReference, ...]) -> OwnerReference | None:
    """The managing owner, if there is one."""
    for owner in references:
        if owner.controller:
            return owner
    return None


def encode(obj: Mapping[str, Any]) -> bytes:
    """A plain object as a view's decoder takes it."""
    return msgspec.json.encode(obj)


def units(
    amounts: Amounts | None, field: str, problems: list[FieldError], *, whole: bool = False
) -> dict[str, int]:
    """Return engine units by resource. Unreadable amounts are left out and added to ``problems``.

    ``whole``: extended resources have to be integers.
    """
    found: dict[str, int] = {}
    read = to_whole_units if whole else to_units
    for name, amount in (amounts or {}).items():
        try:
            found[intern(name)] = read(name, amount)
        except QuantityError as error:
            problems.append(FieldError(f"{field}[{name}]", str(error)))
    return found


def texts(amounts: Amounts | None) -> dict[str, str]:
    """The amounts as they are written, by resource."""
    return {intern(name): str(amount) for name, amount in (amounts or {}).items()}
