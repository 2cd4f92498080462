"""Namespace and ResourceQuota as scheduler and controllers see them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.api.errors import FieldError
from windlass.api.views.wire import (
    Amounts,
    intern,
    interned,
    kept,
    metadata,
    moment,
    part,
    split,
    texts,
    units,
)


class Namespace(msgspec.Struct, gc=False):
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    deleted: float
    phase: str
    finalizers: tuple[str, ...]
    """``spec.finalizers``: what still has to let go before the namespace may vanish."""


class _SpecWire(msgspec.Struct, gc=False):
    finalizers: list[str] | None = None


class _StatusWire(msgspec.Struct, gc=False):
    phase: str | None = None


_spec_decoder = msgspec.json.Decoder(_SpecWire)
_status_decoder = msgspec.json.Decoder(_StatusWire)


def decode_namespace(raw: bytes | msgspec.Raw) -> Namespace:
    """A namespace. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_spec_decoder, whole.spec, "spec", _SpecWire, problems)
    status = part(_status_decoder, whole.status, "status", _StatusWire, problems)
    return Namespace(
        intern(meta.name),
        meta.uid,
        meta.resource_version,
        interned(meta.labels),
        kept(meta.annotations),
        moment(meta.deletion_timestamp),
        intern(status.phase or ""),
        tuple(spec.finalizers or ()),
    )


class ScopeRequirement(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class ResourceQuota(msgspec.Struct, gc=False):
    """``hard`` and ``used`` as written: quantities by quota name (``requests.nvidia.com/gpu``, ``pods``)."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    hard: Mapping[str, str]
    scopes: tuple[str, ...]
    scope_selector: tuple[ScopeRequirement, ...]
    used: Mapping[str, str]
    deleted: float
    problems: tuple[FieldError, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class _SelectorWire(msgspec.Struct, gc=False, rename="camel"):
    match_expressions: tuple[ScopeRequirement, ...] | None = None


class _QuotaSpecWire(msgspec.Struct, gc=False, rename="camel"):
    hard: Amounts | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: _SelectorWire | None = None


class _QuotaStatusWire(msgspec.Struct, gc=False):
    used: Amounts | None = None


_quota_spec_decoder = msgspec.json.Decoder(_QuotaSpecWire)
_quota_status_decoder = msgspec.json.Decoder(_QuotaStatusWire)


def decode_resource_quota(raw: bytes | msgspec.Raw) -> ResourceQuota:
    """A ResourceQuota. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_quota_spec_decoder, whole.spec, "spec", _QuotaSpecWire, problems)
    status = part(_quota_status_decoder, whole.status, "status", _QuotaStatusWire, problems)
    selector = spec.scope_selector.match_expressions if spec.scope_selector else None
    units(spec.hard, "spec.hard", problems)
    return ResourceQuota(
        intern(meta.namespace),
        meta.name,
        meta.uid,
        meta.resource_version,
        texts(spec.hard),
        spec.scopes or (),
        selector or (),
        texts(status.used),
        moment(meta.deletion_timestamp),
        tuple(problems),
    )
