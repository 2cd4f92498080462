"""Condition ``PodGroupScheduled`` of a PodGroup of Kubernetes' own API. Pure.

kube-scheduler writes it on groups with pods that name it. On groups with pods that name
Windlass, Windlass writes it by the same rules: ``True`` with reason ``Scheduled`` once
the minimum has nodes, permanently. Before that it is ``False`` with reason
``Unschedulable`` (``SchedulerError`` if the group's fields contradict one another) and
the explanation. A condition that another controller has written is left to it. The API
group is ``scheduling.k8s.io``.
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
    view: views.NativeGroup, members: Members, explanation: Explanation | None, now: float
) -> Condition | None:
    """Return the condition to write; ``None`` if there is nothing to write.

    ``explanation``: why the group lacks its minimum, if that may be shown.
    ``now``: Unix seconds.
    """
    current = next((condition for condition in view.conditions if condition.get("type") == TYPE), {})
    if current.get("status") == "True" or managed_by_others(view):
        return None
    if members.scheduled >= view.min_count:
        fields = {"status": "True", "reason": "Scheduled", "message": ""}
    elif explanation is not None:
        reason = "SchedulerError" if explanation.code is Reason.MISCONFIGURED else "Unschedulable"
        fields = {"status": "False", "reason": reason, "message": explanation.statement}
    else:
        return None
    if all(current.get(name) == text for name, text in fields.items()):
        return None
    since = current.get("lastTransitionTime") if current.get("status") == fields["status"] else None
    return {
        "type": TYPE,
        **fields,
        "observedGeneration": view.generation,
        "lastTransitionTime": since or rfc3339(now),
    }


def managed_by_others(view: views.NativeGroup) -> bool:
    """Return whether another controller has written the condition."""
    return any(not manager.startswith(_OWN_MANAGERS) for manager in view.condition_writers)
