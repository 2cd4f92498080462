"""What the engine decides: frozen records in decision order. Applying them may partly fail; failures
come back as :class:`~windlass.engine.deltas.BindFailed` and ``EvictionFailed``."""

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
    """A device handed to a task, or a part of it.

    ``milli``: of its compute, 1000 for the whole device. A share of it has ``memory_mib`` of its memory (0:
    no claim on memory); a slice a ``profile`` and the memory slice that it ``start``s at.
    ``card_mib``: what the device has in all, where that is known. ``draws``: what is taken of a device that claims
    share, by name: units, how many there are.
    """

    index: int
    resource: str
    milli: int = 1000
    memory_mib: int = 0
    profile: str = ""
    start: int = -1
    card_mib: int = 0
    draws: ConsumedCounters = ()


class Bind(msgspec.Struct, frozen=True):
    task: str
    uid: str
    group: str
    node: str
    devices: tuple[DeviceShare, ...] = ()
    zones: NumaHolding | None = None
    """What it gets of the node's NUMA zones, where those are known."""


class Eviction(msgspec.Struct, frozen=True):
    """``claimer`` is the group that the room is for; ``action`` preempt, reclaim, consolidate, shuffle or stale-gang.
    ``why``: where nobody's claim says so, in words."""

    task: str
    uid: str
    group: str
    node: str
    action: str
    claimer: str = ""
    why: str = ""


class Nomination(msgspec.Struct, frozen=True):
    task: str
    uid: str
    node: str


class GroupStatus(msgspec.Struct, frozen=True):
    """Where a group stands after the cycle, only for groups whose standing changed.

    ``admitted``: may its controller create pods (Volcano's Inqueue). ``explanation`` is None once
    nothing of the group waits. ``stale_since``: since when it has held less than its minimum, where it
    has a grace for that (Unix seconds).
    """

    group: str
    admitted: bool
    scheduled: int
    pending: int
    explanation: Explanation | None
    stale_since: float | None = None


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """One queue's figures, in engine units, only for queues whose figures changed."""

    queue: str
    parent: str
    guarantee: Resources
    deserved: Resources
    capability: Resources
    fair_share: Resources
    allocated: Resources
    requested: Resources
    parts: Mapping[str, tuple[SharePart, ...]] = field(default_factory=dict)
    """How the fair share came about, by resource."""
    unlimited: tuple[str, ...] = ()
    """Resources of which it deserves any amount."""
    weightless: tuple[str, ...] = ()
    """Resources of which no surplus is given to it."""
    releasing: Resources = field(default_factory=dict)
    """The part of ``allocated``, and of ``requested``, that terminates: shares go by the rest."""


class Decision(msgspec.Struct, frozen=True):
    cycle: int
    binds: tuple[Bind, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    groups: tuple[GroupStatus, ...] = ()
    queues: tuple[QueueUsage, ...] = ()
    wake_at: float | None = None
    """Unix seconds of the next moment at which time alone changes something (back-off, aging); else None."""
    notes: Mapping[str, str] = msgspec.field(default_factory=dict)
