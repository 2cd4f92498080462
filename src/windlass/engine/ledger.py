"""The books: every placement passes here, whoever decided it.

One placement is entered in five places, which always agree (``invariants`` checks it): the node's
amounts, its devices, the class's tasks by row, the sums of the queue and its ancestors, the group's
counters. What was really given back (not merely undone) is noted, for the groups that wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.engine.cards import HELD, KEPT, LEAVING, UNSEEN, Cuts
from windlass.engine.classes import ClassIndex, TaskClass
from windlass.engine.devices import Masks
from windlass.engine.ends import Ends
from windlass.engine.flavors import flavored, labels_at, wished
from windlass.engine.groups import ACTIVE, ASSUMED, OCCUPYING, PENDING, TERMINATING, GroupEntry, TaskEntry
from windlass.engine.holds import Holds
from windlass.engine.policies import Policies
from windlass.engine.queues import QueueEntry, QueueTree
from windlass.engine.table import PROMISED, RELEASING, USED, NodeTable
from windlass.engine.zones import Zones
from windlass.spi.numa import ZoneHolding
from windlass.spi.objects import TaskState

NO_MODELS: dict[str, int] = {}


class Ledger:
    def __init__(self, table: NodeTable, queues: QueueTree, classes: ClassIndex, policies: Policies) -> None:
        self.table = table
        self.queues = queues
        self.classes = classes
        self.seats = classes.seats
        self.moved: set[int] = set()
        """Classes of which a task came to or left a node since the engine last looked."""
        self.dirty: dict[str, GroupEntry] = {}
        """Groups whose next step, order or standing may have changed since the engine last looked."""
        self.holds = Holds(self)
        self.confirmed = 0
        """Counts the placements that the world has confirmed, since what is confirmed may be asked to go; and the
        changes of what protects tasks from that."""
        self.leaving: dict[str, TaskEntry] = {}
        """Tasks that terminate: what they hold is being given back."""
        self.zones = Zones(table, policies, self.leaving)
        self.ends = Ends()
        """When what runs will end; told of every change here."""

    # ------------------------------------------------------------------ decided placements

    def assume(
        self,
        group: GroupEntry,
        cls: TaskClass,
        row: int,
        entries: Sequence[TaskEntry],
        cuts: Cuts | None = None,
    ) -> None:
        """Place pending tasks of one class, of one group, on a node. They must fit.

        ``cuts``: what a single one gets of cards; else that is chosen here.
        """
        n = len(entries)
        table = self.table
        cells = table.planes[row, USED]
        cells += cls.vector if n == 1 else cls.vector * n
        table.touch(row)
        cls.placed[row] = cls.placed.get(row, 0) + n
        queue = group.queue
        if queue is not None:
            self.queues.start(queue, cls.items, n, firm=is_firm(group))
            if self.queues.flavors:
                models = self.by_model(cls, row), self.wished_models(cls)
                self.queues.start_flavored(queue, models[0].items(), models[1].items(), n)
        group.active += n
        if group.timed:
            self.ends.stir(group)
        on_row = table.tasks[row]
        tallies = group.tallies
        for entry in entries:
            entry.state = ASSUMED
            entry.row = row
            on_row[entry.key] = entry
            if tallies:
                group.tally(entry, 1)
        group.drop_pending_run(entries, cls)
        if row in self.zones.rows:
            for entry in entries:
                self._give_parts(cls, row, (entry,), cuts, self.zones.plan(cls, row))
        else:
            if cls.device_requests:
                self._hand_out(cls, row, entries)
            if cls.needs.devices:
                self._seat(cls, row, entries, cuts)
        for plugin in cls.domains:
            plugin.add(cls.number, row, n)

    def _give_parts(
        self,
        cls: TaskClass,
        row: int,
        entries: Sequence[TaskEntry],
        cuts: Cuts | None,
        planned: ZoneHolding | None,
    ) -> None:
        """Choose devices, parts of cards and zones on a node that has zones. ``planned``: what a single task gets
        of them."""
        if cls.device_requests:
            self._hand_out(cls, row, entries, planned)
        if cls.needs.devices:
            if cuts is None and planned is not None:
                aligned = self.zones.narrowed(row, cls.needs, planned)
                cuts = None if aligned is None else self.seats.pick(row, aligned)
            self._seat(cls, row, entries, cuts)
        for entry in entries:
            self.zones.came(entry, planned)

    def _hand_out(
        self, cls: TaskClass, row: int, entries: Sequence[TaskEntry], planned: ZoneHolding | None = None
    ) -> None:
        devices = self.table.devices
        home = devices.rows[row]
        chosen = self.seats.word.chooses(cls.needs)
        for resource, count in cls.device_requests:
            slots = home[resource]
            for entry in entries:
                mask = self.zones.choose(row, resource, count, slots.free, planned) if planned else 0
                if chosen and not mask:
                    mask = self.seats.word.pick_whole(row, resource, count, cls.needs)
                mask = mask or slots.pick(count)
                if not mask:
                    raise RuntimeError(f"{self.table.names[row]} has fewer free {resource} than booked")
                slots.free &= ~mask
                slots.taken |= mask
                held, shares = devices.holding(resource, mask)
                entry.masks += held
                entry.devices += shares
        devices.stale.add(row)

    def _seat(self, cls: TaskClass, row: int, entries: Sequence[TaskEntry], cuts: Cuts | None) -> None:
        names = [entry.key for entry in entries]
        given = [cuts] if cuts is not None else self.seats.take_all(row, names, cls.needs)
        for entry, parts in zip(entries, given, strict=True):
            if cuts is not None:
                self.table.cards.put(row, entry.key, parts, HELD, 1)
            entry.cuts = parts
            entry.devices += self.seats.shares(row, parts)

    def unassume(self, group: GroupEntry, cls: TaskClass, row: int, entries: Sequence[TaskEntry]) -> None:
        """The inverse of :meth:`assume`: the tasks are pending again, nothing counts as given back."""
        n = len(entries)
        table = self.table
        table.planes[row, USED] -= cls.vector * n
        table.touch(row)
        self._count_placed(cls, row, -n)
        if group.queue is not None:
            self.queues.start(group.queue, cls.items, -n, firm=is_firm(group))
            if self.queues.flavors:
                models = self.by_model(cls, row), self.wished_models(cls)
                self.queues.start_flavored(group.queue, models[0].items(), models[1].items(), -n)
        group.active -= n
        if group.timed:
            self.ends.stir(group)
        for entry in entries:
            entry.state = PENDING
            entry.row = -1
            del table.tasks[row][entry.key]
            if entry.masks:
                table.devices.give(row, entry.masks)
                entry.masks = ()
            if entry.cuts:
                table.cards.put(row, entry.key, entry.cuts, HELD, -1)
                entry.cuts = ()
            entry.devices = ()
            self.zones.left(entry, row)
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
        cuts: Cuts | None = None,
        zones: ZoneHolding | None = None,
        *,
        plan: bool = True,
    ) -> None:
        """Keep room on ``row``, part of which is still being freed, for a pending task.

        To policies about pods in relation to one another, and in its queue's ``promised``, it stands there.
        ``cuts``, ``zones``: what it is promised of cards and of zones; else that is chosen here. Without ``plan``
        no zones are: the node had none when it was promised.
        """
        entry.promised = row
        entry.kept_zones = self.zones.promise(entry.cls, row, zones) if plan or zones is not None else None
        if entry.cls.needs.devices:
            entry.kept = self.seats.take(row, entry.key, entry.cls.needs, cuts, later=True)
        self._count_promise(entry, row, 1)

    def unpromise(self, entry: TaskEntry) -> Cuts:
        """Take the promise back. Returns what was promised of cards."""
        row, entry.promised = entry.promised, -1
        cuts, entry.kept = entry.kept, ()
        if entry.cls.needs.devices:
            self.table.cards.put(row, entry.key, cuts, KEPT, -1)
        self.zones.unpromise(row, entry.kept_zones)
        entry.kept_zones = None
        self._count_promise(entry, row, -1)
        return cuts

    def promise_again(self, entry: TaskEntry, row: int, cuts: Cuts, zones: ZoneHolding | None = None) -> None:
        """After :meth:`unpromise`: the same room, other cards of it if those are not to be had any more."""
        if entry.cls.needs.devices and not self.seats.takes(row, cuts, later=True):
            other = self.seats.pick(row, entry.cls.needs, later=True)
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
        self.moved.add(cls.number)
        if group is not None and group.queue is not None:
            self.queues.mark_freed(group.queue)
        self.table.release_row(row)

    def keeps(self, cls: TaskClass, row: int, who: str, cuts: Cuts) -> bool:
        """Whether a node will have all that is promised on it, of what tasks of the class ask for.

        ``cuts``: what is promised of cards there to ``who``.
        """
        if cls.needs.devices:
            self.table.cards.put(row, who, cuts, KEPT, -1)
            there = self.seats.takes(row, cuts, later=True)
            self.table.cards.put(row, who, cuts, KEPT, 1)
            if not there:
                return False
        allocatable, used, releasing, promised = self.table.planes[row]
        cls.fit_vector()
        return bool((used - releasing + promised <= allocatable)[cls.vector > 0].all())

    def _count_promise(self, entry: TaskEntry, row: int, sign: int) -> None:
        group = entry.group
        if group is not None:
            group.promises += sign
        self.count_promise(group, entry.cls, row, sign)

    def count_promise(self, group: GroupEntry | None, cls: TaskClass, row: int, sign: int) -> None:
        """Enter a promise to a task of the group in the books (1), or take it out (-1)."""
        cls.fit_vector()
        self.table.planes[row, PROMISED] += sign * cls.vector
        self.table.touch(row)
        self._count_placed(cls, row, sign)
        for plugin in cls.domains:
            plugin.add(cls.number, row, sign)
        if group is not None and group.queue is not None:
            self.queues.promise(group.queue, cls.items, sign, firm=is_firm(group))
            if self.queues.flavors:
                self.queues.promise(group.queue, self.by_model(cls, row).items(), sign)

    # ------------------------------------------------------------------ what the world reports

    def occupy(
        self,
        entry: TaskEntry,
        row: int,
        state: TaskState,
        indices: tuple[int, ...],
        cuts: Cuts | None = None,
        zones: ZoneHolding | None = None,
    ) -> None:
        """A task is on a node, whether it fits or not. ``cuts``: what it has of cards, where that is known
        here; else ``indices``, and what is reported of slices, say it. ``zones`` likewise."""
        table, cls = self.table, entry.cls
        cls.fit_vector()
        table.planes[row, USED] += cls.vector
        if state is TERMINATING:
            table.planes[row, RELEASING] += cls.vector
            self.leaving[entry.key] = entry
        if table.planes[row, PROMISED, 0] > 0:
            table.improved.add(row)  # whoever was promised room here must look again
        entry.row = row
        entry.state = state
        table.tasks[row][entry.key] = entry
        if indices and cls.device_requests:
            wanted = sum(count for _, count in cls.device_requests)
            self._hold(entry, table.devices.locate(row, cls.device_requests, indices[:wanted]))
        if cls.needs.devices:
            if cuts is None:
                plain = sum(count for _, count in cls.device_requests)
                cuts = self.seats.reported(row, cls.needs, indices[plain:], entry.task.slices)
            self._hold_cuts(entry, cuts)
        self.zones.came(entry, zones or entry.task.zones)
        table.touch(row)
        self._count_placed(cls, row, 1)
        for plugin in cls.domains:
            plugin.add(cls.number, row, 1)
        self.moved.add(cls.number)
        self._count_group(entry, state, 1)

    def vacate(self, entry: TaskEntry, state: TaskState) -> None:
        """A task has left its node: what it held is free, its state is ``state``."""
        table, cls, row = self.table, entry.cls, entry.row
        table.planes[row, USED] -= cls.vector
        self._drop_cuts(entry)
        self.zones.left(entry, row)
        if entry.state is TERMINATING:
            table.planes[row, RELEASING] -= cls.vector
            del self.leaving[entry.key]
        if entry.promised >= 0:
            self.holds.keep(entry)
        self._count_group(entry, entry.state, -1)
        entry.state = state
        entry.row = -1
        del table.tasks[row][entry.key]
        if entry.masks:
            table.devices.give(row, entry.masks)
            entry.masks = ()
            self._settle_health(row)
        entry.devices = ()
        table.touch(row)
        table.improved.add(row)
        self._count_placed(cls, row, -1)
        for plugin in cls.domains:
            plugin.add(cls.number, row, -1)
        self.moved.add(cls.number)
        self._count_group(entry, state, 1)
        table.release_row(row)

    def rename_devices(self, entry: TaskEntry, indices: tuple[int, ...]) -> None:
        """The world says which devices a task holds; that counts."""
        if entry.cls.needs.devices and indices:
            self._rename_cuts(entry, indices)
        if not entry.cls.device_requests or not indices:
            return
        devices = self.table.devices
        wanted = sum(count for _, count in entry.cls.device_requests)
        masks = devices.locate(entry.row, entry.cls.device_requests, indices[:wanted])
        if set(masks) != set(entry.masks):
            devices.give(entry.row, entry.masks)
            self._hold(entry, masks)
            self.zones.again(entry, None)
            self.table.touch(entry.row)

    def rename_zones(self, entry: TaskEntry) -> None:
        """The world says which zones' amounts a task holds; that counts."""
        if entry.task.zones is not None and entry.row >= 0:
            self.zones.again(entry, entry.task.zones)

    def change_state(self, entry: TaskEntry, state: TaskState) -> None:
        """Between states that hold resources (assumed, bound, running, releasing)."""
        if entry.state is not state:
            self._enter_state(entry, state)

    def add_waiting(self, entry: TaskEntry) -> None:
        """A new task appears that holds nothing."""
        group = entry.group
        if entry.state is PENDING and group is not None and not entry.task.gated:
            group.add_pending(entry, new=True)
            if group.queue is not None:
                self.queues.ask(group.queue, entry.cls.items, 1)
                if self.queues.flavors:
                    self.queues.ask(group.queue, self.wished_models(entry.cls).items(), 1)
            self.holds.hand_over(entry)
            return
        self._count_group(entry, entry.state, 1)

    def add_new(self, group: GroupEntry, cls: TaskClass, entries: Sequence[TaskEntry]) -> None:
        """:meth:`add_waiting` for new tasks of one class of a group that wait and are not gated."""
        group.add_pending_run(entries, cls)
        if group.queue is not None:
            self.queues.ask(group.queue, cls.items, len(entries))
            if self.queues.flavors:
                self.queues.ask(group.queue, self.wished_models(cls).items(), len(entries))
        if self.holds.of(group.key):
            for entry in entries:
                self.holds.hand_over(entry)

    def remove_waiting(self, entry: TaskEntry) -> None:
        """A task that holds nothing disappears."""
        if entry.promised >= 0:
            self.withdraw(entry)
        self._count_group(entry, entry.state, -1)

    # ------------------------------------------------------------------ queues

    def join_queue(self, group: GroupEntry, queue: QueueEntry) -> None:
        """The group's tasks count for this queue from now on."""
        group.queue = queue
        queue.groups[group.key] = group
        self.queues.touch(queue)
        for entry in group.tasks.values():
            self._count_queue(queue, entry, 1)
            if entry.promised >= 0:
                self.queues.promise(queue, entry.cls.items, 1, firm=is_firm(group))
                self.queues.promise(queue, self.by_model(entry.cls, entry.promised).items(), 1)

    def leave_queue(self, group: GroupEntry) -> None:
        queue = group.queue
        if queue is None:
            return
        self.holds.drop_group(group.key)
        for entry in group.tasks.values():
            self._count_queue(queue, entry, -1)
            if entry.promised >= 0:
                self.queues.promise(queue, entry.cls.items, -1, firm=is_firm(group))
                self.queues.promise(queue, self.by_model(entry.cls, entry.promised).items(), -1)
        del queue.groups[group.key]
        self.queues.touch(queue)
        group.queue = None
        self.queues.drop_if_unused(queue)

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
            self.table.planes[entry.row, RELEASING] += sign * entry.cls.vector
            if entry.cls.needs.devices:
                self.table.cards.put(entry.row, entry.key, entry.cuts, LEAVING, sign)
            self.table.touch(entry.row)
            if sign > 0:
                self.leaving[entry.key] = entry
            else:
                del self.leaving[entry.key]
            if group is not None and group.queue is not None:
                self.queues.release(group.queue, entry.cls.items, sign, firm=is_firm(group))
                if self.queues.flavors:
                    self.queues.release(group.queue, self.by_model(entry.cls, entry.row).items(), sign)
        if group is not None:
            group.count(entry, before, -1)
            group.count(entry, state, 1)
            if group.timed:
                self.ends.stir(group)
        entry.state = state

    def _count_group(self, entry: TaskEntry, state: TaskState, sign: int) -> None:
        """Enter a task in its group's counters and its queue's sums as being in ``state``."""
        group = entry.group
        if group is None:
            if state in OCCUPYING:
                self.queues.hold_foreign(entry.cls.items, sign)
                self.queues.hold_foreign(self.by_model(entry.cls, entry.row).items(), sign)
            return
        group.count(entry, state, sign)
        if group.timed and state in OCCUPYING:
            self.ends.stir(group)
        if state is PENDING and not entry.task.gated:
            if sign > 0:
                group.add_pending(entry)
            else:
                group.drop_pending(entry)
        if group.queue is not None:
            self._count_queue(group.queue, entry, sign, state)

    def _count_queue(
        self, queue: QueueEntry, entry: TaskEntry, sign: int, state: TaskState | None = None
    ) -> None:
        state = state or entry.state
        firm = entry.group is not None and is_firm(entry.group)
        if state in OCCUPYING:
            self.queues.allocate(queue, entry.cls.items, sign, firm=firm)
            if state is TERMINATING:
                self.queues.release(queue, entry.cls.items, sign, firm=firm)
            if self.queues.flavors:
                by_model = self.by_model(entry.cls, entry.row).items()
                self.queues.allocate(queue, by_model, sign)
                if state is TERMINATING:
                    self.queues.release(queue, by_model, sign)
        elif state is PENDING and not entry.task.gated:
            self.queues.ask(queue, entry.cls.items, sign)
            if self.queues.flavors:
                self.queues.ask(queue, self.wished_models(entry.cls).items(), sign)

    def by_model(self, cls: TaskClass, row: int) -> dict[str, int]:
        """What a task holds on a row by the names of single device models."""
        names = self.queues.flavors
        return flavored(cls, labels_at(self.table, row), names) if names and row >= 0 else NO_MODELS

    def wished_models(self, cls: TaskClass) -> dict[str, int]:
        """What a task asks for by the names of the models that would do."""
        names = self.queues.flavors
        return wished(cls, names) if names else NO_MODELS

    def recount_models(self, groups: Iterable[GroupEntry]) -> None:
        """Make the sums by device model anew, from all groups and from the work of other schedulers."""
        self.queues.recount = False
        self.queues.drop_flavored()
        for on_row in self.table.tasks if self.queues.flavors else ():
            for entry in on_row.values():
                if entry.group is None:
                    self.queues.hold_foreign(self.by_model(entry.cls, entry.row).items(), 1)
        for group in groups:
            queue = group.queue
            if queue is None:
                continue
            for entry in group.tasks.values():
                if entry.state is PENDING and not entry.task.gated:
                    self.queues.ask(queue, self.wished_models(entry.cls).items(), 1)
                if entry.state in OCCUPYING:
                    by_model = self.by_model(entry.cls, entry.row).items()
                    self.queues.allocate(queue, by_model, 1)
                    if entry.state is TERMINATING:
                        self.queues.release(queue, by_model, 1)
                elif entry.promised >= 0:
                    self.queues.promise(queue, self.by_model(entry.cls, entry.promised).items(), 1)
        for hold in self.holds:
            if hold.group.queue is not None:
                self.queues.promise(hold.group.queue, self.by_model(hold.cls, hold.row).items(), 1)

    def _count_placed(self, cls: TaskClass, row: int, n: int) -> None:
        left = cls.placed.get(row, 0) + n
        if left:
            cls.placed[row] = left
        else:
            del cls.placed[row]

    def _hold(self, entry: TaskEntry, masks: Masks) -> None:
        devices = self.table.devices
        devices.take(entry.row, masks)
        entry.masks = masks
        whole = tuple(share for resource, mask in masks for share in devices.shares(resource, mask))
        entry.devices = whole + self.seats.shares(entry.row, entry.cuts) if entry.cuts else whole
        self._settle_health(entry.row)

    def _hold_cuts(self, entry: TaskEntry, cuts: Cuts) -> None:
        """Enter what a task has of cards, in the state it is in."""
        cards, row = self.table.cards, entry.row
        cards.put(row, entry.key, cuts, HELD, 1)
        if entry.state is TERMINATING:
            cards.put(row, entry.key, cuts, LEAVING, 1)
        entry.cuts = cuts
        whole = (s for resource, mask in entry.masks for s in self.table.devices.shares(resource, mask))
        entry.devices = (*whole, *self.seats.shares(row, cuts))

    def _drop_cuts(self, entry: TaskEntry) -> None:
        if entry.cls.needs.devices:
            cards, cuts = self.table.cards, entry.cuts
            entry.cuts = ()
            if entry.state is TERMINATING:
                cards.put(entry.row, entry.key, cuts, LEAVING, -1)
            cards.put(entry.row, entry.key, cuts, HELD, -1)

    def review_cuts(self, row: int) -> None:
        """The node of the row has told of its cards: what tasks have of those that were unknown is known now."""
        for entry in list(self.table.tasks[row].values()):
            if any(cut.start == UNSEEN for cut in entry.cuts):
                plain = sum(count for _, count in entry.cls.device_requests)
                named, slices = entry.task.devices[plain:], entry.task.slices
                self._drop_cuts(entry)
                self._hold_cuts(entry, self.seats.reported(row, entry.cls.needs, named, slices))
                self.table.touch(row)

    def _rename_cuts(self, entry: TaskEntry, indices: tuple[int, ...]) -> None:
        """What the world says of cards and slices counts, as far as it says it."""
        plain = sum(count for _, count in entry.cls.device_requests)
        named, slices = indices[plain:], entry.task.slices
        if sorted(named) == sorted(cut.index for cut in entry.cuts if cut.index >= 0) and (
            not slices
            or sorted(slices) == sorted((c.index, c.profile, c.start) for c in entry.cuts if c.profile)
        ):
            return
        before = entry.cuts
        self._drop_cuts(entry)
        cuts = self.seats.reported(entry.row, entry.cls.needs, named, slices)
        self._hold_cuts(entry, cuts)
        if cuts != before:
            self.zones.again(entry, None)
            self.table.touch(entry.row)

    def _settle_health(self, row: int) -> None:
        if any(slots.known != slots.healthy for slots in self.table.devices.rows[row].values()):
            self.table.settle_allocatable(row)


def is_firm(group: GroupEntry) -> bool:
    """Whether no one may evict what the group holds."""
    return group.group is not None and not group.group.preemptible
