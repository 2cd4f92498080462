"""Deltas in: enter reported changes in the state.

Reports may lag behind decisions. An assumed task stays assumed while reports still
state that it is pending, and a task being evicted stays so while reports still state
that it runs. Only a matching failure, another uid, or the end of the task undoes a
decision.
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
"""Result of a handler: the report only confirms a decision."""


class DeltaApplier:
    """Applies deltas to the state.

    ``on_replaced(key)`` is called when another group has taken the name of a deleted
    one.
    """

    def __init__(self, state: ClusterState, made_anew: Callable[[str], None] = lambda key: None) -> None:
        self._state = state
        self._on_replaced = made_anew
        self._ledger = state.ledger
        self._handlers: dict[type, Callable[[Any], object]] = {
            d.NodeUpserted: lambda delta: self._node(delta.node),
            d.NodeRemoved: lambda delta: self._node_removed(delta.name),
            d.QueueUpserted: lambda delta: self._state.set_queue(delta.queue),
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
        """Enter deltas in the given order. Return whether any of them did more than
        confirm a decision.

        Raises ``TypeError`` for any other object. Consecutive new tasks of the same
        needs and group, such as the pods of a gang, are entered together.
        """
        handlers, tasks, changed = self._handlers, self._state.tasks, False
        batch: dict[str, Task] = {}
        last: Task | None = None
        for delta in deltas:
            task = delta.task if isinstance(delta, d.TaskUpserted) else None
            if last is not None:
                if (
                    task is not None
                    and task.needs is last.needs
                    and task.group == last.group
                    and _waits(task)
                    and task.key not in batch
                    and task.key not in tasks
                ):
                    batch[task.key] = task
                    continue
                self._add_batch(batch.values(), last)
                batch, last, changed = {}, None, True
            if task is not None and task.key not in tasks and _waits(task):
                batch[task.key] = last = task
                continue
            handler = handlers.get(type(delta))
            if handler is None:
                raise TypeError(f"not a delta: {delta!r}")
            if handler(delta) is not _AS_DECIDED:
                changed = True
        if last is not None:
            self._add_batch(batch.values(), last)
        return changed or last is not None

    def restore(
        self,
        task: Task,
        state: TaskState,
        node: str,
        devices: tuple[int, ...],
        shares: TaskShares,
        zones: NumaHolding | None,
    ) -> None:
        """Enter a task in a state that equals the last report or is ahead of it."""
        self._add(task, (state, node, devices, shares), zones)

    # ------------------------------------------------------------------ nodes

    def _node(self, node: Node) -> None:
        queues, table = self._state.queues, self._state.table
        if queues.flavors and (row := table.rows.get(node.name)) is not None:
            queues.recount = queues.recount or labels_at(table, row) != node.labels
        row = table.upsert(node)
        if table.shares.rows[row] is not None:
            self._ledger.holdings.resolve_unknown(row)
        self._state.update_labels()

    def _node_removed(self, name: str) -> None:
        self._state.queues.recount = self._state.queues.recount or bool(self._state.queues.flavors)
        self._state.table.remove(name)
        self._state.update_labels()

    # ------------------------------------------------------------------ namespaces

    def _quota(self, key: str, quota: NamespaceQuota | None) -> None:
        """Enter a quota of a namespace. Its groups that wait for admission are decided again."""
        state = self._state
        if state.namespace_quotas.get(key) == quota:
            return
        if quota is None:
            del state.namespace_quotas[key]
        else:
            state.namespace_quotas[key] = quota
        namespace = key.partition("/")[0] + "/"
        state.dirty.update(
            (group, state.groups[group]) for group in state.gate.waiting if group.startswith(namespace)
        )

    # ------------------------------------------------------------------ groups

    def _group(self, delta: d.GroupUpserted) -> object:
        """Enter a group, new or known.

        Returns ``_AS_DECIDED`` if only its admission is reported, which is known
        already. The report of a decision is no change for other pending groups.
        """
        group = delta.group
        state, ledger = self._state, self._ledger
        entry = state.group(group.key)
        known, before = entry.group, entry.queue
        if known is not None and known.admitted and not group.admitted:
            state.gate.forget(group.key)  # it has run and needs a new admission
        if known is not None and (known == group or self._only_phase_changed(entry, known, group)):
            return _AS_DECIDED
        if known is not None and known.uid != group.uid:
            self._replace_group(entry)
        if before is None or before.name != group.queue or is_firm(entry) is group.preemptible:
            if before is not None:
                ledger.leave_queue(entry)
            state.set_group(entry, group)
            ledger.counters.join(entry, state.queues.get(group.queue))
        else:
            state.set_group(entry, group)
        if entry.timed or group.run_estimate or entry.tasks:
            state.update_run_time(entry)
        ledger.dirty[group.key] = entry
        return None

    def _only_phase_changed(self, entry: GroupEntry, known: Group, group: Group) -> bool:
        """Return whether a report changes only the phase of a group, without effect; enter it then."""
        gate = self._state.gate
        phase = {"admitted": group.admitted, "has_run": group.has_run}
        if known == group or altered(known, **phase) != group:
            return False
        if known.has_run is not group.has_run and not (entry.active or entry.pending):
            return False  # it may be over now, and reserve nothing
        closed = gate.is_closed(entry)
        entry.group = group
        return gate.is_closed(entry) is closed

    def _replace_group(self, entry: GroupEntry) -> None:
        """Reset a group that was deleted and created again between two reports.

        Nominations and records of the earlier group do not belong to the new one.
        """
        for task in nominated(entry):
            self._ledger.withdraw_nomination(task)
        entry.failures, entry.newly_failed, entry.failure, entry.not_before = 0, False, "", 0.0
        entry.rejection = entry.stale_since = entry.stale_tried = entry.reported = None
        entry.preempted_in_part = False
        self._state.gate.forget(entry.key)
        self._on_replaced(entry.key)

    def _group_removed(self, delta: d.GroupRemoved) -> None:
        entry = self._state.groups.get(delta.key)
        if entry is None or entry.group is None:
            return
        for task in nominated(entry):
            self._ledger.withdraw_nomination(task)
        self._ledger.leave_queue(entry)
        entry.group = None
        self._state.early.pop(entry.key, None)
        entry.roles_enforced = {}
        self._state.update_run_time(entry)
        self._ledger.dirty[entry.key] = entry

    # ------------------------------------------------------------------ tasks

    def _task(self, delta: d.TaskUpserted) -> object:
        """Enter a task, new or known. Return ``_AS_DECIDED`` if it is reported where it was placed."""
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
            self._add_again(entry, task)
            return None
        entry.task = task
        if entry.group is not None:
            self._ledger.reported_again[entry.group.key] = entry.group
        if known.started != task.started and entry.group is not None and entry.group.timed:
            self._ledger.expected_ends.mark_changed(entry.group)
        as_decided = entry.state is ASSUMED and task.state in ACTIVE and not (task.devices or task.zones)
        if (known.preemptible, known.critical, known.budgets) != (
            task.preemptible,
            task.critical,
            task.budgets,
        ):
            self._ledger.confirmed += 1
            as_decided = False
        if known.run_limit != task.run_limit and entry.group is not None:
            self._state.update_run_time(entry.group)
            as_decided = False
        row = entry.row
        self._update(entry, task)
        return _AS_DECIDED if as_decided and entry.row == row else None

    def _add_batch(self, tasks: Collection[Task], first: Task) -> None:
        """Enter new pending tasks of the same needs and group (see :func:`_waits`)."""
        state, ledger = self._state, self._ledger
        cls, group = state.classes.get(first.needs), state.group(first.group)
        cls.tasks += len(tasks)
        entries = [TaskEntry(task, cls, group) for task in tasks]
        known, in_group = state.tasks, group.tasks
        for entry in entries:
            known[entry.key] = in_group[entry.key] = entry
        if group.timed:
            state.update_run_time(group)
        ledger.dirty[group.key] = group
        ledger.add_pending_batch(group, cls, entries)

    def _add(
        self,
        task: Task,
        carried: tuple[TaskState, str, tuple[int, ...], TaskShares | None] | None = None,
        zones: NumaHolding | None = None,
    ) -> None:
        """Enter a new task.

        ``carried``: its state, node, devices and device shares, if known ahead of the
            report.
        ``zones``: likewise its NUMA holding.
        """
        cluster = self._state
        cls = cluster.classes.get(task.needs)
        group = cluster.group(task.group) if task.group else None
        entry = TaskEntry(task, cls, group)
        cls.tasks += 1
        cluster.tasks[task.key] = entry
        if group is not None:
            group.tasks[task.key] = entry
            if task.run_limit is not None or group.timed:
                cluster.update_run_time(group)
            self._ledger.dirty[group.key] = group
        state, node, indices, shares = carried or (task.state, task.node, task.devices, None)
        if state in OCCUPYING and node:
            self._ledger.occupy(entry, cluster.table.row(node), state, indices, shares, zones)
        else:
            entry.state = PENDING if state is PENDING else _unplaced(state)
            self._ledger.add_pending(entry)

    def _remove(self, entry: TaskEntry) -> None:
        state, group = self._state, entry.group
        self._ledger.remove(entry)
        del state.tasks[entry.key]
        entry.cls.tasks -= 1
        if group is not None:
            del group.tasks[entry.key]
            self._ledger.dirty[group.key] = group

    def _add_again(self, entry: TaskEntry, task: Task) -> None:
        """Enter a task again after its requests have changed, in its present state."""
        ahead = (entry.state is ASSUMED and not task.node) or (
            entry.state is TERMINATING and task.state in OCCUPYING
        )
        if not ahead:
            self._remove(entry)
            self._add(task)
            return
        shares = entry.shares if task.needs.devices == entry.cls.needs.devices else None
        carried = (entry.state, self._state.table.names[entry.row], _indices(entry), shares)
        zones = entry.zones if task.needs.zones == entry.cls.needs.zones else None
        self._remove(entry)
        self._add(task, carried, zones)

    def _update(self, entry: TaskEntry, task: Task) -> None:
        """Update the state of a known task from a report."""
        ledger, before, after = self._ledger, entry.state, task.state
        if after in OCCUPYING and task.node:
            row = self._state.table.row(task.node)
            if entry.row < 0:
                ledger.remove_pending(entry)
                ledger.occupy(entry, row, after, task.devices)
            elif entry.row != row:
                ledger.vacate(entry, FAILED)
                ledger.remove_pending(entry)
                ledger.occupy(entry, self._state.table.row(task.node), after, task.devices)
            else:
                if task.devices:
                    ledger.holdings.update_devices(entry, task.devices)
                if task.zones is not None:
                    ledger.holdings.update_zones(entry)
                if before is after or (before is TERMINATING and after is not STUCK):
                    return
                ledger.change_state(entry, after)
                group = entry.group
                if after in (TERMINATING, STUCK):
                    # Capacity will be released, or awaited capacity will not.
                    self._wake_waiting(entry)
                elif group is None or not group.failures:
                    return
        else:
            after = _unplaced(after)
            if after is before or (after is PENDING and before is ASSUMED):
                return
            if entry.row >= 0:
                ledger.vacate(entry, after)
            else:
                ledger.remove_pending(entry)
                entry.state = after
                ledger.add_pending(entry)
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
        self._wake_waiting(entry)
        if entry.group is not None:
            self._state.dirty[entry.group.key] = entry.group

    def _eviction_failed(self, delta: d.EvictionFailed) -> None:
        entry = self._state.tasks.get(delta.key)
        if entry is None or entry.task.uid != delta.uid or entry.state is not TERMINATING:
            return
        if entry.task.state in OCCUPYING and entry.task.state is not TERMINATING:
            self._ledger.change_state(entry, entry.task.state)
            self._wake_waiting(entry)
            if entry.group is not None:
                self._state.dirty[entry.group.key] = entry.group

    def _wake_waiting(self, entry: TaskEntry) -> None:
        """Wake groups that wait for the node or the queue of a task, since its release has changed."""
        self._state.table.improved.add(entry.row)
        self._ledger.mark_ending(entry.cls)
        if entry.group is not None and entry.group.queue is not None:
            self._state.queues.mark_freed(entry.group.queue)


def _waits(task: Task) -> bool:
    """Return whether a new task only waits in its group."""
    return task.state is PENDING and not task.gated and bool(task.group) and task.run_limit is None


def _unplaced(state: TaskState) -> TaskState:
    """Return the state of a task without a node. One that ends without having run has failed."""
    if state in (TERMINATING, STUCK):
        return FAILED
    return PENDING if state in OCCUPYING else state


def _indices(entry: TaskEntry) -> tuple[int, ...]:
    return tuple(index for _, mask in entry.masks for index in bits(mask))
