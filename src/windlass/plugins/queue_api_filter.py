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
from windlass.spi.victims import Claim, Claims, Denied, GoesBy, Loot, Taken, Terms, VictimUnit


class Kept:
    """``inside``: only for the work of ``dialect``; else only for that of the other ones."""

    def __init__(self, inner: Any, dialect: Dialect, *, inside: bool) -> None:
        self._inner = inner
        self._dialect = dialect
        self._inside = inside
        self.name = str(inner.name)
        self.entangled = bool(getattr(inner, "entangled", False))

    def _speaks(self, dialect: Dialect) -> bool:
        return (dialect is self._dialect) is self._inside


class KeptQueueOrder(Kept):
    def queue_key(self, queue: QueueView, step: StepView | None) -> tuple[int, Any]:
        if queue.mixed:  # roots of both APIs: one order that compares them decides
            speaks = getattr(self._inner, "compares_roots", False)
        else:
            speaks = self._speaks(queue.spec.dialect)
        return (0, self._inner.queue_key(queue, step)) if speaks else (1, 0)


class KeptGroupOrder(Kept):
    def group_key(self, group: GroupView) -> tuple[int, Any]:
        return (0, self._inner.group_key(group)) if self._speaks(group.spec.dialect) else (1, 0)


class KeptTaskOrder(Kept):
    def task_key(self, task: Task) -> tuple[int, Any]:
        return (0, self._inner.task_key(task)) if self._speaks(task.needs.dialect) else (1, 0)


class ClaimsFor:
    """Rules about who may claim, for one action only."""

    def __init__(self, inner: Claims, action: str) -> None:
        self._inner = inner
        self._action = action
        self.name = inner.name

    def claims(self, claim: Claim) -> Terms | Denied | None:
        return self._inner.claims(claim) if claim.action == self._action else None


class VictimsFor:
    """Rules about who gives, for claims of one action only."""

    def __init__(self, inner: Any, action: str) -> None:
        self._inner = inner
        self._action = action
        self.name = str(inner.name)
        self.lasting = bool(getattr(inner, "lasting", False))
        self._goes = isinstance(inner, GoesBy)

    def spares_queue(self, claim: Claim, path: Sequence[QueueView]) -> bool:
        return claim.action == self._action and self._inner.spares_queue(claim, path)

    def spares(self, claim: Claim, unit: VictimUnit) -> bool:
        return claim.action == self._action and self._inner.spares(claim, unit)

    def victim_queue_key(self, claim: Claim, queue: QueueView, taken: Mapping[str, int]) -> Any:
        return self._inner.victim_queue_key(claim, queue, taken) if claim.action == self._action else None

    def goes_by(self, claim: Claim) -> Hashable:
        return self._inner.goes_by(claim) if self._goes and claim.action == self._action else None

    def victim_key(self, claim: Claim, unit: VictimUnit) -> Any:
        return self._inner.victim_key(claim, unit) if claim.action == self._action else None

    def may_take(self, claim: Claim, unit: VictimUnit, taken: Taken) -> bool:
        return claim.action != self._action or self._inner.may_take(claim, unit, taken)

    def validates(self, claim: Claim, loot: Loot) -> bool:
        return claim.action != self._action or self._inner.validates(claim, loot)


def kept(plugin: object, dialect: Dialect, *, inside: bool) -> list[object]:
    """The plugin's orders, kept to ``dialect`` (``inside``) or from it; a plugin without any as it is."""
    found: list[object] = []
    if isinstance(plugin, QueueOrder):
        found.append(KeptQueueOrder(plugin, dialect, inside=inside))
    if isinstance(plugin, GroupOrder):
        found.append(KeptGroupOrder(plugin, dialect, inside=inside))
    if isinstance(plugin, TaskOrder):
        found.append(KeptTaskOrder(plugin, dialect, inside=inside))
    return found or [plugin]
