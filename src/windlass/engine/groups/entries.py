"""Groups and tasks in the engine, and the counts of gangs.

A group holds *active* tasks (assumed, bound, running) and succeeded ones, and waits
with *pending* ones. Terminating and failed tasks do not count. Gated tasks are not
available. A group is *ready* if active and succeeded tasks reach ``min_member``, each
role its minimum, and each required sub-group its minimum. Role minima count only if
``min_member`` is at least their sum.

If pods without requests are separate from the gang (Volcano's rule), they count as
members as long as they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import msgspec

from windlass.engine.decision import DeviceShare, GroupStatus
from windlass.engine.devices.share_table import TaskShares
from windlass.engine.devices.whole_device_table import Masks
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.subgroups import SubGroupTree
from windlass.engine.nodes.table import NodeTable
from windlass.spi import renamed
from windlass.spi.numa import NumaHolding
from windlass.spi.objects import Group, Task, TaskState
from windlass.spi.plugins import Rejection
from windlass.spi.topology import TopologyNeed

if TYPE_CHECKING:
    from windlass.engine.groups.pending_class import PendingClass
    from windlass.engine.groups.queue_entry import QueueEntry

PENDING, ASSUMED, BOUND, RUNNING = TaskState.PENDING, TaskState.ASSUMED, TaskState.BOUND, TaskState.RUNNING
TERMINATING, STUCK = TaskState.RELEASING, TaskState.STUCK
SUCCEEDED, FAILED = TaskState.SUCCEEDED, TaskState.FAILED
"""States as plain names.

In Python 3.11 the lookup of a member of an enumeration takes twenty times as long, and
each decision reads a dozen of them.
"""
ACTIVE = frozenset({ASSUMED, BOUND, RUNNING})
ENDING = frozenset({TERMINATING, STUCK})
"""States of an evicted task that still holds its resources."""
_LEAVING = ENDING | {SUCCEEDED, FAILED}
OCCUPYING = ACTIVE | ENDING
"""States in which a task holds resources of its node."""


_NO_ROLES: dict[str, int] = {}
_NO_NEEDS: dict[str, TopologyNeed] = {}
"""Shared by groups without such entries, which are most. Never modified."""


class TaskEntry:
    """Task in the engine.

    ``state`` may be ahead of ``task.state``: assumed binds and evictions.
    """

    __slots__ = (
        "cls",
        "devices",
        "group",
        "key",
        "masks",
        "nominated_row",
        "nominated_shares",
        "nominated_zones",
        "row",
        "shares",
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
        """Position in the group, computed on first use."""
        self.state = PENDING
        self.row = -1
        self.masks: Masks = ()
        self.shares: TaskShares = ()
        """Allocated shares of devices that are counted by share."""
        self.devices: tuple[DeviceShare, ...] = ()
        self.nominated_shares: TaskShares = ()
        """Nominated device shares."""
        self.zones: NumaHolding | None = None
        """NUMA holding, if the node reports zones."""
        self.nominated_zones: NumaHolding | None = None
        """Nominated NUMA holding."""
        self.nominated_row = -1
        """Row on which terminating tasks free capacity for the task; -1 for none."""

    def __repr__(self) -> str:
        return f"<TaskEntry {self.key} {self.state.value} row={self.row}>"


class TaskBatch(msgspec.Struct):
    """Consecutive tasks of one class and one role."""

    cls: TaskClass
    role: str
    entries: list[TaskEntry]


@dataclass(slots=True)
class MissingSubGroup:
    """Missing tasks of a sub-group: ``members`` of its own, and ``needed_children`` of
    ``children``.
    """

    name: str
    members: int
    batches: list[TaskBatch]
    children: list[MissingSubGroup] = field(default_factory=list)
    needed_children: int = 0

    def min_tasks(self) -> int:
        """Return the minimum number of tasks that completes the sub-group."""
        return self.members + sum(
            sorted(child.min_tasks() for child in self.children)[: self.needed_children]
        )

    def shape(self) -> Hashable:
        """Return a value that is equal for sub-groups with the same missing tasks."""
        sizes = tuple((batch.cls.number, batch.role, len(batch.entries)) for batch in self.batches)
        return (self.members, self.needed_children, sizes, tuple(child.shape() for child in self.children))


class NextTasks(msgspec.Struct):
    """Next tasks of a group.

    A gang below its minimum:

    * ``batches``: its pending tasks, of which enough to reach the minimum are placed,
      or none.
    * ``members``: number of missing members.
    * ``roles``: role → number of missing members.
    * ``root``: missing tasks of its sub-groups.
    * ``pool``: tasks of every sub-group, for members beyond those of sub-groups. No
      sub-group starts below its own minimum.

    An elastic group (``extra``) needs one task of the first batch that fits. If it has
    sub-groups, it needs the first of ``options`` that fits, and ``members`` is the size
    of the smallest one.
    """

    batches: list[TaskBatch]
    members: int
    roles: dict[str, int]
    extra: bool = False
    root: MissingSubGroup | None = None
    options: Sequence[MissingSubGroup] = ()
    pool: Sequence[MissingSubGroup] = ()

    @property
    def is_single_task(self) -> bool:
        """True if exactly one given task is needed, and nothing else."""
        batches = self.batches
        return (
            len(batches) == 1
            and len(batches[0].entries) == 1
            and not self.roles
            and self.root is None
            and not self.options
        )

    @property
    def single_class(self) -> bool:
        return len({batch.cls for batch in self.batches}) == 1


@renamed.attributes_of("GroupView")
class GroupEntry:
    """Group with its tasks.

    ``group`` is ``None`` as long as only tasks refer to the group. It is not scheduled
    then.
    """

    __slots__ = (
        "_first",
        "_ordered",
        "_task_order",
        "active",
        "active_roles",
        "best_effort_pending",
        "best_effort_separate",
        "failed",
        "failure",
        "failures",
        "group",
        "has_topology",
        "key",
        "minimum",
        "newly_failed",
        "nominations",
        "not_before",
        "order_key",
        "pending",
        "pending_class",
        "pending_classes",
        "preempted_in_part",
        "queue",
        "rank",
        "rejection",
        "releasing",
        "reported",
        "roles_enforced",
        "shares_time",
        "shares_time_memo",
        "stale_since",
        "stale_tried",
        "step",
        "subgroup_topologies",
        "subgroups",
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
        """Number of members that the group needs; 0 as long as only tasks refer to it."""
        self.queue: QueueEntry | None = None
        self.rank: tuple[Any, ...] = ()
        """Priority, then age: position among all groups. Empty as long as only tasks refer to it."""
        self.tasks: dict[str, TaskEntry] = {}
        self.timed = False
        """True if anything is known about the run time; set by :meth:`ClusterState.update_run_time`."""
        self.pending: dict[str, TaskEntry] = {}
        """Pending tasks that are not gated."""
        self.pending_classes: dict[TaskClass, int] = {}
        self._ordered: list[TaskEntry] | None = None
        self._first = 0
        self.active = 0
        self.succeeded = 0
        self.failed = 0
        self.releasing = 0
        self.nominations = 0
        """Number of pending tasks with a nomination."""
        self.roles_enforced: dict[str, int] = _NO_ROLES
        self.active_roles: dict[str, int] = _NO_ROLES
        """Role → active and succeeded tasks, only if role minima apply."""
        self.subgroups: SubGroupTree | None = None
        self.tallies = False
        """True if tasks are counted by role or sub-group."""
        self.best_effort_separate = False
        """True if pods without requests are placed separately from the gang."""
        self.best_effort_pending = 0
        """Number of pending tasks without requests."""
        self.has_topology = False
        """True if the group or a sub-group has a topology constraint."""
        self.subgroup_topologies: dict[str, TopologyNeed] = _NO_NEEDS
        """Sub-group → its topology constraint."""
        self.stale_since: float | None = None
        """Start of a time below its minimum, in Unix seconds; set by ``stalegangeviction``."""
        self.stale_tried: float | None = None
        """Unix seconds of its last eviction for that reason."""
        self.shares_time_memo: tuple[Group, QueueEntry, int, bool] | None = None
        """Result of the opt-in to time-sharing, with its inputs: group, queue, version of the tree."""
        self.shares_time = False
        """True if the group shares time; set by
        :class:`~windlass.engine.timesharing.attained_service.TimeSharingState`.
        """
        self.pending_class: PendingClass | None = None
        self.step: NextTasks | None = None
        """Its next tasks, set while it is in a pending class."""
        self.order_key: Any = None
        self.failures = 0
        self.newly_failed = False
        self.failure = ""
        self.not_before = 0.0
        self.rejection: Rejection | None = None
        """Reason why the last placement of the group was rejected."""
        self.preempted_in_part = False
        """True if tasks were evicted for a part of its minimum (tiers under ``compatibility``)."""
        self.reported: GroupStatus | None = None

    def set_group(self, group: Group, *, best_effort_separate: bool = False) -> None:
        """Set the specification. ``best_effort_separate``: pods without requests are separate."""
        self.group = group
        self.minimum = group.min_member
        self.rank = (-group.priority, group.created, group.uid, group.key)
        self.best_effort_separate = best_effort_separate
        if group.subgroups or self.subgroup_topologies:
            topologies = {
                subgroup.name: subgroup.topology
                for subgroup in group.subgroups
                if subgroup.topology is not None
            }
            self.subgroup_topologies = topologies
        self.has_topology = group.topology is not None or bool(self.subgroup_topologies)
        if not (self.tallies or group.min_task_member or group.subgroups or group.min_subgroups):
            return
        enforced = {role: n for role, n in group.min_task_member.items() if n > 0}
        self.roles_enforced = enforced if group.min_member >= sum(enforced.values()) else {}
        self.active_roles = {}
        self.subgroups = SubGroupTree(group) if group.subgroups or group.min_subgroups else None
        self.tallies = bool(self.roles_enforced) or self.subgroups is not None
        if self.tallies:
            for entry in self.tasks.values():
                if entry.state in ACTIVE or entry.state is SUCCEEDED:
                    self.tally(entry, 1)

    @property
    def spec(self) -> Group:
        """Specification of the group. Raises ``ValueError`` as long as only tasks refer to it."""
        if self.group is None:
            raise ValueError(f"group {self.key} is only named, not known")
        return self.group

    @property
    def held_members(self) -> int:
        """Number of members that count toward the minimum."""
        return self.active + self.succeeded

    @property
    def finished(self) -> int:
        """Number of tasks that have succeeded or failed."""
        return self.succeeded + self.failed

    @property
    def missing(self) -> int:
        """Number of missing members; negative if the group exceeds its minimum."""
        missing = self.minimum - self.active - self.succeeded
        return missing - self.best_effort_pending if self.best_effort_separate else missing

    def missing_roles(self) -> dict[str, int]:
        """Return the number of missing members by role."""
        if not self.roles_enforced:
            return {}
        best_effort: dict[str, int] = {}
        if self.best_effort_separate and self.best_effort_pending:
            for entry in self.pending.values():
                if entry.cls.is_best_effort:
                    best_effort[entry.task.role] = best_effort.get(entry.task.role, 0) + 1
        missing = {}
        for role, n in self.roles_enforced.items():
            count = n - self.active_roles.get(role, 0) - best_effort.get(role, 0)
            if count > 0:
                missing[role] = count
        return missing

    @property
    def holding(self) -> Mapping[str, int]:
        """Held and nominated resources of its tasks, without those being released."""
        return self._sum(pending=False)

    @property
    def requested(self) -> Mapping[str, int]:
        """:attr:`holding`, and the requests of its pending tasks."""
        return self._sum(pending=True)

    def _sum(self, *, pending: bool) -> dict[str, int]:
        sums: dict[str, int] = {}
        for entry in self.tasks.values():
            held = entry.nominated_row >= 0 or (entry.row >= 0 and entry.state is not TERMINATING)
            if held or (pending and entry.key in self.pending):
                for name, units in entry.cls.items:
                    sums[name] = sums.get(name, 0) + units
        return sums

    def is_over(self) -> bool:
        """Return whether the group has run, and no task of it is left that holds or waits."""
        spec = self.group
        return (
            spec is not None
            and spec.has_run
            and all(entry.state in _LEAVING for entry in self.tasks.values())
        )

    def ready(self) -> bool:
        """Return whether the group holds its minimum."""
        if self.missing > 0:
            return False
        if not self.tallies:
            return True
        return not self.missing_roles() and (self.subgroups is None or self.subgroups.root.is_complete())

    def has_lost_members(self) -> bool:
        """Return whether a running group has lost members that were not replaced.

        It then holds some tasks, fewer than its minimum, and none is pending. It has
        lost none as long as a member of its minimum is still terminating.
        """
        if not 0 < self.active < self.minimum - self.succeeded or self.pending:
            return False
        has_all_tasks = len(self.tasks) >= self.minimum
        return not any(
            e.state is PENDING or (has_all_tasks and e.state in ENDING) for e in self.tasks.values()
        )

    def surplus(self) -> bool:
        """Return whether the group exceeds its minimum, so that it survives the loss of a task."""
        if not self.ready() or self.active + self.succeeded <= self.minimum:
            return False
        return self.subgroups is None or self.subgroups.root.has_surplus()

    def count(self, entry: TaskEntry, state: TaskState, sign: int) -> None:
        """Add a task to the counter of a state (1), or remove it (-1)."""
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
        """Count a task for its role and its sub-group."""
        if self.roles_enforced:
            role = entry.task.role
            self.active_roles[role] = self.active_roles.get(role, 0) + sign
        if self.subgroups is not None:
            self.subgroups.of(entry.task.subgroup).held += sign

    def add_pending(self, entry: TaskEntry, *, new: bool = False) -> None:
        """Add a pending task. ``new``: it has not been pending before and is in no list yet."""
        self.pending[entry.key] = entry
        counts = self.pending_classes
        counts[entry.cls] = counts.get(entry.cls, 0) + 1
        if entry.cls.is_best_effort:
            self.best_effort_pending += 1
        if self._ordered is not None:
            entry.sort_key = self._task_order(entry.task)
            if new and (not self._ordered or self._ordered[-1].sort_key <= entry.sort_key):
                self._ordered.append(entry)
            else:
                self._ordered = None

    def add_pending_batch(self, entries: Sequence[TaskEntry], cls: TaskClass) -> None:
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
            self.best_effort_pending += len(entries)

    def drop_pending(self, entry: TaskEntry) -> None:
        del self.pending[entry.key]
        if entry.cls.is_best_effort:
            self.best_effort_pending -= 1
        counts = self.pending_classes
        left = counts[entry.cls] - 1
        if left:
            counts[entry.cls] = left
        else:
            del counts[entry.cls]

    def drop_pending_batch(self, entries: Sequence[TaskEntry], cls: TaskClass) -> None:
        """:meth:`drop_pending` for several tasks of one class."""
        pending, classes = self.pending, self.pending_classes
        for entry in entries:
            del pending[entry.key]
        if cls.is_best_effort:
            self.best_effort_pending -= len(entries)
        if not pending:
            classes.clear()
        elif left := classes[cls] - len(entries):
            classes[cls] = left
        else:
            del classes[cls]

    @contextmanager
    def with_gated(self) -> Iterator[None]:
        """Inside, gated tasks of the group are pending. For plans alone: queues do not count them."""
        gated = [entry for entry in self.tasks.values() if entry.state is PENDING and entry.task.gated]
        for entry in gated:
            self.add_pending(entry)
        try:
            yield
        finally:
            for entry in gated:
                self.drop_pending(entry)
            self._ordered = None

    def waiting(self) -> Iterator[TaskEntry]:
        """Return the pending tasks in task order. The group must not change during iteration."""
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
        """Return :meth:`waiting` without tasks that are separate from the gang."""
        if not self.best_effort_separate:
            return self.waiting()
        return (entry for entry in self.waiting() if not entry.cls.is_best_effort)

    def waiting_count(self) -> int:
        """Return the number of :meth:`candidates`."""
        return len(self.pending) - (self.best_effort_pending if self.best_effort_separate else 0)

    def place_of(self, entry: TaskEntry) -> Any:
        """Return the position of the task in the task order of its group."""
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
    """Return the tasks of the group that have a nomination."""
    return (
        [entry for entry in group.pending.values() if entry.nominated_row >= 0] if group.nominations else []
    )


def tasks_by_row(table: NodeTable) -> Sequence[Mapping[str, TaskEntry]]:
    """Return the tasks on every row, by key."""
    return cast("Sequence[Mapping[str, TaskEntry]]", table.tasks)


def tasks_on(table: NodeTable, row: int) -> Mapping[str, TaskEntry]:
    """Return the tasks on a row, by key."""
    return cast("Mapping[str, TaskEntry]", table.tasks[row])


def nominated_on(table: NodeTable, row: int) -> Mapping[str, TaskEntry]:
    """Return the tasks that are nominated to a row, by key."""
    return cast("Mapping[str, TaskEntry]", table.nominated_tasks.get(row, {}))


_sort_key = attrgetter("sort_key")
