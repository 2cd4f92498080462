"""What protects running work from claims, and who must wait before claiming. For all kinds of queues."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api.reasons import Reason
from windlass.spi.plugins import QueueView
from windlass.spi.victims import Claim, Denied, Terms, VictimUnit

PREEMPT = "preempt"
RECLAIM = "reclaim"


class MinRuntime:
    """A core is not taken before its group has run for the time its queue states.

    For preemption the nearest value above the victim counts; for reclaim that of the queue in which the
    victim's path leaves the claimer's, or else the nearest one above that. Tasks beyond the minimum have
    no such protection, and moving work does not ask for it.
    """

    name = "min-runtime"

    def spares_queue(self, claim: Claim, path: Sequence[QueueView]) -> bool:
        return False

    def spares(self, claim: Claim, unit: VictimUnit) -> bool:
        until = self.spared_until(claim, unit)
        return until is not None and claim.now < until

    def spared_until(self, claim: Claim, unit: VictimUnit) -> float | None:
        """When the unit's protection ends or ended, Unix seconds; ``None`` if it has none."""
        if not unit.core or unit.group.started is None:
            return None
        seconds = _protected_for(claim, unit.path)
        return unit.group.started + seconds if seconds else None


def _protected_for(claim: Claim, path: Sequence[QueueView]) -> float:
    """How many seconds of running the queues protect."""
    if claim.action == PREEMPT:
        values = [queue.spec.preempt_min_runtime for queue in path]
    elif claim.action == RECLAIM:
        ours = {queue.name for queue in claim.path}
        apart = sum(1 for queue in path if queue.name not in ours)
        values = [queue.spec.reclaim_min_runtime for queue in path[max(apart - 1, 0) :]]
    else:
        return 0.0
    return next((value for value in values if value is not None), 0.0)


class Patience:
    """Nothing is evicted for a group that preempts nobody, nor before its delay has passed since it was
    created, or since a task of it was last evicted."""

    name = "patience"

    def claims(self, claim: Claim) -> Terms | Denied | None:
        group = claim.group
        if group.never_preempts:
            return Denied(Reason.INSUFFICIENT_RESOURCES, detail="it preempts nobody")
        if group.preemption_delay > 0:
            since = max(group.created, group.last_eviction or group.created)
            if claim.now < since + group.preemption_delay:
                return Denied(
                    Reason.INSUFFICIENT_RESOURCES,
                    since + group.preemption_delay,
                    "it waits before it has others evicted",
                )
        return None
