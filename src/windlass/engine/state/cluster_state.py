"""State of the engine, without any decision logic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from windlass.engine.config import EngineConfig
from windlass.engine.feasibility.task_class import ClassIndex
from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.groups.run_times import run_time
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.plugin_set import PluginSet
from windlass.engine.queues.decayed_usage import DecayedUsage
from windlass.engine.queues.fair_shares import FairShares
from windlass.engine.queues.tree import QueueTree
from windlass.engine.state.admission_gate import AdmissionGate
from windlass.engine.state.placement_ledger import PlacementLedger
from windlass.engine.timesharing.attained_service import BEFORE_ALL, TimeSharingState
from windlass.engine.victims.disruption_budgets import EvictionBudgets
from windlass.spi.inputs import TakesBudgets, TakesPendingTasks
from windlass.spi.objects import Dialect, Group, NamespaceQuota, Queue, Task


class ClusterState:
    """Node table, queues, groups, tasks, and the ledger of placements."""

    def __init__(self, config: EngineConfig, plugins: PluginSet) -> None:
        self.config = config
        self.plugins = plugins
        self.table = NodeTable()
        self.queues = QueueTree(self.table.total, TableView(self.table))
        self.fair_shares = FairShares(self.table, self.queues, plugins)
        self.usage = DecayedUsage(self.queues, self.table.total, config.usage_half_life_seconds)
        self.classes = ClassIndex(self.table, plugins, config.class_caches)
        self.ledger = PlacementLedger(self.table, self.queues, self.classes, plugins)
        self.gate = AdmissionGate()
        self.time_sharing = TimeSharingState()
        """Groups that share time. The action ``timeshare`` sets its policy."""
        self.namespace_quotas: dict[str, NamespaceQuota] = {}
        self.stamp = 0
        """Number of updates and cycles so far."""
        self.groups: dict[str, GroupEntry] = {}
        self._task_keys = [order.task_key for order in plugins.task_orders]
        self._group_keys = [order.group_key for order in plugins.group_orders]
        self._task_order = self.task_order  # one for all groups
        self.tasks: dict[str, TaskEntry] = {}
        self.budgets = EvictionBudgets(self.tasks)
        self.timed: dict[str, GroupEntry] = {}
        """Groups with a known run time."""
        self.groups_with_grace: dict[str, GroupEntry] = {}
        """Groups that had a grace period below their minimum (``stalegangeviction``)."""
        self.early: dict[str, GroupEntry] = {}
        """Groups with a stated earliest start."""
        for plugin in plugins.domains:
            plugin.attach(TableView(self.table))
        for hearer in plugins.plugins:
            if isinstance(hearer, TakesBudgets):
                hearer.take_budgets(self.budgets)
            if isinstance(hearer, TakesPendingTasks):
                hearer.take_pending_tasks(self)

    @property
    def dirty(self) -> dict[str, GroupEntry]:
        """See :attr:`PlacementLedger.dirty`."""
        return self.ledger.dirty

    def group(self, key: str) -> GroupEntry:
        """Return the group, created if unknown."""
        entry = self.groups.get(key)
        if entry is None:
            entry = self.groups[key] = GroupEntry(key, self._task_order)
        return entry

    def set_group(self, entry: GroupEntry, group: Group) -> None:
        """Set the specification of a group, and register it with optional features that it uses."""
        if group.stale_grace is not None:
            self.groups_with_grace[group.key] = entry
        if group.earliest_start is not None:
            self.early[group.key] = entry
        else:
            self.early.pop(group.key, None)
        if not self.time_sharing.opt_in_keys.isdisjoint(group.annotations):
            self.time_sharing.users.add("group")
        separate = self.config.best_effort_apart and group.dialect is Dialect.VOLCANO
        entry.set_group(group, best_effort_separate=separate)

    def set_queue(self, queue: Queue) -> None:
        """Enter a queue, and register it with optional features that it uses."""
        if not self.time_sharing.opt_in_keys.isdisjoint(queue.annotations):
            self.time_sharing.users.add("queue")
        self.queues.upsert(queue)

    def forget_group(self, entry: GroupEntry) -> None:
        """Remove a group that was deleted and has no tasks left."""
        del self.groups[entry.key]
        self.groups_with_grace.pop(entry.key, None)
        self.early.pop(entry.key, None)
        self.gate.forget(entry.key)
        self.ledger.expected_ends.forget(entry)

    def update_run_time(self, entry: GroupEntry) -> None:
        """Update :attr:`timed` after a change of the group or its set of tasks."""
        timed = entry.group is not None and run_time(entry) is not None
        if not timed and not entry.timed:
            return
        entry.timed = timed
        if timed:
            self.timed[entry.key] = entry
        else:
            self.timed.pop(entry.key, None)
        self.ledger.expected_ends.mark_changed(entry)

    def waiting(self, group: str) -> Mapping[int, int]:
        """See :class:`windlass.spi.inputs.PendingTasks`."""
        entry = self.groups.get(group)
        tasks = entry.pending.values() if entry is not None else ()
        return Counter(task.cls.number for task in tasks if task.nominated_row < 0)

    def task_order(self, task: Task) -> tuple[Any, ...]:
        """Return the sort key of a task in its group. The task's key comes last, so keys are unique."""
        keys = self._task_keys
        if len(keys) == 1:
            return (keys[0](task), task.key)
        return (*[key(task) for key in keys], task.key)

    def group_order(self, entry: GroupEntry) -> tuple[Any, ...]:
        """Return the sort key of a group in its queue.

        It consists of the keys of policies, its rank among time-sharing groups, age,
        uid and key.
        """
        group, keys = entry.spec, self._group_keys
        if len(keys) == 2:
            first, second = keys
            return (
                first(entry),
                second(entry),
                self.time_sharing.rank_of(entry) if self.time_sharing.users else BEFORE_ALL,
                group.created,
                group.uid,
                group.key,
            )
        own = [key(entry) for key in keys]
        rank = self.time_sharing.rank_of(entry) if self.time_sharing.users else BEFORE_ALL
        return (*own, rank, group.created, group.uid, group.key)

    def update_labels(self) -> None:
        """Announce changed labels of nodes with tasks to domain plugins, which count again."""
        relabelled, self.table.relabelled = self.table.relabelled, set()
        if any(self.table.tasks[row] for row in relabelled):
            for plugin in self.plugins.domains:
                plugin.relabelled(self.classes.counted_by(plugin))
