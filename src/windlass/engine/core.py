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
from windlass.engine.actions.context import CycleContext, Machinery, Pass
from windlass.engine.actions.preempt import MEMBERS, Evicting
from windlass.engine.actions.registry import make_actions
from windlass.engine.actions.timeshare import TimeShare
from windlass.engine.apply_deltas import Intake
from windlass.engine.backfill.reservations import Reservations
from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision, GroupStatus, QueueUsage
from windlass.engine.deltas import Delta
from windlass.engine.devices.share_table import Cuts
from windlass.engine.diagnosis import messages
from windlass.engine.diagnosis.group_diagnosis import Diagnosis
from windlass.engine.diagnosis.recheck import Reviews
from windlass.engine.diagnosis.reporter import Reporter
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.pending.scheduling_queue import ParkingLot
from windlass.engine.placement.gang_allocator import Allocation, waits_for
from windlass.engine.placement.placer import Placer
from windlass.engine.placement.score_table import ScoreTable, score_table
from windlass.engine.plugin_set import Policies
from windlass.engine.preemption.denied_reasons import denials
from windlass.engine.queueing.enqueue import Enrolment
from windlass.engine.queueing.permit import Consent
from windlass.engine.queueing.queue_order import Turns
from windlass.engine.queues.running_groups import RunningGroups
from windlass.engine.quiet_cycle import Stillness
from windlass.engine.state.capacity_totals import ClusterStock
from windlass.engine.state.cluster_state import World
from windlass.engine.state.statement import Outbox, Statement
from windlass.spi.numa import ZoneHolding
from windlass.spi.objects import Task, TaskState

_CLAIM_NOTHING = ("allocate", "timeshare")
"""Actions that need no list of who runs: the second keeps one of its own."""
_NOWHERE = frozenset[int]()


class Core:
    """``plugins``: policies in order of precedence, fresh instances for each engine
    (``windlass.plugins.defaults.default_plugins()``)."""

    def __init__(self, config: EngineConfig | None = None, plugins: Sequence[object] = ()) -> None:
        self.config = config or EngineConfig()
        policies = Policies(plugins)
        self.world = World(self.config, policies)
        self._stock = ClusterStock(self.world)
        self._placer = Placer(self.world.table, policies)
        self._statement = Statement(self.world.ledger, self.world.budgets)
        self._allocation = Allocation(self.world.table, policies, self._placer)
        self.lot = ParkingLot(self.world.table, self.world.queues, policies.domains)
        self.lot.holds = self._allocation.nearness.may_hold
        self._turns = Turns(self.world.queues, policies)
        self.enrolment = Enrolment(self.world, self.lot, self._turns)
        self.reservations = Reservations(self.world, self._allocation)
        self._intake = Intake(self.world, self.reservations.aging.forget)
        self._machinery = Machinery(
            world=self.world,
            policies=policies,
            statement=self._statement,
            placer=self._placer,
            allocation=self._allocation,
            lot=self.lot,
            turns=self._turns,
            enrolment=self.enrolment,
            running=RunningGroups(self.world.groups),
            reservations=self.reservations,
            consent=Consent(policies, self._statement, self.world.table),
        )
        self._actions = make_actions(self.config.actions, self._machinery)
        self._claiming = tuple(action.name for action in self._actions if type(action) is Evicting)
        """The actions in which groups claim room by the policies' word."""
        self._claims = any(action.name not in _CLAIM_NOTHING for action in self._actions)
        """Whether an action asks who runs, and whether that has changed."""
        self._allocates = any(action.name == "allocate" for action in self._actions)
        self.claimants: dict[str, Evicting] = {
            action.name: action for action in self._actions if type(action) is Evicting
        }
        """The same actions by name."""
        self.evicting = {action.name: action for action in self._actions if isinstance(action, Evicting)}
        """Those and the actions that claim by the word of a tiered configuration."""
        self.time_share = next((action for action in self._actions if type(action) is TimeShare), None)
        self._stillness = Stillness(self._machinery, self._actions)
        self.diagnosis = Diagnosis(self.world, self.lot, self._placer, self._allocation, self._statement)
        self.reviews = Reviews(self.world, self.lot, self.diagnosis)
        self.reporter = Reporter(self.world, self.diagnosis)
        self.cycles = 0
        self.stopwatch: Callable[[], float] | None = None
        """Tells seconds; where there is one, :attr:`passes` are kept. Nothing is decided by it."""
        self.passes: tuple[Pass, ...] = ()
        """The actions of the last cycle."""
        self._budgets_seen = 0
        self._shares_told = self.config.reports or self.world.gate.serves is not None
        """Whether somebody asks for the shares of queues in which nobody waits for room."""

    # ------------------------------------------------------------------ public surface

    @property
    def budgets_unseen(self) -> bool:
        """Whether there is news of budgets that no cycle has looked at."""
        return self.world.budgets.version != self._budgets_seen

    @property
    def reads(self) -> frozenset[str]:
        """The labels of pods that some policy looks at: to be in ``Needs.labels``."""
        return self.world.policies.reads

    @property
    def reads_images(self) -> bool:
        """Whether some policy looks at container images: they are to be in ``Needs.images``, ``Node.images``."""
        return self.world.policies.reads_images

    def apply(self, deltas: Iterable[Delta]) -> None:
        """Enter what the world reports, in order."""
        self.world.stamp += 1
        if self._intake.apply(deltas):
            self._stillness.told = True

    def cycle(self, now: float) -> Decision:
        """Decide what can be decided. ``now``: Unix seconds; never smaller than in the cycle before."""
        self.cycles += 1
        self.world.stamp += 1
        if self.still(now):
            return self._pressed(now)
        for plugin in self.world.policies.in_rounds:
            plugin.opened(now)
        varied = self._look_at_varying(now)
        self.world.budgets.tidy(now)
        news = self._budgets_changed()
        improved = frozenset(self.world.table.improved)
        ctx = CycleContext(self._machinery, now, Outbox.empty(), self.settle(now), improved, varied)
        if self._claims and self.lot.buckets:
            ctx.stirred = bool(improved or self.world.queues.stirred or news) or any(
                map(_stirs, ctx.touched.values())
            )
        self._note_restated()
        if self.stopwatch is None:
            for action in self._actions:
                action.run(ctx)
        else:
            self.passes = tuple(self._timed(ctx, self.stopwatch))
        if not self._allocates:
            self._park_untried(ctx)
        return self._ended(ctx)

    def still(self, now: float) -> bool:
        """Whether a cycle at a moment looks only at who may be asked to go (:mod:`windlass.engine.quiet_cycle`)."""
        return self._stillness.holds(now)

    def _pressed(self, now: float) -> Decision:
        """A cycle in which nothing can be otherwise than in the one before but the ranks of those who share time, and
        of whom it is known that they were bound."""
        world, stillness = self.world, self._stillness
        self._look_at_varying(now)
        world.sharing.catch_up(now)
        moved, world.ledger.moved = world.ledger.moved, set()
        self.lot.wake(moved)  # nobody, as is known
        self._note_restated()
        if self._nobody_presses(now):
            return Decision(self.cycles, wake_at=self._next_press())
        world.shares.refresh()
        ctx = CycleContext(self._machinery, now, Outbox.empty(), {}, _NOWHERE)
        for action in stillness.pressing:
            action.run(ctx)
        out = ctx.out
        if out.binds or out.evictions or out.nominations or ctx.unfinished or not self.still(now):
            return self._ended(ctx)
        world.queues.stirred, world.queues.changed = False, {}  # by claims that came to nothing
        ctx.wake(self._next_press())
        return Decision(self.cycles, wake_at=ctx.wake_at)

    def _nobody_presses(self, now: float) -> bool:
        """Whether it is clear at once that nobody asks others to go in a cycle in which only that can happen."""
        share = self.time_share
        if share is None:
            return not self.lot.buckets
        return self._stillness.pressing == (share,) and share.has_served(now)

    def _next_press(self) -> float | None:
        """When a cycle in which nothing has changed may come to something."""
        others = self._stillness.others
        ranks = None if self.time_share is None else self.time_share.next_due()
        return others if ranks is None else ranks if others is None else min(others, ranks)

    def _note_restated(self) -> None:
        """Where an action asks who runs: take note of whose tasks were told of again."""
        ledger = self.world.ledger
        restated, ledger.restated = ledger.restated, {}
        if self._claims and restated:
            self._machinery.running.note(restated)

    def _ended(self, ctx: CycleContext) -> Decision:
        """What a cycle has come to, once its actions have run."""
        touched, now, world, wake = ctx.touched, ctx.now, self.world, ctx.wake
        if self._claims:
            self._machinery.running.note(touched)
        if self.config.reports:
            touched.update(self.reviews.tell(ctx.parked, now))
            touched.update(self.reviews.review(now))
            if self.reviews.revived:
                self.reviews.revived = False
                wake(now if self.reservations.look_again() else None)
        world.classes.trim(self.lot.by_class)
        wake(self.enrolment.next_due())
        wake(world.ledger.holds.next_due())
        for plugin in world.policies.varying:
            wake(plugin.due(now))
        world.budgets.tidy(now)
        wake(world.budgets.next_due())
        if self.lot.buckets:
            wake(world.usage.due)
        if ctx.unfinished or self.reviews.open or world.ledger.dirty or world.table.improved:
            wake(now)
        self._stillness.told, self._stillness.others = False, ctx.wake_at
        if self.time_share is not None:
            wake(self.time_share.next_due())
        world.usage.note(world.queues.changed, now)
        world.queues.stirred = False
        groups, queues = self._reports(touched, now)
        for plugin in self.world.policies.in_rounds:
            plugin.closed()
        return Decision(
            cycle=self.cycles,
            binds=tuple(ctx.out.binds),
            evictions=tuple(ctx.out.evictions),
            nominations=tuple(ctx.out.nominations),
            groups=groups,
            queues=queues,
            wake_at=ctx.wake_at,
        )

    def _timed(self, ctx: CycleContext, clock: Callable[[], float]) -> Iterator[Pass]:
        """Run the actions; what each took, and came to."""
        begun, binds = clock(), 0
        for action in self._actions:
            action.run(ctx)
            ended = clock()
            yield Pass(action.name, ended - begun, range(binds, len(ctx.out.binds)))
            begun, binds = ended, len(ctx.out.binds)

    def _reports(
        self, touched: dict[str, GroupEntry], now: float
    ) -> tuple[tuple[GroupStatus, ...], tuple[QueueUsage, ...]]:
        """What is new of groups and queues, if anybody wants to know."""
        if self.config.reports:
            return self.reporter.groups(touched.values(), now), self.reporter.queues()
        self.world.queues.changed = {}
        return (), ()

    def _budgets_changed(self) -> bool:
        """Whether there was news of budgets since this was asked last."""
        changed = self.budgets_unseen
        self._budgets_seen = self.world.budgets.version
        return changed

    def _look_at_varying(self, now: float) -> bool:
        """Where a policy answers otherwise than before, everything is asked anew; and tried again, unless it is
        scores alone. Whether it is tried again."""
        policies = self.world.policies
        if not policies.varying and not policies.learning:
            return False
        changed = [plugin.changed(now) for plugin in policies.varying]
        learned = [plugin.take_stock(now, self._stock) for plugin in policies.learning]
        table = self.world.table
        if any(learned):
            policies.hear_scores()
            self.world.classes.judge_trends()
            table.epoch += 1
        if any(changed):
            table.epoch += 1
            table.improved.update(row for row in range(table.height) if table.live[row])
        return any(changed)

    def explain(self, group_key: str, now: float) -> Explanation | None:
        """Why the group waits, as things stand; ``None`` if nothing of it waits.

        Raises ``KeyError`` for a group that nobody has named.
        """
        group, queues = self.world.groups[group_key], self.world.queues
        changed = dict(queues.changed)
        found = self.diagnosis.explain(group, now, in_full=True)
        queues.changed = changed  # by what was tried to see what would help
        if found is None:
            return None
        why_not = denials(self.world.policies, self._claiming, group, now)
        extra = {f"no {action}": reason for action, reason in why_not.items()}
        if unsure := self.reservations.untold_by(group):
            of = unsure[0]
            extra["no reservation"] = messages.unsure(of.key, len(unsure) - 1, of.spec.learned)
        return replace(found, extra={**found.extra, **extra}) if extra else found

    def scores(self, group_key: str) -> tuple[ScoreTable, ...]:
        """How the nodes rank for each kind of pods of a group that have no node, as things stand.

        Raises ``KeyError`` for a group that nobody has named.
        """
        world = self.world
        kinds = Counter(e.cls.number for e in world.groups[group_key].tasks.values() if e.row < 0)
        classes = {e.cls.number: e.cls for e in world.groups[group_key].tasks.values()}
        return tuple(
            score_table(world.table, world.policies, self._placer, classes[number], pods)
            for number, pods in kinds.items()
        )

    # ------------------------------------------------------------------ for ``dump``

    def restore_task(
        self,
        task: Task,
        state: TaskState,
        node: str,
        devices: tuple[int, ...],
        cuts: Cuts = (),
        zones: ZoneHolding | None = None,
    ) -> None:
        """Enter a task as it was: reported as ``task``, here in ``state``."""
        self._intake.restore(task, state, node, devices, cuts, zones)

    def resume_turns(self) -> None:
        """Give the active buckets their turns again."""
        self._turns.rebuild(bucket for bucket in self.lot.buckets.values() if not bucket.parked)

    # ------------------------------------------------------------------ the cycle's parts

    def settle(self, now: float) -> dict[str, GroupEntry]:
        """Bring every group's place in line with what has been reported; doing it twice is harmless.

        Returns the groups whose standing may have changed.
        """
        world = self.world
        ledger, queues = world.ledger, world.queues
        if world.table.total_changed:
            world.table.total_changed = False
            queues.mark_all()
            world.shares.retotal()
        reshaped, queues.reshaped = queues.reshaped, {}
        for queue in reshaped.values():
            for key in sorted(queue.groups):
                ledger.dirty[key] = queue.groups[key]
        ledger.holds.expire(now, self.config.move_hold_seconds)
        world.sharing.catch_up(now)
        touched, ledger.dirty = ledger.dirty, {}
        for group in touched.values():
            self.enrolment.settle(group, now)
            if group.group is None:
                self.reservations.aging.forget(group.key)
            if group.group is None and not group.tasks:
                del world.groups[group.key]
                world.gate.forget(group.key)
                ledger.ends.forget(group)
        for group in self.enrolment.due(now):
            touched[group.key] = group
            self.enrolment.settle(group, now)
        if self.config.reports:
            self.reviews.note(touched, reshaped.values())
        if queues.recount:
            ledger.recount_models(world.groups.values())
        world.usage.renew(now)
        if self.lot.buckets or self._shares_told:
            world.shares.refresh()
        moved, ledger.moved = ledger.moved, set()
        for bucket in self.lot.wake(moved):
            self._turns.push(bucket)
        if reshaped:
            self.resume_turns()
        return touched

    def _park_untried(self, ctx: CycleContext) -> None:
        """Where no action allocates, what waits has had its turn all the same."""
        while (turn := self._turns.pop()) is not None:
            bucket, group = turn
            if group.step is None:
                raise RuntimeError(f"{bucket!r} has nothing to try")
            self.lot.park(bucket, waits_for(group, group.step, (), self._placer))
            ctx.parked[bucket] = None
            ctx.touched[group.key] = group


def _stirs(group: GroupEntry) -> bool:
    """Whether claims may come to something else for a group of which something has changed: it holds something, or
    is one of the first that wait for the same."""
    bucket = group.bucket
    return group.active > 0 or (
        bucket is not None and (len(bucket.members) <= MEMBERS or bucket.head() is group)
    )
