"""Interface of optional observers of scheduling, such as the exporter of traces."""

from __future__ import annotations

from typing import Protocol

from windlass.api.reasons import Explanation
from windlass.engine.decision import Bind, Decision
from windlass.model.groups.member_counts import Members


class SchedulingObserver(Protocol):
    """Observes groups, binds and cycles. Times are Unix seconds."""

    def group_updated(
        self, key: str, admitted: bool, explanation: Explanation | None, members: Members, now: float
    ) -> None:
        """Take in the state of a group."""
        ...

    def group_removed(self, key: str, now: float) -> None:
        """Take in that a group and its pods do not exist any more."""
        ...

    def bind_finished(self, bind: Bind, seconds: float, now: float, fault: str = "") -> None:
        """Take in that a bind succeeded after ``seconds``, or failed because of ``fault``."""
        ...

    def cycle_finished(self, decision: Decision, changes: int, times: tuple[float, ...]) -> None:
        """Take in a cycle. ``times``: its start and the ends of its phases."""
        ...
