"""The scheduler itself: deltas in, decisions out.

``apply`` enters what the world reports; ``cycle`` looks at what that may have changed, decides, and
says only what is new; ``explain`` answers for one group at any time. The engine assumes that its binds
will happen: the task counts as placed until ``BindFailed`` says otherwise.

Same deltas, same times, same decisions: nothing here looks at a clock, at chance or at the order of
a hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from windlass.engine.diagnosis.reporter import DiagnosisReporter
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.pending.scheduling_queue import SchedulingQueue
from windlass.engine.placement.gang_allocator import GangAllocator, waits_for
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
from windlass.spi.numa import NumaHolding
from windlass.spi.objects import Task, TaskState

_NEED_NO_RUNNING_GROUPS = ("allocate", "timeshare")
"""Actions that need no list of who runs: the second keeps one of its own."""
_NOWHERE = frozenset[int]()


class Core:
    """``plugins``: policies in order of precedence, fresh instances for each engine
    (``windlass.plugins.defaults.default_plugins()``)."""

    def __init__(self, config: EngineConfig | None = None, plugins: Sequence[object] = ()) -> None:
        self.config = config or EngineConfig()
        policies = PluginSet(plugins)
        self.state = ClusterState(self.config, policies)
        self._stock = CapacityTotals(self.state)
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
        self._claiming = tuple(action.name for action in self._actions if type(action) is PreemptAction)
        """The actions in which groups claim room by the policies' word."""
        self._claims = any(action.name not in _NEED_NO_RUNNING_GROUPS for action in self._actions)
        """Whether an action asks who runs, and whether that has changed."""
        self._allocates = any(action.name == "allocate" for action in self._actions)
        self.claimants: dict[str, PreemptAction] = {
            action.name: action for action in self._actions if type(action) is PreemptAction
        }
        """The same actions by name."""
        self.preempt_action = {
            action.name: action for action in self._actions if isinstance(action, PreemptAction)
        }
        """Those and the actions that claim by the word of a tiered configuration."""
        self.time_share = next((action for action in self._actions if type(action) is TimeShare), None)
        self._quiet_cycle = QuietCycle(self._context, self._actions)
        self.diagnosis = Diagnosis(
            self.state, self.scheduling_queue, self._placer, self._gang_allocator, self._statement
        )
        self.reviews = ExplanationRecheck(self.state, self.scheduling_queue, self.diagnosis)
        self.reporter = DiagnosisReporter(self.state, self.diagnosis)
        self.cycles = 0
        self.stopwatch: Callable[[], float] | None = None
        """Tells seconds; where there is one, :attr:`passes` are kept. Nothing is decided by it."""
        self.passes: tuple[ActionPass, ...] = ()
        """The actions of the last cycle."""
        self._budgets_seen = 0
        self._shares_told = self.config.reports or self.state.gate.serves is not None
        """Whether somebody asks for the shares of queues in which nobody waits for room."""

    # ------------------------------------------------------------------ public surface

    @property
    def budgets_unseen(self) -> bool:
        """Whether there is news of budgets that no cycle has looked at."""
        return self.state.budgets.version != self._budgets_seen

    @property
    def reads(self) -> frozenset[str]:
        """The labels of pods that some policy looks at: to be in ``Needs.labels``."""
        return self.state.plugins.reads

    @property
    def reads_images(self) -> bool:
        """Whether some policy looks at container images: they are to be in ``Needs.images``, ``Node.images``."""
        return self.state.plugins.reads_images

    def apply(self, deltas: Iterable[Delta]) -> None:
        """Enter what the world reports, in order."""
        self.state.stamp += 1
        if self._delta_applier.apply(deltas):
            self._quiet_cycle.has_other_deltas = True

    def cycle(self, now: float) -> Decision:
        """Decide what can be decided. ``now``: Unix seconds; never smaller than in the cycle before."""
        self.cycles += 1
        self.state.stamp += 1
        if self.still(now):
            return self._pressed(now)
        for plugin in self.state.plugins.in_rounds:
            plugin.opened(now)
        varied = self._look_at_varying(now)
        self.state.budgets.prune(now)
        news = self._budgets_changed()
        improved = frozenset(self.state.table.improved)
        cycle = CycleContext(self._context, now, Outbox.empty(), self.settle(now), improved, varied)
        if self._claims and self.scheduling_queue.pending_classes:
            cycle.state_changed = bool(improved or self.state.queues.was_changed or news) or any(
                map(_stirs, cycle.touched.values())
            )
        self._note_restated()
        if self.stopwatch is None:
            for action in self._actions:
                action.run(cycle)
        else:
            self.passes = tuple(self._timed(cycle, self.stopwatch))
        if not self._allocates:
            self._park_untried(cycle)
        return self._ended(cycle)

    def still(self, now: float) -> bool:
        """Whether a cycle at a moment looks only at who may be asked to go (:mod:`windlass.engine.quiet_cycle`)."""
        return self._quiet_cycle.is_sufficient(now)

    def _pressed(self, now: float) -> Decision:
        """A cycle in which nothing can be otherwise than in the one before but the ranks of those who share time, and
        of whom it is known that they were bound."""
        state, quiet_cycle = self.state, self._quiet_cycle
        self._look_at_varying(now)
        state.time_sharing.catch_up(now)
        moved, state.ledger.moved = state.ledger.moved, set()
        self.scheduling_queue.wake(moved)  # nobody, as is known
        self._note_restated()
        if self._nobody_presses(now):
            return Decision(self.cycles, wake_at=self._next_press())
        state.fair_shares.refresh()
        cycle = CycleContext(self._context, now, Outbox.empty(), {}, _NOWHERE)
        for action in quiet_cycle.actions:
            action.run(cycle)
        out = cycle.out
        if out.binds or out.evictions or out.nominations or cycle.unfinished or not self.still(now):
            return self._ended(cycle)
        state.queues.was_changed, state.queues.changed = False, {}  # by claims that came to nothing
        cycle.wake(self._next_press())
        return Decision(self.cycles, wake_at=cycle.wake_at)

    def _nobody_presses(self, now: float) -> bool:
        """Whether it is clear at once that nobody asks others to go in a cycle in which only that can happen."""
        share = self.time_share
        if share is None:
            return not self.scheduling_queue.pending_classes
        return self._quiet_cycle.actions == (share,) and share.has_served(now)

    def _next_press(self) -> float | None:
        """When a cycle in which nothing has changed may come to something."""
        others = self._quiet_cycle.next_requested
        ranks = None if self.time_share is None else self.time_share.next_due()
        return others if ranks is None else ranks if others is None else min(others, ranks)

    def _note_restated(self) -> None:
        """Where an action asks who runs: take note of whose tasks were told of again."""
        ledger = self.state.ledger
        restated, ledger.restated = ledger.restated, {}
        if self._claims and restated:
            self._context.running.record(restated)

    def _ended(self, cycle: CycleContext) -> Decision:
        """What a cycle has come to, once its actions have run."""
        touched, now, state, wake = cycle.touched, cycle.now, self.state, cycle.wake
        if self._claims:
            self._context.running.record(touched)
        if self.config.reports:
            touched.update(self.reviews.explain_parked(cycle.parked, now))
            touched.update(self.reviews.check(now))
            if self.reviews.revived:
                self.reviews.revived = False
                wake(now if self.reservations.search_again() else None)
        state.classes.trim(self.scheduling_queue.by_class)
        wake(self.enqueuer.next_due())
        wake(state.ledger.holds.next_due())
        for plugin in state.plugins.varying:
            wake(plugin.due(now))
        state.budgets.prune(now)
        wake(state.budgets.next_due())
        if self.scheduling_queue.pending_classes:
            wake(state.usage.due)
        if cycle.unfinished or self.reviews.scheduled or state.ledger.dirty or state.table.improved:
            wake(now)
        self._quiet_cycle.has_other_deltas, self._quiet_cycle.next_requested = False, cycle.wake_at
        if self.time_share is not None:
            wake(self.time_share.next_due())
        state.usage.record(state.queues.changed, now)
        state.queues.was_changed = False
        groups, queues = self._reports(touched, now)
        for plugin in self.state.plugins.in_rounds:
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
        """Run the actions; what each took, and came to."""
        begun, binds = clock(), 0
        for action in self._actions:
            action.run(cycle)
            ended = clock()
            yield ActionPass(action.name, ended - begun, range(binds, len(cycle.out.binds)))
            begun, binds = ended, len(cycle.out.binds)

    def _reports(
        self, touched: dict[str, GroupEntry], now: float
    ) -> tuple[tuple[GroupStatus, ...], tuple[QueueUsage, ...]]:
        """What is new of groups and queues, if anybody wants to know."""
        if self.config.reports:
            return self.reporter.groups(touched.values(), now), self.reporter.queues()
        self.state.queues.changed = {}
        return (), ()

    def _budgets_changed(self) -> bool:
        """Whether there was news of budgets since this was asked last."""
        changed = self.budgets_unseen
        self._budgets_seen = self.state.budgets.version
        return changed

    def _look_at_varying(self, now: float) -> bool:
        """Where a policy answers otherwise than before, everything is asked anew; and tried again, unless it is
        scores alone. Whether it is tried again."""
        plugins = self.state.plugins
        if not plugins.varying and not plugins.learning:
            return False
        changed = [plugin.changed(now) for plugin in plugins.varying]
        learned = [plugin.learn_from(now, self._stock) for plugin in plugins.learning]
        table = self.state.table
        if any(learned):
            plugins.hear_scores()
            self.state.classes.update_countable()
            table.epoch += 1
        if any(changed):
            table.epoch += 1
            table.improved.update(row for row in range(table.height) if table.live[row])
        return any(changed)

    def explain(self, group_key: str, now: float) -> Explanation | None:
        """Why the group waits, as things stand; ``None`` if nothing of it waits.

        Raises ``KeyError`` for a group that nobody has named.
        """
        group, queues = self.state.groups[group_key], self.state.queues
        changed = dict(queues.changed)
        found = self.diagnosis.explain(group, now, in_full=True)
        queues.changed = changed  # by what was tried to see what would help
        if found is None:
            return None
        why_not = denials(self.state.plugins, self._claiming, group, now)
        extra = {f"no {action}": reason for action, reason in why_not.items()}
        if unsure := self.reservations.groups_with_unknown_end(group):
            of = unsure[0]
            extra["no reservation"] = messages.unknown_ends(of.key, len(unsure) - 1, of.spec.learned)
        return replace(found, extra={**found.extra, **extra}) if extra else found

    def scores(self, group_key: str) -> tuple[ScoreTable, ...]:
        """How the nodes rank for each kind of pods of a group that have no node, as things stand.

        Raises ``KeyError`` for a group that nobody has named.
        """
        state = self.state
        kinds = Counter(e.cls.number for e in state.groups[group_key].tasks.values() if e.row < 0)
        classes = {e.cls.number: e.cls for e in state.groups[group_key].tasks.values()}
        return tuple(
            score_table(state.table, state.plugins, self._placer, classes[number], pods)
            for number, pods in kinds.items()
        )

    # ------------------------------------------------------------------ for ``dump``

    def restore_task(
        self,
        task: Task,
        state: TaskState,
        node: str,
        devices: tuple[int, ...],
        cuts: TaskShares = (),
        zones: NumaHolding | None = None,
    ) -> None:
        """Enter a task as it was: reported as ``task``, here in ``state``."""
        self._delta_applier.restore(task, state, node, devices, cuts, zones)

    def resume_turns(self) -> None:
        """Give the active buckets their turns again."""
        self._queue_heap.rebuild(
            pending_class
            for pending_class in self.scheduling_queue.pending_classes.values()
            if not pending_class.parked
        )

    # ------------------------------------------------------------------ the cycle's parts

    def settle(self, now: float) -> dict[str, GroupEntry]:
        """Bring every group's place in line with what has been reported; doing it twice is harmless.

        Returns the groups whose standing may have changed.
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
        ledger.holds.expire(now, self.config.move_hold_seconds)
        state.time_sharing.catch_up(now)
        touched, ledger.dirty = ledger.dirty, {}
        for group in touched.values():
            self.enqueuer.update(group, now)
            if group.group is None:
                self.reservations.aging.forget(group.key)
            if group.group is None and not group.tasks:
                del state.groups[group.key]
                state.gate.forget(group.key)
                ledger.ends.forget(group)
        for group in self.enqueuer.due(now):
            touched[group.key] = group
            self.enqueuer.update(group, now)
        if self.config.reports:
            self.reviews.schedule(touched, reshaped.values())
        if queues.recount:
            ledger.recount_models(state.groups.values())
        state.usage.renew(now)
        if self.scheduling_queue.pending_classes or self._shares_told:
            state.fair_shares.refresh()
        moved, ledger.moved = ledger.moved, set()
        for pending_class in self.scheduling_queue.wake(moved):
            self._queue_heap.push(pending_class)
        if reshaped:
            self.resume_turns()
        return touched

    def _park_untried(self, cycle: CycleContext) -> None:
        """Where no action allocates, what waits has had its turn all the same."""
        while (turn := self._queue_heap.pop()) is not None:
            pending_class, group = turn
            if group.step is None:
                raise RuntimeError(f"{pending_class!r} has nothing to try")
            self.scheduling_queue.park(pending_class, waits_for(group, group.step, (), self._placer))
            cycle.parked[pending_class] = None
            cycle.touched[group.key] = group


def _stirs(group: GroupEntry) -> bool:
    """Whether claims may come to something else for a group of which something has changed: it holds something, or
    is one of the first that wait for the same."""
    pending_class = group.bucket
    return group.active > 0 or (
        pending_class is not None
        and (len(pending_class.members) <= MAX_MEMBERS or pending_class.head() is group)
    )
