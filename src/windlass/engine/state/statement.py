"""Tentative changes with an undo log: the only way in which the engine decides anything.

``allocate`` places pending tasks, ``evict`` turns running ones to releasing, ``pipeline`` promises a
pending task room that is being freed. ``checkpoint`` and ``rollback`` nest; ``commit`` turns what is
left into decisions. An open statement must end in ``commit`` or ``rollback()``.
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
    """What the cycle has decided so far, in order."""

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
    claimer: str
    why: str


class _Spared(msgspec.Struct):
    entry: TaskEntry


class _Pipelined(msgspec.Struct):
    entry: TaskEntry
    row: int


class _Unpromised(msgspec.Struct):
    entry: TaskEntry
    row: int
    cuts: TaskShares
    zones: NumaHolding | None


_Operation = _Allocated | _Evicted | _Spared | _Pipelined | _Unpromised


class Statement:
    def __init__(self, ledger: PlacementLedger, budgets: EvictionBudgets | None = None) -> None:
        self._ledger = ledger
        self._budgets = budgets
        self._log: list[_Operation] = []
        self.decided = 0
        """Counts the times that something was decided."""
        self._before: dict[str, TaskState] = {}
        """Evicted task → the state it was in."""
        self._stirred = False
        """Whether there was news for those who claim room before anything was tried: trials are none."""

    def __len__(self) -> int:
        return len(self._log)

    def allocate(
        self,
        group: GroupEntry,
        cls: TaskClass,
        row: int,
        entries: Sequence[TaskEntry],
        cuts: TaskShares | None = None,
    ) -> None:
        """Place tasks of one class of a group on a node where they fit now. ``cuts``: what a single one
        gets of cards, if that is settled."""
        if not self._log:
            self._begin()
        if group.promises:
            for entry in entries:
                if entry.promised >= 0:
                    self.withdraw_nomination(entry)
        self._ledger.assume(group, cls, row, entries, cuts)
        self._log.append(_Allocated(group, cls, row, entries))

    def evict(self, entry: TaskEntry, action: str, claimer: str = "", why: str = "") -> None:
        """Ask a task that holds resources to leave; it keeps them until the world says it is gone. ``why``: in words,
        where it is for nobody's sake."""
        if not self._log:
            self._begin()
        before = self._before[entry.key] = entry.state
        self._ledger.change_state(entry, TERMINATING)
        if self._budgets is not None and entry.task.budgets:
            self._budgets.evict(entry)
        self._log.append(_Evicted(entry, before, action, claimer, why))

    def withdraw_eviction(self, entry: TaskEntry) -> None:
        """A task that was evicted in this statement stays after all."""
        self._ledger.change_state(entry, self._before[entry.key])
        self._log.append(_Spared(entry))

    def pipeline(self, entry: TaskEntry, row: int, cuts: TaskShares | None = None) -> None:
        """Promise room on a node, some of which is still being freed, to a pending task.

        To a task that is evicted here it is the place to which it moves: whoever takes its place in its
        group finds the room kept. ``cuts``: what it gets of cards, if that is settled.
        """
        if not self._log:
            self._begin()
        self._ledger.promise(entry, row, cuts)
        self._log.append(_Pipelined(entry, row))

    def withdraw_nomination(self, entry: TaskEntry) -> None:
        """Give up the room promised to a task."""
        if not self._log:
            self._begin()
        row, zones = entry.promised, entry.kept_zones
        cuts = self._ledger.unpromise(entry)
        self._log.append(_Unpromised(entry, row, cuts, zones))

    @contextmanager
    def withheld(self, entry: TaskEntry) -> Iterator[None]:
        """Inside, the task is not promised what it is promised."""
        queues = self._ledger.queues
        row, zones, stirred = entry.promised, entry.kept_zones, queues.was_changed
        cuts = self._ledger.unpromise(entry)
        try:
            yield
        finally:
            self._ledger.promise_again(entry, row, cuts, zones)
            queues.was_changed = stirred

    def _begin(self) -> None:
        """The first operation is about to be tried."""
        self._stirred = self._ledger.queues.was_changed

    def checkpoint(self) -> int:
        """A mark to roll back to."""
        return len(self._log)

    @property
    def leaving(self) -> Collection[TaskEntry]:
        """The tasks that terminate, those evicted here included."""
        return self._ledger.leaving.values()

    def pipelined(self, mark: int = 0) -> bool:
        """Whether anything was promised since ``mark``."""
        return any(isinstance(operation, _Pipelined) for operation in self._log[mark:])

    def placed(self, mark: int) -> bool:
        """Whether anything was placed since ``mark``."""
        return any(isinstance(operation, _Allocated) for operation in self._log[mark:])

    def placements(self, mark: int = 0) -> list[tuple[TaskEntry, int]]:
        """The tasks that were placed or promised room since ``mark``, with their rows, in order."""
        found: list[tuple[TaskEntry, int]] = []
        for operation in self._log[mark:]:
            match operation:
                case _Allocated(_, _, row, entries):
                    found += [(entry, row) for entry in entries]
                case _Pipelined(entry, row):
                    found.append((entry, row))
                case _:
                    pass
        return found

    def device_placements(self, mark: int = 0) -> list[tuple[TaskEntry, int, TaskShares | None]]:
        """:meth:`placements`, and what each has or is promised of cards (``None`` where that is counted
        otherwise)."""
        return [
            (entry, row, (entry.cuts or entry.kept) if entry.cls.needs.devices else None)
            for entry, row in self.placements(mark)
        ]

    def fits(self, row: int, cuts: TaskShares) -> bool:
        """Whether exactly these parts of cards can be had now."""
        return self._ledger.allocator.are_available(row, cuts)

    def zones_vacated(self) -> AbstractContextManager[None]:
        """Inside, what terminates holds nothing of any NUMA zone."""
        return self._ledger.numa_usage.vacated(self.leaving)

    def deciding(self) -> tuple[list[TaskEntry], list[TaskEntry]]:
        """Who would be bound, and who asked to go, if everything were decided now; in order."""
        placed: list[TaskEntry] = []
        going: list[TaskEntry] = []
        for operation in self._log:
            match operation:
                case _Allocated(_, _, _, entries):
                    placed += entries
                case _Evicted(entry) if entry.state is TERMINATING:
                    going.append(entry)
                case _:
                    pass
        return placed, list(dict.fromkeys(going))

    def rollback(self, mark: int = 0) -> None:
        """Undo everything done since ``mark``, last first."""
        ledger = self._ledger
        if not self._log:
            return
        while len(self._log) > mark:
            match self._log.pop():
                case _Allocated(group, cls, row, entries):
                    ledger.unassume(group, cls, row, entries)
                case _Evicted(entry, before):
                    ledger.change_state(entry, before)
                case _Spared(entry):
                    ledger.change_state(entry, TERMINATING)
                case _Pipelined(entry):
                    ledger.unpromise(entry)
                case _Unpromised(entry, row, cuts, zones):
                    ledger.promise(entry, row, cuts, zones)
        if not self._log:
            self._before.clear()
            ledger.queues.was_changed = self._stirred

    def commit(self, out: Outbox) -> None:
        """Decide what was tried: binds, evictions and nominations are added to ``out`` in order."""
        table, moved, dirty = self._ledger.table, self._ledger.moved, self._ledger.dirty
        self.decided += bool(self._log)
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
                        continue  # spared
                    task = entry.task
                    self._ledger.heed_ending(entry.cls)
                    if entry.group is not None:
                        dirty[entry.group.key] = entry.group
                    out.evictions.append(
                        Eviction(task.key, task.uid, task.group, table.names[entry.row], action, claimer, why)
                    )
                case _Pipelined(entry, row):
                    if entry.group is not None:
                        dirty[entry.group.key] = entry.group
                    out.nominations.append(Nomination(entry.key, entry.task.uid, table.names[row]))
                case _Unpromised(entry, row, cuts, zones):
                    if entry.row == row and not cuts and zones is None:
                        continue  # it has what it was promised: nobody else may have more than before
                    table.improved.add(row)
                    moved.add(entry.cls.number)
                    table.release_row(row)
                    if entry.group is not None and entry.group.queue is not None:
                        self._ledger.queues.mark_freed(entry.group.queue)
                case _:
                    pass
        self._log.clear()
        self._before.clear()
