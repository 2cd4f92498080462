"""Decisions of the engine: frozen records in decision order.

Some of them may fail when executed. Failures are reported as
:class:`~windlass.engine.deltas.BindFailed` and ``EvictionFailed``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from windlass.api.reasons import Explanation
from windlass.spi.devices import ConsumedCounters
from windlass.spi.numa import NumaHolding
from windlass.spi.objects import Resources
from windlass.spi.shares import SharePart


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """Device, or share of a device, that is allocated to a task.

    * ``milli``: share of its compute, 1000 for the whole device.
    * ``memory_mib``: memory of a share (0: no limit on memory).
    * ``profile``, ``start``: profile of a MIG slice, and its first memory slice.
    * ``device_mib``: total memory of the device, if known.
    * ``draws``: consumed counters of a device that resource claims share, as units by
      name.
    """

    index: int
    resource: str
    milli: int = 1000
    memory_mib: int = 0
    profile: str = ""
    start: int = -1
    device_mib: int = 0
    draws: ConsumedCounters = ()


class Bind(msgspec.Struct, frozen=True):
    """Binding of a task to a node."""

    task: str
    uid: str
    group: str
    node: str
    devices: tuple[DeviceShare, ...] = ()
    zones: NumaHolding | None = None
    """Its NUMA holding, if the node reports zones."""


class Eviction(msgspec.Struct, frozen=True):
    """Eviction of a task.

    ``action``: preempt, reclaim, consolidate, shuffle or stale-gang. ``preemptor``: the
        group that receives the capacity. ``reason``: why the task is evicted if there
        is no preemptor.
    """

    task: str
    uid: str
    group: str
    node: str
    action: str
    preemptor: str = ""
    reason: str = ""


class Nomination(msgspec.Struct, frozen=True):
    """Nomination of a node on which capacity is still being released."""

    task: str
    uid: str
    node: str


class GroupStatus(msgspec.Struct, frozen=True):
    """Status of a group after a cycle, only for groups with a changed status.

    * ``admitted``: its controller may create pods (Volcano's phase Inqueue).
    * ``explanation``: ``None`` once no task of the group is pending.
    * ``stale_since``: Unix seconds since when the group has held less than its minimum,
      if a grace period applies.
    """

    group: str
    admitted: bool
    scheduled: int
    pending: int
    explanation: Explanation | None
    stale_since: float | None = None


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """Shares and usage of a queue in engine units, only for queues with changes."""

    queue: str
    parent: str
    guarantee: Resources
    deserved: Resources
    capability: Resources
    fair_share: Resources
    allocated: Resources
    requested: Resources
    parts: Mapping[str, tuple[SharePart, ...]] = field(default_factory=dict)
    """Composition of the fair share, by resource."""
    unlimited: tuple[str, ...] = ()
    """Resources of which the queue deserves any amount."""
    weightless: tuple[str, ...] = ()
    """Resources of which the queue receives no surplus."""
    releasing: Resources = field(default_factory=dict)
    """Terminating part of ``allocated`` and of ``requested``. Shares use the rest."""


class Decision(msgspec.Struct, frozen=True):
    """Result of one cycle."""

    cycle: int
    binds: tuple[Bind, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    groups: tuple[GroupStatus, ...] = ()
    queues: tuple[QueueUsage, ...] = ()
    wake_at: float | None = None
    """Unix seconds at which time alone changes a decision (backoff, aging), or ``None``."""
    notes: Mapping[str, str] = msgspec.field(default_factory=dict)
