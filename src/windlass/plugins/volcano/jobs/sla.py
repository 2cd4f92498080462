"""``sla``: admission by deadline; groups are admitted once their deadline has passed.

The deadline is the group's creation plus ``volcano.sh/sla-waiting-time``, otherwise
plus the argument ``sla-waiting-time``.
"""

from __future__ import annotations

from windlass.plugins.argument_values import Arguments, duration
from windlass.spi.objects import Group
from windlass.spi.plugins import GroupView
from windlass.spi.tiers import EnqueueRequest, Vote


class _Sla:
    name = "sla"

    def __init__(self, arguments: Arguments | None = None) -> None:
        waiting_time = (arguments or {}).get("sla-waiting-time")
        self._limit = duration(waiting_time) if waiting_time is not None else None

    def _deadline(self, group: Group) -> float | None:
        limit = group.waiting_limit if group.waiting_limit is not None else self._limit
        return None if limit is None or limit <= 0 else group.created + limit


class SlaOrder(_Sla):
    """Group order by deadline, earliest first; groups without one come last."""

    def group_key(self, group: GroupView) -> float:
        deadline = self._deadline(group.spec)
        return float("inf") if deadline is None else deadline


class SlaEnqueueable(_Sla):
    def admit(self, admission: EnqueueRequest) -> Vote:
        deadline = self._deadline(admission.gang.spec)
        return Vote.PERMIT if deadline is not None and deadline <= admission.now else Vote.ABSTAIN

    def deadline(self, group: Group) -> float | None:
        """Return the time (Unix seconds) from which the group is permitted; ``None`` for never."""
        return self._deadline(group)
