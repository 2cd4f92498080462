"""Recheck of explanations of parked groups when nodes or queue limits change.

A parked group is not tried until a wake condition is met, but its explanation can
become wrong meanwhile. A node disappears or a queue limit is lowered, and "waits for
capacity" becomes "can never run". After a change of nodes, all pending groups are
diagnosed again. After a change of a queue's rules, the groups of the queue and its
descendants are. The number per cycle is bounded. A group is reported again if its first
reason changed, or if a reason that does not concern nodes appeared or disappeared.
Amounts in messages may be outdated, but ``explain`` is always current.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from windlass.api.reasons import Explanation
from windlass.engine.diagnosis.group_diagnosis import Diagnosis
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.pending_class import PendingClass, Signature
from windlass.engine.pending.scheduling_queue import SchedulingQueue
from windlass.engine.queueing.queue_position import all_hopeless
from windlass.engine.queues.tree import QueueEntry
from windlass.engine.state.cluster_state import ClusterState

PER_CYCLE = 64


class ExplanationRecheck:
    """Explanations that have to be checked again."""

    def __init__(self, state: ClusterState, scheduling_queue: SchedulingQueue, diagnosis: Diagnosis) -> None:
        self._state = state
        self._scheduling_queue = scheduling_queue
        self._diagnosis = diagnosis
        self.scheduled: dict[Signature | str, None] = {}
        """Signatures of pending classes, and keys of groups outside any, to check in this order."""
        self.revived = False
        """True if some groups that could never run can run now. The reader resets it."""

    def explain_parked(self, parked: Mapping[PendingClass, None], now: float) -> dict[str, GroupEntry]:
        """Explain classes that were just parked. Return the groups to report."""
        touched: dict[str, GroupEntry] = {}
        for pending_class in parked:
            if pending_class.parked and pending_class.members:
                self._explain(pending_class, now, touched)
        return touched

    def schedule(self, touched: Mapping[str, GroupEntry], reshaped: Iterable[QueueEntry]) -> None:
        """Schedule checks after changes of nodes or of queue rules.

        ``touched``: checked anyway, if outside any class.
        ``reshaped``: queues with changed rules, and their descendants.
        """
        for queue in reshaped:
            for group in queue.groups.values():
                if group.pending_class is not None and group.pending_class.parked:
                    self.scheduled[group.pending_class.signature] = None
        table = self._state.table
        if not table.nodes_changed:
            return
        table.nodes_changed = False
        for signature, pending_class in self._scheduling_queue.pending_classes.items():
            if pending_class.parked:
                self.scheduled[signature] = None
        for key, group in self._state.groups.items():
            if (
                group.pending_class is None
                and group.reported is not None
                and group.reported.explanation is not None
                and key not in touched
            ):
                self.scheduled[key] = None

    def schedule_behind(self, ended: Set[str]) -> None:
        """Schedule checks of the classes that waited for the reservations of these groups to end."""
        for signature, pending_class in self._scheduling_queue.pending_classes.items():
            if pending_class.parked and pending_class.wake_conditions.reserved_for in ended:
                self.scheduled[signature] = None

    def check(self, now: float) -> dict[str, GroupEntry]:
        """Check some of the scheduled explanations again. Return the groups with another reason."""
        touched: dict[str, GroupEntry] = {}
        for item in list(self.scheduled)[:PER_CYCLE]:
            del self.scheduled[item]
            if isinstance(item, str):
                group = self._state.groups.get(item)
                if group is not None and group.pending_class is None and self._differs(group, now):
                    touched[item] = group
            else:
                pending_class = self._scheduling_queue.pending_classes.get(item)
                if pending_class is not None and pending_class.parked:
                    self._explain(pending_class, now, touched)
        return touched

    def _explain(self, pending_class: PendingClass, now: float, touched: dict[str, GroupEntry]) -> None:
        head = pending_class.head()
        if head is None:
            raise RuntimeError(f"{pending_class!r} is empty")
        explanation = self._diagnosis.diagnose(head, now)
        was_hopeless = all_hopeless(pending_class)
        reasons = " ".join(_reasons(explanation))
        if reasons != pending_class.reported_codes:
            pending_class.reported_codes = reasons
            touched.update(pending_class.members)
            pending_class.explanation = explanation
        elif pending_class.explanation is None:
            pending_class.explanation = explanation
        self.revived |= was_hopeless and not all_hopeless(pending_class)

    def _differs(self, group: GroupEntry, now: float) -> bool:
        explanation = self._diagnosis.explain(group, now)
        reported = group.reported.explanation if group.reported is not None else None
        return _reasons(explanation) != _reasons(reported)


def _reasons(explanation: Explanation | None) -> list[str]:
    """Return the first reason, and the reasons that more nodes would not resolve."""
    if explanation is None:
        return []
    other_reasons = {str(blocker.code) for blocker in explanation.blockers if not blocker.nodes}
    return [str(explanation.code), *sorted(other_reasons)]
