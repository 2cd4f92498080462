"""Kubernetes' own gangs (``scheduling.k8s.io``): PodGroup of 1.36 and later, Workload of 1.35.

Versions ``v1alpha2`` and later: a PodGroup carries ``spec.schedulingPolicy`` (``basic`` or ``gang`` with
``minCount``); pods name it in ``spec.schedulingGroup.podGroupName``. Version ``v1alpha1``: a Workload
lists ``spec.podGroups[]`` with a ``policy``; pods name it in ``spec.workloadRef`` with the pod group's name
and, for replicas of it, a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.api.errors import FieldError
from windlass.api.views.wire import EMPTY, intern, interned, kept, metadata, moment, part, split


class NativeGroup(msgspec.Struct, gc=False):
    """``min_count`` 1 for policy ``basic``: its pods are independent of one another.

    ``name`` of a Workload's part is ``WORKLOAD.PODGROUP``.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    created: float
    deleted: float
    min_count: int
    priority_class: str
    problems: tuple[FieldError, ...]
    generation: int = 0
    conditions: tuple[dict[str, Any], ...] = ()
    condition_writers: frozenset[str] = frozenset()
    """The field managers of condition ``PodGroupScheduled``."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class _GangWire(msgspec.Struct, gc=False, rename="camel"):
    min_count: int | None = None


class _PolicyWire(msgspec.Struct, gc=False):
    gang: _GangWire | None = None
    basic: dict[str, object] | None = None


class _GroupSpecWire(msgspec.Struct, gc=False, rename="camel"):
    scheduling_policy: _PolicyWire | None = None
    priority_class_name: str | None = None


class _StatusWire(msgspec.Struct, gc=False):
    conditions: tuple[dict[str, Any], ...] | None = None


class _ManagedWire(msgspec.Struct, gc=False, rename="camel"):
    manager: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=EMPTY, name="fieldsV1")


class _ManagedMetaWire(msgspec.Struct, gc=False, rename="camel"):
    managed_fields: tuple[_ManagedWire, ...] | None = None


class _PartWire(msgspec.Struct, gc=False):
    name: str = ""
    policy: _PolicyWire | None = None


class _WorkloadSpecWire(msgspec.Struct, gc=False, rename="camel"):
    pod_groups: tuple[_PartWire, ...] | None = None


_group_spec_decoder = msgspec.json.Decoder(_GroupSpecWire)
_status_decoder = msgspec.json.Decoder(_StatusWire)
_managed_decoder = msgspec.json.Decoder(_ManagedMetaWire)
_workload_spec_decoder = msgspec.json.Decoder(_WorkloadSpecWire)


def decode_native_group(raw: bytes | msgspec.Raw) -> NativeGroup:
    """A PodGroup of ``scheduling.k8s.io``. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_group_spec_decoder, whole.spec, "spec", _GroupSpecWire, problems)
    status = part(_status_decoder, whole.status, "status", _StatusWire, [])
    managed = part(_managed_decoder, whole.metadata, "metadata", _ManagedMetaWire, [])
    return NativeGroup(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=interned(meta.labels),
        annotations=kept(meta.annotations),
        created=moment(meta.creation_timestamp),
        deleted=moment(meta.deletion_timestamp),
        min_count=_minimum(spec.scheduling_policy, "spec.schedulingPolicy", problems),
        priority_class=intern(spec.priority_class_name or ""),
        problems=tuple(problems),
        generation=meta.generation,
        conditions=tuple(status.conditions or ()),
        condition_writers=frozenset(
            intern(one.manager)
            for one in managed.managed_fields or ()
            if one.subresource == "status" and b"PodGroupScheduled" in bytes(one.fields_v1)
        ),
    )


def decode_workload(raw: bytes | msgspec.Raw) -> tuple[NativeGroup, ...]:
    """The pod groups of a Workload (v1alpha1). Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_workload_spec_decoder, whole.spec, "spec", _WorkloadSpecWire, problems)
    found = []
    for position, wire in enumerate(spec.pod_groups or ()):
        own = list(problems)
        minimum = _minimum(wire.policy, f"spec.podGroups[{position}].policy", own)
        found.append(
            NativeGroup(
                namespace=intern(meta.namespace),
                name=f"{meta.name}.{wire.name}",
                uid=f"{meta.uid}.{wire.name}",
                resource_version=meta.resource_version,
                labels=interned(meta.labels),
                annotations=kept(meta.annotations),
                created=moment(meta.creation_timestamp),
                deleted=moment(meta.deletion_timestamp),
                min_count=minimum,
                priority_class="",
                problems=tuple(own),
            )
        )
    return tuple(found)


def _minimum(policy: _PolicyWire | None, field: str, problems: list[FieldError]) -> int:
    if policy is None or policy.gang is None:
        return 1
    minimum = policy.gang.min_count
    if minimum is None or minimum < 1:
        problems.append(FieldError.invalid(f"{field}.gang.minCount", minimum, "must be at least 1"))
        return 1
    return minimum
