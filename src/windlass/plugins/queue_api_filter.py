"""Restriction of a policy to the work of some queue APIs.

If two APIs share a cluster, each has its own orders and scores. A restricted order
ignores the work of the other API. Keys stay comparable: work that the order covers
comes first.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from windlass.spi.objects import Dialect, Task
from windlass.spi.plugins import (
    GroupOrder,
    GroupView,
    QueueOrder,
    QueueView,
    StepView,
    TaskOrder,
)
from windlass.spi.victims import (
    FreedResources,
    Preemption,
    PreemptionDenied,
    PreemptionPolicy,
    PreemptionTerms,
    Taken,
    VictimKeyInputs,
    VictimSet,
)


class QueueApiFilter:
    """Base of restricted orders.

    ``inside``: only for the work of ``dialect``, otherwise only for that of other APIs.
    """

    def __init__(self, inner: Any, dialect: Dialect, *, inside: bool) -> None:
        self._inner = inner
        self._dialect = dialect
        self._inside = inside
        self.name = str(inner.name)
        self.entangled = bool(getattr(inner, "entangled", False))

    def _applies(self, dialect: Dialect) -> bool:
        return (dialect is self._dialect) is self._inside


class ApiQueueOrder(QueueApiFilter):
    def queue_key(self, queue: QueueView, step: StepView | None) -> tuple[int, Any]:
        if queue.mixed:  # roots of both APIs: one order that compares them decides
            applies = getattr(self._inner, "compares_roots", False)
        else:
            applies = self._applies(queue.spec.dialect)
        return (0, self._inner.queue_key(queue, step)) if applies else (1, 0)


class ApiGroupOrder(QueueApiFilter):
    def group_key(self, group: GroupView) -> tuple[int, Any]:
        return (0, self._inner.group_key(group)) if self._applies(group.spec.dialect) else (1, 0)


class ApiTaskOrder(QueueApiFilter):
    def task_key(self, task: Task) -> tuple[int, Any]:
        return (0, self._inner.task_key(task)) if self._applies(task.needs.dialect) else (1, 0)


class PreemptionPolicyFor:
    """Preemption policy that applies to one action only."""

    def __init__(self, inner: PreemptionPolicy, action: str) -> None:
        self._inner = inner
        self._action = action
        self.name = inner.name

    def preemption_terms(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied | None:
        return self._inner.preemption_terms(preemption) if preemption.action == self._action else None


class VictimsFor:
    """Victim rules that apply to one action only."""

    def __init__(self, inner: Any, action: str) -> None:
        self._inner = inner
        self._action = action
        self.name = str(inner.name)
        self.lasting = bool(getattr(inner, "lasting", False))
        self._has_key_inputs = isinstance(inner, VictimKeyInputs)

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        return preemption.action == self._action and self._inner.protects_queue(preemption, path)

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        return preemption.action == self._action and self._inner.protects_victim(preemption, victim_set)

    def victim_queue_key(self, preemption: Preemption, queue: QueueView, taken: Mapping[str, int]) -> Any:
        return (
            self._inner.victim_queue_key(preemption, queue, taken)
            if preemption.action == self._action
            else None
        )

    def victim_key_inputs(self, preemption: Preemption) -> Hashable:
        return (
            self._inner.victim_key_inputs(preemption)
            if self._has_key_inputs and preemption.action == self._action
            else None
        )

    def victim_key(self, preemption: Preemption, victim_set: VictimSet) -> Any:
        return self._inner.victim_key(preemption, victim_set) if preemption.action == self._action else None

    def may_take(self, preemption: Preemption, victim_set: VictimSet, taken: Taken) -> bool:
        return preemption.action != self._action or self._inner.may_take(preemption, victim_set, taken)

    def validates(self, preemption: Preemption, freed: FreedResources) -> bool:
        return preemption.action != self._action or self._inner.validates(preemption, freed)


def limited_to_api(plugin: object, dialect: Dialect, *, inside: bool) -> list[object]:
    """Return the plugin's orders, restricted to ``dialect`` (``inside``) or to the other APIs.

    A plugin without any order is returned unchanged.
    """
    orders: list[object] = []
    if isinstance(plugin, QueueOrder):
        orders.append(ApiQueueOrder(plugin, dialect, inside=inside))
    if isinstance(plugin, GroupOrder):
        orders.append(ApiGroupOrder(plugin, dialect, inside=inside))
    if isinstance(plugin, TaskOrder):
        orders.append(ApiTaskOrder(plugin, dialect, inside=inside))
    return orders or [plugin]
