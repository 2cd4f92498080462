"""Groups and tasks inside the engine, and the arithmetic of gangs.

A group holds *active* tasks (assumed, bound, running), succeeded ones, and waits with *pending* ones;
terminating and failed tasks count for nothing, gated ones are not available. A group is *ready* when
active + succeeded reach ``min_member``, each role its own minimum, and its parts theirs; role minima
count only if ``min_member`` is at least their sum.

Where pods that ask for nothing are placed ``apart`` from the gang (Volcano's rule), they stand for members
as long as they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from windlass.engine.decision import DeviceShare, GroupStatus
from windlass.engine.devices.share_table import TaskShares
from windlass.engine.devices.whole_device_table import Masks
from windlass.engine.groups.subgroups import SubGroupTree
from windlass.spi import renamed
from windlass.spi.numa import NumaHolding
from windlass.spi.objects import Group, Task, TaskState
from windlass.spi.plugins import Rejection
from windlass.spi.topology import TopologyNeed

if TYPE_CHECKING:
    from windlass.engine.feasibility.task_class import TaskClass
    from windlass.engine.groups.next_step import NextTasks
    from windlass.engine.pending.scheduling_queue import PendingClass
    from windlass.engine.queues.tree import QueueEntry

PENDING, ASSUMED, BOUND, RUNNING = TaskState.PENDING, TaskState.ASSUMED, TaskState.BOUND, TaskState.RUNNING
TERMINATING, STUCK = TaskState.RELEASING, TaskState.STUCK
SUCCEEDED, FAILED = TaskState.SUCCEEDED, TaskState.FAILED
"""States as plain names: with Python 3.11 a member of an enumeration takes twenty times as long to look up,
and every decision asks a dozen times."""
ACTIVE = frozenset({ASSUMED, BOUND, RUNNING})
ENDING = frozenset({TERMINATING, STUCK})
"""States of a task that has been asked to go and still holds its resources."""
OCCUPYING = ACTIVE | ENDING
"""States in which a task holds resources of its node."""


_NO_ROLES: dict[str, int] = {}
_NO_NEEDS: dict[str, TopologyNeed] = {}
"""Shared by the groups that have none, which are most; nobody writes to them."""


class TaskEntry:
    """A task as the engine holds it. ``state`` may be ahead of ``task.state``: assumed binds, evictions."""

    __slots__ = (
        "cls",
        "cuts",
        "devices",
        "group",
        "kept",
        "kept_zones",
        "key",
        "masks",
        "promised",
        "row",
        "sort_key",
        "state",
        "task",
        "zones",
    )

    def __init__(self, task: Task, cls: TaskClass, group: GroupEntry | None) -> None:
        self.key = task.key
        self.task = task
        self.cls = cls
        self.group = group
        self.sort_key: Any = None
        """Its place in the group; made when first needed."""
        self.state = PENDING
        self.row = -1
        self.masks: Masks = ()
        self.cuts: TaskShares = ()
        """What it has of cards whose parts are counted one by one."""
        self.devices: tuple[DeviceShare, ...] = ()
        self.kept: TaskShares = ()
        """What of cards is promised to it."""
        self.zones: NumaHolding | None = None
        """What it holds of its node's NUMA zones, where those are known."""
        self.kept_zones: NumaHolding | None = None
        """What of zones is promised to it."""
        self.promised = -1
        """The row on which resources being freed are promised to it; -1 for none."""

    def __repr__(self) -> str:
        return f"<TaskEntry {self.key} {self.state.value} row={self.row}>"


@renamed.attributes_of("GroupView")
class GroupEntry:
    """A group with its tasks. ``group`` is None while only tasks name it: then nothing is decided."""

    __slots__ = (
        "_first",
        "_ordered",
        "_task_order",
        "active",
        "active_roles",
        "apart",
        "asking_nothing",
        "bucket",
        "claimed_in_part",
        "consent",
        "failed",
        "failure",
        "failures",
        "group",
        "key",
        "minimum",
        "near",
        "near_parts",
        "newly_failed",
        "not_before",
        "order_key",
        "parts",
        "pending",
        "pending_classes",
        "promises",
        "queue",
        "rank",
        "refusal",
        "releasing",
        "reported",
        "roles_enforced",
        "shares",
        "stale_since",
        "stale_tried",
        "step",
        "succeeded",
        "tallies",
        "tasks",
        "timed",
    )

    def __init__(self, key: str, task_order: Callable[[Task], Any]) -> None:
        self.key = key
        self._task_order = task_order
        self.group: Group | None = None
        self.minimum = 0
        """How many members it needs; 0 while it is only named."""
        self.queue: QueueEntry | None = None
        self.rank: tuple[Any, ...] = ()
        """Priority, then age: its place among all groups. Of a group that is only named, none."""
        self.tasks: dict[str, TaskEntry] = {}
        self.timed = False
        """Whether anything may be known of how long it runs; kept by :meth:`World.note_time`."""
        self.pending: dict[str, TaskEntry] = {}
        """Pending and not gated."""
        self.pending_classes: dict[TaskClass, int] = {}
        self._ordered: list[TaskEntry] | None = None
        self._first = 0
        self.active = 0
        self.succeeded = 0
        self.failed = 0
        self.releasing = 0
        self.promises = 0
        """Pending tasks that room is promised to."""
        self.roles_enforced: dict[str, int] = _NO_ROLES
        self.active_roles: dict[str, int] = _NO_ROLES
        """Role → active and succeeded tasks; kept only where role minima are enforced."""
        self.parts: SubGroupTree | None = None
        self.tallies = False
        """Whether roles or parts are counted."""
        self.apart = False
        """Whether pods that ask for nothing are placed on their own, outside of the gang."""
        self.asking_nothing = 0
        """Pending tasks that ask for nothing."""
        self.near = False
        """Whether it, or a part of it, asks how near to one another its tasks are."""
        self.near_parts: dict[str, TopologyNeed] = _NO_NEEDS
        """Part → what it asks for in that respect."""
        self.stale_since: float | None = None
        """Since when it has held something, but less than its minimum; kept by ``stalegangeviction``."""
        self.stale_tried: float | None = None
        """When it was last evicted for that."""
        self.consent: tuple[Group, QueueEntry, int, bool] | None = None
        """Whether it opts in to time-sharing: as what, in which queue and version of the tree that was asked."""
        self.shares = False
        """Whether it opted in to time-sharing; kept by
        :class:`~windlass.engine.timesharing.attained_service.TimeSharingState`."""
        self.bucket: PendingClass | None = None
        self.step: NextTasks | None = None
        """What it waits for; set while it is in a bucket."""
        self.order_key: Any = None
        self.failures = 0
        self.newly_failed = False
        self.failure = ""
        self.not_before = 0.0
        self.refusal: Rejection | None = None
        """Why what was found for it was not decided when it was last tried."""
        self.claimed_in_part = False
        """Whether others went for a part of its minimum that did not let it start (tiers under ``compatibility``)."""
        self.reported: GroupStatus | None = None

    def set_group(self, group: Group, *, apart: bool = False) -> None:
        """``apart``: pods that ask for nothing are placed outside of the gang."""
        self.group = group
        self.minimum = group.min_member
        self.rank = (-group.priority, group.created, group.uid, group.key)
        self.apart = apart
        if group.subgroups or self.near_parts:
            parts = {part.name: part.topology for part in group.subgroups if part.topology is not None}
            self.near_parts = parts
        self.near = group.topology is not None or bool(self.near_parts)
        if not (self.tallies or group.min_task_member or group.subgroups or group.min_subgroups):
            return
        enforced = {role: n for role, n in group.min_task_member.items() if n > 0}
        self.roles_enforced = enforced if group.min_member >= sum(enforced.values()) else {}
        self.active_roles = {}
        self.parts = SubGroupTree(group) if group.subgroups or group.min_subgroups else None
        self.tallies = bool(self.roles_enforced) or self.parts is not None
        if self.tallies:
            for entry in self.tasks.values():
                if entry.state in ACTIVE or entry.state is SUCCEEDED:
                    self.tally(entry, 1)

    @property
    def spec(self) -> Group:
        """What the group is. Raises ``ValueError`` while it is only named."""
        if self.group is None:
            raise ValueError(f"group {self.key} is only named, not known")
        return self.group

    @property
    def held_members(self) -> int:
        """Volcano's R: what counts toward the minimum."""
        return self.active + self.succeeded

    @property
    def finished(self) -> int:
        """Tasks that have succeeded or failed."""
        return self.succeeded + self.failed

    @property
    def missing(self) -> int:
        """How many members the group lacks; negative if it has more than its minimum."""
        lacking = self.minimum - self.active - self.succeeded
        return lacking - self.asking_nothing if self.apart else lacking

    def missing_roles(self) -> dict[str, int]:
        """Role → how many members of it are lacking."""
        if not self.roles_enforced:
            return {}
        standing_in: dict[str, int] = {}
        if self.apart and self.asking_nothing:
            for entry in self.pending.values():
                if entry.cls.is_best_effort:
                    standing_in[entry.task.role] = standing_in.get(entry.task.role, 0) + 1
        found = {}
        for role, n in self.roles_enforced.items():
            lacking = n - self.active_roles.get(role, 0) - standing_in.get(role, 0)
            if lacking > 0:
                found[role] = lacking
        return found

    @property
    def holding(self) -> Mapping[str, int]:
        """What its tasks hold or are promised; what is being given back left out."""
        return self._sum(pending=False)

    @property
    def requested(self) -> Mapping[str, int]:
        """:attr:`holding`, and what its pending tasks ask for."""
        return self._sum(pending=True)

    def _sum(self, *, pending: bool) -> dict[str, int]:
        sums: dict[str, int] = {}
        for entry in self.tasks.values():
            held = entry.promised >= 0 or (entry.row >= 0 and entry.state is not TERMINATING)
            if held or (pending and entry.key in self.pending):
                for name, units in entry.cls.items:
                    sums[name] = sums.get(name, 0) + units
        return sums

    def ready(self) -> bool:
        """Whether the group holds its minimum."""
        if self.missing > 0:
            return False
        if not self.tallies:
            return True
        return not self.missing_roles() and (self.parts is None or self.parts.root.complete())

    def bereft(self) -> bool:
        """Whether it holds something and less than its minimum, and nothing of it waits: members are gone or have
        failed, and nobody has made them anew. While one of those that make up the minimum is still leaving, it is
        not."""
        if not 0 < self.active < self.minimum - self.succeeded or self.pending:
            return False
        whole = len(self.tasks) >= self.minimum
        return not any(e.state is PENDING or (whole and e.state in ENDING) for e in self.tasks.values())

    def surplus(self) -> bool:
        """Whether it holds more than its minimum: something could go and the rest be a gang still."""
        if not self.ready() or self.active + self.succeeded <= self.minimum:
            return False
        return self.parts is None or self.parts.root.surplus()

    def count(self, entry: TaskEntry, state: TaskState, sign: int) -> None:
        """Book a task in (or out of) the state's counter."""
        if state in ACTIVE:
            self.active += sign
        elif state is SUCCEEDED:
            self.succeeded += sign
        elif state is FAILED:
            self.failed += sign
            return
        elif state is TERMINATING:
            self.releasing += sign
            return
        else:
            return
        if self.tallies:
            self.tally(entry, sign)

    def tally(self, entry: TaskEntry, sign: int) -> None:
        """Count a task for its role and its part."""
        if self.roles_enforced:
            role = entry.task.role
            self.active_roles[role] = self.active_roles.get(role, 0) + sign
        if self.parts is not None:
            self.parts.of(entry.task.subgroup).held += sign

    def add_pending(self, entry: TaskEntry, *, new: bool = False) -> None:
        """``new``: the entry has never been pending before, so it stands in no list yet."""
        self.pending[entry.key] = entry
        counts = self.pending_classes
        counts[entry.cls] = counts.get(entry.cls, 0) + 1
        if entry.cls.is_best_effort:
            self.asking_nothing += 1
        if self._ordered is not None:
            entry.sort_key = self._task_order(entry.task)
            if new and (not self._ordered or self._ordered[-1].sort_key <= entry.sort_key):
                self._ordered.append(entry)
            else:
                self._ordered = None

    def add_pending_run(self, entries: Sequence[TaskEntry], cls: TaskClass) -> None:
        """:meth:`add_pending` for several new tasks of one class."""
        if self._ordered is not None:
            for entry in entries:
                self.add_pending(entry, new=True)
            return
        pending = self.pending
        for entry in entries:
            pending[entry.key] = entry
        counts = self.pending_classes
        counts[cls] = counts.get(cls, 0) + len(entries)
        if cls.is_best_effort:
            self.asking_nothing += len(entries)

    def drop_pending(self, entry: TaskEntry) -> None:
        del self.pending[entry.key]
        if entry.cls.is_best_effort:
            self.asking_nothing -= 1
        counts = self.pending_classes
        left = counts[entry.cls] - 1
        if left:
            counts[entry.cls] = left
        else:
            del counts[entry.cls]

    def drop_pending_run(self, entries: Sequence[TaskEntry], cls: TaskClass) -> None:
        """:meth:`drop_pending` for several tasks of one class."""
        pending, classes = self.pending, self.pending_classes
        for entry in entries:
            del pending[entry.key]
        if cls.is_best_effort:
            self.asking_nothing -= len(entries)
        if not pending:
            classes.clear()
        elif left := classes[cls] - len(entries):
            classes[cls] = left
        else:
            del classes[cls]

    def waiting(self) -> Iterator[TaskEntry]:
        """The pending tasks in task order. Do not change the group meanwhile."""
        pending = self.pending
        if self._ordered is None:
            order = self._task_order
            for entry in pending.values():
                if entry.sort_key is None:
                    entry.sort_key = order(entry.task)
            self._ordered = sorted(pending.values(), key=_sort_key)
            self._first = 0
        ordered = self._ordered
        if not self._first and len(ordered) == len(pending):
            return iter(ordered)  # none of them has been placed
        return self._still_waiting(ordered)

    def _still_waiting(self, ordered: Sequence[TaskEntry]) -> Iterator[TaskEntry]:
        pending = self.pending
        while (
            self._first < len(ordered) and pending.get(ordered[self._first].key) is not ordered[self._first]
        ):
            self._first += 1
        for at in range(self._first, len(ordered)):
            entry = ordered[at]
            if pending.get(entry.key) is entry:
                yield entry

    def candidates(self) -> Iterator[TaskEntry]:
        """:meth:`waiting`, without those that are placed apart from the gang."""
        if not self.apart:
            return self.waiting()
        return (entry for entry in self.waiting() if not entry.cls.is_best_effort)

    def waiting_count(self) -> int:
        """How many :meth:`candidates` there are."""
        return len(self.pending) - (self.asking_nothing if self.apart else 0)

    def place_of(self, entry: TaskEntry) -> Any:
        """The task's place in the order of the group's tasks."""
        if entry.sort_key is None:
            entry.sort_key = self._task_order(entry.task)
        return entry.sort_key

    def gated(self) -> int:
        return sum(1 for e in self.tasks.values() if e.state is PENDING and e.task.gated)

    def __iter__(self) -> Iterator[TaskEntry]:
        return iter(self.tasks.values())

    def __repr__(self) -> str:
        return f"<GroupEntry {self.key} active={self.active} pending={len(self.pending)}>"


def nominated(group: GroupEntry) -> list[TaskEntry]:
    """The tasks of the group that room is promised to."""
    return [entry for entry in group.pending.values() if entry.promised >= 0] if group.promises else []


def run_time(group: GroupEntry) -> float | None:
    """How long the group runs, in seconds: by its owner's word, else the longest that all its tasks may, or
    less by what earlier runs tell, if those were :func:`alike`; ``None`` if nothing is known."""
    spec = group.group
    if spec is None or not spec.run_estimate:
        return run_limit(group)
    if not spec.learned:
        return spec.run_estimate
    limit = run_limit(group)
    if not alike(spec.runs):
        return limit
    return spec.run_estimate if limit is None else min(limit, spec.run_estimate)


def passing_time(group: GroupEntry) -> float | None:
    """After how many seconds the group has ended for certain, as far as that is known: what was learned is
    trusted no further than the longest run, and not at all where its tasks state a limit."""
    spec = group.group
    if spec is None or not spec.learned:
        return run_time(group)
    limit = run_limit(group)
    return limit or ((spec.run_bound or spec.run_estimate) if alike(spec.runs) else None)


@lru_cache(maxsize=4096)
def alike(runs: tuple[float, ...]) -> bool:
    """Whether what is learned of these earlier runs (seconds, ascending) is worth keeping room by: at least half of
    them ran between half and twice their median. Else the next is more often than not far from what is said of it,
    and whoever relies on that leaves room idle, or takes it from who waits for it. What rests on none (somebody else
    says it) is believed."""
    if not runs:
        return True
    middle = runs[(len(runs) - 1) // 2]
    return 2 * sum(middle <= 2 * seconds <= 4 * middle for seconds in runs) >= len(runs)


def run_limit(group: GroupEntry) -> float | None:
    """The longest that all its tasks may run, in seconds; ``None`` if one of them may run for ever."""
    longest = 0.0
    for entry in group.tasks.values():
        if entry.task.run_limit is None:
            return None
        longest = max(longest, entry.task.run_limit)
    return longest or None


_sort_key = attrgetter("sort_key")
