"""Groups and tasks inside the engine, and the arithmetic of gangs.

A group holds *active* tasks (assumed, bound, running), succeeded ones, and waits with *pending* ones;
terminating and failed tasks count for nothing, gated ones are not available. The rules are Volcano's:
a group is *ready* when active + succeeded reach ``min_member`` and each role its own minimum; role
minima count only if ``min_member`` is at least their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.engine.decision import DeviceShare, GroupStatus
from windlass.engine.devices import Masks
from windlass.spi.objects import Group, Task, TaskState

if TYPE_CHECKING:
    from windlass.engine.classes import TaskClass
    from windlass.engine.parking import Bucket
    from windlass.engine.queues import QueueEntry

ACTIVE = frozenset({TaskState.ASSUMED, TaskState.BOUND, TaskState.RUNNING})
OCCUPYING = ACTIVE | {TaskState.RELEASING, TaskState.STUCK}
"""States in which a task holds resources of its node."""


class TaskEntry:
    """A task as the engine holds it. ``state`` may be ahead of ``task.state``: assumed binds, evictions."""

    __slots__ = ("cls", "devices", "group", "key", "masks", "promised", "row", "sort_key", "state", "task")

    def __init__(self, task: Task, cls: TaskClass, group: GroupEntry | None) -> None:
        self.key = task.key
        self.task = task
        self.cls = cls
        self.group = group
        self.sort_key: Any = None
        """Its place in the group; made when first needed."""
        self.state = TaskState.PENDING
        self.row = -1
        self.masks: Masks = ()
        self.devices: tuple[DeviceShare, ...] = ()
        self.promised = -1
        """The row on which resources being freed are promised to it; -1 for none."""

    def __repr__(self) -> str:
        return f"<TaskEntry {self.key} {self.state.value} row={self.row}>"


class GroupEntry:
    """A group with its tasks. ``group`` is None while only tasks name it: then nothing is decided."""

    __slots__ = (
        "_first",
        "_ordered",
        "_task_order",
        "active",
        "active_roles",
        "bucket",
        "failure",
        "failures",
        "group",
        "key",
        "newly_failed",
        "not_before",
        "order_key",
        "pending",
        "pending_classes",
        "promises",
        "queue",
        "releasing",
        "reported",
        "roles_enforced",
        "step",
        "succeeded",
        "tasks",
    )

    def __init__(self, key: str, task_order: Callable[[Task], Any]) -> None:
        self.key = key
        self._task_order = task_order
        self.group: Group | None = None
        self.queue: QueueEntry | None = None
        self.tasks: dict[str, TaskEntry] = {}
        self.pending: dict[str, TaskEntry] = {}
        """Pending and not gated."""
        self.pending_classes: dict[TaskClass, int] = {}
        self._ordered: list[TaskEntry] | None = None
        self._first = 0
        self.active = 0
        self.succeeded = 0
        self.releasing = 0
        self.promises = 0
        """Pending tasks that room is promised to."""
        self.roles_enforced: dict[str, int] = {}
        self.active_roles: dict[str, int] = {}
        """Role → active and succeeded tasks; kept only where role minima are enforced."""
        self.bucket: Bucket | None = None
        self.step: Step | None = None
        """What it waits for; set while it is in a bucket."""
        self.order_key: Any = None
        self.failures = 0
        self.newly_failed = False
        self.failure = ""
        self.not_before = 0.0
        self.reported: GroupStatus | None = None

    def set_group(self, group: Group) -> None:
        self.group = group
        if not group.min_task_member:
            self.roles_enforced = {}
            return
        enforced = {role: n for role, n in group.min_task_member.items() if n > 0}
        if enforced and group.min_member >= sum(enforced.values()):
            self.roles_enforced = enforced
            self.active_roles = {}
            for entry in self.tasks.values():
                if entry.state in ACTIVE or entry.state is TaskState.SUCCEEDED:
                    role = entry.task.role
                    self.active_roles[role] = self.active_roles.get(role, 0) + 1
        else:
            self.roles_enforced = {}

    @property
    def spec(self) -> Group:
        """What the group is. Raises ``ValueError`` while it is only named."""
        if self.group is None:
            raise ValueError(f"group {self.key} is only named, not known")
        return self.group

    @property
    def minimum(self) -> int:
        return self.group.min_member if self.group is not None else 0

    @property
    def held_members(self) -> int:
        """Volcano's R: what counts toward the minimum."""
        return self.active + self.succeeded

    def ready(self) -> bool:
        """Whether the group holds its minimum."""
        if self.active + self.succeeded < self.minimum:
            return False
        roles = self.active_roles
        return all(roles.get(role, 0) >= n for role, n in self.roles_enforced.items())

    def count(self, entry: TaskEntry, state: TaskState, sign: int) -> None:
        """Book a task in (or out of) the state's counter."""
        if state in ACTIVE:
            self.active += sign
        elif state is TaskState.SUCCEEDED:
            self.succeeded += sign
        elif state is TaskState.RELEASING:
            self.releasing += sign
            return
        else:
            return
        if self.roles_enforced:
            role = entry.task.role
            self.active_roles[role] = self.active_roles.get(role, 0) + sign

    def add_pending(self, entry: TaskEntry, *, new: bool = False) -> None:
        """``new``: the entry has never been pending before, so it stands in no list yet."""
        self.pending[entry.key] = entry
        counts = self.pending_classes
        counts[entry.cls] = counts.get(entry.cls, 0) + 1
        if self._ordered is not None:
            entry.sort_key = self._task_order(entry.task)
            if new and (not self._ordered or self._ordered[-1].sort_key <= entry.sort_key):
                self._ordered.append(entry)
            else:
                self._ordered = None

    def drop_pending(self, entry: TaskEntry) -> None:
        del self.pending[entry.key]
        counts = self.pending_classes
        left = counts[entry.cls] - 1
        if left:
            counts[entry.cls] = left
        else:
            del counts[entry.cls]

    def drop_pending_run(self, entries: Sequence[TaskEntry], cls: TaskClass) -> None:
        """:meth:`drop_pending` for several tasks of one class."""
        pending = self.pending
        for entry in entries:
            del pending[entry.key]
        left = self.pending_classes[cls] - len(entries)
        if left:
            self.pending_classes[cls] = left
        else:
            del self.pending_classes[cls]

    def waiting(self) -> Iterator[TaskEntry]:
        """The pending tasks in task order. Do not change the group meanwhile."""
        if self._ordered is None:
            for entry in self.pending.values():
                if entry.sort_key is None:
                    entry.sort_key = self._task_order(entry.task)
            self._ordered = sorted(self.pending.values(), key=_sort_key)
            self._first = 0
        ordered, pending = self._ordered, self.pending
        while (
            self._first < len(ordered) and pending.get(ordered[self._first].key) is not ordered[self._first]
        ):
            self._first += 1
        for at in range(self._first, len(ordered)):
            entry = ordered[at]
            if pending.get(entry.key) is entry:
                yield entry

    def gated(self) -> int:
        return sum(1 for e in self.tasks.values() if e.state is TaskState.PENDING and e.task.gated)

    def __iter__(self) -> Iterator[TaskEntry]:
        return iter(self.tasks.values())

    def __repr__(self) -> str:
        return f"<GroupEntry {self.key} active={self.active} pending={len(self.pending)}>"


def promised(group: GroupEntry) -> list[TaskEntry]:
    """The tasks of the group that room is promised to."""
    return [entry for entry in group.pending.values() if entry.promised >= 0] if group.promises else []


def _sort_key(entry: TaskEntry) -> Any:
    return entry.sort_key


@dataclass(slots=True)
class Run:
    """Neighbouring tasks of a step that are alike: one class, one role."""

    cls: TaskClass
    role: str
    entries: list[TaskEntry]


@dataclass(slots=True)
class Step:
    """What a group asks for next.

    A gang below its minimum: enough of ``runs`` to reach it, all or nothing. ``members``: how many
    are missing; ``roles``: role → how many are missing. An elastic group (``extra``): one task.
    """

    runs: list[Run]
    members: int
    roles: dict[str, int]
    extra: bool = False

    @property
    def single_class(self) -> bool:
        return len({run.cls for run in self.runs}) == 1


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a group has no step: it lacks tasks. ``role`` is empty for the group as a whole."""

    role: str
    needed: int
    there: int
    gated: int


def next_step(group: GroupEntry) -> Step | Shortage | None:
    """What the group asks for next; ``None`` if nothing of it waits."""
    pending = group.pending
    missing = group.minimum - group.active - group.succeeded
    if not group.roles_enforced and len(pending) == 1 and missing <= 1:
        (entry,) = pending.values()
        return Step([Run(entry.cls, "", [entry])], 1, {}, extra=missing <= 0)
    if group.ready():
        return _extra_step(group) if pending else _gated_extra(group)
    if missing > len(pending):
        return Shortage("", group.minimum, group.held_members + len(pending), group.gated())
    roles = {
        role: n - group.active_roles.get(role, 0)
        for role, n in group.roles_enforced.items()
        if n > group.active_roles.get(role, 0)
    }
    for role, lacking in roles.items():
        there = sum(1 for e in pending.values() if e.task.role == role)
        if there < lacking:
            have = group.active_roles.get(role, 0)
            gated = sum(
                1
                for e in group.tasks.values()
                if e.state is TaskState.PENDING and e.task.gated and e.task.role == role
            )
            return Shortage(role, group.roles_enforced[role], have + there, gated)
    return Step(_runs(group.waiting(), by_role=bool(group.roles_enforced)), max(missing, 0), roles)


def _gated_extra(group: GroupEntry) -> Shortage | None:
    gated = group.gated()
    return Shortage("", group.minimum, group.held_members, gated) if gated else None


def _extra_step(group: GroupEntry) -> Step:
    """One task: the first that fits of the first of each class."""
    runs: list[Run] = []
    seen: set[TaskClass] = set()
    for entry in group.waiting():
        if entry.cls not in seen:
            seen.add(entry.cls)
            runs.append(Run(entry.cls, "", [entry]))
            if len(seen) == len(group.pending_classes):
                break
    return Step(runs, 1, {}, extra=True)


def _runs(entries: Iterator[TaskEntry], *, by_role: bool) -> list[Run]:
    runs: list[Run] = []
    for entry in entries:
        role = entry.task.role if by_role else ""
        last = runs[-1] if runs else None
        if last is not None and last.cls is entry.cls and last.role == role:
            last.entries.append(entry)
        else:
            runs.append(Run(entry.cls, role, [entry]))
    return runs
