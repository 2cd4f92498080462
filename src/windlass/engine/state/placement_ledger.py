"""Ledger of placements. Every placement is entered here.

A placement is entered in five places, which always agree (``invariants`` checks it):

* the resources of the node,
* its devices (:mod:`windlass.engine.state.device_holdings`),
* the tasks of the class by row,
* the sums of the queue and its ancestors,
* the counters of the group (:mod:`windlass.engine.state.counters`).

Released capacity, as opposed to an undone placement, is recorded for waiting groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.engine.devices.share_table import NOMINATED_SIDE, TaskShares
from windlass.engine.feasibility.task_class import ClassIndex, TaskClass
from windlass.engine.groups.entries import (
    ACTIVE,
    ASSUMED,
    ENDING,
    PENDING,
    TERMINATING,
    GroupEntry,
    TaskEntry,
)
from windlass.engine.nodes.table import NOMINATED, USED, NodeTable
from windlass.engine.plugin_set import PluginSet
from windlass.engine.queues.tree import QueueTree
from windlass.engine.state.counters import StateCounters
from windlass.engine.state.device_holdings import DeviceHoldings
from windlass.engine.state.expected_ends import NEVER, ExpectedEnds, declared_end
from windlass.engine.state.numa_usage import NumaUsage
from windlass.engine.state.relocation_holds import RelocationHolds
from windlass.spi.numa import NumaHolding
from windlass.spi.objects import TaskState


class PlacementLedger:
    """Ledger of placements over nodes, classes, queues and groups."""

    def __init__(self, table: NodeTable, queues: QueueTree, classes: ClassIndex, plugins: PluginSet) -> None:
        self.table = table
        self.queues = queues
        self.classes = classes
        self.allocator = classes.allocator
        self.moved_classes: set[int] = set()
        """Classes with a task that came to or left a node since the last cycle."""
        self.dirty: dict[str, GroupEntry] = {}
        """Groups with a possible change of next tasks, order or status since the last update."""
        self.holds = RelocationHolds(self)
        self.confirmed = 0
        """Number of confirmed placements and of changes in the protection of tasks.

        Confirmed placements may be evicted, so both change the candidates for eviction.
        """
        self.reported_again: dict[str, GroupEntry] = {}
        """Groups with a known task that was reported again since the last cycle."""
        self.terminating: dict[str, TaskEntry] = {}
        """Terminating tasks. Their resources are being released."""
        self.allocator.rows.releasing = self.terminating
        self.numa_usage = NumaUsage(table, plugins, self.terminating)
        self.expected_ends = ExpectedEnds()
        """Expected ends of running tasks, notified of every change."""
        self.holdings = DeviceHoldings(table, self.allocator, self.numa_usage)
        self.counters = StateCounters(table, queues, self.expected_ends)

    # ------------------------------------------------------------------ decided placements

    def assume(
        self,
        group: GroupEntry,
        cls: TaskClass,
        row: int,
        entries: Sequence[TaskEntry],
        shares: TaskShares | None = None,
    ) -> None:
        """Place pending tasks of one class and group on a node, where they must fit.

        ``shares``: device shares of a single task, if chosen already.
        """
        n = len(entries)
        table, vector, placed = self.table, cls.fit.evaluator.vector, cls.placed
        cells = table.planes[row, USED]
        cells += vector if n == 1 else vector * n
        table.touch(row)
        placed[row] = placed.get(row, 0) + n
        self.counters.place(group, cls, row, n)
        on_row = table.tasks[row]
        for entry in entries:
            entry.state = ASSUMED
            entry.row = row
            on_row[entry.key] = entry
        if group.tallies:
            for entry in entries:
                group.tally(entry, 1)
        group.drop_pending_batch(entries, cls)
        self.holdings.assign(cls, row, entries, shares)
        for plugin in cls.domains:
            plugin.add(cls.number, row, n)

    def unassume(self, group: GroupEntry, cls: TaskClass, row: int, entries: Sequence[TaskEntry]) -> None:
        """Undo :meth:`assume`: the tasks are pending again, and nothing counts as released."""
        n = len(entries)
        table = self.table
        table.planes[row, USED] -= cls.vector * n
        table.touch(row)
        _count(cls.placed, row, -n)
        self.counters.place(group, cls, row, -n)
        for entry in entries:
            entry.state = PENDING
            entry.row = -1
            del table.tasks[row][entry.key]
            self.holdings.unassign(entry, row)
            group.add_pending(entry)
            if group.tallies:
                group.tally(entry, -1)
        for plugin in cls.domains:
            plugin.add(cls.number, row, -n)

    # ------------------------------------------------------------------ promises

    def nominate(
        self,
        entry: TaskEntry,
        row: int,
        shares: TaskShares | None = None,
        zones: NumaHolding | None = None,
        *,
        plan: bool = True,
    ) -> None:
        """Nominate capacity on ``row``, part of which is still being released, for a pending task.

        Domain plugins and queues count the task there.

        * ``cuts``, ``zones``: nominated device shares and zones, if chosen already.
        * ``plan``: if false, no zones are planned, since the node had none at
          nomination.
        """
        entry.nominated_row = row
        entry.nominated_zones = (
            self.numa_usage.nominate(entry.cls, row, zones) if plan or zones is not None else None
        )
        if entry.cls.needs.devices:
            entry.nominated_shares = self.allocator.take(row, entry.key, entry.cls.needs, shares, later=True)
        self._add_nomination(entry, row, 1)

    def remove_nomination(self, entry: TaskEntry) -> TaskShares:
        """Remove the nomination of a task. Return its nominated device shares."""
        row, entry.nominated_row = entry.nominated_row, -1
        shares, entry.nominated_shares = entry.nominated_shares, ()
        if entry.cls.needs.devices:
            self.table.shares.put(row, entry.key, shares, NOMINATED_SIDE, -1)
        self.numa_usage.remove_nomination(row, entry.nominated_zones)
        entry.nominated_zones = None
        self._add_nomination(entry, row, -1)
        return shares

    def restore_nomination(
        self, entry: TaskEntry, row: int, shares: TaskShares, zones: NumaHolding | None = None
    ) -> None:
        """Undo :meth:`remove_nomination`, with other devices if the former ones are not available."""
        if entry.cls.needs.devices and not self.allocator.are_available(row, shares, later=True):
            other = self.allocator.pick(row, entry.cls.needs, later=True)
            shares = other if other is not None else shares
        self.nominate(entry, row, shares, zones)

    def withdraw_nomination(self, entry: TaskEntry) -> None:
        """Remove the nomination of a task for good, so that waiting groups may use the capacity."""
        row = entry.nominated_row
        self.remove_nomination(entry)
        self.wake_after_withdrawal(entry.group, entry.cls, row)

    def wake_after_withdrawal(self, group: GroupEntry | None, cls: TaskClass, row: int) -> None:
        """Wake groups that wait for the capacity of a withdrawn nomination."""
        self.table.improved.add(row)
        self.expected_ends.record_left(NEVER)
        self.moved_classes.add(cls.number)
        if group is not None and group.queue is not None:
            self.queues.mark_freed(group.queue)
        self.table.release_row(row)

    def can_keep(self, cls: TaskClass, row: int, holder: str, shares: TaskShares) -> bool:
        """Return whether a node will have the capacity of all nominations on it.

        Only resources that the class requests are compared. ``shares``: device shares
        that are nominated there to ``holder``.
        """
        if cls.needs.devices:
            self.table.shares.put(row, holder, shares, NOMINATED_SIDE, -1)
            available = self.allocator.are_available(row, shares, later=True)
            self.table.shares.put(row, holder, shares, NOMINATED_SIDE, 1)
            if not available:
                return False
        allocatable, used, releasing, promised = self.table.planes[row]
        return bool((used - releasing + promised <= allocatable)[cls.vector > 0].all())

    def _add_nomination(self, entry: TaskEntry, row: int, sign: int) -> None:
        self.link_nomination(entry, row, sign)
        self.count_nomination(entry.group, entry.cls, row, sign)

    def link_nomination(self, entry: TaskEntry, row: int, sign: int) -> None:
        """Link a nomination on ``row`` to the task (1), or unlink it (-1), without counting it."""
        group, nominated_tasks = entry.group, self.table.nominated_tasks
        if sign > 0:
            nominated_tasks.setdefault(row, {})[entry.key] = entry
        else:
            del nominated_tasks[row][entry.key]
            if not nominated_tasks[row]:
                del nominated_tasks[row]
        if group is not None:
            group.nominations += sign
            if group.timed:
                self.expected_ends.mark_changed(group)

    def count_nomination(self, group: GroupEntry | None, cls: TaskClass, row: int, sign: int) -> None:
        """Count a nomination of a task of the group (1), or its removal (-1)."""
        self.table.planes[row, NOMINATED] += sign * cls.vector
        self.table.touch(row)
        _count(cls.placed, row, sign)
        for plugin in cls.domains:
            plugin.add(cls.number, row, sign)
        if group is not None:
            self.counters.nominate(group, cls, row, sign)

    # ------------------------------------------------------------------ what the world reports

    def occupy(
        self,
        entry: TaskEntry,
        row: int,
        state: TaskState,
        indices: tuple[int, ...],
        shares: TaskShares | None = None,
        zones: NumaHolding | None = None,
    ) -> None:
        """Enter a task that is reported on a node, whether or not it fits.

        ``shares``: its device shares, if known here. Otherwise ``indices`` and the
            reported slices determine them. ``zones``: likewise.
        """
        table, cls = self.table, entry.cls
        table.planes[row, USED] += cls.vector
        if table.planes[row, NOMINATED, 0] > 0:
            table.improved.add(row)  # nominated tasks on this row are checked again
        entry.row = row
        entry.state = state
        table.tasks[row][entry.key] = entry
        self.holdings.occupy(entry, indices, shares, zones)
        if state is TERMINATING:
            table.mark_releasing(entry, 1)
            self.terminating[entry.key] = entry
        table.touch(row)
        _count(cls.placed, row, 1)
        for plugin in cls.domains:
            plugin.add(cls.number, row, 1)
        if state in ENDING:
            self.count_ending(entry, 1)
        self.moved_classes.add(cls.number)
        self.counters.count(entry, state, 1)

    def vacate(self, entry: TaskEntry, state: TaskState) -> None:
        """Remove a task from its node. Its resources are free, and ``state`` is its new state."""
        row = entry.row
        self.depart(entry)
        entry.state = state
        self.counters.count(entry, state, 1)
        self.table.release_row(row)

    def depart(self, entry: TaskEntry) -> None:
        """First part of :meth:`vacate`. Suffices for a deleted task, except for its row."""
        table, cls, row = self.table, entry.cls, entry.row
        table.planes[row, USED] -= cls.vector
        self.expected_ends.record_left(declared_end(entry))
        if entry.state is TERMINATING:
            table.mark_releasing(entry, -1)
            del self.terminating[entry.key]
        self.holdings.vacate(entry)
        if entry.state in ENDING:
            self.count_ending(entry, -1)
        if entry.nominated_row >= 0:
            self.holds.add(entry)
        self.counters.count(entry, entry.state, -1)
        entry.row = -1
        del table.tasks[row][entry.key]
        table.touch(row)
        table.improved.add(row)
        _count(cls.placed, row, -1)
        for plugin in cls.domains:
            plugin.add(cls.number, row, -1)
        self.moved_classes.add(cls.number)

    def change_state(self, entry: TaskEntry, state: TaskState) -> None:
        """Change the state between states that hold resources (assumed, bound, running, releasing)."""
        if entry.state is not state:
            self._enter_state(entry, state)

    def count_ending(self, entry: TaskEntry, sign: int) -> None:
        """Count a task that begins to terminate (1), also tentatively, or no longer does so (-1).

        For some plugins it counts as gone from then on.
        """
        cls, row = entry.cls, entry.row
        _count(cls.terminating, row, sign)
        for plugin in cls.domains_without_terminating:
            plugin.add(cls.number, row, -sign)

    def mark_ending(self, cls: TaskClass) -> None:
        """Wake groups that wait for the termination of tasks of the class, which has
        changed for good.
        """
        if cls.domains_without_terminating:
            self.moved_classes.add(cls.number)

    def add_pending(self, entry: TaskEntry) -> None:
        """Enter a new task without resources."""
        group = entry.group
        if entry.state is PENDING and group is not None and not entry.task.gated:
            group.add_pending(entry, new=True)
            self.counters.request(group.queue, entry.cls, 1)
            self.holds.transfer_to(entry)
            return
        self.counters.count(entry, entry.state, 1)

    def add_pending_batch(self, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]) -> None:
        """:meth:`add_pending` for new tasks of one class and group that are pending and not gated."""
        group.add_pending_batch(entries, cls)
        self.counters.request(group.queue, cls, len(entries))
        if self.holds.by_group and self.holds.of(group.key):
            for entry in entries:
                self.holds.transfer_to(entry)

    def remove(self, entry: TaskEntry) -> None:
        """Remove a task, whether or not it holds resources."""
        row = entry.row
        if row < 0:
            self.remove_pending(entry)
            return
        self.depart(entry)
        self.table.release_row(row)

    def remove_pending(self, entry: TaskEntry) -> None:
        """Remove a task without resources."""
        if entry.nominated_row >= 0:
            self.withdraw_nomination(entry)
        self.counters.count(entry, entry.state, -1)

    # ------------------------------------------------------------------ queues

    def leave_queue(self, group: GroupEntry) -> None:
        """Undo :meth:`StateCounters.join`, and give up the holds of the group."""
        if group.queue is not None:
            self.holds.drop_group(group.key)
            self.counters.leave(group, group.queue)

    def recount_models(self, groups: Iterable[GroupEntry]) -> None:
        """Recompute the sums by device model from all groups and the work of other schedulers."""
        self.counters.recount_models(groups, self.holds)

    # ------------------------------------------------------------------ parts

    def _enter_state(self, entry: TaskEntry, state: TaskState) -> None:
        group, before = entry.group, entry.state
        if entry.nominated_row >= 0:
            self.withdraw_nomination(entry)  # it does not move after all
        if before in ACTIVE and state in ACTIVE:
            entry.state = state
            self.confirmed += 1
            return
        sign = (state is TERMINATING) - (before is TERMINATING)
        if sign:
            self.table.mark_releasing(entry, sign)
            self.holdings.mark_releasing(entry, sign)
            self.table.touch(entry.row)
            if sign > 0:
                self.terminating[entry.key] = entry
            else:
                del self.terminating[entry.key]
            self.counters.release(entry, sign)
        ending = (state in ENDING) - (before in ENDING)
        if ending:
            self.count_ending(entry, ending)
        if group is not None:
            group.count(entry, before, -1)
            group.count(entry, state, 1)
            if group.timed:
                self.expected_ends.mark_changed(group)
        entry.state = state


def _count(by_row: dict[int, int], row: int, n: int) -> None:
    left = by_row.get(row, 0) + n
    if left:
        by_row[row] = left
    else:
        del by_row[row]
