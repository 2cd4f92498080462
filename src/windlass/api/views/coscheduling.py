"""Gangs of the coscheduling plug-in of ``kubernetes-sigs/scheduler-plugins``: PodGroup of ``scheduling.x-k8s.io``.

Pods name theirs by the label ``scheduling.x-k8s.io/pod-group``; Kubeflow Trainer, KubeRay and others write both.
``spec.scheduleTimeoutSeconds`` is not read: it ends the wait of members that hold a node for those that have none, and
here no member holds a node before the whole minimum has one.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.api.errors import FieldError
from windlass.api.views.wire import (
    EMPTY,
    Amounts,
    intern,
    interned,
    kept,
    metadata,
    moment,
    part,
    split,
    units,
)


class CoschedulingGroup(msgspec.Struct, gc=False):
    """``min_member`` 1 where the object says none. ``status_writers``: the field managers of its status."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    created: float
    deleted: float
    min_member: int
    min_resources: Mapping[str, int]
    phase: str
    occupied_by: str
    running: int
    succeeded: int
    failed: int
    status_writers: frozenset[str]
    problems: tuple[FieldError, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class _SpecWire(msgspec.Struct, gc=False, rename="camel"):
    min_member: int | None = None
    min_resources: msgspec.Raw = EMPTY


class _StatusWire(msgspec.Struct, gc=False, rename="camel"):
    phase: str | None = None
    occupied_by: str | None = None
    running: int | None = None
    succeeded: int | None = None
    failed: int | None = None


class _ManagedWire(msgspec.Struct, gc=False):
    manager: str = ""
    subresource: str = ""


class _ManagedMetaWire(msgspec.Struct, gc=False, rename="camel"):
    managed_fields: tuple[_ManagedWire, ...] | None = None


_spec_decoder = msgspec.json.Decoder(_SpecWire)
_status_decoder = msgspec.json.Decoder(_StatusWire)
_amounts_decoder = msgspec.json.Decoder(Amounts)
_managed_decoder = msgspec.json.Decoder(_ManagedMetaWire)


def decode_coscheduling_group(raw: bytes | msgspec.Raw) -> CoschedulingGroup:
    """A PodGroup of ``scheduling.x-k8s.io``. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    managed = part(_managed_decoder, whole.metadata, "metadata", _ManagedMetaWire, [])
    spec = part(_spec_decoder, whole.spec, "spec", _SpecWire, problems)
    status = part(_status_decoder, whole.status, "status", _StatusWire, problems)
    return CoschedulingGroup(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=interned(meta.labels),
        annotations=kept(meta.annotations),
        created=moment(meta.creation_timestamp),
        deleted=moment(meta.deletion_timestamp),
        min_member=1 if spec.min_member is None else spec.min_member,
        min_resources=_amounts(spec.min_resources, problems),
        phase=intern(status.phase or ""),
        occupied_by=status.occupied_by or "",
        running=status.running or 0,
        succeeded=status.succeeded or 0,
        failed=status.failed or 0,
        status_writers=frozenset(
            intern(one.manager) for one in managed.managed_fields or () if one.subresource == "status"
        ),
        problems=tuple(problems),
    )


def _amounts(raw: msgspec.Raw, problems: list[FieldError]) -> Mapping[str, int]:
    field = "spec.minResources"
    return units(part(_amounts_decoder, raw, field, dict, problems), field, problems)
