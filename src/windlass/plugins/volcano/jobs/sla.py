"""``sla``: groups with a deadline for their admission go by it, and are let in once it has passed.

The deadline is the group's age of ``volcano.sh/sla-waiting-time``, else of the argument
``sla-waiting-time``.
"""

from __future__ import annotations

from windlass.plugins.argument_values import Arguments, duration
from windlass.spi.objects import Group
from windlass.spi.plugins import GroupView
from windlass.spi.tiers import EnqueueRequest, Vote


class _Sla:
    name = "sla"

    def __init__(self, arguments: Arguments | None = None) -> None:
        given = (arguments or {}).get("sla-waiting-time")
        self._limit = duration(given) if given is not None else None

    def _deadline(self, group: Group) -> float | None:
        limit = group.waiting_limit if group.waiting_limit is not None else self._limit
        return None if limit is None or limit <= 0 else group.created + limit


class SlaOrder(_Sla):
    """The earlier deadline first; groups without one last."""

    def group_key(self, group: GroupView) -> float:
        deadline = self._deadline(group.spec)
        return float("inf") if deadline is None else deadline


class SlaEnqueueable(_Sla):
    def admit(self, admission: EnqueueRequest) -> Vote:
        deadline = self._deadline(admission.gang.spec)
        return Vote.PERMIT if deadline is not None and deadline <= admission.now else Vote.ABSTAIN

    def deadline(self, group: Group) -> float | None:
        """Unix seconds from which on it permits; ``None`` for never."""
        return self._deadline(group)
