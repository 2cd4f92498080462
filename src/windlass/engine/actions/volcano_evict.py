"""Actions ``preempt`` and ``reclaim`` of a tiered configuration (Volcano's).

``preempt``: for starving groups, from lower groups of the same queue, then from lower
pods of the same group.
``reclaim``: for starving groups of queues below their deserved amount, from other
queues. The plugins of the tiers decide which groups are starving and which pods may be
evicted.

Differences from Volcano:

* Nothing is evicted for a gang with a missing minimum that would still not fit. If the
  configuration selects Volcano's behaviour, this happens once for each group.
* Reserved capacity is left alone.
* Nodes that need no eviction are used first.
* Victims that turn out to be unnecessary stay.
* Capacity is nominated to the preemptor across cycles until it is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from windlass.engine.actions.context import ActionContext, CycleContext
from windlass.engine.actions.preempt import PreemptAction, PreemptionOutcome, park_nominated
from windlass.engine.actions.volcano_node_search import NodeSearch, NodeSearchRequest
from windlass.engine.groups.entries import GroupEntry, TaskEntry, nominated
from windlass.engine.groups.next_step import whole_step_view
from windlass.engine.groups.pending_class import PendingClass
from windlass.engine.placement.domain_selector import DomainDemand, held_rows
from windlass.engine.placement.topology_domains import DomainRows
from windlass.engine.plugin_set import PluginSet
from windlass.engine.queueing.permit import PAUSE_SECONDS
from windlass.engine.queueing.tier_views import EngineGangView, best_effort
from windlass.engine.queues.tree import QueueEntry
from windlass.spi.objects import TaskState
from windlass.spi.tiers import Purpose, Tiers

MAX_TRIALS = 16
"""Maximum number of victims for which the search tries whether the group fits without them."""

RETRY_SECONDS = 60.0
"""Interval in seconds between tries where the protection of victims may end with time."""


def tiers_of(plugins: PluginSet) -> Tiers | None:
    """Return the engine's tiered configuration, if it has one."""
    return next((plugin for plugin in plugins.plugins if isinstance(plugin, Tiers)), None)


class _TieredPreemption(PreemptAction):
    """Preemption by tiers.

    The pass over pending groups and the backoff are those of :class:`PreemptAction`.
    The tiers select preemptors and victims.
    """

    action_name = ""
    eviction_action = ""
    purpose = Purpose.PREEMPT

    def __init__(self, context: ActionContext) -> None:
        super().__init__(self.action_name, context)
        self._context = context
        self._tiers = tiers_of(context.plugins)
        self._trial_victims: list[TaskEntry] | None = None
        """Victims of a trial; ``None`` outside trials."""

    def run(self, cycle: CycleContext) -> None:
        if self._tiers is not None:
            self.serve(cycle)

    # ------------------------------------------------------------------ one preemptor

    def _applies_to(self, pending_class: PendingClass) -> bool:
        return self._tiers is not None and self._tiers.serves(pending_class.queue)

    def _preempt(self, cycle: CycleContext, group: GroupEntry) -> PreemptionOutcome:
        """Evict for one group, if that helps it."""
        tiers, gang = self._tiers, EngineGangView(group)
        if tiers is None or group.step is None or group.queue is None or not tiers.serves(group.queue):
            return PreemptionOutcome()
        if group.spec.never_preempts and tiers.gang_must_fit:
            return PreemptionOutcome(try_next=True)
        if not tiers.starving(gang) or self._skips_queue(tiers, group.queue):
            return PreemptionOutcome()
        done = False
        for candidates, whole in self._candidate_sets(tiers, group):
            if candidates and tiers.starving(gang):
                done |= self._evict_from(cycle, tiers, gang, candidates, whole)
        if done and self._trial_victims is None:
            park_nominated(self._context, cycle, group)
        retry = None if done else _retry_time(tiers, group, cycle.now)
        return PreemptionOutcome(done=done, until=retry)

    def _victims(self, cycle: CycleContext, group: GroupEntry) -> list[TaskEntry]:
        self._trial_victims = []
        try:
            self._preempt(cycle, group)
            return self._trial_victims
        finally:
            self._trial_victims = None

    def _evict_from(
        self,
        cycle: CycleContext,
        tiers: Tiers,
        gang: EngineGangView,
        candidates: list[TaskEntry],
        whole: bool,
    ) -> bool:
        """Search capacity for a group's missing pods among candidates.

        ``whole``: all of its minimum or nothing.
        """
        for scope in self._domains(gang.entry, candidates):
            local = candidates
            if scope is not None:
                local = [entry for entry in candidates if scope.mask[entry.row]]
            with self._context.placer.within(scope):
                if local and self._evict_in_domain(cycle, tiers, gang, local, whole):
                    return True
        return False

    def _domains(self, group: GroupEntry, candidates: Sequence[TaskEntry]) -> Iterable[DomainRows | None]:
        """Return where the group's pods may be placed.

        If they have to be in one domain, these are the domains, those with most
        capacity first, without evictions.
        """
        domain_selector = self._context.gang_allocator.domain_selector
        need = group.spec.topology if group.has_topology else None
        if not group.has_topology and group.step is not None and not held_rows(group):
            gathering = self._context.gang_allocator.gathering
            scopes = gathering.scopes_if_evicted(self._context.state.table, group.step, candidates)
            if scopes is not None:
                return scopes
        if need is None or need.required < 0:
            return (None,)
        scope = domain_selector.allowed(group)
        if scope is None or held_rows(group):
            return (scope,)
        tree = domain_selector.trees.of(need)
        demand = DomainDemand(1)
        for entry in group.pending.values():
            demand.classes[entry.cls] = demand.classes.get(entry.cls, 0) + 1
        capacity = domain_selector.capacity(tree, need.required, demand, future=True)
        order = np.argsort(-capacity[1:], kind="stable") + 1
        return (tree.scope(need.required, code) for code in order.tolist())

    def _evict_in_domain(
        self,
        cycle: CycleContext,
        tiers: Tiers,
        gang: EngineGangView,
        candidates: list[TaskEntry],
        whole: bool,
    ) -> bool:
        """Run :meth:`_evict_from` on the rows to which placement is restricted."""
        group = gang.entry
        with self._context.reservations.reserved_from(group, cycle.now):
            fits = self._free_capacity(tiers, gang, candidates, whole, cycle.now)
        if fits is None:
            return False
        if self._trial_victims is not None:
            self._trial_victims += self._context.statement.proposed()[1]
            return True
        done = cycle.commit(group)
        group.preempted_in_part |= done and not fits
        return done

    def _free_capacity(
        self, tiers: Tiers, gang: EngineGangView, candidates: list[TaskEntry], whole: bool, now: float
    ) -> bool | None:
        """Free capacity in the open statement.

        Return whether the group could start then; ``None``: nothing was done.
        """
        group, statement = gang.entry, self._context.statement
        request = NodeSearchRequest(
            group,
            self.purpose,
            self.eviction_action,
            self.purpose is Purpose.PREEMPT,
            self._rank_for(tiers, group),
            now,
            self._compared_nodes(tiers),
        )
        search = NodeSearch(self._context, tiers, request, candidates)
        must_fit = whole and (tiers.gang_must_fit or group.preempted_in_part)
        if must_fit and self._cannot_fit(search, group):
            return None
        mark = statement.checkpoint()
        failed: set[tuple[int, bool]] = set()
        for entry in list(group.waiting()):
            kind = (entry.cls.number, entry.task.never_preempts)
            if entry.nominated_row >= 0 or kind in failed:
                continue
            if not self._needs_more(tiers, gang):
                break
            if self._rejects(tiers, gang, entry) or not search.place(entry):
                failed.add(kind)
        fits = not whole or not search.evictions or self._fits(group, keep=must_fit)
        if not search.evictions or (must_fit and not fits):
            statement.rollback(mark)
            return None
        search.protect_unnecessary()
        self._protect_by_moving(group, search)
        return fits

    def _protect_by_moving(self, group: GroupEntry, search: NodeSearch) -> None:
        """Keep victims without which the group still fits on other freed nodes.

        This is tried by placing the group again a few times.
        """
        step, statement = group.step, self._context.statement
        if step is None or step.extra or search.bound or len(search.victims) < 2:
            return
        for victim in search.victims[: -MAX_TRIALS - 1 : -1]:
            if victim.state is not TaskState.RELEASING:
                continue
            mark = statement.checkpoint()
            statement.withdraw_eviction(victim)
            if not self._context.gang_allocator.try_group(statement, group, step, future=True).done:
                statement.rollback(mark)

    def _needs_more(self, tiers: Tiers, gang: EngineGangView) -> bool:
        """Return whether more pods of the group need capacity.

        Subgroups may need more than the minimum.
        """
        group = gang.entry
        if group.subgroups is None or group.step is None or group.step.extra:
            return tiers.starving(gang)
        return group.nominations < whole_step_view(group, group.step).tasks

    def _compared_nodes(self, tiers: Tiers) -> int:
        """Return the number of nodes among which the cheapest is chosen."""
        return 0

    def _fits(self, group: GroupEntry, *, keep: bool) -> bool:
        """Return whether the group could start now. ``keep``: its pods may be placed again for that."""
        mark = self._context.statement.checkpoint()
        fits = self._place_whole(group)
        if not keep:
            self._context.statement.rollback(mark)
        return fits

    def _place_whole(self, group: GroupEntry) -> bool:
        """Return whether the group could start. A group with subgroups is placed again as a whole."""
        if group.subgroups is None or group.step is None:
            return has_minimum(group)
        context = self._context
        for entry in nominated(group):
            context.statement.withdraw_nomination(entry)
        return context.gang_allocator.try_group(context.statement, group, group.step, future=True).done

    def _cannot_fit(self, search: NodeSearch, group: GroupEntry) -> bool:
        step = group.step
        if step is None or step.extra or not step.single_class:
            return False
        return search.could_hold(step.batches[0].cls) < step.members - group.nominations

    def _rejects(self, tiers: Tiers, gang: EngineGangView, entry: TaskEntry) -> bool:
        return entry.task.never_preempts

    def _rank_for(self, tiers: Tiers, preemptor: GroupEntry) -> Any:
        def rank(entries: Iterable[TaskEntry]) -> list[TaskEntry]:
            return self._victim_order(tiers, preemptor, entries)

        return rank

    def _victim_order(
        self, tiers: Tiers, preemptor: GroupEntry, entries: Iterable[TaskEntry]
    ) -> list[TaskEntry]:
        """Return the victims by queue, by reverse group order without age, by reverse pod order."""
        context = self._context
        victims = sorted(entries, key=lambda entry: context.state.task_order(entry.task), reverse=True)
        group_keys: dict[str, tuple[Any, ...]] = {}
        for entry in victims:
            group = _group(entry)
            if group.key not in group_keys:
                group_keys[group.key] = tuple(
                    [order.group_key(group) for order in context.plugins.group_orders]
                )
        victims.sort(key=lambda entry: group_keys[_group(entry).key], reverse=True)
        return victims

    def _skips_queue(self, tiers: Tiers, queue: QueueEntry) -> bool:
        """Return whether nothing is evicted for groups of this queue."""
        return False

    def _candidate_sets(self, tiers: Tiers, group: GroupEntry) -> Iterator[tuple[list[TaskEntry], bool]]:
        raise NotImplementedError


class VolcanoPreempt(_TieredPreemption):
    action_name = "volcano-preempt"
    eviction_action = "preempt"
    purpose = Purpose.PREEMPT

    def _candidate_sets(self, tiers: Tiers, group: GroupEntry) -> Iterator[tuple[list[TaskEntry], bool]]:
        """Yield other groups of the queue, for the whole minimum.

        Then the group's own pods, one by one.
        """
        if group.queue is None:
            return
        only_light = all(best_effort(entry) for entry in group.pending.values())
        others: list[TaskEntry] = []
        for other in self._context.running.of(group.queue).values():
            if other is not group:
                others += _evictable(other, (TaskState.BOUND, TaskState.RUNNING), only_light, group)
        yield others, True
        yield _evictable(group, (TaskState.BOUND, TaskState.RUNNING), only_light), False

    def _compared_nodes(self, tiers: Tiers) -> int:
        """Return the number of nodes with ``enableTopologyAwarePreemption``.

        It is ``minCandidateNodesPercentage`` of all nodes, at least
        ``minCandidateNodesAbsolute``, at most ``maxCandidateNodesAbsolute``.
        """
        arguments = tiers.arguments.get(self.eviction_action, {})
        if str(arguments.get("enableTopologyAwarePreemption", False)).lower() != "true":
            return 0
        nodes = int(self._context.state.table.live.sum())
        percentage_nodes = nodes * _whole_number(arguments.get("minCandidateNodesPercentage"), 10) // 100
        minimum = max(percentage_nodes, _whole_number(arguments.get("minCandidateNodesAbsolute"), 1))
        return max(1, min(minimum, _whole_number(arguments.get("maxCandidateNodesAbsolute"), 100)))


class VolcanoReclaim(_TieredPreemption):
    action_name = "volcano-reclaim"
    eviction_action = "reclaim"
    purpose = Purpose.RECLAIM

    def _skips_queue(self, tiers: Tiers, queue: QueueEntry) -> bool:
        return tiers.overused(queue)

    def _rejects(self, tiers: Tiers, gang: EngineGangView, entry: TaskEntry) -> bool:
        return entry.task.never_preempts or tiers.may_reclaim(gang.path, entry.cls.request) is not None

    def _candidate_sets(self, tiers: Tiers, group: GroupEntry) -> Iterator[tuple[list[TaskEntry], bool]]:
        """Yield what runs in other reclaimable queues."""
        running = self._context.running
        victims: list[TaskEntry] = []
        for name in running.queues():
            queue = self._context.state.queues.get(name)
            if queue is group.queue or not queue.spec.reclaimable or not tiers.serves(queue):
                continue
            for other in running.of(queue).values():
                victims += _evictable(other, (TaskState.RUNNING,), only_light=False)  # no guests
        yield victims, True

    def _victim_order(
        self, tiers: Tiers, preemptor: GroupEntry, entries: Iterable[TaskEntry]
    ) -> list[TaskEntry]:
        victims = super()._victim_order(tiers, preemptor, entries)
        path = preemptor.queue.path if preemptor.queue is not None else ()
        queues = {}
        for entry in victims:
            queue = _group(entry).queue
            if queue is not None:
                queues[queue.name] = queue
        orders = self._context.plugins.queue_orders
        keys = {
            name: tuple([order.queue_key(queue, None) for order in orders]) for name, queue in queues.items()
        }
        victims.sort(key=lambda entry: keys[_queue(entry).name], reverse=True)
        victims.sort(key=lambda entry: tiers.victim_queue_key(path, _queue(entry).path))
        return victims


def _retry_time(tiers: Tiers, group: GroupEntry, now: float) -> float | None:
    """Return the time at which a failed group is tried again without any change."""
    if group.rejection is not None:
        return now + PAUSE_SECONDS
    return now + RETRY_SECONDS if tiers.timed else None


def _whole_number(value: object, default: int) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() else default


def has_minimum(group: GroupEntry) -> bool:
    """Return whether a group holds its minimum, nominations included, and each role its own."""
    if group.held_members + group.nominations < group.minimum:
        return False
    if not group.roles_enforced:
        return True
    roles = dict(group.active_roles)
    for entry in group.pending.values():
        if entry.nominated_row >= 0:
            roles[entry.task.role] = roles.get(entry.task.role, 0) + 1
    return all(roles.get(role, 0) >= n for role, n in group.roles_enforced.items())


def _evictable(
    group: GroupEntry, states: tuple[TaskState, ...], only_light: bool, preemptor: GroupEntry | None = None
) -> list[TaskEntry]:
    """Return the evictable tasks of a group.

    A group with an unconfirmed bind gives nothing, because it would be broken while it
    starts.
    ``preemptor``: group that preempts by priority; ``None``: a queue reclaims its
    deserved amount.
    """
    spec = group.group
    if spec is None or not spec.preemptible:
        return []
    preemptor_spec = preemptor.group if preemptor is not None else None
    if spec.guest and not (preemptor_spec is not None and spec.yields_to("preempt", preemptor_spec.priority)):
        return []
    if any(entry.state is TaskState.ASSUMED for entry in group.tasks.values()):
        return []
    return [
        entry
        for entry in group.tasks.values()
        if entry.state in states and entry.task.preemptible and (not only_light or best_effort(entry))
    ]


def _group(entry: TaskEntry) -> GroupEntry:
    if entry.group is None:
        raise RuntimeError(f"{entry.key} belongs to no group")
    return entry.group


def _queue(entry: TaskEntry) -> QueueEntry:
    queue = _group(entry).queue
    if queue is None:
        raise RuntimeError(f"{entry.key} is in no queue")
    return queue
