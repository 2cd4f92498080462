"""What protects running work from claims, and who must wait before claiming. For all kinds of queues."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence

from windlass.api.reasons import Reason
from windlass.kits import durations
from windlass.spi.inputs import Budgets
from windlass.spi.objects import Dialect
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
"""On a pod: nobody's gain is worth its being stopped and started elsewhere."""


class TimedProtection(ABC):
    """A protection that ends at a certain moment for each unit, and speaks of no queue as a whole."""

    protects_no_queue = True
    lasting = True

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        return False

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        until = self.protected_until(preemption, victim_set)
        return until is not None and preemption.now < until

    @abstractmethod
    def protected_until(self, preemption: Preemption, victim_set: VictimSet) -> float | None:
        """When the unit's protection ends or ended, Unix seconds; ``None`` if it has none."""


class MinRuntime(TimedProtection):
    """A core is not taken before its group has run for the time its queue states.

    For preemption the nearest value above the victim counts; for reclaim that of the queue in which the
    victim's path leaves the claimer's, or else the nearest one above that. Tasks beyond the minimum have
    no such protection, and moving work does not ask for it.
    """

    name = "min-runtime"

    def protected_until(self, preemption: Preemption, victim_set: VictimSet) -> float | None:
        """When the unit's protection ends or ended, Unix seconds; ``None`` if it has none."""
        if not victim_set.is_minimum or victim_set.group.started is None:
            return None
        seconds = _protected_for(preemption, victim_set.path)
        return victim_set.group.started + seconds if seconds else None


def _protected_for(preemption: Preemption, path: Sequence[QueueView]) -> float:
    """How many seconds of running the queues protect."""
    if preemption.action == PREEMPT:
        values = [queue.spec.preempt_min_runtime for queue in path]
    elif preemption.action == RECLAIM:
        ours = {queue.name for queue in preemption.path}
        apart = sum(1 for queue in path if queue.name not in ours)
        values = [queue.spec.reclaim_min_runtime for queue in path[max(apart - 1, 0) :]]
    else:
        return 0.0
    return next((value for value in values if value is not None), 0.0)


class PreemptionDelay:
    """Nothing is evicted for a group that preempts nobody, nor before its delay has passed since it was
    created, or since a task of it was last evicted."""

    name = "patience"

    def may_grant(self, action: str, dialect: Dialect) -> bool:
        return False

    def preemption_terms(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied | None:
        group = preemption.group
        if group.never_preempts:
            return PreemptionDenied(Reason.INSUFFICIENT_RESOURCES, detail="it preempts nobody", personal=True)
        if group.preemption_delay > 0:
            since = max(group.created, group.last_eviction or group.created)
            if preemption.now < since + group.preemption_delay:
                return PreemptionDenied(
                    Reason.INSUFFICIENT_RESOURCES,
                    since + group.preemption_delay,
                    "it waits before it has others evicted",
                    personal=True,
                )
        return None


class Cooldown(TimedProtection):
    """A unit of which a pod has run for less than its ``volcano.sh/cooldown-time`` stays."""

    name = "cooldown"

    def protected_until(self, preemption: Preemption, victim_set: VictimSet) -> float | None:
        """When the last of its pods has cooled down, Unix seconds; ``None`` if none says anything."""
        of_group = victim_set.group.annotations.get(COOLDOWN)
        moments = []
        for task in victim_set.tasks:
            text = next((text for name, text in task.annotations if name == COOLDOWN), of_group)
            seconds = _seconds(text)
            if seconds is not None and task.started is not None:
                moments.append(task.started + seconds)
        return max(moments, default=None)


class JobDisruptionBudget:
    """A group keeps at least ``volcano.sh/jdb-min-available`` of its pods, and has at most
    ``volcano.sh/jdb-max-unavailable`` of them away: neither running nor done. Both are numbers, or percentages of
    all its pods (rounded up). Work that is moved is away for a while, so it counts too."""

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
        least = _part(annotations.get(MIN_AVAILABLE), victim_set.size)
        most = _part(annotations.get(MAX_UNAVAILABLE), victim_set.size)
        away = victim_set.size - victim_set.finished - left
        return (least is not None and left < least) or (most is not None and away > most)


class PodBudgets:
    """No more pods go than their PodDisruptionBudgets allow. Work that is moved is away for a while, so it
    counts too."""

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
    """Nothing is moved whose owner has not agreed, by annotation ``windlass.dev/movable: "true"`` on the
    group; KAI's queues mean agreement. Nor is a pod that says of itself that it
    is not safe to evict. Moving is stopping and starting anew, elsewhere."""

    name = "only-movable"
    protects_no_queue = True
    lasting = True

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        return False

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        if preemption.action != CONSOLIDATION:
            return False
        if any(STAYS in task.annotations for task in victim_set.tasks):
            return True
        return (
            victim_set.group.dialect is not Dialect.KAI
            and victim_set.group.annotations.get(MOVABLE) != "true"
        )


class Reserved:
    """Other queues take nothing from one that is not reclaimable, nor what is guaranteed to one."""

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
    """A duration such as ``10m``; ``None`` for none, and for what is none."""
    if text is None:
        return None
    try:
        return durations.parse(text)
    except ValueError:
        return None


def _part(text: str | None, whole: int) -> int | None:
    """``"3"`` or ``"30%"`` of ``whole``, rounded up; ``None`` for none, and for what is neither."""
    if text is None:
        return None
    number = text.removesuffix("%")
    if not number.isdecimal():
        return None
    return -(-int(number) * whole // 100) if text.endswith("%") else int(number)
