"""A node as scheduler and controllers see it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from windlass.api.errors import FieldError
from windlass.api.nodes.simulated import AGENT_SUFFIX
from windlass.api.quantities import MAX_NODE_AMOUNT
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


class TaintView(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeImage(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    names: tuple[str, ...] | None = None
    size_bytes: int = 0


class NodeObject(msgspec.Struct, gc=False):
    """``allocatable`` in engine units. ``ready`` is the Ready condition's status, ``""`` without one."""

    name: str
    uid: str
    resource_version: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    created: float
    deleted: float
    allocatable: Mapping[str, int]
    taints: tuple[TaintView, ...]
    unschedulable: bool
    ready: str
    problems: tuple[FieldError, ...]
    images: tuple[NodeImage, ...] = ()
    """Container images listed by the kubelet. Nodes with equal lists share one object."""
    kubelet: bool = False
    """True if a kubelet reports for the node; False for an agent of Windlass, or without reports."""

    @property
    def key(self) -> str:
        return self.name


class _TaintWire(msgspec.Struct, gc=False, rename="camel"):
    key: str = ""
    value: str | None = None
    effect: str = ""
    time_added: str | None = None


class _SpecWire(msgspec.Struct, gc=False):
    unschedulable: bool | None = None
    taints: list[_TaintWire] | None = None


class _ConditionWire(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""


class _InfoWire(msgspec.Struct, gc=False, rename="camel"):
    kubelet_version: str = ""


class _StatusWire(msgspec.Struct, gc=False, rename="camel"):
    node_info: _InfoWire | None = None
    allocatable: Amounts | None = None
    capacity: Amounts | None = None
    conditions: list[_ConditionWire] | None = None
    images: msgspec.Raw = EMPTY


_spec_decoder = msgspec.json.Decoder(_SpecWire)
_status_decoder = msgspec.json.Decoder(_StatusWire)
_images_decoder = msgspec.json.Decoder(tuple[NodeImage, ...] | None)


def decode_node(raw: bytes | msgspec.Raw) -> NodeObject:
    """A node of the wire; ``allocatable`` falls back to ``capacity``, as the API server fills it.

    A resource with an unreadable amount counts as absent: nothing is placed on an unknown amount.
    A node that reports no amounts at all may hold 0 pods.
    Raises ``msgspec.DecodeError`` on what is not an object with a name.
    """
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_spec_decoder, whole.spec, "spec", _SpecWire, problems)
    status = part(_status_decoder, whole.status, "status", _StatusWire, problems)
    amounts = status.capacity if status.allocatable is None else status.allocatable
    allocatable = units(amounts, "status.allocatable", problems, whole=True)
    if not amounts:
        allocatable = {"pods": 0}  # as kube-scheduler counts a node without a status
    ready = next((c.status for c in status.conditions or () if c.type == "Ready"), "")
    return NodeObject(
        name=intern(meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=interned(meta.labels),
        annotations=kept(meta.annotations),
        created=moment(meta.creation_timestamp),
        deleted=moment(meta.deletion_timestamp),
        allocatable={name: min(max(0, amount), MAX_NODE_AMOUNT) for name, amount in allocatable.items()},
        taints=tuple(
            TaintView(intern(t.key), intern(t.value or ""), intern(t.effect), t.time_added)
            for t in spec.taints or ()
        ),
        unschedulable=bool(spec.unschedulable),
        ready=intern(ready),
        problems=tuple(problems),
        images=_images(status.images),
        kubelet=_by_kubelet(status.node_info),
    )


def _by_kubelet(info: _InfoWire | None) -> bool:
    return info is not None and bool(info.kubelet_version) and not info.kubelet_version.endswith(AGENT_SUFFIX)


def _images(raw: msgspec.Raw) -> tuple[NodeImage, ...]:
    """A list that cannot be read is none: nothing but a wish depends on it."""
    if raw is EMPTY:
        return ()
    return tuple(map(_shared_image, part(_images_decoder, raw, "status.images", tuple, []) or ()))


@lru_cache(maxsize=1 << 16)
def _shared_image(image: NodeImage) -> NodeImage:
    return image
