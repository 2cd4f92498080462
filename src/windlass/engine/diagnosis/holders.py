"""Groups that hold the resources that a pending group needs.

Many groups are diagnosed in a row without changes in between. Therefore the sums are
cached: in the node diagnosis, and per queue and resource until the state changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from windlass.engine.diagnosis.node_diagnosis import NodeDiagnosis
from windlass.engine.groups.entries import GroupEntry, tasks_on
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.plugins import Rejection

_MAX_EXAMINED = 512


class Holders:
    """Cached sums of held resources by group."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._in_queues: dict[tuple[str, str], Mapping[str, int]] = {}
        self._stamp = -1

    def find(
        self, group: GroupEntry, diagnoses: Sequence[NodeDiagnosis], rejections: Sequence[Rejection]
    ) -> tuple[str, ...]:
        """Return the groups that hold what is short, on nodes and then in queues.

        The largest holder first.
        """
        limit = self._state.config.explain_holders
        on_nodes = [self._on_nodes(diagnosis) for diagnosis in diagnoses]
        in_queues = [self._in_queue(rejection) for rejection in rejections]
        holders = (*_largest(on_nodes, group.key, limit), *_largest(in_queues, group.key, limit))
        return tuple(dict.fromkeys(holders))[:limit]

    def _on_nodes(self, diagnosis: NodeDiagnosis) -> Mapping[str, int]:
        """Return group → amount of scarce resources that it holds on matching nodes.

        At most a few hundred tasks are examined, node by node in the order of names.
        """
        if diagnosis.held_by is not None:
            return diagnosis.held_by
        held = diagnosis.held_by = {}
        scarce = _scarce_resources(diagnosis)
        if diagnosis.now is None or not scarce:
            return held
        table = self._state.table
        examined = 0
        for row in sorted(diagnosis.matching.tolist(), key=table.names.__getitem__):
            for entry in tasks_on(table, row).values():
                examined += 1
                units = sum(entry.cls.request.get(name, 0) for name in scarce)
                if units and entry.group is not None:
                    held[entry.group.key] = held.get(entry.group.key, 0) + units
            if examined > _MAX_EXAMINED:
                break
        return held

    def _in_queue(self, rejection: Rejection) -> Mapping[str, int]:
        """Return group → amount of the rejected resource in the queue and its descendants."""
        if rejection.permanent or not rejection.resource:
            return {}
        if self._stamp != self._state.stamp:
            self._stamp = self._state.stamp
            self._in_queues.clear()
        key = (rejection.queue, rejection.resource)
        if key not in self._in_queues:
            self._in_queues[key] = self._count(rejection.queue, rejection.resource)
        return self._in_queues[key]

    def _count(self, queue: str, resource: str) -> Mapping[str, int]:
        held = {}
        for entry in self._state.queues:
            if queue not in (ancestor.name for ancestor in entry.path):
                continue
            for group in entry.groups.values():
                tasks = group.tasks.values() if group.active or group.releasing else ()
                units = sum(task.cls.request.get(resource, 0) for task in tasks if task.row >= 0)
                if units:
                    held[group.key] = units
        return held


def _scarce_resources(diagnosis: NodeDiagnosis) -> list[str]:
    """Return the resources that are short on some node, or in total.

    Pods only if nothing else is.
    """
    scarce = dict.fromkeys((*diagnosis.short, *(name for name, _ in diagnosis.scarce)))
    return [name for name in scarce if name != "pods"] or list(scarce)


def _largest(sums: Iterable[Mapping[str, int]], own: str, limit: int) -> list[str]:
    total: dict[str, int] = {}
    for held in sums:
        for key, units in held.items():
            if key != own:
                total[key] = total.get(key, 0) + units
    return sorted(total, key=lambda key: (-total[key], key))[:limit]
