"""Reporter of group statuses and queue usage: only changes since the last report."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.engine.decision import GroupStatus, QueueUsage
from windlass.engine.diagnosis.group_diagnosis import Diagnosis
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.queueing.enqueue import closed_reason
from windlass.engine.queues.tree import QueueEntry
from windlass.engine.state.cluster_state import ClusterState


class DiagnosisReporter:
    """Reports groups and queues after a cycle."""

    def __init__(self, state: ClusterState, diagnosis: Diagnosis) -> None:
        self._state = state
        self._diagnosis = diagnosis

    def groups(self, touched: Iterable[GroupEntry], now: float) -> tuple[GroupStatus, ...]:
        """Return the new statuses of these groups, without unchanged ones."""
        result = []
        explain = self._diagnosis.explain
        for group in touched:
            spec, tasks, pending_class = group.group, len(group.tasks), group.pending_class
            if spec is None and not tasks:
                continue
            if pending_class is not None and not pending_class.parked:
                # Not tried in this cycle. All groups of its class are reported after it was tried.
                pending_class.reported_codes = ""
                continue
            placed = tasks and tasks == group.active and tasks >= group.minimum
            status = GroupStatus(
                group.key,
                spec is not None and self.is_admitted(group),
                group.active + group.succeeded,
                0 if placed else waiting_tasks(group),
                None if placed else explain(group, now),
                group.stale_since,
            )
            if status != group.reported:
                group.reported = status
                result.append(status)
        return tuple(result)

    def is_admitted(self, group: GroupEntry) -> bool:
        """Return whether the group's controller may create pods.

        It may if the queue is open and nothing holds the group.

        The answer stays true while some task of the group is placed.
        """
        spec = group.group
        if spec is None:
            return False
        if spec.admitted or group.active or group.succeeded:
            return True
        if spec.held or group.queue is None or closed_reason(group.queue) is not None:
            return False
        return not self._state.gate.is_closed(group)

    def queues(self) -> tuple[QueueUsage, ...]:
        """Return the usage of changed queues."""
        changed, self._state.queues.changed = self._state.queues.changed, {}
        result = []
        for name in sorted(changed):
            entry = changed[name]
            if entry.missing:
                entry.reported = None
                continue
            usage = usage_of(entry)
            if usage != entry.reported:
                entry.reported = usage
                result.append(usage)
        return tuple(result)


def waiting_tasks(group: GroupEntry) -> int:
    """Return the number of tasks that hold nothing and have not ended, gated ones included."""
    if len(group.tasks) == group.active:
        return 0
    if group.pending and len(group.tasks) == group.active + len(group.pending):
        return len(group.pending)
    return len(group.pending) + group.gated()


def usage_of(entry: QueueEntry) -> QueueUsage:
    spec = entry.spec
    return QueueUsage(
        queue=spec.name,
        parent=entry.parent.name if entry.parent is not None else "",
        guarantee=spec.guarantee,
        deserved=spec.deserved,
        capability=spec.capability,
        fair_share={name: units for name, units in entry.fair_share.items() if units},
        allocated={name: units for name, units in entry.allocated.items() if units},
        requested={name: units for name, units in entry.requested.items() if units},
        parts=entry.share.parts,
        unlimited=spec.unlimited,
        releasing={name: units for name, units in entry.releasing.items() if units},
        weightless=tuple(sorted(name for name, weight in spec.surplus_weights.items() if not weight)),
    )
