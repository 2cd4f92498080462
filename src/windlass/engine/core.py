"""Core of the scheduler: deltas in, decisions out.

``apply`` enters reported changes. ``cycle`` evaluates their effects, decides, and
returns only what is new. ``explain`` explains one group at any time. The engine assumes
that its binds succeed: a task counts as placed until ``BindFailed`` is reported.

The same deltas and times give the same decisions. The engine reads no clock, no random
numbers and no hash order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from windlass.api.reasons import Explanation
from windlass.engine.actions.context import ActionContext, ActionPass, CycleContext
from windlass.engine.actions.preempt import MAX_MEMBERS, PreemptAction
from windlass.engine.actions.registry import make_actions
from windlass.engine.actions.timeshare import TimeShare
from windlass.engine.apply_deltas import DeltaApplier
from windlass.engine.backfill.reservations import Reservations
from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision, GroupStatus, QueueUsage
from windlass.engine.deltas import Delta
from windlass.engine.devices.share_table import TaskShares
from windlass.engine.diagnosis import messages
from windlass.engine.diagnosis.group_diagnosis import Diagnosis
from windlass.engine.diagnosis.recheck import ExplanationRecheck
from windlass.engine.diagnosis.rejections import rejections
from windlass.engine.diagnosis.reporter import DiagnosisReporter
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.next_step import NextTasks, next_step, whole_step_view
from windlass.engine.nodes.view import TableView
from windlass.engine.pending.scheduling_queue import SchedulingQueue
from windlass.engine.placement.gang_allocator import GangAllocator, wake_conditions
from windlass.engine.placement.placer import Placer
from windlass.engine.placement.score_table import ScoreTable, score_table
from windlass.engine.plugin_set import PluginSet
from windlass.engine.preemption.denied_reasons import denials
from windlass.engine.queueing.enqueue import Enqueuer
from windlass.engine.queueing.permit import PermitCheck
from windlass.engine.queueing.queue_order import QueueHeap
from windlass.engine.queues.running_groups import RunningGroups
from windlass.engine.quiet_cycle import QuietCycle
from windlass.engine.state.capacity_totals import CapacityTotals
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Outbox, Statement
from windlass.spi.nodes import NodeView
from windlass.spi.numa import NumaHolding
from windlass.spi.objects import Task, TaskState
from windlass.spi.plugins import QueueView, StepView

_NEED_NO_RUNNING_GROUPS = ("allocate", "timeshare")
"""Actions that use no index of running groups. The second one has an index of its own."""
_NOWHERE = frozenset[int]()


class Core:
    """Engine without serialisation.

    ``plugins``: policies by precedence, with fresh instances for each engine
        (``windlass.plugins.defaults.default_plugins()``).
    """

    def __init__(self, config: EngineConfig | None = None, plugins: Sequence[object] = ()) -> None:
        self.config = config or EngineConfig()
        policies = PluginSet(plugins)
        self.state = ClusterState(self.config, policies)
        self._totals = CapacityTotals(self.state)
        self._placer = Placer(self.state.table, policies)
        self._statement = Statement(self.state.ledger, self.state.budgets)
        self._gang_allocator = GangAllocator(self.state.table, policies, self._placer)
        self.scheduling_queue = SchedulingQueue(self.state.table, self.state.queues, policies.domains)
        self.scheduling_queue.fits_in_domain = self._gang_allocator.domain_selector.may_hold
        self._queue_heap = QueueHeap(self.state.queues, policies)
        self.enqueuer = Enqueuer(self.state, self.scheduling_queue, self._queue_heap)
        self.reservations = Reservations(self.state, self._gang_allocator)
        self._delta_applier = DeltaApplier(self.state, self.reservations.aging.forget)
        self._context = ActionContext(
            state=self.state,
            plugins=policies,
            statement=self._statement,
            placer=self._placer,
            gang_allocator=self._gang_allocator,
            scheduling_queue=self.scheduling_queue,
            queue_heap=self._queue_heap,
            enqueuer=self.enqueuer,
            running=RunningGroups(self.state.groups),
            reservations=self.reservations,
            permit=PermitCheck(policies, self._statement, self.state.table),
        )
        self._actions = make_actions(self.config.actions, self._context)
        self._preempting = tuple(action.name for action in self._actions if type(action) is PreemptAction)
        """Names of the actions that preempt by the policies of plugins."""
        self._uses_running = any(action.name not in _NEED_NO_RUNNING_GROUPS for action in self._actions)
        """True if an action uses the index of running groups."""
        self._allocates = any(action.name == "allocate" for action in self._actions)
        self.plain_preempt_actions: dict[str, PreemptAction] = {
            action.name: action for action in self._actions if type(action) is PreemptAction
        }
        """The same actions by name."""
        self.preempt_actions = {
            action.name: action for action in self._actions if isinstance(action, PreemptAction)
        }
        """Actions that preempt by plugins, those of a tiered configuration included."""
        self.time_share = next((action for action in self._actions if type(action) is TimeShare), None)
        self._quiet_cycle = QuietCycle(self._context, self._actions)
        self.diagnosis = Diagnosis(
            self.state, self.scheduling_queue, self._placer, self._gang_allocator, self._statement
        )
        self.diagnosis.early_starts = self.reservations.early
        self.diagnosis.ordinary = lambda: self.reservations.by_group
        self.rechecks = ExplanationRecheck(self.state, self.scheduling_queue, self.diagnosis)
        self.reporter = DiagnosisReporter(self.state, self.diagnosis)
        self.cycles = 0
        self.stopwatch: Callable[[], float] | None = None
        """Returns seconds. If set, :attr:`passes` is recorded. No decision depends on it."""
        self.passes: tuple[ActionPass, ...] = ()
        """Actions of the last cycle."""
        self._budgets_seen = 0
        self._uses_shares = self.config.reports or self.state.gate.applies_to is not None
        """True if the shares of queues without pending groups are used."""

    # ------------------------------------------------------------------ public surface

    @property
    def budgets_unseen(self) -> bool:
        """True if budgets have changed since the last cycle."""
        return self.state.budgets.version != self._budgets_seen

    @property
    def reads(self) -> frozenset[str]:
        """Labels of pods that a policy reads; they have to be in ``Needs.labels``."""
        return self.state.plugins.reads

    @property
    def reads_images(self) -> bool:
        """True if a policy reads images; they have to be in ``Needs.images`` and ``Node.images``."""
        return self.state.plugins.reads_images

    def apply(self, deltas: Iterable[Delta]) -> None:
        """Enter reported changes, in order."""
        self.state.stamp += 1
        if self._delta_applier.apply(deltas):
            self._quiet_cycle.has_other_deltas = True

    def cycle(self, now: float) -> Decision:
        """Decide what can be decided. ``now``: Unix seconds, never less than in the cycle before."""
        self.cycles += 1
        self.state.stamp += 1
        if not self._quiet_cycle.has_other_deltas and self.is_quiet(now):
            return self._run_quiet_cycle(now)
        state = self.state
        for plugin in state.plugins.cycle_observers:
            plugin.opened(now)
        varied = self.update_plugins(now)
        if state.budgets.spent:
            state.budgets.prune(now)
        budgets_changed = state.budgets.version != self._budgets_seen
        self._budgets_seen = state.budgets.version
        improved = frozenset(state.table.improved)
        cycle = CycleContext(
            self._context, now, Outbox([], [], []), self.update_groups(now), improved, varied
        )
        if self._uses_running and self.scheduling_queue.pending_classes:
            cycle.state_changed = bool(improved or state.queues.was_changed or budgets_changed) or any(
                map(_may_preempt, cycle.touched.values())
            )
        if state.ledger.reported_again:
            self._record_reported_again()
        if self.stopwatch is None:
            for action in self._actions:
                if action.subjects:
                    action.run(cycle)
        else:
            self.passes = tuple(self._timed(cycle, self.stopwatch))
        if not self._allocates:
            self._park_untried(cycle)
        return self._finish(cycle)

    def is_quiet(self, now: float) -> bool:
        """Return whether a cycle now may skip all but preemption (see
        :mod:`~windlass.engine.quiet_cycle`).
        """
        return self._quiet_cycle.is_sufficient(now)

    def _run_quiet_cycle(self, now: float) -> Decision:
        """Run a cycle in which only ranks of time-sharing groups and confirmed binds
        may have changed.
        """
        state, quiet_cycle = self.state, self._quiet_cycle
        self.update_plugins(now)
        state.time_sharing.catch_up(now)
        moved, state.ledger.moved_classes = state.ledger.moved_classes, set()
        self.scheduling_queue.wake(moved)  # wakes no group, since nothing else has changed
        self._record_reported_again()
        if self._has_no_preemptor(now):
            return Decision(self.cycles, wake_at=self._next_due())
        state.fair_shares.refresh()
        cycle = CycleContext(self._context, now, Outbox([], [], []), {}, _NOWHERE)
        for action in quiet_cycle.actions:
            action.run(cycle)
        out = cycle.out
        if out.binds or out.evictions or out.nominations or cycle.unfinished or not self.is_quiet(now):
            return self._finish(cycle)
        state.queues.was_changed, state.queues.changed = False, {}  # by undone attempts
        cycle.wake(self._next_due())
        return Decision(self.cycles, wake_at=cycle.wake_at)

    def _has_no_preemptor(self, now: float) -> bool:
        """Return whether no group can preempt in a quiet cycle."""
        share = self.time_share
        if share is None:
            return not self.scheduling_queue.pending_classes
        return self._quiet_cycle.actions == (share,) and share.has_served(now)

    def _next_due(self) -> float | None:
        """Return the time of the next cycle that may decide anything without further changes."""
        requested = self._quiet_cycle.next_requested
        ranks = None if self.time_share is None else self.time_share.next_due()
        return requested if ranks is None else ranks if requested is None else min(requested, ranks)

    def _record_reported_again(self) -> None:
        """Record groups with tasks that were reported again, if an action uses running groups."""
        ledger = self.state.ledger
        restated, ledger.reported_again = ledger.reported_again, {}
        if self._uses_running and restated:
            running = self._context.running
            running.recorded.update(restated)
            running.limit_recorded()

    def _finish(self, cycle: CycleContext) -> Decision:
        """Finish a cycle after its actions have run. Return its decision."""
        touched, now, state, wake = cycle.touched, cycle.now, self.state, cycle.wake
        if self._uses_running:
            self._context.running.recorded.update(touched)
        if ended := self.reservations.early.ended:
            self.rechecks.schedule_behind(ended)
            ended.clear()
        if self.config.reports and (cycle.parked or self.rechecks.scheduled):
            touched.update(self.rechecks.explain_parked(cycle.parked, now))
            touched.update(self.rechecks.check(now))
            if self.rechecks.revived:
                self.rechecks.revived = False
                wake(now if self.reservations.search_again() else None)
        state.classes.trim(self.scheduling_queue.by_class)
        if self.enqueuer.pauses or self.enqueuer.early_starts:
            wake(self.enqueuer.next_due())
        if state.ledger.holds.by_group:
            wake(state.ledger.holds.next_due())
        for plugin in state.plugins.varying:
            wake(plugin.due(now))
        if state.budgets.spent:
            state.budgets.prune(now)
            wake(state.budgets.next_due())
        if self.scheduling_queue.pending_classes:
            wake(state.usage.due)
        if cycle.unfinished or self.rechecks.scheduled or state.ledger.dirty or state.table.improved:
            wake(now)
        self._quiet_cycle.has_other_deltas, self._quiet_cycle.next_requested = False, cycle.wake_at
        if self.time_share is not None and self.time_share.subjects:
            wake(self.time_share.next_due())
        if state.usage.half_life:
            state.usage.record(state.queues.changed, now)
        state.queues.was_changed = False
        groups, queues = self._reports(touched, now)
        for plugin in self.state.plugins.cycle_observers:
            plugin.closed()
        return Decision(
            cycle=self.cycles,
            binds=tuple(cycle.out.binds),
            evictions=tuple(cycle.out.evictions),
            nominations=tuple(cycle.out.nominations),
            groups=groups,
            queues=queues,
            wake_at=cycle.wake_at,
        )

    def _timed(self, cycle: CycleContext, clock: Callable[[], float]) -> Iterator[ActionPass]:
        """Run the actions and yield the duration and the binds of each."""
        begun, binds = clock(), 0
        for action in self._actions:
            if action.subjects:
                action.run(cycle)
            ended = clock()
            yield ActionPass(action.name, ended - begun, range(binds, len(cycle.out.binds)))
            begun, binds = ended, len(cycle.out.binds)

    def _reports(
        self, touched: dict[str, GroupEntry], now: float
    ) -> tuple[tuple[GroupStatus, ...], tuple[QueueUsage, ...]]:
        """Return changed status of groups and queues, if reports are enabled."""
        if self.config.reports:
            return self.reporter.groups(touched.values(), now), self.reporter.queues()
        self.state.queues.changed = {}
        return (), ()

    def update_plugins(self, now: float) -> bool:
        """Update plugins that vary with time or learn. Return whether to retry placement.

        If only scores have changed, nodes are scored again and nothing is retried.
        """
        plugins = self.state.plugins
        if not plugins.varying and not plugins.learning:
            return False
        changed = [plugin.changed(now) for plugin in plugins.varying]
        learned = [plugin.learn_from(now, self._totals) for plugin in plugins.learning]
        table = self.state.table
        if any(learned):
            plugins.update_scores()
            self.state.classes.update_countable()
            table.epoch += 1
        if any(changed):
            table.epoch += 1
            table.improved.update(row for row in range(table.height) if table.live[row])
        return any(changed)

    def explain(self, group_key: str, now: float) -> Explanation | None:
        """Return why the group waits, or ``None`` if none of its tasks is pending.

        Raises ``KeyError`` for an unknown group.
        """
        group, queues = self.state.groups[group_key], self.state.queues
        changed = dict(queues.changed)
        diagnosis = self.diagnosis.explain(group, now, in_full=True)
        queues.changed = changed  # by trials of remedies
        if diagnosis is None:
            return None
        why_not = denials(self.state.plugins, self._preempting, group, now)
        extra = {f"no {action}": reason for action, reason in why_not.items()}
        if unsure := self.reservations.groups_with_unknown_end(group):
            of = unsure[0]
            extra["no reservation"] = messages.unknown_ends(of.key, len(unsure) - 1, of.spec.learned)
        return replace(diagnosis, extra={**diagnosis.extra, **extra}) if extra else diagnosis

    def scores(self, group_key: str) -> tuple[ScoreTable, ...]:
        """Return the scores of nodes for each class of pending pods of a group.

        Raises ``KeyError`` for an unknown group.
        """
        state = self.state
        kinds = Counter(e.cls.number for e in state.groups[group_key].tasks.values() if e.row < 0)
        classes = {e.cls.number: e.cls for e in state.groups[group_key].tasks.values()}
        return tuple(
            score_table(state.table, state.plugins, self._placer, classes[number], pods)
            for number, pods in kinds.items()
        )

    def rejections(self, group_key: str) -> Mapping[str, str]:
        """Return node → why it takes no pending pod of a group now.

        Nodes that take one of each class are left out. Raises ``KeyError`` for an unknown
        group.
        """
        classes = {entry.cls.number: entry.cls for entry in self.state.groups[group_key].pending.values()}
        found: dict[str, str] = {}
        for cls in classes.values():
            found = {**rejections(self.state, cls), **found}
        return found

    def admission_input(self, group_key: str) -> tuple[StepView, Sequence[QueueView], NodeView] | None:
        """Return the input of admission policies for the group's next step.

        It is ``None`` if nothing of the group waits to be placed. Raises ``KeyError`` for an
        unknown group.
        """
        group = self.state.groups[group_key]
        step = next_step(group)
        if not isinstance(step, NextTasks) or group.queue is None:
            return None
        return whole_step_view(group, step), group.queue.path, TableView(self.state.table)

    # ------------------------------------------------------------------ for ``dump``

    def restore_task(
        self,
        task: Task,
        state: TaskState,
        node: str,
        devices: tuple[int, ...],
        shares: TaskShares = (),
        zones: NumaHolding | None = None,
    ) -> None:
        """Enter a task as it was: reported as ``task``, here in ``state``."""
        self._delta_applier.restore(task, state, node, devices, shares, zones)

    def requeue_active(self) -> None:
        """Rebuild the queue heap from the pending classes that are not parked."""
        self._queue_heap.rebuild(
            pending_class
            for pending_class in self.scheduling_queue.pending_classes.values()
            if not pending_class.parked
        )

    # ------------------------------------------------------------------ the cycle's parts

    def update_groups(self, now: float) -> dict[str, GroupEntry]:
        """Update the queue position of every group with reported changes. Idempotent.

        Returns the groups with a possible change of status.
        """
        state = self.state
        ledger, queues = state.ledger, state.queues
        if state.table.total_changed:
            state.table.total_changed = False
            queues.mark_all()
            state.fair_shares.retotal()
        reshaped, queues.rules_changed = queues.rules_changed, {}
        for queue in reshaped.values():
            for key in sorted(queue.groups):
                ledger.dirty[key] = queue.groups[key]
        if ledger.holds.by_group or ledger.terminating:
            ledger.holds.expire(now, self.config.move_hold_seconds)
        if state.time_sharing.users:
            state.time_sharing.catch_up(now)
        touched, ledger.dirty = ledger.dirty, {}
        self._enqueue(touched, now)
        if self.config.reports and (reshaped or state.table.nodes_changed):
            self.rechecks.schedule(touched, reshaped.values())
        if queues.recount:
            ledger.recount_models(state.groups.values())
        if state.usage.half_life:
            state.usage.renew(now)
        if self.scheduling_queue.pending_classes or self._uses_shares:
            state.fair_shares.refresh()
        moved, ledger.moved_classes = ledger.moved_classes, set()
        for pending_class in self.scheduling_queue.wake(moved):
            self._queue_heap.push(pending_class)
        if reshaped:
            self.requeue_active()
        return touched

    def _enqueue(self, touched: dict[str, GroupEntry], now: float) -> None:
        """Update the queue position of these groups, and of groups with a finished pause."""
        for group in touched.values():
            self.enqueuer.update(group, now)
            if group.group is None:
                self.reservations.aging.forget(group.key)
                if not group.tasks:
                    self.state.forget_group(group)
        if self.enqueuer.pauses or self.enqueuer.early_starts:
            for group in self.enqueuer.due(now):
                touched[group.key] = group
                self.enqueuer.update(group, now)

    def _park_untried(self, cycle: CycleContext) -> None:
        """Park all pending classes of a cycle without the action ``allocate``."""
        while (turn := self._queue_heap.pop()) is not None:
            pending_class, group = turn
            if group.step is None:
                raise RuntimeError(f"{pending_class!r} has nothing to try")
            self.scheduling_queue.park(pending_class, wake_conditions(group, group.step, (), self._placer))
            cycle.parked[pending_class] = None
            cycle.touched[group.key] = group


def _may_preempt(group: GroupEntry) -> bool:
    """Return whether a change of the group may change the result of preemption.

    It may if the group holds resources or is among the first of its pending class.
    """
    pending_class = group.pending_class
    return group.active > 0 or (
        pending_class is not None
        and (len(pending_class.members) <= MAX_MEMBERS or pending_class.head() is group)
    )
