"""Tentative changes with an undo log. Every decision of the engine is made here.

``allocate`` places pending tasks, ``evict`` turns running tasks to releasing,
``pipeline`` nominates capacity that is being released to a pending task. ``checkpoint``
and ``rollback`` nest. ``commit`` turns the rest into decisions. An open statement must
end in ``commit`` or ``rollback()``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import msgspec

from windlass.engine.decision import Bind, Eviction, Nomination
from windlass.engine.devices.share_table import TaskShares
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import TERMINATING, GroupEntry, TaskEntry
from windlass.engine.state.placement_ledger import PlacementLedger
from windlass.engine.victims.disruption_budgets import EvictionBudgets
from windlass.spi.numa import NumaHolding
from windlass.spi.objects import TaskState


class Outbox(msgspec.Struct):
    """Decisions of the cycle so far, in order."""

    binds: list[Bind]
    evictions: list[Eviction]
    nominations: list[Nomination]

    @staticmethod
    def empty() -> Outbox:
        return Outbox([], [], [])


class _Allocated(msgspec.Struct):
    group: GroupEntry
    cls: TaskClass
    row: int
    entries: Sequence[TaskEntry]


class _Evicted(msgspec.Struct):
    entry: TaskEntry
    before: TaskState
    action: str
    preemptor: str
    reason: str


class _EvictionWithdrawn(msgspec.Struct):
    entry: TaskEntry


class _Pipelined(msgspec.Struct):
    entry: TaskEntry
    row: int


class _NominationWithdrawn(msgspec.Struct):
    entry: TaskEntry
    row: int
    shares: TaskShares
    zones: NumaHolding | None


_Operation = _Allocated | _Evicted | _EvictionWithdrawn | _Pipelined | _NominationWithdrawn


class Statement:
    """Log of tentative changes."""

    def __init__(self, ledger: PlacementLedger, budgets: EvictionBudgets | None = None) -> None:
        self._ledger = ledger
        self._budgets = budgets
        self._log: list[_Operation] = []
        self.commits = 0
        """Number of commits with changes."""
        self._before: dict[str, TaskState] = {}
        """Evicted task → its previous state."""
        self._usage_changed = False
        """True if queue usage had changed before the first change. Tentative changes do not count."""

    def __len__(self) -> int:
        return len(self._log)

    def allocate(
        self,
        group: GroupEntry,
        cls: TaskClass,
        row: int,
        entries: Sequence[TaskEntry],
        shares: TaskShares | None = None,
    ) -> None:
        """Place tasks of one class of a group on a node, where they fit now.

        ``shares``: device shares of a single task, if chosen already.
        """
        if not self._log:
            self._begin()
        if group.nominations:
            for entry in entries:
                if entry.nominated_row >= 0:
                    self.withdraw_nomination(entry)
        self._ledger.assume(group, cls, row, entries, shares)
        self._log.append(_Allocated(group, cls, row, entries))

    def evict(self, entry: TaskEntry, action: str, preemptor: str = "", reason: str = "") -> None:
        """Evict a task. It keeps its resources until it is reported gone.

        ``reason``: for evictions without a preemptor.
        """
        if not self._log:
            self._begin()
        before = self._before[entry.key] = entry.state
        self._ledger.change_state(entry, TERMINATING)
        if self._budgets is not None and entry.task.budgets:
            self._budgets.evict(entry)
        self._log.append(_Evicted(entry, before, action, preemptor, reason))

    def withdraw_eviction(self, entry: TaskEntry) -> None:
        """Withdraw the eviction of a task that was evicted in this statement."""
        self._ledger.change_state(entry, self._before[entry.key])
        self._log.append(_EvictionWithdrawn(entry))

    def pipeline(self, entry: TaskEntry, row: int, shares: TaskShares | None = None) -> None:
        """Nominate capacity on a node, some of which is still being released, to a pending task.

        For a task that is evicted here, it is the node to which it moves. Its successor
        in the group gets the capacity. ``shares``: device shares, if chosen already.
        """
        if not self._log:
            self._begin()
        self._ledger.nominate(entry, row, shares)
        self._log.append(_Pipelined(entry, row))

    def withdraw_nomination(self, entry: TaskEntry) -> None:
        """Withdraw the nomination of a task."""
        if not self._log:
            self._begin()
        row, zones = entry.nominated_row, entry.nominated_zones
        shares = self._ledger.remove_nomination(entry)
        self._log.append(_NominationWithdrawn(entry, row, shares, zones))

    @contextmanager
    def without_nomination(self, entry: TaskEntry) -> Iterator[None]:
        """Inside, the task has no nomination."""
        queues = self._ledger.queues
        row, zones, was_changed = entry.nominated_row, entry.nominated_zones, queues.was_changed
        shares = self._ledger.remove_nomination(entry)
        try:
            yield
        finally:
            self._ledger.restore_nomination(entry, row, shares, zones)
            queues.was_changed = was_changed

    def _begin(self) -> None:
        """Prepare for the first change."""
        self._usage_changed = self._ledger.queues.was_changed

    def checkpoint(self) -> int:
        """Return a mark for :meth:`rollback`."""
        return len(self._log)

    @property
    def terminating(self) -> Collection[TaskEntry]:
        """Terminating tasks, including those evicted here."""
        return self._ledger.terminating.values()

    def pipelined(self, mark: int = 0) -> bool:
        """Return whether a nomination was made since ``mark``."""
        return any(isinstance(operation, _Pipelined) for operation in self._log[mark:])

    def placed(self, mark: int) -> bool:
        """Return whether a task was placed since ``mark``."""
        return any(isinstance(operation, _Allocated) for operation in self._log[mark:])

    def placements(self, mark: int = 0) -> list[tuple[TaskEntry, int]]:
        """Return the tasks placed or nominated since ``mark``, with their rows, in order."""
        placements: list[tuple[TaskEntry, int]] = []
        for operation in self._log[mark:]:
            match operation:
                case _Allocated(_, _, row, entries):
                    placements += [(entry, row) for entry in entries]
                case _Pipelined(entry, row):
                    placements.append((entry, row))
                case _:
                    pass
        return placements

    def device_placements(self, mark: int = 0) -> list[tuple[TaskEntry, int, TaskShares | None]]:
        """Return :meth:`placements` with device shares (``None`` for classes without them)."""
        return [
            (entry, row, (entry.shares or entry.nominated_shares) if entry.cls.needs.devices else None)
            for entry, row in self.placements(mark)
        ]

    def fits(self, row: int, shares: TaskShares) -> bool:
        """Return whether exactly these device shares are available now."""
        return self._ledger.allocator.are_available(row, shares)

    def without_terminating_zones(self) -> AbstractContextManager[None]:
        """Inside, terminating tasks use no NUMA zone."""
        return self._ledger.numa_usage.vacated(self.terminating)

    def proposed(self) -> tuple[list[TaskEntry], list[TaskEntry]]:
        """Return the tasks that a commit would bind, and those that it would evict, in order."""
        placed: list[TaskEntry] = []
        evicted: list[TaskEntry] = []
        for operation in self._log:
            match operation:
                case _Allocated(_, _, _, entries):
                    placed += entries
                case _Evicted(entry) if entry.state is TERMINATING:
                    evicted.append(entry)
                case _:
                    pass
        return placed, list(dict.fromkeys(evicted))

    def rollback(self, mark: int = 0) -> None:
        """Undo all changes since ``mark``, last first."""
        ledger = self._ledger
        if not self._log:
            return
        while len(self._log) > mark:
            match self._log.pop():
                case _Allocated(group, cls, row, entries):
                    ledger.unassume(group, cls, row, entries)
                case _Evicted(entry, before):
                    ledger.change_state(entry, before)
                case _EvictionWithdrawn(entry):
                    ledger.change_state(entry, TERMINATING)
                case _Pipelined(entry):
                    ledger.remove_nomination(entry)
                case _NominationWithdrawn(entry, row, cuts, zones):
                    ledger.nominate(entry, row, cuts, zones)
        if not self._log:
            self._before.clear()
            ledger.queues.was_changed = self._usage_changed

    def commit(self, out: Outbox) -> None:
        """Add the changes to ``out`` as binds, evictions and nominations, in order."""
        table, moved, dirty = self._ledger.table, self._ledger.moved_classes, self._ledger.dirty
        self.commits += bool(self._log)
        binds = out.binds
        for operation in self._log:
            if type(operation) is _Allocated:  # most are, and patterns cost more
                name, key = table.names[operation.row], operation.group.key
                moved.add(operation.cls.number)
                for entry in operation.entries:
                    task = entry.task
                    binds.append(Bind(task.key, task.uid, key, name, entry.devices, entry.zones))
                continue
            match operation:
                case _Evicted(entry, _, action, claimer, why):
                    if entry.state is not TERMINATING:
                        continue  # withdrawn
                    task = entry.task
                    self._ledger.mark_ending(entry.cls)
                    if entry.group is not None:
                        dirty[entry.group.key] = entry.group
                    out.evictions.append(
                        Eviction(task.key, task.uid, task.group, table.names[entry.row], action, claimer, why)
                    )
                case _Pipelined(entry, row):
                    if entry.group is not None:
                        dirty[entry.group.key] = entry.group
                    out.nominations.append(Nomination(entry.key, entry.task.uid, table.names[row]))
                case _NominationWithdrawn(entry, row, cuts, zones):
                    if entry.row == row and not cuts and zones is None:
                        continue  # it got its nominated capacity: no other group gains any
                    table.improved.add(row)
                    moved.add(entry.cls.number)
                    table.release_row(row)
                    if entry.group is not None and entry.group.queue is not None:
                        self._ledger.queues.mark_freed(entry.group.queue)
                case _:
                    pass
        self._log.clear()
        self._before.clear()
