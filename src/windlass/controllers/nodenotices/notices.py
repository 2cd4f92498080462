"""Notice of a node: its machine ends soon (spot), or it has become slow (degraded)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.views.wire import moment
from windlass.controllers.expectations import BareObject

OWN_TAINTS = (names.SPOT_NOTICE, names.DEGRADED)
"""Taints with the names of the annotations that a node with a notice has."""
CLOUD_TAINTS = (
    "cloud.google.com/impending-node-termination",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/rebalance-recommendation",
    "node.kubernetes.io/spot-termination",
)
"""Taints by which clouds announce the end of a spot machine."""
DEGRADED_CONDITIONS = ("NodeDegraded", "Degraded")
"""Conditions of a node, as node-problem-detector or an administrator sets them."""


class NoticeKind(StrEnum):
    """Kind of a notice; also the reason of events and conditions."""

    SPOT = "SpotInterruption"
    DEGRADED = "NodeDegraded"


class NodeNotice(msgspec.Struct, frozen=True):
    """State of a node that matters here. ``kind`` is ``None`` without a notice.

    ``detail``: for people. ``deadline``: end of the machine (Unix seconds), 0 if unknown.
    ``taints``: own taints that the node has.
    """

    name: str
    uid: str
    resource_version: str
    kind: NoticeKind | None
    detail: str = ""
    deadline: float = 0.0
    taints: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.name

    @property
    def wanted_taints(self) -> tuple[str, ...]:
        """Own taints that the node should have."""
        if self.kind is None:
            return ()
        return (names.SPOT_NOTICE,) if self.kind is NoticeKind.SPOT else (names.DEGRADED,)


class _Meta(msgspec.Struct, rename="camel"):
    annotations: dict[str, str] | None = None


class _Taint(msgspec.Struct):
    key: str = ""


class _Spec(msgspec.Struct):
    taints: list[_Taint] | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""
    message: str | None = None


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Node(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_node = msgspec.json.Decoder(_Node)
_bare = msgspec.json.Decoder(BareObject)


def decode_notice(raw: msgspec.Raw) -> NodeNotice:
    """Decode the notice of a node."""
    identity, node = _bare.decode(raw), _node.decode(raw)
    taints = [taint.key for taint in node.spec.taints or ()]
    own = tuple(key for key in taints if key in OWN_TAINTS)
    kind, detail, deadline = _notice(node.metadata.annotations or {}, taints, node.status.conditions or ())
    meta = identity.metadata
    return NodeNotice(meta.name, meta.uid, meta.resource_version, kind, detail, deadline, own)


def _notice(
    annotations: Mapping[str, str], taints: Iterable[str], conditions: Iterable[_Condition]
) -> tuple[NoticeKind | None, str, float]:
    """Return kind, detail and deadline. The end of a machine comes before slowness."""
    text = annotations.get(names.SPOT_NOTICE)
    if text is not None:
        deadline = moment(text)
        return (
            NoticeKind.SPOT,
            f"its machine ends at {text}" if deadline else "its machine ends soon",
            deadline,
        )
    cloud = next((key for key in taints if key in CLOUD_TAINTS), None)
    if cloud is not None:
        return NoticeKind.SPOT, f"its machine ends soon (taint {cloud})", 0.0
    for condition in conditions:
        if condition.type in DEGRADED_CONDITIONS and condition.status == "True":
            return NoticeKind.DEGRADED, condition.message or f"its condition {condition.type} is True", 0.0
    stated = annotations.get(names.DEGRADED)
    return (None, "", 0.0) if stated is None else (NoticeKind.DEGRADED, stated or "it is slow", 0.0)


def adjusted(present: list[dict[str, Any]], notice: NodeNotice) -> list[dict[str, Any]]:
    """Return the taints of a node with those of its notice, and without former ones."""
    kept = [taint for taint in present if taint.get("key") not in OWN_TAINTS]
    return [*kept, *({"key": key, "effect": "NoSchedule"} for key in notice.wanted_taints)]
