"""Deltas in: what the world reports, entered in the books.

Reports may lag behind decisions. A task that is assumed on a node stays so while the world still calls
it pending, and one that is being evicted stays so while the world still calls it running; only the
matching failure report, a new incarnation (uid) or its end undoes a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from msgspec.structs import replace as altered

from windlass.engine import deltas as d
from windlass.engine.devices.share_table import TaskShares
from windlass.engine.devices.whole_device_table import bits
from windlass.engine.groups.entries import (
    ACTIVE,
    ASSUMED,
    FAILED,
    OCCUPYING,
    PENDING,
    STUCK,
    TERMINATING,
    GroupEntry,
    TaskEntry,
    nominated,
)
from windlass.engine.queues.flavors import labels_at
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.counters import is_firm
from windlass.spi.numa import NumaHolding
from windlass.spi.objects import Group, NamespaceQuota, Node, Task, TaskState

_AS_DECIDED = object()
"""What was told is what was decided."""


class DeltaApplier:
    """``made_anew(key)`` is called of a group of which another one has taken the name."""

    def __init__(self, state: ClusterState, made_anew: Callable[[str], None] = lambda key: None) -> None:
        self._state = state
        self._made_anew = made_anew
        self._ledger = state.ledger
        self._handlers: dict[type, Callable[[Any], object]] = {
            d.NodeUpserted: lambda delta: self._node(delta.node),
            d.NodeRemoved: lambda delta: self._node_removed(delta.name),
            d.QueueUpserted: lambda delta: self._state.queues.upsert(delta.queue),
            d.QueueRemoved: lambda delta: self._state.queues.remove(delta.name),
            d.GroupUpserted: self._group,
            d.GroupRemoved: self._group_removed,
            d.TaskUpserted: self._task,
            d.TaskRemoved: self._task_removed,
            d.NamespaceQuotaUpserted: lambda delta: self._quota(delta.quota.key, delta.quota),
            d.NamespaceQuotaRemoved: lambda delta: self._quota(delta.key, None),
            d.BudgetUpserted: lambda delta: self._state.budgets.upsert(delta.key, delta.allowed),
            d.BudgetRemoved: lambda delta: self._state.budgets.remove(delta.key),
            d.BindFailed: self._bind_failed,
            d.EvictionBegun: self._eviction_begun,
            d.EvictionFailed: self._eviction_failed,
        }

    def apply(self, deltas: Iterable[d.Delta]) -> bool:
        """Enter deltas in the order given. Returns whether anything was told but that what was decided is so. Raises
        ``TypeError`` on anything that is none.

        New tasks of one kind and one group that come one after the other, as the pods of a gang do, are entered
        together.
        """
        handlers, tasks, news = self._handlers, self._state.tasks, False
        alike: dict[str, Task] = {}
        last: Task | None = None
        for delta in deltas:
            task = delta.task if isinstance(delta, d.TaskUpserted) else None
            if last is not None:
                if (
                    task is not None
                    and task.needs is last.needs
                    and task.group == last.group
                    and _waits(task)
                    and task.key not in alike
                    and task.key not in tasks
                ):
                    alike[task.key] = task
                    continue
                self._add_alike(alike.values(), last)
                alike, last, news = {}, None, True
            if task is not None and task.key not in tasks and _waits(task):
                alike[task.key] = last = task
                continue
            handler = handlers.get(type(delta))
            if handler is None:
                raise TypeError(f"not a delta: {delta!r}")
            if handler(delta) is not _AS_DECIDED:
                news = True
        if last is not None:
            self._add_alike(alike.values(), last)
        return news or last is not None

    def restore(
        self,
        task: Task,
        state: TaskState,
        node: str,
        devices: tuple[int, ...],
        cuts: TaskShares,
        zones: NumaHolding | None,
    ) -> None:
        """Enter a task whose state here runs ahead of, or equals, what was reported last."""
        self._add(task, (state, node, devices, cuts), zones)

    # ------------------------------------------------------------------ nodes

    def _node(self, node: Node) -> None:
        queues, table = self._state.queues, self._state.table
        if queues.flavors and (row := table.rows.get(node.name)) is not None:
            queues.recount = queues.recount or labels_at(table, row) != node.labels
        row = table.upsert(node)
        if table.shares.rows[row] is not None:
            self._ledger.holdings.review(row)
        self._state.relabel()

    def _node_removed(self, name: str) -> None:
        self._state.queues.recount = self._state.queues.recount or bool(self._state.queues.flavors)
        self._state.table.remove(name)
        self._state.relabel()

    # ------------------------------------------------------------------ namespaces

    def _quota(self, key: str, quota: NamespaceQuota | None) -> None:
        """Those of the namespace that wait to be let in are asked about again."""
        state = self._state
        if state.namespace_quotas.get(key) == quota:
            return
        if quota is None:
            del state.namespace_quotas[key]
        else:
            state.namespace_quotas[key] = quota
        namespace = key.partition("/")[0] + "/"
        state.dirty.update(
            (group, state.groups[group]) for group in state.gate.lines if group.startswith(namespace)
        )

    # ------------------------------------------------------------------ groups

    def _group(self, delta: d.GroupUpserted) -> object:
        """A group, new or known. ``_AS_DECIDED`` if nothing is told but that it was let in, as is known: whoever writes
        that down a moment after it was decided is no news to those who wait."""
        group = delta.group
        state, ledger = self._state, self._ledger
        entry = state.group(group.key)
        known, before = entry.group, entry.queue
        if known is not None and known.admitted and not group.admitted:
            state.gate.forget(group.key)  # it has run, and asks to be let in anew
        if known is not None and (known == group or self._let_in_anyway(entry, known, group)):
            return _AS_DECIDED
        if known is not None and known.uid != group.uid:
            self._begin_anew(entry)
        if before is None or before.name != group.queue or is_firm(entry) is group.preemptible:
            if before is not None:
                ledger.leave_queue(entry)
            entry.set_group(group, apart=state.apart(group))
            ledger.counters.join(entry, state.queues.get(group.queue))
        else:
            entry.set_group(group, apart=state.apart(group))
        if entry.timed or group.run_estimate or entry.tasks:
            state.note_time(entry)
        ledger.dirty[group.key] = entry
        return None

    def _let_in_anyway(self, entry: GroupEntry, known: Group, group: Group) -> bool:
        """Whether a group, as it is told now, differs in its phase alone, and that changes nothing; entered then."""
        gate = self._state.gate
        if known.admitted is group.admitted or altered(known, admitted=group.admitted) != group:
            return False
        closed = gate.closed(entry)
        entry.group = group
        return gate.closed(entry) is closed

    def _begin_anew(self, entry: GroupEntry) -> None:
        """The group was deleted, and another one of its name was made before anybody looked: nothing that was
        promised to the earlier one, or remembered of it, is the other's."""
        for task in nominated(entry):
            self._ledger.withdraw(task)
        entry.failures, entry.newly_failed, entry.failure, entry.not_before = 0, False, "", 0.0
        entry.refusal = entry.stale_since = entry.stale_tried = entry.reported = None
        entry.claimed_in_part = False
        self._state.gate.forget(entry.key)
        self._made_anew(entry.key)

    def _group_removed(self, delta: d.GroupRemoved) -> None:
        entry = self._state.groups.get(delta.key)
        if entry is None or entry.group is None:
            return
        for task in nominated(entry):
            self._ledger.withdraw(task)
        self._ledger.leave_queue(entry)
        entry.group = None
        entry.roles_enforced = {}
        self._state.note_time(entry)
        self._ledger.dirty[entry.key] = entry

    # ------------------------------------------------------------------ tasks

    def _task(self, delta: d.TaskUpserted) -> object:
        """A task, new or known. ``_AS_DECIDED`` if it is but told to be where it was placed."""
        task = delta.task
        entry = self._state.tasks.get(task.key)
        if entry is None:
            self._add(task)
            return None
        known = entry.task
        if known.uid != task.uid:
            self._remove(entry)
            self._add(task)
            return None
        if (
            (known.needs is not task.needs and known.needs != task.needs)
            or known.group != task.group
            or known.gated != task.gated
            or known.role != task.role
            or known.priority != task.priority
            or known.index != task.index
            or known.subgroup != task.subgroup
        ):
            self._replace(entry, task)
            return None
        entry.task = task
        if entry.group is not None:
            self._ledger.restated[entry.group.key] = entry.group
        if known.started != task.started and entry.group is not None and entry.group.timed:
            self._ledger.ends.stir(entry.group)
        as_decided = entry.state is ASSUMED and task.state in ACTIVE and not (task.devices or task.zones)
        if (known.preemptible, known.critical, known.budgets) != (
            task.preemptible,
            task.critical,
            task.budgets,
        ):
            self._ledger.confirmed += 1
            as_decided = False
        if known.run_limit != task.run_limit and entry.group is not None:
            self._state.note_time(entry.group)
            as_decided = False
        row = entry.row
        self._follow(entry, task)
        return _AS_DECIDED if as_decided and entry.row == row else None

    def _add_alike(self, tasks: Collection[Task], first: Task) -> None:
        """Enter new tasks of one kind and one group that wait (:func:`_waits`)."""
        state, ledger = self._state, self._ledger
        cls, group = state.classes.get(first.needs), state.group(first.group)
        cls.tasks += len(tasks)
        entries = [TaskEntry(task, cls, group) for task in tasks]
        known, mine = state.tasks, group.tasks
        for entry in entries:
            known[entry.key] = mine[entry.key] = entry
        if group.timed:
            state.note_time(group)
        ledger.dirty[group.key] = group
        ledger.add_new(group, cls, entries)

    def _add(
        self,
        task: Task,
        carried: tuple[TaskState, str, tuple[int, ...], TaskShares | None] | None = None,
        zones: NumaHolding | None = None,
    ) -> None:
        """Enter a new task. ``carried``: its state, node, devices and parts of cards here, ahead of the
        report; ``zones`` likewise."""
        world = self._state
        cls = world.classes.get(task.needs)
        group = world.group(task.group) if task.group else None
        entry = TaskEntry(task, cls, group)
        cls.tasks += 1
        world.tasks[task.key] = entry
        if group is not None:
            group.tasks[task.key] = entry
            if task.run_limit is not None or group.timed:
                world.note_time(group)
            self._ledger.dirty[group.key] = group
        state, node, indices, cuts = carried or (task.state, task.node, task.devices, None)
        if state in OCCUPYING and node:
            self._ledger.occupy(entry, world.table.row(node), state, indices, cuts, zones)
        else:
            entry.state = PENDING if state is PENDING else _unplaced(state)
            self._ledger.add_waiting(entry)

    def _remove(self, entry: TaskEntry) -> None:
        state, group = self._state, entry.group
        self._ledger.remove(entry)
        del state.tasks[entry.key]
        entry.cls.tasks -= 1
        if group is not None:
            del group.tasks[entry.key]
            self._ledger.dirty[group.key] = group

    def _replace(self, entry: TaskEntry, task: Task) -> None:
        """What the task asks for has changed: enter it anew, in the state it has here."""
        ahead = (entry.state is ASSUMED and not task.node) or (
            entry.state is TERMINATING and task.state in OCCUPYING
        )
        if not ahead:
            self._remove(entry)
            self._add(task)
            return
        cuts = entry.cuts if task.needs.devices == entry.cls.needs.devices else None
        carried = (entry.state, self._state.table.names[entry.row], _indices(entry), cuts)
        zones = entry.zones if task.needs.zones == entry.cls.needs.zones else None
        self._remove(entry)
        self._add(task, carried, zones)

    def _follow(self, entry: TaskEntry, task: Task) -> None:
        """The same task, reported again."""
        ledger, before, after = self._ledger, entry.state, task.state
        if after in OCCUPYING and task.node:
            row = self._state.table.row(task.node)
            if entry.row < 0:
                ledger.remove_waiting(entry)
                ledger.occupy(entry, row, after, task.devices)
            elif entry.row != row:
                ledger.vacate(entry, FAILED)
                ledger.remove_waiting(entry)
                ledger.occupy(entry, self._state.table.row(task.node), after, task.devices)
            else:
                if task.devices:
                    ledger.holdings.rename(entry, task.devices)
                if task.zones is not None:
                    ledger.holdings.rename_zones(entry)
                if before is after or (before is TERMINATING and after is not STUCK):
                    return
                ledger.change_state(entry, after)
                group = entry.group
                if after in (TERMINATING, STUCK):
                    # There is room to wait for, or room that somebody waits for does not come.
                    self._look_again(entry)
                elif group is None or not group.failures:
                    return
        else:
            after = _unplaced(after)
            if after is before or (after is PENDING and before is ASSUMED):
                return
            if entry.row >= 0:
                ledger.vacate(entry, after)
            else:
                ledger.remove_waiting(entry)
                entry.state = after
                ledger.add_waiting(entry)
        if entry.group is not None:
            self._state.dirty[entry.group.key] = entry.group

    def _task_removed(self, delta: d.TaskRemoved) -> None:
        entry = self._state.tasks.get(delta.key)
        if entry is not None and (not delta.uid or entry.task.uid == delta.uid):
            self._remove(entry)

    # ------------------------------------------------------------------ failures

    def _bind_failed(self, delta: d.BindFailed) -> None:
        entry = self._state.tasks.get(delta.key)
        if entry is None or entry.state is not ASSUMED or entry.task.uid != delta.uid:
            return
        self._ledger.vacate(entry, PENDING)
        group = entry.group
        if group is not None:
            group.newly_failed = True
            group.failure = delta.message
            self._state.dirty[group.key] = group

    def _eviction_begun(self, delta: d.EvictionBegun) -> None:
        entry = self._state.tasks.get(delta.key)
        if entry is None or entry.task.uid != delta.uid or entry.state not in ACTIVE:
            return
        self._ledger.change_state(entry, TERMINATING)
        self._look_again(entry)
        if entry.group is not None:
            self._state.dirty[entry.group.key] = entry.group

    def _eviction_failed(self, delta: d.EvictionFailed) -> None:
        entry = self._state.tasks.get(delta.key)
        if entry is None or entry.task.uid != delta.uid or entry.state is not TERMINATING:
            return
        if entry.task.state in OCCUPYING and entry.task.state is not TERMINATING:
            self._ledger.change_state(entry, entry.task.state)
            self._look_again(entry)
            if entry.group is not None:
                self._state.dirty[entry.group.key] = entry.group

    def _look_again(self, entry: TaskEntry) -> None:
        """What comes of a task's room, or of its part of a queue, is another thing now."""
        self._state.table.improved.add(entry.row)
        self._ledger.heed_ending(entry.cls)
        if entry.group is not None and entry.group.queue is not None:
            self._state.queues.mark_freed(entry.group.queue)


def _waits(task: Task) -> bool:
    """Whether a new task does nothing but wait in its group."""
    return task.state is PENDING and not task.gated and bool(task.group) and task.run_limit is None


def _unplaced(state: TaskState) -> TaskState:
    """The state of a task that is on no node: one that ends without ever having run counts as failed."""
    if state in (TERMINATING, STUCK):
        return FAILED
    return PENDING if state in OCCUPYING else state


def _indices(entry: TaskEntry) -> tuple[int, ...]:
    return tuple(index for _, mask in entry.masks for index in bits(mask))
