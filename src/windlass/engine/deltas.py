"""What the world tells the engine. Frozen; the engine's state changes through these alone.

An upsert carries the whole noun; the engine finds the difference. The order of deltas about one
object is the order of its resource versions; deltas about different objects may interleave freely
(a task may name a node, group or queue that arrives later).
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.spi.objects import Group, NamespaceQuota, Node, Queue, Task


@dataclass(frozen=True, slots=True)
class NodeUpserted:
    node: Node


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    name: str


@dataclass(frozen=True, slots=True)
class QueueUpserted:
    queue: Queue


@dataclass(frozen=True, slots=True)
class QueueRemoved:
    name: str


@dataclass(frozen=True, slots=True)
class GroupUpserted:
    group: Group


@dataclass(frozen=True, slots=True)
class GroupRemoved:
    key: str


@dataclass(frozen=True, slots=True)
class TaskUpserted:
    task: Task


@dataclass(frozen=True, slots=True)
class TaskRemoved:
    key: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class NamespaceQuotaUpserted:
    quota: NamespaceQuota


@dataclass(frozen=True, slots=True)
class NamespaceQuotaRemoved:
    key: str


@dataclass(frozen=True, slots=True)
class BudgetUpserted:
    """A PodDisruptionBudget, ``namespace/name``: how many evictions its status allows."""

    key: str
    allowed: int


@dataclass(frozen=True, slots=True)
class BudgetRemoved:
    key: str


@dataclass(frozen=True, slots=True)
class BindFailed:
    """A decided bind could not be carried out: the task is pending again, its group backs off."""

    key: str
    uid: str
    message: str


@dataclass(frozen=True, slots=True)
class EvictionFailed:
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
    | EvictionFailed
)
