"""Votes of tiered policies: what Volcano's actions ask beside orders, filters and scores.

A *voter* implements any of the small Protocols below; a scheduler configuration puts voters into tiers
and switches each vote on or off. How votes combine (the first tier that names victims decides, inside a
tier the victims are those that all name, …) is the business of :class:`Tiers`, which the actions ask.

Sums that a voter reads are those of the moment, also while an action only tries something out: in
``QueueView.committed`` what is promised counts as held, and what is being given back does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Group, NamespaceQuota, Node, Resources, Task
from windlass.spi.plugins import GroupView, QueueView, Rejection


class Vote(IntEnum):
    """``PERMIT`` ends the walk through the tiers, one ``REJECT`` of its tier decides."""

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Purpose(IntEnum):
    """On whose account a pod would be evicted."""

    PREEMPT = 1
    """For work of the same queue."""
    RECLAIM = 2
    """For work of another queue."""


class GangView(GroupView, Protocol):
    """A group as voters see it: also with what it holds and what waits."""

    @property
    def path(self) -> Sequence[QueueView]:
        """From its queue to the root."""
        ...

    @property
    def promised_members(self) -> int:
        """Pending tasks that room is kept for."""
        ...

    @property
    def members(self) -> int:
        """All its tasks that have not failed and do not terminate: held and pending."""
        ...

    @property
    def size(self) -> int:
        """All its tasks, in whatever state."""
        ...

    @property
    def running(self) -> int:
        """Its tasks that run, and are not asked to go."""
        ...

    @property
    def finished(self) -> int:
        """Its tasks that have succeeded or failed."""
        ...


class TaskView(Protocol):
    """A pod as voters see it: one that waits and claims, or one that holds and may have to go."""

    @property
    def task(self) -> Task: ...

    @property
    def request(self) -> Resources: ...

    @property
    def gang(self) -> GangView: ...

    @property
    def node(self) -> Node | None:
        """The node that it is on."""
        ...

    @property
    def running_seconds(self) -> float | None:
        """For how long it has been running; ``None`` if it does not, or nobody knows since when."""
        ...


@dataclass(frozen=True, slots=True)
class EnqueueRequest:
    """A group that asks to be let in: may its controller create pods and may it be placed.

    ``booked``: by queue, what groups that were let in and do not run yet have reserved beyond what they
    hold, less what others hold beyond their reservation (``cluster``: full reservations, all queues
    together). ``quotas``: of its namespace, ``namespace_used`` what its unfinished pods ask for, and
    ``namespace_booked`` what the groups let in during this cycle reserve.
    """

    gang: GangView
    now: float
    booked: Mapping[str, Resources] = field(default_factory=dict)
    cluster_booked: Resources = field(default_factory=dict)
    cluster_used: Resources = field(default_factory=dict)
    namespace_booked: Resources = field(default_factory=dict)
    namespace_used: Resources = field(default_factory=dict)
    quotas: Sequence[NamespaceQuota] = ()


@runtime_checkable
class JobStarving(Protocol):
    """Whether a group lacks so much that others may be evicted for it."""

    def starving(self, gang: GangView) -> bool: ...


@runtime_checkable
class JobEnqueueable(Protocol):
    """Whether a group is let in."""

    def admit(self, admission: EnqueueRequest) -> Vote | Rejection:
        """A :class:`Rejection` is a ``REJECT`` that says why.

        Groups of one queue and namespace that ask for the same share a refusal, unless the voter has an
        attribute ``personal`` that is true.
        """
        ...


@runtime_checkable
class JobEnqueued(Protocol):
    """An :class:`JobEnqueueable` that is told who was let in, with or without a vote."""

    def admitted(self, gang: GangView) -> None: ...


@runtime_checkable
class Evictable(Protocol):
    """Which of the candidates may be evicted for a claimer. ``candidates`` come in the order in which
    they would go. A voter with an attribute ``timed`` that is true may say otherwise later; one with an attribute
    ``protects`` that is true says of candidates alone whether they stay, and weighs none against the claimer."""

    def victims(
        self, purpose: Purpose, claimer: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        """Those that may go; ``None``: no opinion."""
        ...


@runtime_checkable
class PreemptionVote(Protocol):
    """Whether a queue may take back room from other queues for a task."""

    def may_claim(self, path: Sequence[QueueView], request: Resources) -> Rejection | None: ...


@runtime_checkable
class Overused(Protocol):
    """Whether a queue has so much that it is passed over."""

    def overused(self, queue: QueueView) -> bool: ...


@runtime_checkable
class Allocatable(Protocol):
    """Whether a queue and its ancestors may hold a request on top of what they hold."""

    def allots(self, path: Sequence[QueueView], request: Resources) -> Rejection | None: ...


@runtime_checkable
class VictimQueueOrder(Protocol):
    """The order in which queues give room back."""

    def victim_queue_key(self, claimer: Sequence[QueueView], path: Sequence[QueueView]) -> Any:
        """Any totally ordered value of one type; the smaller goes first. Paths run to the root."""
        ...


@runtime_checkable
class VictimTasks(Protocol):
    """Pods that are to go for their own sake, without a claimer (``shuffle``)."""

    def due(self, running: Sequence[TaskView], now: float) -> Sequence[TaskView]: ...

    def next_due(self, now: float) -> float | None:
        """When to be asked next; it is not asked before."""
        ...


@runtime_checkable
class EvictionReason(Protocol):
    """An :class:`VictimTasks` that says why a pod that it has just named is to go."""

    def why(self, task: TaskView) -> str:
        """In words that follow ``evicted by shuffle:``."""
        ...


class LoadRelief(Protocol):
    """What is wanted at one moment by a policy that :class:`RelievesLoad` nodes. Rows are those of the view that it was
    made with; it counts with what was moved since."""

    @property
    def candidates(self) -> Sequence[TaskView]:
        """Who might go, in the order in which they would."""
        ...

    def why(self, task: TaskView) -> str:
        """Why the pod is to leave its node, in words; empty where that would not help, or is not needed any more."""
        ...

    def takes(self, request: Resources, coming: Sequence[tuple[int, Resources]]) -> BoolArray:
        """Which nodes may take a pod with this request beside those that come with it (row and request each)."""
        ...

    def moved(self, task: TaskView, row: int) -> None:
        """The pod goes, and its place is kept there."""
        ...


@runtime_checkable
class RelievesLoad(Protocol):
    """Pods that are to leave their nodes for others, as far as those take them (``shuffle``)."""

    def relief(self, running: Sequence[TaskView], nodes: NodeView, now: float) -> LoadRelief | None:
        """``None``: nobody is to move."""
        ...

    def next_due(self, now: float) -> float | None:
        """When to be asked next; it is not asked before."""
        ...


@runtime_checkable
class Tiers(Protocol):
    """All votes of a configuration, combined. The engine's Volcano actions ask the one that it is given."""

    name: str

    def serves(self, queue: QueueView) -> bool:
        """Whether the configuration holds for the queue's work."""
        ...

    @property
    def arguments(self) -> Mapping[str, Mapping[str, Any]]:
        """Action → its arguments."""
        ...

    @property
    def gang_must_fit(self) -> bool:
        """Whether nothing is evicted for a gang that still could not start."""
        ...

    @property
    def timed(self) -> bool:
        """Whether some voter protects what runs for a time only."""
        ...

    def starving(self, gang: GangView) -> bool: ...

    def admit(self, admission: EnqueueRequest) -> Rejection | None: ...

    @property
    def personal(self) -> bool:
        """Whether some voter on admission looks at who it is, not only at what is asked for."""
        ...

    def admitted(self, gang: GangView) -> None:
        """A group was let in."""
        ...

    def deadline(self, group: Group) -> float | None:
        """Unix seconds from which on some voter lets the group in; ``None``: time alone does not help."""
        ...

    def victims(
        self, purpose: Purpose, claimer: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView]: ...

    def may_claim(self, path: Sequence[QueueView], request: Resources) -> Rejection | None: ...

    def overused(self, queue: QueueView) -> bool: ...

    def allots(self, path: Sequence[QueueView], request: Resources) -> Rejection | None: ...

    def victim_queue_key(self, claimer: Sequence[QueueView], path: Sequence[QueueView]) -> Any: ...

    @property
    def evicting(self) -> Sequence[VictimTasks | RelievesLoad]:
        """Those who name pods that are to go, tier by tier."""
        ...
