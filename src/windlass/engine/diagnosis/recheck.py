"""Keeping what was said true.

A parked group is not looked at again until something helps it; but what was said of it can become
untrue meanwhile: a node goes away, or a queue's limit is lowered, and "waits for room" has become "can never
run". Whenever nodes come, go or change, the reasons of everything that waits are judged again, and whenever the
rules of a queue do, those of all that waits in it and below it; a bounded number per cycle. They are
said again where the first reason is another, or one that lies not with nodes has come or gone. Amounts in
messages may lag; ``explain`` is always fresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.api.reasons import Explanation
from windlass.engine.diagnosis.group_diagnosis import Diagnosis
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.pending.scheduling_queue import PendingClass, SchedulingQueue, Signature
from windlass.engine.queueing.queue_position import all_hopeless
from windlass.engine.queues.tree import QueueEntry
from windlass.engine.state.cluster_state import ClusterState

PER_CYCLE = 64


class ExplanationRecheck:
    def __init__(self, state: ClusterState, scheduling_queue: SchedulingQueue, diagnosis: Diagnosis) -> None:
        self._state = state
        self._scheduling_queue = scheduling_queue
        self._diagnosis = diagnosis
        self.open: dict[Signature | str, None] = {}
        """Signatures of buckets and keys of groups outside of any, still to be looked at, in order."""
        self.revived = False
        """Whether some that could never run as nodes and queues were can now. Whoever asks resets it."""

    def tell(self, parked: Mapping[PendingClass, None], now: float) -> dict[str, GroupEntry]:
        """Explain what has just been parked; returns the groups that are to be told."""
        touched: dict[str, GroupEntry] = {}
        for pending_class in parked:
            if pending_class.parked and pending_class.members:
                self._explain(pending_class, now, touched)
        return touched

    def note(self, touched: Mapping[str, GroupEntry], reshaped: Iterable[QueueEntry]) -> None:
        """Have everything judged again if the nodes have changed, and what waits in the queues whose rules
        have (``reshaped``, with those below them). ``touched`` is judged anyway, where it is in no bucket."""
        for queue in reshaped:
            for group in queue.groups.values():
                if group.bucket is not None and group.bucket.parked:
                    self.open[group.bucket.signature] = None
        table = self._state.table
        if not table.reshaped:
            return
        table.reshaped = False
        for signature, pending_class in self._scheduling_queue.pending_classes.items():
            if pending_class.parked:
                self.open[signature] = None
        for key, group in self._state.groups.items():
            if (
                group.bucket is None
                and group.reported is not None
                and group.reported.explanation is not None
                and key not in touched
            ):
                self.open[key] = None

    def review(self, now: float) -> dict[str, GroupEntry]:
        """Judge some of what is open again; returns the groups whose reason is another now."""
        touched: dict[str, GroupEntry] = {}
        for item in list(self.open)[:PER_CYCLE]:
            del self.open[item]
            if isinstance(item, str):
                group = self._state.groups.get(item)
                if group is not None and group.bucket is None and self._differs(group, now):
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
        beyond = all_hopeless(pending_class)
        reasons = " ".join(_reasons(explanation))
        if reasons != pending_class.told:
            pending_class.told = reasons
            touched.update(pending_class.members)
            pending_class.explanation = explanation
        elif pending_class.explanation is None:
            pending_class.explanation = explanation
        self.revived |= beyond and not all_hopeless(pending_class)

    def _differs(self, group: GroupEntry, now: float) -> bool:
        explanation = self._diagnosis.explain(group, now)
        reported = group.reported.explanation if group.reported is not None else None
        return _reasons(explanation) != _reasons(reported)


def _reasons(explanation: Explanation | None) -> list[str]:
    """The first, and whatever lies not with nodes: beside such a reason more nodes would be none the better."""
    if explanation is None:
        return []
    elsewhere = {str(blocker.code) for blocker in explanation.blockers if not blocker.nodes}
    return [str(explanation.code), *sorted(elsewhere)]
