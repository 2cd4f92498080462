"""What the world tells the engine. Frozen; the engine's state changes through these alone.

An upsert carries the whole noun; the engine finds the difference. The order of deltas about one
object is the order of its resource versions; deltas about different objects may interleave freely
(a task may name a node, group or queue that arrives later).
"""

from __future__ import annotations

import msgspec

from windlass.spi.objects import Group, NamespaceQuota, Node, Queue, Task


class NodeUpserted(msgspec.Struct, frozen=True):
    node: Node


class NodeRemoved(msgspec.Struct, frozen=True):
    name: str


class QueueUpserted(msgspec.Struct, frozen=True):
    queue: Queue


class QueueRemoved(msgspec.Struct, frozen=True):
    name: str


class GroupUpserted(msgspec.Struct, frozen=True):
    group: Group


class GroupRemoved(msgspec.Struct, frozen=True):
    key: str


class TaskUpserted(msgspec.Struct, frozen=True):
    task: Task


class TaskRemoved(msgspec.Struct, frozen=True):
    key: str
    uid: str = ""


class NamespaceQuotaUpserted(msgspec.Struct, frozen=True):
    quota: NamespaceQuota


class NamespaceQuotaRemoved(msgspec.Struct, frozen=True):
    key: str


class BudgetUpserted(msgspec.Struct, frozen=True):
    """A PodDisruptionBudget, ``namespace/name``: how many evictions its status allows."""

    key: str
    allowed: int


class BudgetRemoved(msgspec.Struct, frozen=True):
    key: str


class BindFailed(msgspec.Struct, frozen=True):
    """A decided bind could not be carried out: the task is pending again, its group backs off."""

    key: str
    uid: str
    message: str


class EvictionBegun(msgspec.Struct, frozen=True):
    """The task is asked to go, though this engine did not decide it: somebody else had."""

    key: str
    uid: str


class EvictionFailed(msgspec.Struct, frozen=True):
    key: str
    uid: str
    message: str


Delta = (
    NodeUpserted
    | NodeRemoved
    | QueueUpserted
    | QueueRemoved
    | GroupUpserted
    | GroupRemoved
    | TaskUpserted
    | TaskRemoved
    | NamespaceQuotaUpserted
    | NamespaceQuotaRemoved
    | BudgetUpserted
    | BudgetRemoved
    | BindFailed
    | EvictionBegun
    | EvictionFailed
)
