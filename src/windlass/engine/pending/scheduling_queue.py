"""Where groups wait.

Groups of one queue that ask for the same next step stand in one *bucket*, in their order: what the
first cannot have, none behind it can, unless it ends before somebody needs the room that is kept for him
(:mod:`windlass.engine.queues.group_order`). Where the order is *strict*, all groups of a queue stand in one
bucket, and none behind the first is tried. A bucket is either *active* (its first group is to be tried)
or *parked*: then it names what would help, and only that wakes it. Ten thousand groups that wait for the
same thing are one bucket and cost nothing until it happens.

What may help: enough room for a class of tasks (``room``), any room for one of several classes
(``any_room``), a queue giving something back (``queues``), pods of certain classes coming or going
(``domains``), the node that has promised the group room (``rows``), or anything at all
(``anything``, for third-party refusals that do not say).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from windlass.api.reasons import Explanation
from windlass.engine.feasibility.task_class import NodeFit, TaskClass
from windlass.engine.groups.entries import GroupEntry, passing_time
from windlass.engine.nodes.table import ALLOCATABLE, PROMISED, RELEASING, USED, NodeTable
from windlass.engine.pending.capacity_if_evicted import FutureFree
from windlass.engine.queues.group_order import OrderedGroups
from windlass.engine.queues.tree import QueueEntry, QueueTree
from windlass.engine.victims.budget_blockers import BudgetBlocker
from windlass.spi.objects import Dialect
from windlass.spi.plugins import Domain, Listeners

Signature = tuple[Hashable, ...]
NOBODY = -1.0
"""A limit that nobody keeps."""
_FEW_ROWS, _FEW_CLASSES = 8, 64
"""So few rows and classes are faster looked at one by one."""
_rank = attrgetter("rank")


def line_of(queue: QueueEntry) -> Signature:
    """The signature of all groups of a queue whose order is strict: nobody passes the first."""
    return (queue.name,)


@dataclass(slots=True)
class WakeConditions:
    """What would help; any one of it is reason enough to try again."""

    room: dict[TaskClass, int] = field(default_factory=dict)
    """Class → how many tasks of it the cluster must take."""
    any_room: set[TaskClass] = field(default_factory=set)
    queues: set[str] = field(default_factory=set)
    domains: set[TaskClass] = field(default_factory=set)
    anything: bool = False
    rows: set[int] = field(default_factory=set)
    """Rows on which room is promised to the group itself, or in a strict line to one behind it."""
    kept_for: str = ""
    """The group for which room is kept that this one could have had."""


NOTHING = WakeConditions()
"""Of a bucket that is not parked; nobody writes to it."""


class PendingClass:
    """Groups of equal next step in one queue, in order."""

    __slots__ = (
        "dialect",
        "entered",
        "entered_key",
        "explanation",
        "limit",
        "line",
        "members",
        "owners",
        "parked",
        "promised",
        "queue",
        "ranked",
        "signature",
        "stopped",
        "ticket",
        "told",
        "waits",
    )

    def __init__(self, signature: Signature, queue: QueueEntry, dialect: Dialect | None = None) -> None:
        self.signature = signature
        self.queue = queue
        self.dialect = dialect
        """The API of its groups; ``None`` where they may be of several, in a strict line."""
        self.members: dict[str, GroupEntry] = {}
        self.line = OrderedGroups()
        self.ranked: OrderedGroups | None = None
        """The members by rank, from when somebody has asked for that first (:meth:`by_rank`)."""
        self.limit: float | None = None
        """While the first was found to have to wait for somebody else's room: within how many seconds another
        must end to pass."""
        self.owners: dict[str, GroupEntry] = {}
        """Meanwhile: those for whom some room is kept, which the first may not have. They are tried, too, in their
        places."""
        self.promised: dict[str, GroupEntry] = {}
        """In a strict line: the members that room is promised to. They have it when it is free, wherever they stand."""
        self.parked = False
        self.waits = NOTHING
        self.explanation: Explanation | None = None
        """Shared by all members while they are parked."""
        self.told = ""
        """The reason codes that every member has been told; empty if some have not."""
        self.stopped: dict[str, tuple[BudgetBlocker, ...]] = {}
        """Action → the budgets that alone stopped the last claim of its first group under that name."""
        self.ticket = -1
        """Of its entry among the buckets of its queue; -1 for none. Kept by ``turns``, as is the next."""
        self.entered: GroupEntry | None = None
        self.entered_key: Any = None

    def add(self, group: GroupEntry) -> None:
        self.members[group.key] = group
        group.bucket = self
        self.line.enter(group.order_key, group.key, passing_time(group) if group.timed else None)
        if self.ranked is not None:
            self.ranked.enter(group.rank, group.key, None)
        self.note_promises(group)

    def note_promises(self, group: GroupEntry) -> None:
        """Keep :attr:`promised` true after what is promised to a member has changed."""
        if group.promises and self.strict:
            self.promised[group.key] = group
        else:
            self.promised.pop(group.key, None)

    def drop(self, group: GroupEntry) -> None:
        del self.members[group.key]
        group.bucket = None
        self.promised.pop(group.key, None)
        self.owners.pop(group.key, None)
        self.line.leave(group.key)
        if self.ranked is not None:
            self.ranked.leave(group.key)

    def by_rank(self) -> OrderedGroups:
        """The members by rank, whatever policies say of their order."""
        if self.ranked is None:
            self.ranked = OrderedGroups()
            for group in sorted(self.members.values(), key=_rank):
                self.ranked.enter(group.rank, group.key, None)
        return self.ranked

    def head(self) -> GroupEntry | None:
        """The first group in order; while there is a :attr:`limit`, the first that keeps it or is one of
        :attr:`owners`."""
        if self.limit is None:
            key = self.line.head()
        else:
            key = self.line.within(self.limit)
            if self.owners:
                key = self.line.foremost([*self.owners] if key is None else [key, *self.owners])
        return None if key is None else self.members[key]

    def let_pass(self, limit: float | None, owners: Iterable[GroupEntry]) -> None:
        """Whoever ends within so many seconds may pass the first (``None``: nobody), and these are tried, too."""
        self.limit = NOBODY if limit is None else limit
        self.owners = {group.key: group for group in owners}

    def let_nobody_pass(self) -> None:
        """The first is the first again."""
        self.limit = None
        self.owners = {}

    def takes_turn(self, group: GroupEntry) -> bool:
        """It is a member's turn. Whether as the first, or as one that may pass the first; not as one of :attr:`owners`
        alone, who have one turn each."""
        owner = self.owners.pop(group.key, None) is not None
        return not owner or self.limit is None or self.line.ends_within(group.key, self.limit)

    def look_again(self, group: GroupEntry) -> bool:
        """Look again at the rank of a member and how long it runs. Whether it might now pass where it might not
        before."""
        if self.ranked is not None and self.ranked.place(group.key) != group.rank:
            self.ranked.leave(group.key)
            self.ranked.enter(group.rank, group.key, None)
        before = self.line.times.get(group.key)
        time = passing_time(group) if group.timed else None
        self.line.retime(group.key, time)
        return time is not None and (before is None or time < before)

    @property
    def strict(self) -> bool:
        """Whether it is a strict line: its groups ask for different things, and only the first is tried."""
        return len(self.signature) == 1

    def __repr__(self) -> str:
        return f"<Bucket {self.queue.name} {len(self.members)} {'parked' if self.parked else 'active'}>"


class SchedulingQueue:
    def __init__(self, table: NodeTable, queues: QueueTree, domains: list[Domain]) -> None:
        self._table = table
        self.leftover = FutureFree(table)
        """What is free once all that terminates is gone, for whoever asks about single rows."""
        self._queues = queues
        self._domains = domains
        self.pending_classes: dict[Signature, PendingClass] = {}
        self.by_class: dict[TaskClass, dict[PendingClass, None]] = {}
        self.by_queue: dict[str, dict[PendingClass, None]] = {}
        self.by_domain: dict[TaskClass, dict[PendingClass, None]] = {}
        self._by_number: dict[int, TaskClass] = {}
        """The classes of ``by_domain``."""
        self.by_anything: dict[PendingClass, None] = {}
        self.by_row: dict[int, dict[PendingClass, None]] = {}
        self.holds: Callable[[GroupEntry], bool] = lambda group: True
        """Whether, by counting, some domain would hold the step of a group that has to be in one."""
        self._matrix: NDArray[np.int64] | None = None
        self._matrix_classes: list[TaskClass] = []
        self._asked: dict[TaskClass, list[tuple[int, int]]] = {}
        """Of the classes of ``by_class``: column and amount of what a task asks for, as far as somebody looked."""

    # ------------------------------------------------------------------ membership

    def enter(self, signature: Signature, queue: QueueEntry, group: GroupEntry) -> PendingClass:
        """Put a group, its order key set, into the bucket of its signature."""
        pending_class = self.pending_classes.get(signature)
        if pending_class is None:
            dialect = None if len(signature) == 1 or group.group is None else group.group.dialect
            pending_class = self.pending_classes[signature] = PendingClass(signature, queue, dialect)
        pending_class.add(group)
        return pending_class

    def leave(self, group: GroupEntry) -> None:
        pending_class = group.bucket
        if pending_class is None:
            return
        pending_class.drop(group)
        if not pending_class.members:
            if pending_class.parked:
                self._forget(pending_class)
            del self.pending_classes[pending_class.signature]

    # ------------------------------------------------------------------ parking and waking

    def park(self, pending_class: PendingClass, waits: WakeConditions) -> None:
        pending_class.parked = True
        pending_class.let_nobody_pass()
        pending_class.waits = waits
        for cls in (*waits.room, *waits.any_room):
            if cls not in self.by_class:
                self.by_class[cls] = {}
                self._matrix = None
            self.by_class[cls][pending_class] = None
        for name in waits.queues:
            self.by_queue.setdefault(name, {})[pending_class] = None
        for cls in waits.domains:
            self.by_domain.setdefault(cls, {})[pending_class] = None
            self._by_number[cls.number] = cls
        for row in waits.rows:
            self.by_row.setdefault(row, {})[pending_class] = None
        if waits.anything:
            self.by_anything[pending_class] = None

    def unpark(self, pending_class: PendingClass) -> None:
        self._forget(pending_class)
        pending_class.parked = False
        pending_class.waits = NOTHING
        pending_class.explanation = None

    def _forget(self, pending_class: PendingClass) -> None:
        waits = pending_class.waits
        for cls in {*waits.room, *waits.any_room}:
            self._drop(self.by_class, cls, pending_class)
            if cls not in self.by_class:
                self._matrix = None
        for name in waits.queues:
            self._drop(self.by_queue, name, pending_class)
        for cls in waits.domains:
            self._drop(self.by_domain, cls, pending_class)
            if cls not in self.by_domain:
                del self._by_number[cls.number]
        for row in waits.rows:
            self._drop(self.by_row, row, pending_class)
        self.by_anything.pop(pending_class, None)

    @staticmethod
    def _drop(index: dict[Any, dict[PendingClass, None]], key: Any, pending_class: PendingClass) -> None:
        entries = index.get(key)
        if entries is not None:
            entries.pop(pending_class, None)
            if not entries:
                del index[key]

    def wakes_nobody(self, moved: set[int]) -> bool:
        """Whether it is clear at once that :meth:`wake` finds nothing."""
        if self._table.improved or (self.by_anything and (moved or self._queues.freed)):
            return False
        return not (moved and self.by_domain) and not (self._queues.freed and self.by_queue)

    def wake(self, moved: set[int]) -> list[PendingClass]:
        """The parked buckets that what has happened since the last call may help; now active.

        ``moved``: classes of which tasks came or went.
        """
        improved, self._table.improved = self._table.improved, set()
        freed, self._queues.freed = self._queues.freed, {}
        woken: dict[PendingClass, None] = {}
        if improved and self.by_class:
            self._wake_by_room(improved, woken)
        if self.by_row:
            for row in improved:
                woken.update(self.by_row.get(row, {}))
        for name in freed:
            woken.update(self.by_queue.get(name, {}))
        if moved and self.by_domain:
            self._wake_by_domain(moved, woken)
        if self.by_anything and (improved or freed or moved):
            woken.update(self.by_anything)
        for pending_class in woken:
            self.unpark(pending_class)
        return list(woken)

    def _wake_by_room(self, improved: set[int], woken: dict[PendingClass, None]) -> None:
        rows = np.fromiter(improved, dtype=np.int64, count=len(improved))
        here: dict[NodeFit, bool] = {}
        for cls in self._candidates(rows):
            fits = here.get(cls.fit)
            if fits is None:
                fits = here[cls.fit] = cls.fit.takes_any(rows)
            if not fits:
                continue
            total = -1  # room that is being vacated can be promised
            for pending_class in self.by_class[cls]:
                if cls not in pending_class.waits.any_room:
                    needed = pending_class.waits.room.get(cls)
                    if needed is None:
                        continue
                    if needed > 1:
                        total = cls.future_total() if total < 0 else total
                        if total < needed:
                            continue
                head = pending_class.head()
                if head is None or not head.near or self.holds(head):
                    woken[pending_class] = None

    def _candidates(self, rows: NDArray[np.int64]) -> Iterable[TaskClass]:
        """The watched classes of which a task might fit on one of the rows, by amounts alone, now or once
        what terminates is gone."""
        if len(rows) <= _FEW_ROWS and len(self.by_class) <= _FEW_CLASSES:
            return self._candidates_of(rows.tolist())
        if self._matrix is None or self._matrix.shape[1] != self._table.width:
            self._matrix_classes = list(self.by_class)
            self._matrix = np.stack([cls.vector for cls in self._matrix_classes])
        planes = self._table.planes[rows]
        staying = planes[:, USED] - planes[:, RELEASING] + planes[:, PROMISED]
        most = (planes[:, ALLOCATABLE] - staying).max(axis=0)
        fitting = np.flatnonzero((self._matrix <= np.maximum(most, 0)).all(axis=1))
        return [self._matrix_classes[at] for at in fitting.tolist()]

    def _candidates_of(self, rows: list[int]) -> list[TaskClass]:
        """The same, of a few, in plain integers."""
        cells = self.leftover.cells()
        most = cells[rows[0]]
        for row in rows[1:]:
            most = list(map(max, most, cells[row]))
        asked = self._asked
        if len(asked) > 2 * _FEW_CLASSES:
            asked.clear()
        found = []
        for cls in self.by_class:
            amounts = asked.get(cls)
            if amounts is None:
                units = cls.vector.tolist()
                amounts = asked[cls] = [(at, units[at]) for at in range(len(units)) if units[at] > 0]
            for at, amount in amounts:
                if most[at] < amount:
                    break
            else:
                found.append(cls)
        return found

    def _wake_by_domain(self, moved: set[int], woken: dict[PendingClass, None]) -> None:
        for plugin in self._domains:
            if isinstance(plugin, Listeners):
                heard = {number for mover in moved for number in plugin.heard_by(mover)}
                classes = [cls for number in heard if (cls := self._by_number.get(number)) is not None]
            else:
                classes = [c for c in self.by_domain if not moved.isdisjoint(plugin.listens(c.number))]
            for cls in sorted(classes, key=lambda c: c.number):
                woken.update(self.by_domain[cls])
