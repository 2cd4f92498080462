"""Desired status of a PodGroup: phase, counts, conditions. Pure.

The conditions ``Unschedulable`` and ``Scheduled`` follow the rule of Volcano's plugin
``gang`` (``OnSessionClose`` in its ``pkg/scheduler/plugins/gang/gang.go``, 1.15):
whether ``minMember`` pods are bound, run or have succeeded, whatever their tasks.
Unlike there, a condition that no longer holds is set to ``False``. The reason is the
actual one instead of always ``NotEnoughResources``. A finished group is not
unschedulable.

Conditions are renewed only if their text changes. Their ``transitionID`` and time
change then, too. The time of ``Scheduled`` changes only with its status
(:func:`was_whole`). Conditions of other types are left unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.reasons import Explanation
from windlass.api.views import Condition
from windlass.api.views.wire import moment
from windlass.kits.timestamps import rfc3339
from windlass.model.groups import member_counts
from windlass.model.groups.member_counts import Members
from windlass.model.records import gang_reservation

UNSCHEDULABLE = "Unschedulable"
SCHEDULED = "Scheduled"
GANG_BIND_FAILED = "GangBindFailed"
"""Condition: the gang did not reach its minimum in time after its first bind."""
READY_REASON = "tasks in gang are ready to be scheduled"
"""Volcano's own text."""


@dataclass(frozen=True, slots=True)
class PodGroupState:
    """State of a group from which its status follows.

    ``explanation``: the explanation that may be shown now.
    ``blocked``: true if the gang as a whole cannot run now.
    ``failed``: message about a start that did not reach the minimum.
    """

    members: Members
    admitted: bool
    blocked: bool
    explanation: Explanation | None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class PodGroupStatus:
    phase: str
    running: int
    succeeded: int
    failed: int
    conditions: tuple[Condition, ...]

    def patch(self) -> dict[str, Any]:
        """Return a merge patch for the status subresource."""
        return {
            "status": {
                "phase": self.phase,
                "running": self.running,
                "succeeded": self.succeeded,
                "failed": self.failed,
                "conditions": [msgspec.to_builtins(condition) for condition in self.conditions],
            }
        }


def current(view: views.PodGroup) -> PodGroupStatus:
    """Return the status as written."""
    return PodGroupStatus(view.phase, view.running, view.succeeded, view.failed, view.conditions)


def phase(view: views.PodGroup, state: PodGroupState) -> str:
    """Return the desired phase."""
    unschedulable = state.blocked and state.explanation is not None
    return member_counts.phase(view.phase, view.min_member, state.members, state.admitted, unschedulable)


def was_whole(view: views.PodGroup) -> bool:
    """Return whether the gang has reached its minimum since its last start.

    ``Unknown`` alone does not tell: by Volcano's rule it is set as soon as one member
    runs and the others have no node. The condition ``Scheduled`` exists once there was
    a minimum. Its time tells whether that was after the current reservation.
    """
    if view.phase != member_counts.UNKNOWN:
        return view.phase in (member_counts.RUNNING, member_counts.COMPLETED)
    reserved_at = gang_reservation.decided_at(view.annotations.get(names.RESERVATION, ""))
    if reserved_at is None:
        return True
    return any(c.type == SCHEDULED and moment(c.last_transition_time) >= reserved_at for c in view.conditions)


def desired(view: views.PodGroup, state: PodGroupState, now: float, transition: str) -> PodGroupStatus:
    """Return the desired status; equal to :func:`current` if nothing has to be written."""
    members = state.members
    wanted = phase(view, state)
    return PodGroupStatus(
        wanted,
        members.running,
        members.succeeded,
        members.failed,
        _conditions(view.conditions, wanted, state, now, transition),
    )


def same_text(left: Sequence[Condition], right: Sequence[Condition]) -> bool:
    """Return whether conditions are equal except for times and transition IDs."""
    return [_text_of(c) for c in left] == [_text_of(c) for c in right]


def _text_of(condition: Condition) -> tuple[str, str, str, str]:
    return condition.type, condition.status, condition.reason or "", condition.message or ""


def _conditions(
    written: tuple[Condition, ...], phase: str, state: PodGroupState, now: float, transition: str
) -> tuple[Condition, ...]:
    wanted: dict[str, tuple[str, str, str]] = {}
    explanation = state.explanation
    known = {condition.type for condition in written}
    if explanation is not None and state.blocked:
        wanted[UNSCHEDULABLE] = ("True", explanation.facts.volcano, explanation.statement)
        if SCHEDULED in known:
            wanted[SCHEDULED] = ("False", explanation.facts.volcano, "")
    elif phase in (member_counts.RUNNING, member_counts.COMPLETED):
        wanted[SCHEDULED] = ("True", READY_REASON, "")
        if UNSCHEDULABLE in known:
            wanted[UNSCHEDULABLE] = ("False", READY_REASON, "")
        if GANG_BIND_FAILED in known:
            wanted[GANG_BIND_FAILED] = ("False", READY_REASON, "")
    if state.failed and GANG_BIND_FAILED not in wanted:
        wanted[GANG_BIND_FAILED] = ("True", GANG_BIND_FAILED, state.failed)
    result = [_renewed(c, wanted.pop(c.type, None), now, transition) for c in written]
    result += [_made(kind, text, now, transition) for kind, text in wanted.items()]
    return tuple(result)


def _renewed(
    condition: Condition, text: tuple[str, str, str] | None, now: float, transition: str
) -> Condition:
    if text is None or _text_of(condition)[1:] == text:
        return condition
    renewed = _made(condition.type, text, now, transition)
    if condition.type == SCHEDULED and condition.status == renewed.status:
        return msgspec.structs.replace(renewed, last_transition_time=condition.last_transition_time)
    return renewed


def _made(kind: str, text: tuple[str, str, str], now: float, transition: str) -> Condition:
    status, reason, message = text
    return Condition(kind, status, transition, rfc3339(now), reason, message or None)
