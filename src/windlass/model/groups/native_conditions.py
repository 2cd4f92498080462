"""Condition ``PodGroupScheduled`` of a PodGroup of Kubernetes' own API (``scheduling.k8s.io``). Pure.

kube-scheduler writes it on groups whose pods name it; on those whose pods name Windlass it is Windlass', by the same
rules: ``True`` with reason ``Scheduled`` once the minimum has nodes, and for good; before that ``False`` with reason
``Unschedulable`` (``SchedulerError`` where the group contradicts itself) and why. A condition that somebody else has
written is left to them.
"""

from __future__ import annotations

from typing import Any

from windlass.api import views
from windlass.api.reasons import Explanation, Reason
from windlass.kits.timestamps import rfc3339
from windlass.model.groups.member_counts import Members

TYPE = "PodGroupScheduled"
_OWN_MANAGERS = "windlass"
Condition = dict[str, Any]


def desired(
    view: views.NativeGroup, members: Members, told: Explanation | None, now: float
) -> Condition | None:
    """The condition to be written; ``None``: nothing. ``told``: why the group lacks its minimum, where that may be
    said; ``now``: Unix seconds."""
    standing = next((one for one in view.conditions if one.get("type") == TYPE), {})
    if standing.get("status") == "True" or managed_by_others(view):
        return None
    if members.scheduled >= view.min_count:
        words = {"status": "True", "reason": "Scheduled", "message": ""}
    elif told is not None:
        reason = "SchedulerError" if told.code is Reason.MISCONFIGURED else "Unschedulable"
        words = {"status": "False", "reason": reason, "message": told.statement}
    else:
        return None
    if all(standing.get(name) == text for name, text in words.items()):
        return None
    since = standing.get("lastTransitionTime") if standing.get("status") == words["status"] else None
    return {
        "type": TYPE,
        **words,
        "observedGeneration": view.generation,
        "lastTransitionTime": since or rfc3339(now),
    }


def managed_by_others(view: views.NativeGroup) -> bool:
    """Return whether somebody else has written the condition."""
    return any(not manager.startswith(_OWN_MANAGERS) for manager in view.condition_writers)
