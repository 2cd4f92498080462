"""Protection of running work from preemption, and delays before preempting, for all
queue APIs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence

from windlass.api.reasons import Reason
from windlass.kits import durations
from windlass.spi.inputs import Budgets
from windlass.spi.objects import Dialect, Group, Task
from windlass.spi.plugins import QueueView
from windlass.spi.victims import (
    FreedResources,
    Preemption,
    PreemptionDenied,
    PreemptionTerms,
    Taken,
    VictimSet,
)

PREEMPT = "preempt"
RECLAIM = "reclaim"
CONSOLIDATION = "consolidation"

COOLDOWN = "volcano.sh/cooldown-time"
MIN_AVAILABLE = "volcano.sh/jdb-min-available"
MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"
MOVABLE = "windlass.dev/movable"
STAYS = ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false")
"""Annotation of a pod that must not be moved: no placement is worth its restart."""


class TimedProtection(ABC):
    """Base of protections that end at a known time for each victim set and protect no
    whole queue."""

    protects_no_queue = True
    lasting = True

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        return False

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        until = self.protected_until(preemption, victim_set)
        return until is not None and preemption.now < until

    @abstractmethod
    def protected_until(self, preemption: Preemption, victim_set: VictimSet) -> float | None:
        """Return the end of the victim set's protection (Unix seconds); ``None`` if it has none."""


class MinRuntime(TimedProtection):
    """Protection of a gang's minimum until its group has run for the time that its
    queue states.

    Preemption uses the nearest value above the victim. Reclaim uses the value of the
    queue at which the victim's path parts from the preemptor's, otherwise the nearest
    value above that. Tasks beyond the minimum are not protected, and consolidation
    ignores this protection.
    """

    name = "min-runtime"

    def protected_until(self, preemption: Preemption, victim_set: VictimSet) -> float | None:
        """Return the end of the victim set's protection (Unix seconds); ``None`` if it has none."""
        if not victim_set.is_minimum or victim_set.group.started is None:
            return None
        seconds = _protected_for(preemption, victim_set.path)
        return victim_set.group.started + seconds if seconds else None


def _protected_for(preemption: Preemption, path: Sequence[QueueView]) -> float:
    """Return the minimum run time (seconds) that the queues protect."""
    if preemption.action == PREEMPT:
        values = [queue.spec.preempt_min_runtime for queue in path]
    elif preemption.action == RECLAIM:
        ours = {queue.name for queue in preemption.path}
        outside = sum(1 for queue in path if queue.name not in ours)
        values = [queue.spec.reclaim_min_runtime for queue in path[max(outside - 1, 0) :]]
    else:
        return 0.0
    return next((value for value in values if value is not None), 0.0)


class PreemptionDelay:
    """Denial of preemption for groups that never preempt or are within their preemption delay.

    The delay starts at the group's creation and again when one of its tasks is evicted.
    """

    name = "patience"

    def may_grant(self, action: str, dialect: Dialect) -> bool:
        return False

    def preemption_terms(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied | None:
        group = preemption.group
        if group.never_preempts:
            return PreemptionDenied(Reason.INSUFFICIENT_RESOURCES, detail="it never preempts", personal=True)
        if group.preemption_delay > 0:
            since = max(group.created, group.last_eviction or group.created)
            if preemption.now < since + group.preemption_delay:
                return PreemptionDenied(
                    Reason.INSUFFICIENT_RESOURCES,
                    since + group.preemption_delay,
                    "its preemption delay has not passed",
                    personal=True,
                )
        return None


class Cooldown(TimedProtection):
    """Protection of victim sets with a pod younger than its ``volcano.sh/cooldown-time``."""

    name = "cooldown"

    def protected_until(self, preemption: Preemption, victim_set: VictimSet) -> float | None:
        """Return the end of the last pod's cooldown (Unix seconds); ``None`` if no pod has one."""
        of_group = victim_set.group.annotations.get(COOLDOWN)
        ends = []
        for task in victim_set.tasks:
            text = next((text for name, text in task.annotations if name == COOLDOWN), of_group)
            seconds = _seconds(text)
            if seconds is not None and task.started is not None:
                ends.append(task.started + seconds)
        return max(ends, default=None)


class JobDisruptionBudget:
    """Protection by Volcano's disruption budget of a group.

    A group keeps at least ``volcano.sh/jdb-min-available`` of its pods. At most
    ``volcano.sh/jdb-max-unavailable`` of them are neither running nor finished. Both
    values are numbers, or percentages of all pods (rounded up). Relocated pods are
    unavailable for a while, so they count, too.
    """

    name = "budget"
    protects_no_queue = True
    lasting = True

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        return False

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        annotations = victim_set.group.annotations
        if not annotations:
            return False
        left = victim_set.members - len(victim_set.tasks)
        least = _share_of(annotations.get(MIN_AVAILABLE), victim_set.size)
        most = _share_of(annotations.get(MAX_UNAVAILABLE), victim_set.size)
        away = victim_set.size - victim_set.finished - left
        return (least is not None and left < least) or (most is not None and away > most)


class PodBudgets:
    """Protection by PodDisruptionBudgets: no more pods are evicted than they allow.

    Relocated pods are unavailable for a while, so they count, too.
    """

    name = "pod-budgets"
    protects_no_queue = True
    lasting = True

    def __init__(self) -> None:
        self._budgets: Budgets | None = None

    def take_budgets(self, budgets: Budgets) -> None:
        self._budgets = budgets

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        return False

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        requested = Counter(key for task in victim_set.tasks for key in task.budgets)
        return any(n > left for key, n in requested.items() if (left := self._left(key)) is not None)

    def may_take(self, preemption: Preemption, victim_set: VictimSet, taken: Taken) -> bool:
        return True

    def validates(self, preemption: Preemption, freed: FreedResources) -> bool:
        keys = {key for victim_set in freed.all_sets for task in victim_set.tasks for key in task.budgets}
        return all(left >= 0 for key in keys if (left := self._left(key)) is not None)

    def _left(self, key: str) -> int | None:
        return None if self._budgets is None else self._budgets.left(key)


class OnlyMovable:
    """Protection from relocation, which stops a pod and starts it again on another node.

    A group may be relocated if its annotation ``windlass.dev/movable`` is ``"true"`` or
    its queue belongs to KAI. Pods without a controller would not be recreated, so they
    stay in any case, and so do pods that are annotated as not safe to evict.
    """

    name = "only-movable"
    protects_no_queue = True
    lasting = True

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        return False

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        if preemption.action != CONSOLIDATION:
            return False
        return not all(self.may_relocate(victim_set.group, task) for task in victim_set.tasks)

    def may_relocate(self, group: Group, task: Task) -> bool:
        if not task.owned or STAYS in task.annotations:
            return False
        return group.dialect is Dialect.KAI or group.annotations.get(MOVABLE) == "true"


class Reserved:
    """Protection of queues that are not reclaimable, and of guaranteed amounts, from
    other queues."""

    name = "reserved"
    lasting = True

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        return preemption.action == RECLAIM and not path[0].spec.reclaimable

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        return False

    def may_take(self, preemption: Preemption, victim_set: VictimSet, taken: Taken) -> bool:
        if preemption.action != RECLAIM:
            return True
        own = {queue.name for queue in preemption.path}
        for queue in victim_set.path:
            if queue.name in own:
                break
            given = taken.get(queue.name, {})
            for name, least in queue.spec.guarantee.items():
                units = victim_set.request.get(name, 0)
                if units and preemption.held(queue).get(name, 0) - given.get(name, 0) - units < least:
                    return False
        return True

    def validates(self, preemption: Preemption, freed: FreedResources) -> bool:
        return True


def _seconds(text: str | None) -> float | None:
    """Return the seconds of a duration such as ``10m``; ``None`` without a valid one."""
    if text is None:
        return None
    try:
        return durations.parse(text)
    except ValueError:
        return None


def _share_of(text: str | None, whole: int) -> int | None:
    """Return ``"3"`` or ``"30%"`` of ``whole``, rounded up; ``None`` for any other text."""
    if text is None:
        return None
    number = text.removesuffix("%")
    if not (number.isascii() and number.isdecimal()):
        return None
    return -(-int(number) * whole // 100) if text.endswith("%") else int(number)
