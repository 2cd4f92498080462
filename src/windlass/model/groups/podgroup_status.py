"""The status of a PodGroup as it should stand: phase, counts, conditions. Pure.

The conditions ``Unschedulable`` and ``Scheduled`` stand by the rule of Volcano's plug-in ``gang`` (``OnSessionClose``
in its ``pkg/scheduler/plugins/gang/gang.go``, 1.15): by whether the pods that are bound, run or have succeeded are
``minMember``, whatever tasks they are of. Otherwise than there, one that is true no more is turned to ``False``, the
reason is the one at hand instead of always ``NotEnoughResources``, and a finished group is not unschedulable.

Conditions are renewed only where their words change; their ``transitionID`` then changes too, and their time; that of
``Scheduled`` only with its status (:func:`was_whole`). Conditions of other types are kept as they are.
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
"""A condition: the gang did not come to its minimum in time after its first bind."""
READY_REASON = "tasks in gang are ready to be scheduled"
"""Volcano's own words."""


@dataclass(frozen=True, slots=True)
class PodGroupState:
    """``told``: the explanation that may be shown now. ``blocked``: the gang as a whole cannot run now.
    ``failed``: what is said of a start that did not come to the minimum."""

    members: Members
    admitted: bool
    blocked: bool
    told: Explanation | None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class PodGroupStatus:
    phase: str
    running: int
    succeeded: int
    failed: int
    conditions: tuple[Condition, ...]

    def patch(self) -> dict[str, Any]:
        """A merge patch for the status subresource."""
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
    """The status as written."""
    return PodGroupStatus(view.phase, view.running, view.succeeded, view.failed, view.conditions)


def phase(view: views.PodGroup, standing: PodGroupState) -> str:
    """The phase as it should be."""
    unschedulable = standing.blocked and standing.told is not None
    return member_counts.phase(
        view.phase, view.min_member, standing.members, standing.admitted, unschedulable
    )


def was_whole(view: views.PodGroup) -> bool:
    """Return whether the gang has had its minimum since it was last begun. ``Unknown`` alone does not say so: by
    Volcano's rule it stands as soon as a member runs and the others have no place. The condition ``Scheduled`` is there
    once there was a minimum, and its time tells whether that was after the reservation of what is there now."""
    if view.phase != member_counts.UNKNOWN:
        return view.phase in (member_counts.RUNNING, member_counts.COMPLETED)
    begun = gang_reservation.decode(view.annotations.get(names.RESERVATION, ""))
    if begun is None:
        return True
    return any(c.type == SCHEDULED and moment(c.last_transition_time) >= begun.at for c in view.conditions)


def desired(view: views.PodGroup, standing: PodGroupState, now: float, transition: str) -> PodGroupStatus:
    """The status as it should be; equal to :func:`current` where nothing has to be written."""
    members = standing.members
    wanted = phase(view, standing)
    return PodGroupStatus(
        wanted,
        members.running,
        members.succeeded,
        members.failed,
        _conditions(view.conditions, wanted, standing, now, transition),
    )


def same_words(left: Sequence[Condition], right: Sequence[Condition]) -> bool:
    """Equal but for times and transition ids."""
    return [_words(c) for c in left] == [_words(c) for c in right]


def _words(condition: Condition) -> tuple[str, str, str, str]:
    return condition.type, condition.status, condition.reason or "", condition.message or ""


def _conditions(
    written: tuple[Condition, ...], phase: str, standing: PodGroupState, now: float, transition: str
) -> tuple[Condition, ...]:
    wanted: dict[str, tuple[str, str, str]] = {}
    told = standing.told
    known = {condition.type for condition in written}
    if told is not None and standing.blocked:
        wanted[UNSCHEDULABLE] = ("True", told.facts.volcano, told.statement)
        if SCHEDULED in known:
            wanted[SCHEDULED] = ("False", told.facts.volcano, "")
    elif phase in (member_counts.RUNNING, member_counts.COMPLETED):
        wanted[SCHEDULED] = ("True", READY_REASON, "")
        if UNSCHEDULABLE in known:
            wanted[UNSCHEDULABLE] = ("False", READY_REASON, "")
        if GANG_BIND_FAILED in known:
            wanted[GANG_BIND_FAILED] = ("False", READY_REASON, "")
    if standing.failed and GANG_BIND_FAILED not in wanted:
        wanted[GANG_BIND_FAILED] = ("True", GANG_BIND_FAILED, standing.failed)
    result = [_renewed(c, wanted.pop(c.type, None), now, transition) for c in written]
    result += [_made(kind, words, now, transition) for kind, words in wanted.items()]
    return tuple(result)


def _renewed(
    condition: Condition, words: tuple[str, str, str] | None, now: float, transition: str
) -> Condition:
    if words is None or _words(condition)[1:] == words:
        return condition
    made = _made(condition.type, words, now, transition)
    if condition.type == SCHEDULED and condition.status == made.status:
        return msgspec.structs.replace(made, last_transition_time=condition.last_transition_time)
    return made


def _made(kind: str, words: tuple[str, str, str], now: float, transition: str) -> Condition:
    status, reason, message = words
    return Condition(kind, status, transition, rfc3339(now), reason, message or None)
