"""Votes of tiered policies: extension points of Volcano besides orders, filters and scores.

A *voter* implements any of the small Protocols below. A scheduler configuration puts
voters into tiers and switches each vote on or off. :class:`Tiers` combines the votes: for
example, the first tier that names victims decides, and inside a tier the victims are
those that all voters name. The actions call :class:`Tiers`.

Sums that a voter reads are current, also while an action only tries something:
``QueueView.committed`` counts nominated capacity as held, and terminating pods not at
all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from windlass.spi import renamed
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Group, NamespaceQuota, Node, Resources, Task
from windlass.spi.plugins import GroupView, QueueView, Rejection

if not TYPE_CHECKING:
    __getattr__ = renamed.old_names(__name__)


class Vote(IntEnum):
    """Vote on an admission.

    ``PERMIT`` ends the walk through the tiers. One ``REJECT`` decides its tier.
    """

    REJECT = -1
    ABSTAIN = 0
    PERMIT = 1


class Purpose(IntEnum):
    """Reason for which a pod would be evicted."""

    PREEMPT = 1
    """For a group of the same queue."""
    RECLAIM = 2
    """For a group of another queue."""


class GangView(GroupView, Protocol):
    """A group as voters see it, with its tasks by state."""

    @property
    def path(self) -> Sequence[QueueView]:
        """Queues from its own to the root."""
        ...

    @property
    def nominated_members(self) -> int:
        """Number of pending tasks for which capacity is nominated."""
        ...

    @property
    def members(self) -> int:
        """Number of tasks that hold a node or are pending; without terminating or failed ones."""
        ...

    @property
    def size(self) -> int:
        """Number of all its tasks, in any state."""
        ...

    @property
    def running(self) -> int:
        """Number of running tasks that are not terminating."""
        ...

    @property
    def finished(self) -> int:
        """Number of tasks that have succeeded or failed."""
        ...


class TaskView(Protocol):
    """A pod as voters see it: a pending preemptor, or a candidate victim."""

    @property
    def task(self) -> Task: ...

    @property
    def request(self) -> Resources: ...

    @property
    def gang(self) -> GangView: ...

    @property
    def node(self) -> Node | None:
        """Node of the pod; ``None`` while it is pending."""
        ...

    @property
    def running_seconds(self) -> float | None:
        """Seconds since the pod started; ``None`` if it does not run or the start is unknown."""
        ...


@renamed.attributes
@dataclass(frozen=True, slots=True)
class EnqueueRequest:
    """A group that asks for admission: for its pods to be created and placed.

    * ``reserved``: by queue, what admitted groups that do not run yet reserve beyond what
      they hold, less what others hold beyond their reservation.
    * ``cluster_reserved``: full reservations of all queues together.
    * ``cluster_used``: used amounts of all nodes.
    * ``quotas``: of its namespace. ``namespace_used``: requests of its unfinished pods.
      ``namespace_reserved``: reservations of groups admitted in this cycle.
    """

    gang: GangView
    now: float
    reserved: Mapping[str, Resources] = field(default_factory=dict)
    cluster_reserved: Resources = field(default_factory=dict)
    cluster_used: Resources = field(default_factory=dict)
    namespace_reserved: Resources = field(default_factory=dict)
    namespace_used: Resources = field(default_factory=dict)
    quotas: Sequence[NamespaceQuota] = ()


@runtime_checkable
class JobStarving(Protocol):
    """Vote: does a group lack so much that other pods may be evicted for it."""

    def starving(self, gang: GangView) -> bool: ...


@runtime_checkable
class JobEnqueueable(Protocol):
    """Vote on the admission of a group."""

    def admit(self, admission: EnqueueRequest) -> Vote | Rejection:
        """Return a vote; a :class:`Rejection` is a ``REJECT`` with a reason.

        Groups of one queue and namespace with equal requests share a rejection, unless
        the voter has a true attribute ``personal``.
        """
        ...


@runtime_checkable
class JobEnqueued(Protocol):
    """A :class:`JobEnqueueable` that is notified of each admission."""

    def admitted(self, gang: GangView) -> None:
        """Note that the group was admitted, whatever this voter's vote was."""
        ...


@runtime_checkable
class Evictable(Protocol):
    """Selection of victims among candidates, which are given in the order of eviction.

    * A true attribute ``timed`` declares that the answer may change with time.
    * A true attribute ``ignores_preemptor`` declares that a candidate's answer depends on
      the candidate alone. The voter does not compare it with the preemptor.
    """

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        """Return the candidates that may be evicted; ``None`` to abstain."""
        ...


@runtime_checkable
class PreemptionVote(Protocol):
    """Vote: may a queue reclaim capacity of other queues for a task."""

    def may_reclaim(self, path: Sequence[QueueView], request: Resources) -> Rejection | None: ...


@runtime_checkable
class Overused(Protocol):
    """Vote: does a queue hold so much that it is skipped."""

    def overused(self, queue: QueueView) -> bool: ...


@runtime_checkable
class Allocatable(Protocol):
    """Vote: may a queue and its ancestors hold a further request."""

    def may_allocate(self, path: Sequence[QueueView], request: Resources) -> Rejection | None: ...


@runtime_checkable
class VictimQueueOrder(Protocol):
    """Order in which queues give capacity back."""

    def victim_queue_key(self, preemptor: Sequence[QueueView], path: Sequence[QueueView]) -> Any:
        """Return a sort key of one totally ordered type; the smallest gives first.

        Both paths run to the root.
        """
        ...


@runtime_checkable
class VictimTasks(Protocol):
    """Pods that are evicted without a preemptor (action ``shuffle``)."""

    def due(self, running: Sequence[TaskView], now: float) -> Sequence[TaskView]: ...

    def next_due(self, now: float) -> float | None:
        """Return the time of the next call. It is not called before."""
        ...


@runtime_checkable
class EvictionReason(Protocol):
    """A :class:`VictimTasks` that explains an eviction it has just named."""

    def why(self, task: TaskView) -> str:
        """Return a text that follows ``evicted by shuffle:``."""
        ...


class LoadRelief(Protocol):
    """Moves that a :class:`RelievesLoad` policy wants at one time.

    Rows are those of the view that it was made with. It counts the moves made since.
    """

    @property
    def candidates(self) -> Sequence[TaskView]:
        """Pods that may be moved, in order."""
        ...

    def why(self, task: TaskView) -> str:
        """Return why the pod leaves its node; empty if a move does not help or is not needed."""
        ...

    def takes(self, request: Resources, coming: Sequence[tuple[int, Resources]]) -> BoolArray:
        """Return a mask of nodes that may take a pod with this request.

        ``coming``: row and request of pods that are moved together with it.
        """
        ...

    def moved(self, task: TaskView, row: int) -> None:
        """Note that the pod is evicted, and that capacity on ``row`` is reserved for it."""
        ...


@runtime_checkable
class RelievesLoad(Protocol):
    """Pods that move from their nodes to others that can take them (action ``shuffle``)."""

    def relief(self, running: Sequence[TaskView], nodes: NodeView, now: float) -> LoadRelief | None:
        """Return the moves to make; ``None`` if there are none."""
        ...

    def next_due(self, now: float) -> float | None:
        """Return the time of the next call. It is not called before."""
        ...


@runtime_checkable
class Tiers(Protocol):
    """All votes of a configuration, combined, for the engine's Volcano actions."""

    name: str

    def serves(self, queue: QueueView) -> bool:
        """Return whether the configuration applies to the groups of the queue."""
        ...

    @property
    def arguments(self) -> Mapping[str, Mapping[str, Any]]:
        """Arguments by action."""
        ...

    @property
    def gang_must_fit(self) -> bool:
        """True if nothing is evicted for a gang that still could not start."""
        ...

    @property
    def timed(self) -> bool:
        """True if some voter protects running pods for a limited time."""
        ...

    def starving(self, gang: GangView) -> bool: ...

    def admit(self, admission: EnqueueRequest) -> Rejection | None: ...

    @property
    def personal(self) -> bool:
        """True if some admission voter looks at the group itself, not only at its request."""
        ...

    def admitted(self, gang: GangView) -> None:
        """Note that a group was admitted."""
        ...

    def deadline(self, group: Group) -> float | None:
        """Return the Unix time from which on some voter admits the group.

        ``None``: time alone does not help.
        """
        ...

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView]: ...

    def may_reclaim(self, path: Sequence[QueueView], request: Resources) -> Rejection | None: ...

    def overused(self, queue: QueueView) -> bool: ...

    def may_allocate(self, path: Sequence[QueueView], request: Resources) -> Rejection | None: ...

    def victim_queue_key(self, preemptor: Sequence[QueueView], path: Sequence[QueueView]) -> Any: ...

    @property
    def evicting(self) -> Sequence[VictimTasks | RelievesLoad]:
        """Voters that name pods to evict, tier by tier."""
        ...
