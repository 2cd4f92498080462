"""``capacity``: votes by stated deserved amounts, flat or in a tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.plugins.volcano.queues.resource_bounds import (
    DESERVED,
    beyond,
    closed,
    never_admitted,
    plus,
    requested,
)
from windlass.spi.objects import Resources
from windlass.spi.plugins import FLAVOR, QueueView, Rejection, include_flavors
from windlass.spi.tiers import EnqueueRequest, Purpose, TaskView, Vote

PODS = "pods"


def deserved(queue: QueueView, *, hierarchy: bool) -> dict[str, int]:
    """Return max(min(deserved, real capability), guarantee); in a tree max(deserved, guarantee).

    Only stated amounts count. The deserved amount of device models counts for the
    device, too.
    """
    due = dict(queue.spec.deserved)
    if not hierarchy:
        for name, bound in queue.real_capability.items():
            if name in due:
                due[name] = min(due[name], bound)
    for name, units in queue.spec.guarantee.items():
        due[name] = max(due.get(name, 0), units)
    return dict(include_flavors(due))


class _Capacity:
    name = "capacity"

    def __init__(self, *, hierarchy: bool = False, ancestor_reclaim_level: int = 0) -> None:
        self._hierarchy = hierarchy
        self._levels = ancestor_reclaim_level if hierarchy else 0

    def _path(self, path: Sequence[QueueView]) -> Sequence[QueueView]:
        """Return the tested queues: the leaf; in a tree also its ancestors."""
        return path if self._hierarchy else path[:1]

    def _deserved(self, queue: QueueView) -> dict[str, int]:
        return deserved(queue, hierarchy=self._hierarchy)


class CapacityAllocatable(_Capacity):
    """Vote on allocation: open, and within the real capability at every level."""

    def may_allocate(self, path: Sequence[QueueView], request: Resources) -> Rejection | None:
        rejection = closed(path)
        for queue in self._path(path):
            rejection = rejection or beyond(
                queue, queue.committed, request, queue.real_capability, "capability"
            )
        return rejection


class CapacityEnqueueable(_Capacity):
    """Vote on admission: open, and within the real capability at every level.

    The request is added to held and reserved amounts.
    """

    def admit(self, admission: EnqueueRequest) -> Vote | Rejection:
        path = admission.gang.path
        wanted = admission.gang.spec.min_resources
        rejection = closed(path)
        for queue in self._path(path):
            rejection = rejection or never_admitted(queue, wanted, queue.real_capability, "capability")
        for queue in self._path(path):
            held = plus(queue.committed, admission.reserved.get(queue.name, {}))
            rejection = rejection or beyond(queue, held, wanted, queue.real_capability, "capability")
        return rejection or Vote.PERMIT


class CapacityPreemptionVote(_Capacity):
    """Vote on reclaim by amounts.

    A queue may reclaim for a task that keeps it within its real capability everywhere.
    It must also stay within its deserved amount of at least one requested resource, and
    of each named device model. With ``ancestorReclaimLevel`` it suffices that one of
    the nearest ancestors does.
    """

    def may_reclaim(self, path: Sequence[QueueView], request: Resources) -> Rejection | None:
        leaf = path[0]
        rejection = closed(path) or beyond(leaf, leaf.committed, request, leaf.real_capability, "capability")
        if rejection is not None:
            return rejection
        for queue in (leaf, *_below_root(path, self._levels)):
            if self._within_somewhere(queue, request):
                return None
        due = self._deserved(leaf)
        return beyond(leaf, leaf.committed, request, {name: due.get(name, 0) for name in request}, DESERVED)

    def _within_somewhere(self, queue: QueueView, request: Resources) -> bool:
        due = self._deserved(queue)
        future = plus(queue.committed, request)
        if any(future[name] > due.get(name, 0) for name in requested(request) if FLAVOR in name):
            return False
        return any(future[name] <= due.get(name, 0) for name in requested(request))


class CapacityEvictable(_Capacity):
    """Vote on victims of other queues; see :meth:`may_go`.

    Chosen candidates are subtracted before the next one is tested.
    """

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        if purpose is Purpose.PREEMPT:
            return None
        return self._chosen(preemptor.gang.path, preemptor.request, candidates)

    def _chosen(
        self, path: Sequence[QueueView], request: Resources, candidates: Sequence[TaskView]
    ) -> list[TaskView]:
        left: dict[str, dict[str, int]] = {}
        chosen = []
        for candidate in candidates:
            if self.may_go(path, request, candidate.gang.path, candidate.request, left):
                for queue in candidate.gang.path:
                    left[queue.name] = plus(_held(queue, left), candidate.request, -1)
                chosen.append(candidate)
        return chosen

    def may_go(
        self,
        preemptor: Sequence[QueueView],
        request: Resources,
        path: Sequence[QueueView],
        held: Resources,
        left: Mapping[str, Mapping[str, int]],
    ) -> bool:
        """Return whether a pod that holds ``held`` in the queue at the start of
        ``path`` may be evicted.

        1. The pod holds some requested resource.
        2. Its queue keeps its guarantee.
        3. Its queue deserves none of the resources that the pod uses, or it exceeds the
           deserved amount of one of these and of every device model that the pod uses.
        4. The same holds for each ancestor up to ``ancestorReclaimLevel`` that the
           preemptor does not share at the same level.

        :param left: amounts that queues hold after the earlier victims
        """
        uses = requested(held)
        leaf = path[0]
        if not any(name in uses and name != PODS for name in requested(request)):
            return False
        after = plus(_held(leaf, left), held, -1)
        if any(after.get(name, 0) < units for name, units in leaf.spec.guarantee.items()):
            return False
        if not self._over(leaf, uses, left):
            return False
        if not self._levels:
            return True
        mine = _below_root(preemptor, self._levels)
        theirs = _below_root(path, self._levels)
        shared = {own.name for own, other in zip(mine, theirs, strict=False) if own.name == other.name}
        silent = not (set(self._deserved(leaf)) & set(uses))
        claimer_silent = not (set(self._deserved(preemptor[0])) & set(requested(request)))
        if silent and claimer_silent and shared:
            return False
        return all(self._over(queue, uses, left) for queue in theirs if queue.name not in shared)

    def _over(self, queue: QueueView, uses: Mapping[str, int], left: Mapping[str, Mapping[str, int]]) -> bool:
        due = {name: units for name, units in self._deserved(queue).items() if name in uses}
        held = _held(queue, left)
        if any(held.get(name, 0) <= units for name, units in due.items() if FLAVOR in name):
            return False
        return not due or any(held.get(name, 0) > units for name, units in due.items())


class CapacityVictimQueueOrder(_Capacity):
    """Order of victim queues: in a tree those with the deepest common ancestor with the
    preemptor first."""

    def victim_queue_key(self, preemptor: Sequence[QueueView], path: Sequence[QueueView]) -> int:
        if not self._hierarchy:
            return 0
        mine = {queue.name for queue in preemptor}
        return -sum(1 for queue in path if queue.name in mine)


def _held(queue: QueueView, left: Mapping[str, Mapping[str, int]]) -> Mapping[str, int]:
    return left.get(queue.name, queue.committed)


def _below_root(path: Sequence[QueueView], levels: int) -> Sequence[QueueView]:
    """Return the nearest ancestors of a leaf, at most ``levels``, without the root."""
    ancestors = [queue for queue in path[1:] if queue.parent is not None]
    return ancestors[:levels]
