"""Pending classes: groups of one queue with the same next tasks, in order.

A group may pass the groups ahead of it where capacity is reserved, if it ends before that
capacity is needed. :class:`OrderedGroups` finds the first group that ends within some
time: at once if there is none, else by a walk that ends at this group.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.api.reasons import Explanation
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.run_times import certain_run_time
from windlass.spi.objects import Dialect

if TYPE_CHECKING:
    from windlass.engine.groups.entries import GroupEntry
    from windlass.engine.groups.queue_entry import QueueEntry

Signature = tuple[Hashable, ...]
NO_LIMIT = -1.0
"""Run time limit that no group meets."""
_rank = attrgetter("rank")
_MAX_EMPTY = 32
"""Maximum number of empty entries at the front."""


class OrderedGroups:
    """Sorted pairs ``(order key, key)`` of all members.

    ``times``: key → seconds of running after which a member has certainly ended, if
    known.
    """

    __slots__ = ("_ends", "_first", "_order", "_order_keys", "times")

    def __init__(self) -> None:
        self._order: list[tuple[Any, str]] = []
        self._order_keys: dict[str, Any] = {}
        """Key → its order key here."""
        self._first = 0
        """Entries before this index are empty."""
        self._ends: list[tuple[float, str]] = []
        """Heap over ``times``; outdated entries are dropped when found."""
        self.times: dict[str, float] = {}

    def __iter__(self) -> Iterator[str]:
        """Yield the keys in order."""
        order = self._order
        return (order[index][1] for index in range(self._first, len(order)))

    def add(self, order_key: Any, key: str, time: float | None) -> None:
        """Add a member."""
        entry = (order_key, key)
        self._order_keys[key] = order_key
        order = self._order
        if not order or order[-1] < entry:
            order.append(entry)
        else:
            insort(order, entry, lo=self._first)
        if time is not None:
            self.set_time(key, time)

    def set_time(self, key: str, time: float | None) -> None:
        """Set the run time of a member; ``None`` if unknown."""
        if time is None:
            self.times.pop(key, None)
        elif self.times.get(key) != time:
            self.times[key] = time
            heapq.heappush(self._ends, (time, key))

    def remove(self, key: str) -> None:
        """Remove a member. Raises ``KeyError`` if it is not one."""
        order, order_key = self._order, self._order_keys.pop(key)
        first = self._first
        index = first if order[first][1] == key else bisect_left(order, (order_key, key), lo=first)
        if index == first:
            order[index] = ((), "")
            self._first += 1
            if self._first > _MAX_EMPTY and 2 * self._first > len(order):
                del order[: self._first]
                self._first = 0
        else:
            del order[index]
        if self.times:
            self.times.pop(key, None)

    def order_key(self, key: str) -> Any:
        """Return the order key of a member. Raises ``KeyError`` if it is not one."""
        return self._order_keys[key]

    def head(self) -> str | None:
        """Return the first member."""
        return self._order[self._first][1] if self._first < len(self._order) else None

    def first_of(self, keys: Iterable[str]) -> str:
        """Return the first in order of some members."""
        order_keys = self._order_keys
        return min([(order_keys[key], key) for key in keys])[1]

    def ends_within(self, key: str, seconds: float) -> bool:
        """Return whether a member is known to end within ``seconds``."""
        time = self.times.get(key)
        return time is not None and time <= seconds

    def first_within(self, seconds: float) -> str | None:
        """Return the first member that ends within ``seconds``."""
        times, ends = self.times, self._ends
        while ends and times.get(ends[0][1]) != ends[0][0]:
            heapq.heappop(ends)
        if not ends or ends[0][0] > seconds:
            return None
        for key in self:
            time = times.get(key)
            if time is not None and time <= seconds:
                return key
        return None


class BudgetBlocker(msgspec.Struct, frozen=True):
    """Budget that blocks a preemption.

    ``needed``: number of evictions that are necessary, 0 if unknown.
    ``allowed``: number of evictions that the budget allows.
    """

    budget: str
    needed: int
    allowed: int = msgspec.field(name="left")


def strict_signature(queue: QueueEntry) -> Signature:
    """Return the signature of all groups of a queue with a strict order."""
    return (queue.name,)


@dataclass(slots=True)
class WakeConditions:
    """Conditions to try a parked class again; any one of them is enough."""

    capacity: dict[TaskClass, int] = field(default_factory=dict)
    """Class → number of its tasks that the cluster must hold."""
    any_capacity: set[TaskClass] = field(default_factory=set)
    queues: set[str] = field(default_factory=set)
    domains: set[TaskClass] = field(default_factory=set)
    anything: bool = False
    rows: set[int] = field(default_factory=set)
    """Rows with capacity nominated to the group, or in a strict order to one behind it."""
    reserved_for: str = ""
    """Group with the reserved capacity that this one could have used."""


NO_CONDITIONS = WakeConditions()
"""Conditions of an active class. Do not change it."""


class PendingClass:
    """Groups of one queue with the same next step, in order."""

    __slots__ = (
        "budget_blockers",
        "dialect",
        "entered",
        "entered_key",
        "explanation",
        "limit",
        "members",
        "nominated",
        "order",
        "owners",
        "parked",
        "queue",
        "ranked",
        "reported_codes",
        "signature",
        "ticket",
        "wake_conditions",
    )

    def __init__(self, signature: Signature, queue: QueueEntry, dialect: Dialect | None = None) -> None:
        self.signature = signature
        self.queue = queue
        self.dialect = dialect
        """API of its groups; ``None`` for a strict order, where they may be of several APIs."""
        self.members: dict[str, GroupEntry] = {}
        self.order = OrderedGroups()
        self.ranked: OrderedGroups | None = None
        """Members by rank, built at the first call of :meth:`by_rank`."""
        self.limit: float | None = None
        """Run time in seconds below which another group passes the first one.

        Set while the first group has to wait for capacity reserved for another group.
        """
        self.owners: dict[str, GroupEntry] = {}
        """Meanwhile, groups with reserved capacity that the first may not use.

        They are tried as well.
        """
        self.nominated: dict[str, GroupEntry] = {}
        """In a strict order, members with nominated capacity.

        They get it when it is free, in any position.
        """
        self.parked = False
        self.wake_conditions = NO_CONDITIONS
        self.explanation: Explanation | None = None
        """Shared by all members while they are parked."""
        self.reported_codes = ""
        """Reason codes that were reported for every member; empty if some lack them."""
        self.budget_blockers: dict[str, tuple[BudgetBlocker, ...]] = {}
        """Action → budgets that alone blocked the last preemption of the first group by this action."""
        self.ticket = -1
        """Number of the entry among the classes of its queue; -1 for none.

        ``QueueHeap`` maintains this field and the next two.
        """
        self.entered: GroupEntry | None = None
        self.entered_key: Any = None

    def add(self, group: GroupEntry) -> None:
        self.members[group.key] = group
        group.pending_class = self
        self.order.add(group.order_key, group.key, certain_run_time(group) if group.timed else None)
        if self.ranked is not None:
            self.ranked.add(group.rank, group.key, None)
        self.update_nominated(group)

    def update_nominated(self, group: GroupEntry) -> None:
        """Update :attr:`nominated` after a change of a member's nominations."""
        if group.nominations and self.is_strict:
            self.nominated[group.key] = group
        else:
            self.nominated.pop(group.key, None)

    def drop(self, group: GroupEntry) -> None:
        del self.members[group.key]
        group.pending_class = None
        self.nominated.pop(group.key, None)
        self.owners.pop(group.key, None)
        self.order.remove(group.key)
        if self.ranked is not None:
            self.ranked.remove(group.key)

    def by_rank(self) -> OrderedGroups:
        """Return the members by rank, independent of the order of plugins."""
        if self.ranked is None:
            self.ranked = OrderedGroups()
            for group in sorted(self.members.values(), key=_rank):
                self.ranked.add(group.rank, group.key, None)
        return self.ranked

    def head(self) -> GroupEntry | None:
        """Return the group to try next.

        It is the first group in order. While there is a :attr:`limit`, it is the first
        that stays below the limit or is one of :attr:`owners`.
        """
        if self.limit is None:
            key = self.order.head()
        else:
            key = self.order.first_within(self.limit)
            if self.owners:
                key = self.order.first_of([*self.owners] if key is None else [key, *self.owners])
        return None if key is None else self.members[key]

    def allow_passing(self, limit: float | None, owners: Iterable[GroupEntry]) -> None:
        """Let groups that end within ``limit`` seconds pass the first one, and try ``owners`` too.

        ``None``: no group passes.
        """
        self.limit = NO_LIMIT if limit is None else limit
        self.owners = {group.key: group for group in owners}

    def reset_passing(self) -> None:
        """Make the first group the next one to try again."""
        self.limit = None
        self.owners = {}

    def mark_tried(self, group: GroupEntry) -> bool:
        """Record that a member is tried now.

        Return whether it counts as the first or as passing the first. One of
        :attr:`owners` that could not pass by itself is tried once only.
        """
        owner = self.owners.pop(group.key, None) is not None
        return not owner or self.limit is None or self.order.ends_within(group.key, self.limit)

    def update_member(self, group: GroupEntry) -> bool:
        """Update the rank and run time of a member.

        Return whether it might pass now, but not before.
        """
        if self.ranked is not None and self.ranked.order_key(group.key) != group.rank:
            self.ranked.remove(group.key)
            self.ranked.add(group.rank, group.key, None)
        before = self.order.times.get(group.key)
        time = certain_run_time(group) if group.timed else None
        self.order.set_time(group.key, time)
        return time is not None and (before is None or time < before)

    @property
    def is_strict(self) -> bool:
        """Return whether the order is strict: different requests, and only the first group is tried."""
        return len(self.signature) == 1

    def __repr__(self) -> str:
        return f"<PendingClass {self.queue.name} {len(self.members)} {'parked' if self.parked else 'active'}>"
