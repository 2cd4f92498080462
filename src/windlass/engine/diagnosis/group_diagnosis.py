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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from windlass.api.reasons import FACTS, Blocker, Explanation, NearMiss, Reason
from windlass.engine.backfill.early_starts import EarlyStarts
from windlass.engine.backfill.forecast import Forecaster
from windlass.engine.backfill.start_estimates import NO_ESTIMATE, StartEstimator
from windlass.engine.diagnosis import early_messages, ending_tasks, messages, min_resources
from windlass.engine.diagnosis.domain_diagnosis import DomainDiagnosis, diagnose_domains
from windlass.engine.diagnosis.holders import Holders
from windlass.engine.diagnosis.limit_remedies import LIMIT_CODES, limit_remedies
from windlass.engine.diagnosis.node_diagnosis import DiagnosedRequest, NodeDiagnosis, diagnose_nodes
from windlass.engine.diagnosis.packing import Packing, pack
from windlass.engine.diagnosis.remedies import domain_remedies, remedies_for, tried_remedies
from windlass.engine.diagnosis.smallest_change import SmallestChange
from windlass.engine.diagnosis.subgroup_diagnosis import diagnose_together
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import (
    ENDING,
    PENDING,
    GroupEntry,
    NextTasks,
    TaskEntry,
    nominated,
    tasks_on,
)
from windlass.engine.groups.next_step import Shortage, min_usage, next_step, required_tasks, whole_step_view
from windlass.engine.groups.pending_class import PendingClass
from windlass.engine.groups.run_times import certain_run_time
from windlass.engine.nodes.table import PODS, RELEASING
from windlass.engine.nodes.view import TableView
from windlass.engine.pending.scheduling_queue import SchedulingQueue
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
_Diagnoses = dict[tuple[int, DiagnosedRequest], NodeDiagnosis]
_MAX_CLASSES = 8
"""Maximum number of classes of a group that are diagnosed."""


@dataclass(frozen=True, slots=True)
class PendingReason:
    """One reason of the group as a whole, with a sentence and its numbers."""

    code: Reason
    sentence: str
    blockers: tuple[Blocker, ...] = ()
    remedies: tuple[str, ...] = ()
    """Remedies of the plugin that rejects; else they follow from the code."""
    limit: tuple[str, str] | None = None
    """Queue and resource of the limit that rejects."""
    waiting: str = ""
    """Override of the code's answer whether waiting helps; "" for none."""

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
        self.early_starts: EarlyStarts | None = None
        """Reservations of groups with an earliest start."""
        self.ordinary: Callable[[], Collection[str]] = tuple
        """Returns the groups with another reservation."""
        self._positions = QueuePositions(state, _is_waiting)
        self._holders_index = Holders(state)
        self._changes = SmallestChange(state, placer, gang_allocator)
        self._estimates = StartEstimator(state, Forecaster(state, gang_allocator), self._positions)
        self._diagnoses: _Diagnoses = {}
        self._nodes_only: dict[tuple[int, int, bool], Explanation] = {}
        """Explanations with nodes as the only reason, by diagnosis, for this version of the table."""
        self._version = -1
        self._permanent: _Diagnoses = {}
        self._packings: dict[tuple[object, ...], Packing | None] = {}
        """Packings on empty nodes, valid for the shape ``_shape``."""
        self._shape = -1
        self._totals: dict[str, int] = {}
        """Total of all nodes by resource, valid for the shape ``_totals_shape``."""
        self._totals_shape = -1

    def explain(self, group: GroupEntry, now: float, *, in_full: bool = False) -> Explanation | None:
        """Return the explanation of a group that waits or has lost members.

        ``None`` for other groups.

        ``in_full``: compute everything again, with queue position and holders.
        Otherwise the groups of a parked class share one explanation.
        """
        if not (in_full or self._state.config.reports):
            return None
        if not _is_waiting(group):
            return self.diagnose(group, now, in_full=in_full) if group.has_lost_members() else None
        if in_full:
            return self._complete(group, self.diagnose(group, now, in_full=True), now)
        pending_class = group.pending_class
        if (
            pending_class is None
            or not pending_class.parked
            or pending_class.explanation is None
            or _is_individual(group, pending_class)
        ):
            return self.diagnose(group, now)
        return pending_class.explanation

    # ------------------------------------------------------------------ composition

    def diagnose(self, group: GroupEntry, now: float, *, in_full: bool = False) -> Explanation:
        """Return everything that keeps a pending group from its next step."""
        if nominated(group):
            return self._nomination_reasons(group)
        step = next_step(group) if group.group is not None else None
        if self.early_starts is not None and (
            early := early_messages.sentence(self.early_starts, group, now)
        ):
            return self._early_explanation(group, early)
        reasons = self._group_reasons(group, step, now) + self._queue_reasons(group)
        diagnoses: list[NodeDiagnosis] = []
        domains: DomainDiagnosis | None = None
        if isinstance(step, NextTasks):
            reasons += (
                self._limit_reasons(group, step) + self._reservation_reasons(group) + _budget_reasons(group)
            )
            reasons += self._time_sharing_reasons(group, now)
            diagnoses = self._node_diagnoses(group, step)
            reasons += self._sum_reasons(group, step, diagnoses)
            if (
                not (reasons or in_full or group.has_topology)
                and len(diagnoses) == 1
                and (node_reason := _reason_of(diagnoses[0]))
            ):
                return self._nodes_only_explanation(group, step, diagnoses[0], node_reason)
            domains = self._domain_diagnosis(group, step)
            if domains is not None:
                reasons.append(_of_domains(domains, self._ending_of(group, domains, diagnoses)))
            reasons += self._node_reasons(group, step, diagnoses, certain=bool(reasons), in_full=in_full)
        elif group.pending:
            diagnoses = self._node_diagnoses(group, step, permanent=not in_full)
            reasons += [reason for v in diagnoses if (reason := _never(v)) is not None]
            if step is None and group.best_effort_separate:
                diagnoses = self._best_effort_diagnoses(group)
                reasons += [reason for v in diagnoses if (reason := _reason_of(v)) is not None]
        if not isinstance(step, NextTasks):
            reasons += self._minimum_reasons(group)
        if not reasons:
            return _not_evaluated()
        reasons = sorted(_each_limit_once(reasons), key=lambda obstacle: obstacle.severity)
        first = reasons[0]
        nearest = next((NearMiss(*v.nearest) for v in diagnoses if v.nearest is not None), None)
        if domains is not None and first.code is domains.code:
            nearest = domains.nearest
        codes = [o.code for o in reasons if not o.remedies]
        remedies = (
            *dict.fromkeys(remedy for obstacle in reasons for remedy in obstacle.remedies),
            *remedies_for(codes, group, self._state, diagnoses, step),
            *budget_blockers.remedies(_budget_blockers(group)),
        )
        return Explanation(
            code=first.code,
            message=" ".join(obstacle.sentence for obstacle in reasons),
            blockers=tuple(dict.fromkeys(b for obstacle in reasons for b in obstacle.blockers)),
            nearest=nearest,
            holders=self._holders(group, step, diagnoses) if in_full else (),
            remedies=remedies if domains is None else (*domain_remedies(domains, group), *remedies),
            nodes_considered=int(self._state.table.live.sum()),
            waiting=first.waiting,
        )

    def _nodes_only_explanation(
        self, group: GroupEntry, step: NextTasks, diagnosis: NodeDiagnosis, reason: PendingReason
    ) -> Explanation:
        """Return one explanation for all groups with the same node diagnosis and no other reason."""
        key = (id(diagnosis), group.held_members, group.timed)
        cached = self._nodes_only.get(key)
        if cached is None:
            cached = self._nodes_only[key] = Explanation(
                code=reason.code,
                message=reason.sentence,
                blockers=tuple(dict.fromkeys(reason.blockers)),
                nearest=NearMiss(*diagnosis.nearest) if diagnosis.nearest else None,
                remedies=remedies_for([reason.code], group, self._state, [diagnosis], step),
                nodes_considered=int(self._state.table.live.sum()),
                waiting=reason.waiting,
            )
        return cached

    def _complete(self, group: GroupEntry, explanation: Explanation, now: float) -> Explanation:
        """Add what is specific to the group: position, estimated start, smallest changes."""
        position, ahead = self._positions.find(group, now)
        step = next_step(group) if group.group is not None else None
        changes = self._changes.find(self._statement, group, step)
        domains = self._domain_diagnosis(group, step) if isinstance(step, NextTasks) else None
        remedies = (*tried_remedies(changes, group, domains), *explanation.remedies)
        estimate = NO_ESTIMATE
        if explanation.waiting_helps != "no":
            estimate = self._estimates.find(self._statement, group, now)
        return replace(
            explanation,
            position=position,
            ahead=ahead,
            estimate_seconds=estimate.seconds,
            estimate_basis=estimate.basis,
            estimate_at=now if estimate.seconds is not None else 0.0,
            planned_nodes=estimate.planned,
            changes=changes,
            remedies=remedies,
        )

    # ------------------------------------------------------------------ group

    def _nomination_reasons(self, group: GroupEntry) -> Explanation:
        """Return the explanation of a group with nominated capacity that is still being released."""
        table = self._state.table
        names = table.names
        tasks = Counter(names[entry.nominated_row] for entry in nominated(group))
        blockers = tuple(
            Blocker(Reason.WAITING_FOR_VICTIMS, nodes=1, resource="tasks", needed=str(n), detail=name)
            for name, n in sorted(tasks.items())
        )
        return Explanation(
            code=Reason.WAITING_FOR_VICTIMS,
            message=messages.nominations(
                sorted(tasks.items()),
                present=any(
                    table.planes[entry.nominated_row, RELEASING, 0] > 0 for entry in nominated(group)
                ),
            ),
            blockers=blockers,
            nodes_considered=int(self._state.table.live.sum()),
        )

    def _early_explanation(self, group: GroupEntry, sentence: str) -> Explanation:
        """Return the explanation of a group that waits for its earliest start."""
        reasons = [_reason(Reason.EARLIEST_START, sentence), *self._queue_reasons(group)]
        if group.spec.held:
            reasons.append(_reason(Reason.ON_HOLD, "It is on hold."))
        reasons.sort(key=lambda obstacle: obstacle.severity)
        return Explanation(
            code=reasons[0].code,
            message=" ".join(obstacle.sentence for obstacle in reasons),
            blockers=tuple(dict.fromkeys(b for obstacle in reasons for b in obstacle.blockers)),
            nodes_considered=int(self._state.table.live.sum()),
        )

    def _group_reasons(
        self, group: GroupEntry, step: NextTasks | Shortage | None, now: float
    ) -> list[PendingReason]:
        spec = group.group
        if spec is None:
            return [_reason(Reason.WAITING_FOR_MEMBERS, messages.unknown_group(group.key))]
        reasons = []
        if spec.held:
            reasons.append(_reason(Reason.ON_HOLD, "It is on hold."))
        rejection = self._state.gate.rejection(group)
        if rejection is not None:
            remedies = self._limit_remedies(group, step, [])
            reasons.append(_not_admitted(group, step, rejection, remedies))
        if not group.tasks and (rejection is not None or self._queue_reasons(group)):
            return reasons  # no controller creates its pods before it is admitted
        if group.rejection is not None:
            reasons.append(_rejected(group.rejection))
        elif group.not_before > now:
            sentence = messages.bind_failed(group.failure, group.failures, group.not_before - now)
            reasons.append(_reason(Reason.BIND_FAILED, sentence))
        if not group.tasks and not group.ready():
            step = Shortage("", spec.min_member, 0, 0)
        if isinstance(step, Shortage):
            code = Reason.SCHEDULING_GATED if _gates_decide(step) else Reason.WAITING_FOR_MEMBERS
            blocker = Blocker(
                code,
                resource=step.role or step.subgroup.rstrip("/") or "tasks",
                needed=str(step.needed),
                available=str(step.available),
            )
            reasons.append(PendingReason(code, messages.shortage(step), (blocker,)))
        return reasons

    def _reservation_reasons(self, group: GroupEntry) -> list[PendingReason]:
        """Return the reason if capacity is reserved for another group, or if the order is strict."""
        pending_class = group.pending_class
        if (
            pending_class is not None
            and pending_class.is_strict
            and (head := pending_class.head()) is not None
            and head is not group
        ):
            return [_reason(Reason.BEHIND_IN_QUEUE, messages.behind_strict(head.key), head.key)]
        kept_for = group.pending_class.wake_conditions.reserved_for if group.pending_class is not None else ""
        # The reservation may have ended without anything that lets this group be tried again.
        if not kept_for or not self._has_reservation(kept_for):
            return []
        sentence = messages.reserved(kept_for, certain_run_time(group), group.spec.learned)
        return [_reason(Reason.BEHIND_IN_QUEUE, sentence, kept_for)]

    def _has_reservation(self, key: str) -> bool:
        return key in self.ordinary() or (self.early_starts is not None and key in self.early_starts.by_group)

    def _time_sharing_reasons(self, group: GroupEntry, now: float) -> list[PendingReason]:
        """Return the reason of a time-sharing group that was suspended, or may not suspend others."""
        time_sharing = self._state.time_sharing
        time_account = time_sharing.accounts.get(group.key)
        if time_account is None or time_account.started is not None:
            return []
        if not time_account.segment.suspensions:
            protected_until = time_sharing.outweighed(time_account, now)
            if protected_until is None:
                return []
            until_saved = protected_until - now if now < protected_until < inf else None
            return [_reason(Reason.TIME_SHARED, messages.outweighed(until_saved))]
        next_turn = time_sharing.next_turn(time_account, now)
        seconds_left = None if next_turn is None else max(next_turn - now, 0.0)
        sentence = messages.suspended(
            time_account.segment.suspensions, time_account.segment.attained, seconds_left
        )
        return [_reason(Reason.TIME_SHARED, sentence)]

    def _minimum_reasons(self, group: GroupEntry) -> list[PendingReason]:
        """Return the reason if a gang without all its pods requires more than all nodes have.

        It is known before its pods are created.
        """
        spec = group.group
        if spec is None or not spec.min_resources or group.active:
            return []
        if min_resources.is_beyond(self._state.gate.rejection(group)):
            return []  # admission says so
        return self._exceeds_cluster(spec.min_resources)

    def _sum_reasons(
        self, group: GroupEntry, step: NextTasks, diagnoses: Sequence[NodeDiagnosis]
    ) -> list[PendingReason]:
        """Return the reason if a gang of several classes requires more than all nodes have."""
        if step.extra or any(v.never is not None for v in diagnoses):
            return []
        if len(diagnoses) > 1 and (reasons := self._exceeds_cluster(min_usage(group, step))):
            return reasons
        packing = self._packing(group, step) if len(diagnoses) > 1 or _excludes_itself(diagnoses) else None
        members = required_tasks(step)
        if packing is None or not packing.exact or packing.members >= members:
            return []
        blocker = Blocker(
            Reason.EXCEEDS_CLUSTER,
            0,
            "tasks",
            str(members),
            str(packing.members),
            "placed together on empty nodes",
        )
        remedy = f"Ask for at most {packing.members} pods at once, or for less per pod, or add nodes."
        sentence = messages.never_together(packing.members, members)
        return [PendingReason(Reason.EXCEEDS_CLUSTER, sentence, (blocker,), (remedy,))]

    def _packing(self, group: GroupEntry, step: NextTasks) -> Packing | None:
        """Return the places of the step on empty nodes, from the last change of nodes if known."""
        if self._shape != self._state.table.shape:
            self._permanent.clear()
            self._packings.clear()
            self._shape = self._state.table.shape
        held = tuple(
            sorted(
                (e.cls.number, e.row) for e in group.tasks.values() if e.row >= 0 and e.state not in ENDING
            )
        )
        wanted = tuple((batch.cls.number, len(batch.entries)) for batch in step.batches)
        key = (wanted, required_tasks(step), held)
        if key not in self._packings:
            self._packings[key] = pack(self._state, group, step)
        return self._packings[key]

    def _exceeds_cluster(self, needs: Mapping[str, int]) -> list[PendingReason]:
        """Return the reason if all nodes together, even empty, have too little."""
        missing = []
        for name, units in sorted(needs.items()):
            total = self._total(name)
            if units > total:
                needed, available = from_units(name, units), from_units(name, total)
                missing.append(Blocker(Reason.EXCEEDS_CLUSTER, 0, name, needed, available))
        if not missing:
            return []
        return [PendingReason(Reason.EXCEEDS_CLUSTER, messages.minimum(missing), tuple(missing))]

    def _total(self, resource: str) -> int:
        """Return the total of all nodes, in units."""
        table = self._state.table
        if self._totals_shape != table.shape:
            self._totals.clear()
            self._totals_shape = table.shape
        if resource not in self._totals:
            view = TableView(table, np.flatnonzero(table.live[: table.height]))
            self._totals[resource] = int(view.allocatable(resource).sum())
        return self._totals[resource]

    # ------------------------------------------------------------------ queue

    def _queue_reasons(self, group: GroupEntry) -> list[PendingReason]:
        queue = group.queue
        if queue is None:
            return []
        reason = closed_reason(queue)
        if reason is None:
            return []
        missing = next((a.name for a in queue.path if a.missing), queue.name)
        codes = {"missing": Reason.QUEUE_NOT_FOUND, "parent-missing": Reason.QUEUE_NOT_FOUND}
        codes |= {"not-leaf": Reason.QUEUE_NOT_LEAF, "closed": Reason.QUEUE_CLOSED}
        closed = next((a for a in queue.path if a.spec.state != "Open"), queue)
        sentence = {
            "missing": f"Queue {queue.name} does not exist.",
            "parent-missing": f"Queue {missing}, above queue {queue.name}, does not exist.",
            "not-leaf": f"Queue {queue.name} has queues below it; work goes into one of those.",
            "closed": f"Queue {closed.name} is {closed.spec.state.value.lower()} and takes no new work.",
        }[reason]
        return [_reason(codes[reason], sentence, detail=missing if "missing" in reason else closed.name)]

    def _limit_reasons(self, group: GroupEntry, step: NextTasks) -> list[PendingReason]:
        """Return the rejections of the whole step by queues and plugins."""
        rejections = self._gang_allocator.rejections_of(group, whole_step_view(group, step))
        reasons = _rejected_by_limits(rejections, self._limit_remedies(group, step, rejections))
        for at, rejection in enumerate(rejections):
            ending = ending_tasks.ending_in(self._state, group, rejection)
            if ending:
                reasons[at] = replace(
                    reasons[at],
                    sentence=f"{reasons[at].sentence} {ending_tasks.sentence(self._state.table, ending)}",
                    remedies=(*reasons[at].remedies, *ending_tasks.remedies(ending)),
                    waiting="maybe" if ending_tasks.fills_limit(group, rejection, ending) else "",
                )
        return reasons

    def _limit_remedies(
        self, group: GroupEntry, step: NextTasks | Shortage | None, rejections: Sequence[Rejection]
    ) -> tuple[str, ...]:
        """Return the remedies for limits: those that reject the step, and that of the gate."""
        gate = self._state.gate
        closed = gate.rejection(group)
        request, reserved = {}, gate.reserved if closed is not None else {}
        if closed is not None:
            request, rejections = dict(group.spec.min_resources), [closed, *rejections]
        if not isinstance(step, NextTasks):
            return limit_remedies(group, request, rejections, tuple, reserved)
        view = whole_step_view(group, step)
        for name, units in view.request.items():
            request[name] = max(units, request.get(name, 0))
        evaluate = self._gang_allocator.rejections_of
        return limit_remedies(group, request, rejections, lambda: evaluate(group, view), reserved)

    # ------------------------------------------------------------------ nodes

    def _node_diagnoses(
        self, group: GroupEntry, step: NextTasks | Shortage | None, *, permanent: bool = False
    ) -> list[NodeDiagnosis]:
        """Return one node diagnosis per pending class, in task order.

        A gang of one class is diagnosed for all missing tasks, otherwise for a single
        task per class. ``permanent``: use a diagnosis from the last change of nodes, for
        a gang that is examined for every new member.
        """
        classes: dict[TaskClass, str] = {}
        for entry in group.waiting():
            if entry.cls not in classes:
                classes[entry.cls] = entry.task.role
                if len(classes) in (len(group.pending_classes), _MAX_CLASSES):
                    break
        if isinstance(step, NextTasks) and len(classes) == 1:
            (cls,) = classes
            cls.refresh()
            held = 0
            if not step.extra:
                held = sum(
                    e.cls is cls and e.row >= 0 and e.state not in ENDING and bool(cls.static[e.row])
                    for e in group.tasks.values()
                )
            replicas, replica_of = self._replicas(group, cls)
            if replicas > held:
                request = DiagnosedRequest(step.members, replicas, replica_of=replica_of)
                return [self._node_diagnosis(cls, request)]
            return [self._node_diagnosis(cls, DiagnosedRequest(step.members, held))]
        cache = self._permanent if permanent else self._diagnoses
        return [
            self._node_diagnosis(cls, DiagnosedRequest(1, 0, role, permanent), cache)
            for cls, role in classes.items()
        ]

    def _replicas(self, group: GroupEntry, cls: TaskClass) -> tuple[int, str]:
        """Return the number of replicas of its controller that run on nodes which the class may use."""
        first = next(group.waiting(), None)
        controller = first.task.replica_of if first is not None else ""
        if not controller or first is None:
            return 0, ""
        namespace = first.key.partition("/")[0]
        running = sum(
            entry.cls is cls
            and entry.task.replica_of == controller
            and entry.key.partition("/")[0] == namespace
            and entry.state not in ENDING
            for row in cls.placed
            if cls.static[row]
            for entry in tasks_on(self._state.table, row).values()
        )
        return running, controller

    def _best_effort_diagnoses(self, group: GroupEntry) -> list[NodeDiagnosis]:
        """Return one node diagnosis per class of pods without requests, which ``backfill`` places.

        If nothing of a gang runs, ``backfill`` starts its minimum or nothing.
        """
        classes = dict.fromkeys(entry.cls for entry in group.waiting() if entry.cls.is_best_effort)
        together = 1 if group.active or len(classes) > 1 else group.minimum - group.succeeded
        request = DiagnosedRequest(max(together, 1))
        return [self._node_diagnosis(cls, request) for cls in list(classes)[:_MAX_CLASSES]]

    def _node_diagnosis(
        self, cls: TaskClass, request: DiagnosedRequest, cache: _Diagnoses | None = None
    ) -> NodeDiagnosis:
        table = self._state.table
        if self._version != table.version:
            self._diagnoses.clear()
            self._nodes_only.clear()
            self._version = table.version
        if self._shape != table.shape:
            self._permanent.clear()
            self._packings.clear()
            self._shape = table.shape
        cache = self._diagnoses if cache is None else cache
        reasons = cache.get((cls.number, request))
        if reasons is None:
            reasons = cache[cls.number, request] = diagnose_nodes(self._state, self._placer, cls, request)
        return reasons

    def _node_reasons(
        self,
        group: GroupEntry,
        step: NextTasks,
        diagnoses: list[NodeDiagnosis],
        *,
        certain: bool,
        in_full: bool,
    ) -> list[PendingReason]:
        reasons = []
        for diagnosis in diagnoses:
            reason = _reason_of(diagnosis)
            if reason is not None:
                reasons.append(reason)
        if not reasons and not certain and group.pending_class is not None and group.pending_class.parked:
            reasons.append(self._gang_reason(group, step, diagnoses, in_full=in_full))
        return reasons

    def _domain_diagnosis(self, group: GroupEntry, step: NextTasks) -> DomainDiagnosis | None:
        """Return the diagnosis of the domains that the group requires."""
        return diagnose_domains(self._state, self._gang_allocator, group, step)

    def _ending_of(
        self, group: GroupEntry, domains: DomainDiagnosis, diagnoses: Sequence[NodeDiagnosis]
    ) -> str:
        """Return the sentence about terminating tasks in the way, if no diagnosis of nodes has it."""
        if domains.code is not Reason.TOPOLOGY_PLACEMENT_FAILED or any(v.ending for v in diagnoses):
            return ""
        ending: dict[str, TaskEntry] = {}
        for v in diagnoses:
            scarce = [name for name, _ in v.cls.node_items if name != PODS]
            ending |= {e.key: e for e in ending_tasks.ending_on(self._state, v.cls, v.matching, scarce)}
        return ending_tasks.sentence(self._state.table, list(ending.values()))

    def _gang_reason(
        self, group: GroupEntry, step: NextTasks, diagnoses: list[NodeDiagnosis], *, in_full: bool
    ) -> PendingReason:
        """Return the reason if every pod fits by itself, but not all together.

        It tells how many fit and, with ``in_full``, what blocks the next one.
        """
        if group.subgroup_topologies:
            together = diagnose_together(self._state, self._gang_allocator, self._statement, group, step)
            if together is not None:
                placed_before, found = together
                sentence = messages.after_subgroups(placed_before, found.sentence)
                return PendingReason(Reason.TOPOLOGY_PLACEMENT_FAILED, sentence, found.blockers)
        placed = self._gang_allocator.try_group(self._statement, group, step)
        self._statement.rollback()
        requires_domain = group.has_topology and self._gang_allocator.domain_selector.requires_domain(group)
        code = Reason.TOPOLOGY_PLACEMENT_FAILED if requires_domain else Reason.INSUFFICIENT_RESOURCES
        sentence = messages.not_together(placed.reached, step.members, near=requires_domain)
        blocker = Blocker(
            code,
            resource="tasks",
            needed=str(step.members),
            available=str(placed.reached),
            detail="placed together",
        )
        next_pod = (
            self._next_pod_diagnosis(group, step, placed.reached)
            if in_full and not group.has_topology
            else None
        )
        if next_pod is not None:
            sentence = f"{sentence} {messages.next_pod_sentence(next_pod.sentence)}"
            diagnoses = [next_pod]
        blockers = tuple(b for diagnosis in diagnoses for b in diagnosis.blockers if b.resource != "tasks")
        waiting = "" if self._others_run(group) else "maybe"
        return PendingReason(code, sentence, (blocker, *blockers), waiting=waiting)

    def _others_run(self, group: GroupEntry) -> bool:
        """Return whether a task of another group holds anything on a node that the group may use."""
        table = self._state.table
        usable = np.zeros(table.height, dtype=np.bool_)
        for cls in group.pending_classes:
            cls.refresh()
            usable |= cls.static[: table.height]
        rows = np.flatnonzero(usable & table.live[: table.height])
        return any(
            entry.group is not group for row in rows.tolist() for entry in tasks_on(table, row).values()
        )

    def _next_pod_diagnosis(self, group: GroupEntry, step: NextTasks, placed: int) -> NodeDiagnosis | None:
        """Return the blockers of one more pod after ``placed`` pods; ``None`` if it fits."""
        diagnosis = None
        if (
            placed
            and self._gang_allocator.try_group(
                self._statement, group, NextTasks(list(step.batches), placed, {})
            ).done
        ):
            remaining_cls = next((entry.cls for entry in group.waiting()), None)
            if remaining_cls is not None:
                diagnosis = diagnose_nodes(self._state, self._placer, remaining_cls, DiagnosedRequest(1))
        self._statement.rollback()
        return diagnosis if diagnosis is not None and (diagnosis.never or diagnosis.now) else None

    def _holders(
        self, group: GroupEntry, step: NextTasks | Shortage | None, diagnoses: list[NodeDiagnosis]
    ) -> tuple[str, ...]:
        """Return the groups that hold what is missing."""
        rejections: list[Rejection] = []
        if isinstance(step, NextTasks):
            rejections = self._gang_allocator.rejections_of(group, whole_step_view(group, step))
        return self._holders_index.find(group, diagnoses, rejections)


def _excludes_itself(diagnoses: Sequence[NodeDiagnosis]) -> bool:
    """Return whether tasks of the class may exclude one another on nodes or in domains."""
    needs = diagnoses[0].cls.needs if diagnoses else None
    return needs is not None and bool(needs.anti_affinity or needs.host_ports)


def _reason_of(diagnosis: NodeDiagnosis) -> PendingReason | None:
    return _never(diagnosis) or _now(diagnosis)


def _is_waiting(group: GroupEntry) -> bool:
    """Return whether any task of the group is pending or missing."""
    if group.pending:
        return True
    if not group.tasks:
        return group.group is not None and not group.ready()
    if len(group.tasks) == group.active:
        return False
    return any(e.state is PENDING for e in group.tasks.values())


def _is_individual(group: GroupEntry, pending_class: PendingClass) -> bool:
    """Return whether groups of the class wait for individual reasons."""
    return pending_class.is_strict or (group.timed and bool(pending_class.wake_conditions.reserved_for))


def _budget_blockers(group: GroupEntry) -> list[budget_blockers.BudgetBlocker]:
    """Return the budgets that alone blocked its preemptions.

    In a strict order only those of the first group.
    """
    pending_class = group.pending_class
    if (
        pending_class is None
        or not pending_class.budget_blockers
        or (pending_class.is_strict and pending_class.head() is not group)
    ):
        return []
    return budget_blockers.merge_blockers(pending_class.budget_blockers)


def _budget_reasons(group: GroupEntry) -> list[PendingReason]:
    reasons = _budget_blockers(group)
    if not reasons:
        return []
    return [
        PendingReason(
            Reason.DISRUPTION_BUDGETS, budget_blockers.sentence(reasons), budget_blockers.blockers(reasons)
        )
    ]


def _not_evaluated() -> Explanation:
    return Explanation(Reason.PENDING_EVALUATION, "It has not been evaluated yet.")


def _gates_decide(shortage: Shortage) -> bool:
    return shortage.gated > 0 and shortage.available + shortage.gated >= shortage.needed


def _reason(code: Reason, sentence: str, detail: str = "") -> PendingReason:
    return PendingReason(code, sentence, (Blocker(code, detail=detail),))


def _rejected(rejection: Rejection) -> PendingReason:
    resource = rejection.resource
    needed = from_units(resource, rejection.needed) if resource else ""
    available = from_units(resource, rejection.available) if resource else ""
    blocker = Blocker(
        rejection.code, resource=resource, needed=needed, available=available, detail=rejection.detail
    )
    return PendingReason(rejection.code, messages.rejection(rejection), (blocker,), rejection.remedies)


def _not_admitted(
    group: GroupEntry, step: NextTasks | Shortage | None, rejection: Rejection, remedies: tuple[str, ...]
) -> PendingReason:
    """Return the reason of a group that the action ``enqueue`` does not admit.

    ``remedies``: for a rejection by a limit of a queue.
    """
    if not min_resources.is_beyond(rejection):
        return _rejected_by_limits([rejection], remedies)[0]
    remedies = min_resources.remedies(group, step, rejection)
    return replace(_rejected(rejection), sentence=min_resources.sentence(rejection), remedies=remedies)


def _rejected_by_limits(rejections: Sequence[Rejection], remedies: tuple[str, ...]) -> list[PendingReason]:
    """Return the reasons of rejections. ``remedies``: for those by limits of queues."""
    reasons = []
    for rejection in rejections:
        reason = _rejected(rejection)
        if rejection.code in LIMIT_CODES and not rejection.remedies:
            reason = replace(reason, remedies=remedies, limit=(rejection.queue, rejection.resource))
        reasons.append(reason)
    return reasons


def _each_limit_once(reasons: Sequence[PendingReason]) -> list[PendingReason]:
    """Return the reasons with one per limit, whichever plugins reject by it."""
    once = {(reason.code, *(reason.limit or (str(at),))): reason for at, reason in enumerate(reasons)}
    return list(once.values())


def _of_domains(domains: DomainDiagnosis, ending: str) -> PendingReason:
    sentence = f"{domains.sentence} {ending}" if ending else domains.sentence
    return PendingReason(domains.code, sentence, domains.blockers)


def _never(diagnosis: NodeDiagnosis) -> PendingReason | None:
    """Return the reason if waiting does not help: the nodes, even empty, do not hold it."""
    if diagnosis.never is None:
        return None
    return PendingReason(diagnosis.never, diagnosis.sentence, diagnosis.blockers)


def _now(diagnosis: NodeDiagnosis) -> PendingReason | None:
    if diagnosis.now is None:
        return None
    return PendingReason(diagnosis.now, diagnosis.sentence, diagnosis.blockers, waiting=diagnosis.waiting)
