"""Diagnosis of pending groups: every reason why a group waits.

Three layers are always examined:

* the group itself: on hold, missing members, backoff
* its queue: missing, closed, limits
* the nodes: every blocker of every plugin on every node, and the capacity of an empty
  cluster

The most severe reason is the code of the explanation. The others are listed with their
numbers.

The diagnosis of nodes is cached per class while the node table is unchanged. Ten
thousand groups that wait for the same thing are therefore diagnosed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from windlass.api.reasons import FACTS, Blocker, Explanation, NearMiss, Reason
from windlass.engine.backfill.forecast import Forecaster
from windlass.engine.backfill.start_estimates import StartEstimator
from windlass.engine.diagnosis import messages
from windlass.engine.diagnosis.domain_diagnosis import DomainDiagnosis, diagnose_domains
from windlass.engine.diagnosis.holders import Holders
from windlass.engine.diagnosis.node_diagnosis import DiagnosedRequest, NodeDiagnosis, diagnose_nodes
from windlass.engine.diagnosis.remedies import of_domains, remedies_for
from windlass.engine.diagnosis.smallest_change import SmallestChange
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import PENDING, GroupEntry, nominated, passing_time
from windlass.engine.groups.next_step import NextTasks, Shortage, least_in_sum, next_step, whole_step
from windlass.engine.nodes.table import RELEASING
from windlass.engine.nodes.view import TableView
from windlass.engine.pending.scheduling_queue import PendingClass, SchedulingQueue
from windlass.engine.placement.gang_allocator import GangAllocator
from windlass.engine.placement.placer import Placer
from windlass.engine.queueing.enqueue import closed_reason
from windlass.engine.queueing.queue_position import QueuePositions
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement
from windlass.engine.victims import budget_blockers
from windlass.spi.plugins import Rejection
from windlass.spi.quantities import from_units

_ORDER = {reason: position for position, reason in enumerate(Reason)}
_Verdicts = dict[tuple[int, DiagnosedRequest], NodeDiagnosis]
_CLASSES_JUDGED = 8
"""Maximum number of classes of a group that are diagnosed."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One reason of the group as a whole, with a sentence and its numbers."""

    code: Reason
    sentence: str
    blockers: tuple[Blocker, ...] = ()
    remedies: tuple[str, ...] = ()
    """Remedies of the plugin that rejects; else they follow from the code."""

    @property
    def severity(self) -> tuple[int, int]:
        return FACTS[self.code].tier, _ORDER[self.code]


class Diagnosis:
    """Diagnoses groups and caches the results."""

    def __init__(
        self,
        state: ClusterState,
        scheduling_queue: SchedulingQueue,
        placer: Placer,
        gang_allocator: GangAllocator,
        statement: Statement,
    ) -> None:
        self._state = state
        self._scheduling_queue = scheduling_queue
        self._placer = placer
        self._gang_allocator = gang_allocator
        self._statement = statement
        self._positions = QueuePositions(state, _waits)
        self._who_holds = Holders(state)
        ungated = GangAllocator(state.table, state.plugins, placer, gated=False)
        self._changes = SmallestChange(state, placer, gang_allocator, ungated)
        self._estimates = StartEstimator(state, Forecaster(state, gang_allocator), self._positions)
        self._verdicts: _Verdicts = {}
        self._plain: dict[tuple[int, int, bool], Explanation] = {}
        """Explanations with nodes as the only reason, by diagnosis, for this version of the table."""
        self._version = -1
        self._lasting: _Verdicts = {}
        self._shape = -1
        self._totals: dict[str, int] = {}
        """Total of all nodes by resource, valid for the shape ``_totals_shape``."""
        self._counted = -1

    def explain(self, group: GroupEntry, now: float, *, in_full: bool = False) -> Explanation | None:
        """Return the explanation of a group that waits or has lost members.

        ``None`` for other groups.

        ``in_full``: compute everything again, with queue position and holders.
        Otherwise the groups of a parked class share one explanation.
        """
        if not (in_full or self._state.config.reports):
            return None
        if not _waits(group):
            return self.diagnose(group, now, in_full=in_full) if group.bereft() else None
        if in_full:
            return self._completed(group, self.diagnose(group, now, in_full=True), now)
        pending_class = group.bucket
        if (
            pending_class is None
            or not pending_class.parked
            or pending_class.explanation is None
            or _personal(group, pending_class)
        ):
            return self.diagnose(group, now)
        return pending_class.explanation

    # ------------------------------------------------------------------ composition

    def diagnose(self, group: GroupEntry, now: float, *, in_full: bool = False) -> Explanation:
        """Return everything that keeps a pending group from its next step."""
        if nominated(group):
            return self._of_promises(group)
        step = next_step(group) if group.group is not None else None
        obstacles = self._of_group(group, step, now) + self._of_queue(group)
        verdicts: list[NodeDiagnosis] = []
        domains: DomainDiagnosis | None = None
        if isinstance(step, NextTasks):
            obstacles += self._of_limits(group, step) + _of_reservations(group) + _of_budgets(group)
            obstacles += self._of_sharing(group, now)
            verdicts = self._verdicts_on_nodes(group, step)
            obstacles += self._of_sum(group, step, verdicts)
            if (
                not (obstacles or in_full or group.near)
                and len(verdicts) == 1
                and (said := _says(verdicts[0]))
            ):
                return self._of_nodes_alone(group, step, verdicts[0], said)
            domains = self._of_domains(group, step)
            if domains is not None:
                obstacles.append(Obstacle(domains.code, domains.sentence, domains.blockers))
            obstacles += self._of_nodes(group, step, verdicts, certain=bool(obstacles), in_full=in_full)
        elif group.pending:
            verdicts = self._verdicts_on_nodes(group, step, lasting=not in_full)
            obstacles += [obstacle for v in verdicts if (obstacle := _never(v)) is not None]
        if not isinstance(step, NextTasks):
            obstacles += self._of_minimum(group)
        if not obstacles:
            return _not_yet()
        obstacles.sort(key=lambda obstacle: obstacle.severity)
        first = obstacles[0]
        nearest = next((NearMiss(*v.nearest) for v in verdicts if v.nearest is not None), None)
        if domains is not None and first.code is domains.code:
            nearest = domains.nearest
        codes = [o.code for o in obstacles if not o.remedies]
        remedies = (
            *dict.fromkeys(remedy for obstacle in obstacles for remedy in obstacle.remedies),
            *remedies_for(codes, group, self._state, verdicts, step),
            *budget_blockers.remedies(_stopped(group)),
        )
        return Explanation(
            code=first.code,
            message=" ".join(obstacle.sentence for obstacle in obstacles),
            blockers=tuple(dict.fromkeys(b for obstacle in obstacles for b in obstacle.blockers)),
            nearest=nearest,
            holders=self._holders(group, step, verdicts) if in_full else (),
            remedies=remedies if domains is None else (*of_domains(domains, group), *remedies),
            nodes_considered=int(self._state.table.live.sum()),
        )

    def _of_nodes_alone(
        self, group: GroupEntry, step: NextTasks, verdict: NodeDiagnosis, obstacle: Obstacle
    ) -> Explanation:
        """Return one explanation for all groups with the same node diagnosis and no other reason."""
        key = (id(verdict), group.held_members, group.timed)
        known = self._plain.get(key)
        if known is None:
            known = self._plain[key] = Explanation(
                code=obstacle.code,
                message=obstacle.sentence,
                blockers=tuple(dict.fromkeys(obstacle.blockers)),
                nearest=NearMiss(*verdict.nearest) if verdict.nearest else None,
                remedies=remedies_for([obstacle.code], group, self._state, [verdict], step),
                nodes_considered=int(self._state.table.live.sum()),
            )
        return known

    def _completed(self, group: GroupEntry, explanation: Explanation, now: float) -> Explanation:
        """Add what is specific to the group: position, estimated start, smallest changes."""
        position, ahead = self._positions.find(group, now)
        step = next_step(group) if group.group is not None else None
        changes = self._changes.find(self._statement, group, step)
        seconds, basis = None, ""
        if explanation.waiting_helps != "no":
            seconds, basis = self._estimates.find(self._statement, group, now)
        return replace(
            explanation,
            position=position,
            ahead=ahead,
            estimate_seconds=seconds,
            estimate_basis=basis,
            estimate_at=now if seconds is not None else 0.0,
            changes=changes,
        )

    # ------------------------------------------------------------------ group

    def _of_promises(self, group: GroupEntry) -> Explanation:
        """Return the explanation of a group with nominated capacity that is still being released."""
        table = self._state.table
        names = table.names
        tasks = Counter(names[entry.promised] for entry in nominated(group))
        blockers = tuple(
            Blocker(Reason.WAITING_FOR_VICTIMS, nodes=1, resource="tasks", needed=str(n), detail=name)
            for name, n in sorted(tasks.items())
        )
        return Explanation(
            code=Reason.WAITING_FOR_VICTIMS,
            message=messages.promises(
                sorted(tasks.items()),
                there=any(table.planes[entry.promised, RELEASING, 0] > 0 for entry in nominated(group)),
            ),
            blockers=blockers,
            nodes_considered=int(self._state.table.live.sum()),
        )

    def _of_group(self, group: GroupEntry, step: NextTasks | Shortage | None, now: float) -> list[Obstacle]:
        spec = group.group
        if spec is None:
            return [_obstacle(Reason.WAITING_FOR_MEMBERS, messages.unknown_group(group.key))]
        found = []
        if spec.held:
            found.append(_obstacle(Reason.ON_HOLD, "It is on hold."))
        rejection = self._state.gate.rejection(group)
        if rejection is not None:
            found.append(_refused(rejection))
        if not group.tasks and (rejection is not None or self._of_queue(group)):
            return found  # no controller creates its pods before it is admitted
        if group.refusal is not None:
            found.append(_refused(group.refusal))
        elif group.not_before > now:
            sentence = messages.bind_failed(group.failure, group.failures, group.not_before - now)
            found.append(_obstacle(Reason.BIND_FAILED, sentence))
        if not group.tasks and not group.ready():
            step = Shortage("", spec.min_member, 0, 0)
        if isinstance(step, Shortage):
            code = Reason.SCHEDULING_GATED if _gates_decide(step) else Reason.WAITING_FOR_MEMBERS
            blocker = Blocker(
                code,
                resource=step.role or step.part or "tasks",
                needed=str(step.needed),
                available=str(step.there),
            )
            found.append(Obstacle(code, messages.shortage(step), (blocker,)))
        return found

    def _of_sharing(self, group: GroupEntry, now: float) -> list[Obstacle]:
        """Return the reason of a time-sharing group that was suspended, or may not suspend others."""
        time_sharing = self._state.time_sharing
        time_account = time_sharing.accounts.get(group.key)
        if time_account is None or time_account.started is not None:
            return []
        if not time_account.segment.suspensions:
            spared = time_sharing.outweighed(time_account, now)
            if spared is None:
                return []
            saved = spared - now if now < spared < inf else None
            return [_obstacle(Reason.TIME_SHARED, messages.outweighed(saved))]
        turn = time_sharing.next_turn(time_account, now)
        left = None if turn is None else max(turn - now, 0.0)
        sentence = messages.suspended(time_account.segment.suspensions, time_account.segment.attained, left)
        return [_obstacle(Reason.TIME_SHARED, sentence)]

    def _of_minimum(self, group: GroupEntry) -> list[Obstacle]:
        """Return the reason if a gang without all its pods requires more than all nodes have.

        It is known before its pods are created.
        """
        spec = group.group
        if spec is None or not spec.min_resources or group.active:
            return []
        return self._beyond_all(spec.min_resources)

    def _of_sum(
        self, group: GroupEntry, step: NextTasks, verdicts: Sequence[NodeDiagnosis]
    ) -> list[Obstacle]:
        """Return the reason if a gang of several classes requires more than all nodes have."""
        if step.extra or len(verdicts) < 2 or any(v.never is not None for v in verdicts):
            return []
        return self._beyond_all(least_in_sum(group, step))

    def _beyond_all(self, needs: Mapping[str, int]) -> list[Obstacle]:
        """Return the reason if all nodes together, even empty, have too little."""
        short = []
        for name, units in sorted(needs.items()):
            there = self._there(name)
            if units > there:
                needed, available = from_units(name, units), from_units(name, there)
                short.append(Blocker(Reason.EXCEEDS_CLUSTER, 0, name, needed, available))
        if not short:
            return []
        return [Obstacle(Reason.EXCEEDS_CLUSTER, messages.minimum(short), tuple(short))]

    def _there(self, resource: str) -> int:
        """Return the total of all nodes, in units."""
        table = self._state.table
        if self._counted != table.shape:
            self._totals.clear()
            self._counted = table.shape
        if resource not in self._totals:
            view = TableView(table, np.flatnonzero(table.live[: table.height]))
            self._totals[resource] = int(view.allocatable(resource).sum())
        return self._totals[resource]

    # ------------------------------------------------------------------ queue

    def _of_queue(self, group: GroupEntry) -> list[Obstacle]:
        queue = group.queue
        if queue is None:
            return []
        reason = closed_reason(queue)
        if reason is None:
            return []
        missing = next((a.name for a in queue.path if a.missing), queue.name)
        codes = {"missing": Reason.QUEUE_NOT_FOUND, "parent-missing": Reason.QUEUE_NOT_FOUND}
        codes |= {"not-leaf": Reason.QUEUE_NOT_LEAF, "closed": Reason.QUEUE_CLOSED}
        shut = next((a for a in queue.path if a.spec.state != "Open"), queue)
        sentence = {
            "missing": f"Queue {queue.name} does not exist.",
            "parent-missing": f"Queue {missing}, above queue {queue.name}, does not exist.",
            "not-leaf": f"Queue {queue.name} has queues below it; work goes into one of those.",
            "closed": f"Queue {shut.name} is {shut.spec.state.value.lower()} and takes no new work.",
        }[reason]
        return [_obstacle(codes[reason], sentence, detail=missing if "missing" in reason else shut.name)]

    def _of_limits(self, group: GroupEntry, step: NextTasks) -> list[Obstacle]:
        """Return the rejections of the whole step by queues and plugins."""
        return [
            _refused(rejection)
            for rejection in self._gang_allocator.refusals_of(group, whole_step(group, step))
        ]

    # ------------------------------------------------------------------ nodes

    def _verdicts_on_nodes(
        self, group: GroupEntry, step: NextTasks | Shortage | None, *, lasting: bool = False
    ) -> list[NodeDiagnosis]:
        """Return one node diagnosis per pending class, in task order.

        A gang of one class is diagnosed for all missing tasks, otherwise for a single
        task per class. ``lasting``: use a diagnosis from the last change of nodes, for
        a gang that is examined for every new member.
        """
        classes: dict[TaskClass, str] = {}
        for entry in group.waiting():
            if entry.cls not in classes:
                classes[entry.cls] = entry.task.role
                if len(classes) in (len(group.pending_classes), _CLASSES_JUDGED):
                    break
        if isinstance(step, NextTasks) and len(classes) == 1:
            (cls,) = classes
            held = 0
            if not step.extra:
                held = sum(1 for entry in group.tasks.values() if entry.cls is cls and entry.row >= 0)
            return [self._verdict(cls, DiagnosedRequest(step.members, held))]
        cache = self._lasting if lasting else self._verdicts
        return [
            self._verdict(cls, DiagnosedRequest(1, 0, role, lasting), cache) for cls, role in classes.items()
        ]

    def _verdict(
        self, cls: TaskClass, request: DiagnosedRequest, cache: _Verdicts | None = None
    ) -> NodeDiagnosis:
        table = self._state.table
        if self._version != table.version:
            self._verdicts.clear()
            self._plain.clear()
            self._version = table.version
        if self._shape != table.shape:
            self._lasting.clear()
            self._shape = table.shape
        cache = self._verdicts if cache is None else cache
        found = cache.get((cls.number, request))
        if found is None:
            found = cache[cls.number, request] = diagnose_nodes(self._state, self._placer, cls, request)
        return found

    def _of_nodes(
        self,
        group: GroupEntry,
        step: NextTasks,
        verdicts: list[NodeDiagnosis],
        *,
        certain: bool,
        in_full: bool,
    ) -> list[Obstacle]:
        found = []
        for verdict in verdicts:
            obstacle = _says(verdict)
            if obstacle is not None:
                found.append(obstacle)
        if not found and not certain and group.bucket is not None and group.bucket.parked:
            found.append(self._together(group, step, verdicts, in_full=in_full))
        return found

    def _of_domains(self, group: GroupEntry, step: NextTasks) -> DomainDiagnosis | None:
        """Return the diagnosis of the domains that the group requires."""
        if not group.near:
            return None
        return diagnose_domains(self._state, self._gang_allocator.domain_selector, group, step)

    def _together(
        self, group: GroupEntry, step: NextTasks, verdicts: list[NodeDiagnosis], *, in_full: bool
    ) -> Obstacle:
        """Return the reason if every pod fits by itself, but not all together.

        It tells how many fit and, with ``in_full``, what blocks the next one.
        """
        reached = self._gang_allocator.try_step(self._statement, group, step)
        self._statement.rollback()
        near = group.near and self._gang_allocator.domain_selector.requires(group)
        code = Reason.TOPOLOGY_PLACEMENT_FAILED if near else Reason.INSUFFICIENT_RESOURCES
        sentence = messages.not_together(reached.reached, step.members, near=near)
        blocker = Blocker(
            code,
            resource="tasks",
            needed=str(step.members),
            available=str(reached.reached),
            detail="placed together",
        )
        further = self._beside(group, step, reached.reached) if in_full and not group.near else None
        if further is not None:
            sentence = f"{sentence} {messages.one_more(further.sentence)}"
            verdicts = [further]
        blockers = tuple(b for verdict in verdicts for b in verdict.blockers if b.resource != "tasks")
        return Obstacle(code, sentence, (blocker, *blockers))

    def _beside(self, group: GroupEntry, step: NextTasks, placed: int) -> NodeDiagnosis | None:
        """Return the blockers of one more pod after ``placed`` pods; ``None`` if it fits."""
        verdict = None
        if (
            placed
            and self._gang_allocator.try_step(
                self._statement, group, NextTasks(list(step.batches), placed, {})
            ).done
        ):
            left = next((entry.cls for entry in group.waiting()), None)
            if left is not None:
                verdict = diagnose_nodes(self._state, self._placer, left, DiagnosedRequest(1))
        self._statement.rollback()
        return verdict if verdict is not None and (verdict.never or verdict.now) else None

    def _holders(
        self, group: GroupEntry, step: NextTasks | Shortage | None, verdicts: list[NodeDiagnosis]
    ) -> tuple[str, ...]:
        """Return the groups that hold what is missing."""
        rejections: list[Rejection] = []
        if isinstance(step, NextTasks):
            rejections = self._gang_allocator.refusals_of(group, whole_step(group, step))
        return self._who_holds.find(group, verdicts, rejections)


def _says(verdict: NodeDiagnosis) -> Obstacle | None:
    return _never(verdict) or _now(verdict)


def _waits(group: GroupEntry) -> bool:
    """Return whether any task of the group is pending or missing."""
    if group.pending:
        return True
    if not group.tasks:
        return group.group is not None and not group.ready()
    if len(group.tasks) == group.active:
        return False
    return any(e.state is PENDING for e in group.tasks.values())


def _personal(group: GroupEntry, pending_class: PendingClass) -> bool:
    """Return whether groups of the class wait for individual reasons."""
    return pending_class.is_strict or (group.timed and bool(pending_class.wake_conditions.reserved_for))


def _of_reservations(group: GroupEntry) -> list[Obstacle]:
    """Return the reason if capacity is reserved for another group, or if the order is strict."""
    pending_class = group.bucket
    if (
        pending_class is not None
        and pending_class.is_strict
        and (head := pending_class.head()) is not None
        and head is not group
    ):
        return [_obstacle(Reason.BEHIND_IN_QUEUE, messages.behind(head.key), head.key)]
    kept_for = group.bucket.wake_conditions.reserved_for if group.bucket is not None else ""
    if not kept_for:
        return []
    sentence = messages.kept(kept_for, passing_time(group), group.spec.learned)
    return [_obstacle(Reason.BEHIND_IN_QUEUE, sentence, kept_for)]


def _stopped(group: GroupEntry) -> list[budget_blockers.BudgetBlocker]:
    """Return the budgets that alone blocked its preemptions.

    In a strict order only those of the first group.
    """
    pending_class = group.bucket
    if (
        pending_class is None
        or not pending_class.budget_blockers
        or (pending_class.is_strict and pending_class.head() is not group)
    ):
        return []
    return budget_blockers.merge_blockers(pending_class.budget_blockers)


def _of_budgets(group: GroupEntry) -> list[Obstacle]:
    found = _stopped(group)
    if not found:
        return []
    return [
        Obstacle(Reason.DISRUPTION_BUDGETS, budget_blockers.sentence(found), budget_blockers.blockers(found))
    ]


def _not_yet() -> Explanation:
    return Explanation(Reason.PENDING_EVALUATION, "It has not been looked at yet.")


def _gates_decide(shortage: Shortage) -> bool:
    return shortage.gated > 0 and shortage.there + shortage.gated >= shortage.needed


def _obstacle(code: Reason, sentence: str, detail: str = "") -> Obstacle:
    return Obstacle(code, sentence, (Blocker(code, detail=detail),))


def _refused(rejection: Rejection) -> Obstacle:
    resource = rejection.resource
    needed = from_units(resource, rejection.needed) if resource else ""
    available = from_units(resource, rejection.available) if resource else ""
    blocker = Blocker(
        rejection.code, resource=resource, needed=needed, available=available, detail=rejection.detail
    )
    return Obstacle(rejection.code, messages.refusal(rejection), (blocker,), rejection.remedies)


def _never(verdict: NodeDiagnosis) -> Obstacle | None:
    """Return the reason if waiting does not help: the nodes, even empty, do not hold it."""
    if verdict.never is None:
        return None
    return Obstacle(verdict.never, verdict.sentence, verdict.blockers)


def _now(verdict: NodeDiagnosis) -> Obstacle | None:
    if verdict.now is None:
        return None
    return Obstacle(verdict.now, verdict.sentence, verdict.blockers)
