"""The books: every placement passes here, whoever decided it.

One placement is entered in five places, which always agree (``invariants`` checks it): the node's
amounts, its devices (:mod:`windlass.engine.state.device_holdings`), the class's tasks by row, the sums of the queue and
its ancestors, the group's counters (:mod:`windlass.engine.state.counters`). What was really given back (not merely
undone) is noted, for the groups that wait for it.
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
    def __init__(self, table: NodeTable, queues: QueueTree, classes: ClassIndex, plugins: PluginSet) -> None:
        self.table = table
        self.queues = queues
        self.classes = classes
        self.allocator = classes.allocator
        self.moved: set[int] = set()
        """Classes of which a task came to or left a node since the engine last looked."""
        self.dirty: dict[str, GroupEntry] = {}
        """Groups whose next step, order or standing may have changed since the engine last looked."""
        self.holds = RelocationHolds(self)
        self.confirmed = 0
        """Counts the placements that the world has confirmed, since what is confirmed may be asked to go; and the
        changes of what protects tasks from that."""
        self.restated: dict[str, GroupEntry] = {}
        """Groups of which a task that was known was reported again since the engine last looked."""
        self.leaving: dict[str, TaskEntry] = {}
        """Tasks that terminate: what they hold is being given back."""
        self.allocator.rows.releasing = self.leaving
        self.numa_usage = NumaUsage(table, plugins, self.leaving)
        self.ends = ExpectedEnds()
        """When what runs will end; told of every change here."""
        self.holdings = DeviceHoldings(table, self.allocator, self.numa_usage)
        self.counters = StateCounters(table, queues, self.ends)

    # ------------------------------------------------------------------ decided placements

    def assume(
        self,
        group: GroupEntry,
        cls: TaskClass,
        row: int,
        entries: Sequence[TaskEntry],
        cuts: TaskShares | None = None,
    ) -> None:
        """Place pending tasks of one class, of one group, on a node. They must fit.

        ``cuts``: what a single one gets of cards; else that is chosen here.
        """
        n = len(entries)
        table, vector, placed = self.table, cls.fit.evaluator.vector, cls.placed
        cells = table.planes[row, USED]
        cells += vector if n == 1 else vector * n
        table.touch(row)
        placed[row] = placed.get(row, 0) + n
        self.counters.start(group, cls, row, n)
        on_row = table.tasks[row]
        for entry in entries:
            entry.state = ASSUMED
            entry.row = row
            on_row[entry.key] = entry
        if group.tallies:
            for entry in entries:
                group.tally(entry, 1)
        group.drop_pending_run(entries, cls)
        self.holdings.hand_out(cls, row, entries, cuts)
        for plugin in cls.domains:
            plugin.add(cls.number, row, n)

    def unassume(self, group: GroupEntry, cls: TaskClass, row: int, entries: Sequence[TaskEntry]) -> None:
        """The inverse of :meth:`assume`: the tasks are pending again, nothing counts as given back."""
        n = len(entries)
        table = self.table
        table.planes[row, USED] -= cls.vector * n
        table.touch(row)
        _count(cls.placed, row, -n)
        self.counters.start(group, cls, row, -n)
        for entry in entries:
            entry.state = PENDING
            entry.row = -1
            del table.tasks[row][entry.key]
            self.holdings.take_back(entry, row)
            group.add_pending(entry)
            if group.tallies:
                group.tally(entry, -1)
        for plugin in cls.domains:
            plugin.add(cls.number, row, -n)

    # ------------------------------------------------------------------ promises

    def promise(
        self,
        entry: TaskEntry,
        row: int,
        cuts: TaskShares | None = None,
        zones: NumaHolding | None = None,
        *,
        plan: bool = True,
    ) -> None:
        """Keep room on ``row``, part of which is still being freed, for a pending task.

        To policies about pods in relation to one another, and in its queue's ``promised``, it stands there.
        ``cuts``, ``zones``: what it is promised of cards and of zones; else that is chosen here. Without ``plan``
        no zones are: the node had none when it was promised.
        """
        entry.promised = row
        entry.kept_zones = (
            self.numa_usage.promise(entry.cls, row, zones) if plan or zones is not None else None
        )
        if entry.cls.needs.devices:
            entry.kept = self.allocator.take(row, entry.key, entry.cls.needs, cuts, later=True)
        self._count_promise(entry, row, 1)

    def unpromise(self, entry: TaskEntry) -> TaskShares:
        """Take the promise back. Returns what was promised of cards."""
        row, entry.promised = entry.promised, -1
        cuts, entry.kept = entry.kept, ()
        if entry.cls.needs.devices:
            self.table.shares.put(row, entry.key, cuts, NOMINATED_SIDE, -1)
        self.numa_usage.unpromise(row, entry.kept_zones)
        entry.kept_zones = None
        self._count_promise(entry, row, -1)
        return cuts

    def promise_again(
        self, entry: TaskEntry, row: int, cuts: TaskShares, zones: NumaHolding | None = None
    ) -> None:
        """After :meth:`unpromise`: the same room, other cards of it if those are not to be had any more."""
        if entry.cls.needs.devices and not self.allocator.are_available(row, cuts, later=True):
            other = self.allocator.pick(row, entry.cls.needs, later=True)
            cuts = other if other is not None else cuts
        self.promise(entry, row, cuts, zones)

    def withdraw(self, entry: TaskEntry) -> None:
        """:meth:`unpromise` for good: whoever waits for the room may have it."""
        row = entry.promised
        self.unpromise(entry)
        self.give_up(entry.group, entry.cls, row)

    def give_up(self, group: GroupEntry | None, cls: TaskClass, row: int) -> None:
        """A promise to a task of the group was taken back: whoever waits for the room may have it."""
        self.table.improved.add(row)
        self.ends.leave(NEVER)
        self.moved.add(cls.number)
        if group is not None and group.queue is not None:
            self.queues.mark_freed(group.queue)
        self.table.release_row(row)

    def keeps(self, cls: TaskClass, row: int, who: str, cuts: TaskShares) -> bool:
        """Whether a node will have all that is promised on it, of what tasks of the class ask for.

        ``cuts``: what is promised of cards there to ``who``.
        """
        if cls.needs.devices:
            self.table.shares.put(row, who, cuts, NOMINATED_SIDE, -1)
            there = self.allocator.are_available(row, cuts, later=True)
            self.table.shares.put(row, who, cuts, NOMINATED_SIDE, 1)
            if not there:
                return False
        allocatable, used, releasing, promised = self.table.planes[row]
        return bool((used - releasing + promised <= allocatable)[cls.vector > 0].all())

    def _count_promise(self, entry: TaskEntry, row: int, sign: int) -> None:
        self.expect(entry, row, sign)
        self.count_promise(entry.group, entry.cls, row, sign)

    def expect(self, entry: TaskEntry, row: int, sign: int) -> None:
        """Whose a promise is: the task's from now on (1), or no longer (-1). What is promised stands elsewhere."""
        group, expected = entry.group, self.table.expected
        if sign > 0:
            expected.setdefault(row, {})[entry.key] = entry
        else:
            del expected[row][entry.key]
            if not expected[row]:
                del expected[row]
        if group is not None:
            group.promises += sign
            if group.timed:
                self.ends.stir(group)

    def count_promise(self, group: GroupEntry | None, cls: TaskClass, row: int, sign: int) -> None:
        """Enter a promise to a task of the group in the books (1), or take it out (-1)."""
        self.table.planes[row, NOMINATED] += sign * cls.vector
        self.table.touch(row)
        _count(cls.placed, row, sign)
        for plugin in cls.domains:
            plugin.add(cls.number, row, sign)
        if group is not None:
            self.counters.promise(group, cls, row, sign)

    # ------------------------------------------------------------------ what the world reports

    def occupy(
        self,
        entry: TaskEntry,
        row: int,
        state: TaskState,
        indices: tuple[int, ...],
        cuts: TaskShares | None = None,
        zones: NumaHolding | None = None,
    ) -> None:
        """A task is on a node, whether it fits or not. ``cuts``: what it has of cards, where that is known
        here; else ``indices``, and what is reported of slices, say it. ``zones`` likewise."""
        table, cls = self.table, entry.cls
        table.planes[row, USED] += cls.vector
        if table.planes[row, NOMINATED, 0] > 0:
            table.improved.add(row)  # whoever was promised room here must look again
        entry.row = row
        entry.state = state
        table.tasks[row][entry.key] = entry
        self.holdings.came(entry, indices, cuts, zones)
        if state is TERMINATING:
            table.mark_releasing(entry, 1)
            self.leaving[entry.key] = entry
        table.touch(row)
        _count(cls.placed, row, 1)
        for plugin in cls.domains:
            plugin.add(cls.number, row, 1)
        if state in ENDING:
            self.count_ending(entry, 1)
        self.moved.add(cls.number)
        self.counters.count(entry, state, 1)

    def vacate(self, entry: TaskEntry, state: TaskState) -> None:
        """A task has left its node: what it held is free, its state is ``state``."""
        row = entry.row
        self.depart(entry)
        entry.state = state
        self.counters.count(entry, state, 1)
        self.table.release_row(row)

    def depart(self, entry: TaskEntry) -> None:
        """The first part of :meth:`vacate`: all of it for a task that is gone for good, but for its row."""
        table, cls, row = self.table, entry.cls, entry.row
        table.planes[row, USED] -= cls.vector
        self.ends.leave(declared_end(entry))
        if entry.state is TERMINATING:
            table.mark_releasing(entry, -1)
            del self.leaving[entry.key]
        self.holdings.left(entry)
        if entry.state in ENDING:
            self.count_ending(entry, -1)
        if entry.promised >= 0:
            self.holds.keep(entry)
        self.counters.count(entry, entry.state, -1)
        entry.row = -1
        del table.tasks[row][entry.key]
        table.touch(row)
        table.improved.add(row)
        _count(cls.placed, row, -1)
        for plugin in cls.domains:
            plugin.add(cls.number, row, -1)
        self.moved.add(cls.number)

    def change_state(self, entry: TaskEntry, state: TaskState) -> None:
        """Between states that hold resources (assumed, bound, running, releasing)."""
        if entry.state is not state:
            self._enter_state(entry, state)

    def count_ending(self, entry: TaskEntry, sign: int) -> None:
        """A task on a node begins to terminate (1), in earnest or in thought, or does so no more (-1): to some
        policies it is gone meanwhile."""
        cls, row = entry.cls, entry.row
        _count(cls.terminating, row, sign)
        for plugin in cls.domains_without_terminating:
            plugin.add(cls.number, row, -sign)

    def heed_ending(self, cls: TaskClass) -> None:
        """A task of the class began to terminate, or goes on after all, for good: whoever waits for that must look
        again."""
        if cls.domains_without_terminating:
            self.moved.add(cls.number)

    def add_waiting(self, entry: TaskEntry) -> None:
        """A new task appears that holds nothing."""
        group = entry.group
        if entry.state is PENDING and group is not None and not entry.task.gated:
            group.add_pending(entry, new=True)
            self.counters.ask(group.queue, entry.cls, 1)
            self.holds.hand_over(entry)
            return
        self.counters.count(entry, entry.state, 1)

    def add_new(self, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]) -> None:
        """:meth:`add_waiting` for new tasks of one class of a group that wait and are not gated."""
        group.add_pending_run(entries, cls)
        self.counters.ask(group.queue, cls, len(entries))
        if self.holds.by_group and self.holds.of(group.key):
            for entry in entries:
                self.holds.hand_over(entry)

    def remove(self, entry: TaskEntry) -> None:
        """A task disappears, whether it holds anything or not."""
        row = entry.row
        if row < 0:
            self.remove_waiting(entry)
            return
        self.depart(entry)
        self.table.release_row(row)

    def remove_waiting(self, entry: TaskEntry) -> None:
        """A task that holds nothing disappears."""
        if entry.promised >= 0:
            self.withdraw(entry)
        self.counters.count(entry, entry.state, -1)

    # ------------------------------------------------------------------ queues

    def leave_queue(self, group: GroupEntry) -> None:
        """The inverse of :meth:`StateCounters.join`; what is kept for the group is given up."""
        if group.queue is not None:
            self.holds.drop_group(group.key)
            self.counters.leave(group, group.queue)

    def recount_models(self, groups: Iterable[GroupEntry]) -> None:
        """Make the sums by device model anew, from all groups and from the work of other schedulers."""
        self.counters.recount_models(groups, self.holds)

    # ------------------------------------------------------------------ parts

    def _enter_state(self, entry: TaskEntry, state: TaskState) -> None:
        group, before = entry.group, entry.state
        if entry.promised >= 0:
            self.withdraw(entry)  # it was to move, and does not
        if before in ACTIVE and state in ACTIVE:
            entry.state = state
            self.confirmed += 1
            return
        sign = (state is TERMINATING) - (before is TERMINATING)
        if sign:
            self.table.mark_releasing(entry, sign)
            self.holdings.ends(entry, sign)
            self.table.touch(entry.row)
            if sign > 0:
                self.leaving[entry.key] = entry
            else:
                del self.leaving[entry.key]
            self.counters.release(entry, sign)
        ending = (state in ENDING) - (before in ENDING)
        if ending:
            self.count_ending(entry, ending)
        if group is not None:
            group.count(entry, before, -1)
            group.count(entry, state, 1)
            if group.timed:
                self.ends.stir(group)
        entry.state = state


def _count(by_row: dict[int, int], row: int, n: int) -> None:
    left = by_row.get(row, 0) + n
    if left:
        by_row[row] = left
    else:
        del by_row[row]
