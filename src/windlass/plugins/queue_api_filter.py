"""Keeping a policy to the work of some queue APIs.

Where two APIs share a cluster, each has its own orders and scores. A kept order has no opinion on the
work of the API that it is kept from. Keys stay comparable: work that it speaks of comes first.
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
    """``inside``: only for the work of ``dialect``; else only for that of the other ones."""

    def __init__(self, inner: Any, dialect: Dialect, *, inside: bool) -> None:
        self._inner = inner
        self._dialect = dialect
        self._inside = inside
        self.name = str(inner.name)
        self.entangled = bool(getattr(inner, "entangled", False))

    def _speaks(self, dialect: Dialect) -> bool:
        return (dialect is self._dialect) is self._inside


class ApiQueueOrder(QueueApiFilter):
    def queue_key(self, queue: QueueView, step: StepView | None) -> tuple[int, Any]:
        if queue.mixed:  # roots of both APIs: one order that compares them decides
            speaks = getattr(self._inner, "compares_roots", False)
        else:
            speaks = self._speaks(queue.spec.dialect)
        return (0, self._inner.queue_key(queue, step)) if speaks else (1, 0)


class ApiGroupOrder(QueueApiFilter):
    def group_key(self, group: GroupView) -> tuple[int, Any]:
        return (0, self._inner.group_key(group)) if self._speaks(group.spec.dialect) else (1, 0)


class ApiTaskOrder(QueueApiFilter):
    def task_key(self, task: Task) -> tuple[int, Any]:
        return (0, self._inner.task_key(task)) if self._speaks(task.needs.dialect) else (1, 0)


class PreemptionPolicyFor:
    """Rules about who may claim, for one action only."""

    def __init__(self, inner: PreemptionPolicy, action: str) -> None:
        self._inner = inner
        self._action = action
        self.name = inner.name

    def preemption_terms(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied | None:
        return self._inner.preemption_terms(preemption) if preemption.action == self._action else None


class VictimsFor:
    """Rules about who gives, for claims of one action only."""

    def __init__(self, inner: Any, action: str) -> None:
        self._inner = inner
        self._action = action
        self.name = str(inner.name)
        self.lasting = bool(getattr(inner, "lasting", False))
        self._goes = isinstance(inner, VictimKeyInputs)

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
            if self._goes and preemption.action == self._action
            else None
        )

    def victim_key(self, preemption: Preemption, victim_set: VictimSet) -> Any:
        return self._inner.victim_key(preemption, victim_set) if preemption.action == self._action else None

    def may_take(self, preemption: Preemption, victim_set: VictimSet, taken: Taken) -> bool:
        return preemption.action != self._action or self._inner.may_take(preemption, victim_set, taken)

    def validates(self, preemption: Preemption, freed: FreedResources) -> bool:
        return preemption.action != self._action or self._inner.validates(preemption, freed)


def limited_to_api(plugin: object, dialect: Dialect, *, inside: bool) -> list[object]:
    """The plugin's orders, kept to ``dialect`` (``inside``) or from it; a plugin without any as it is."""
    found: list[object] = []
    if isinstance(plugin, QueueOrder):
        found.append(ApiQueueOrder(plugin, dialect, inside=inside))
    if isinstance(plugin, GroupOrder):
        found.append(ApiGroupOrder(plugin, dialect, inside=inside))
    if isinstance(plugin, TaskOrder):
        found.append(ApiTaskOrder(plugin, dialect, inside=inside))
    return found or [plugin]
