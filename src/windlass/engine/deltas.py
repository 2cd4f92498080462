"""Reported changes, the only input of the engine. Records are frozen.

An upsert contains the whole object, and the engine computes the difference. Deltas of
one object are in the order of its resource versions. Deltas of different objects may
come in any order: a task may refer to a node, group or queue that is reported later.
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
    """PodDisruptionBudget ``namespace/name``. ``allowed``: evictions that its status allows."""

    key: str
    allowed: int


class BudgetRemoved(msgspec.Struct, frozen=True):
    key: str


class BindFailed(msgspec.Struct, frozen=True):
    """A bind has failed. The task is pending again, and its group backs off."""

    key: str
    uid: str
    message: str


class EvictionBegun(msgspec.Struct, frozen=True):
    """A task terminates that this engine did not evict: another component evicted it."""

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
