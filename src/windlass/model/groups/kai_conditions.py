"""``status.schedulingConditions`` of a PodGroup of KAI: the reason why it waits. Pure.

KAI's users and tools read it. There is one condition, ``UnschedulableOnNodePool`` of
the group's pool. It is present while the group lacks its minimum, and removed after
that. It is renewed only if its text changes. Conditions of other pools or other types
are left unchanged.
"""

from __future__ import annotations

from typing import Any

from windlass.api import views
from windlass.api.reasons import UNPREEMPTIBLE, Explanation, Reason
from windlass.kits.timestamps import rfc3339

TYPE = "UnschedulableOnNodePool"
DEFAULT_POOL = "default"
"""KAI's name for the pool of groups that name none."""
_QUEUES = (Reason.QUEUE_NOT_FOUND, Reason.QUEUE_NOT_LEAF)
_LIMITS = (Reason.EXCEEDS_QUEUE_LIMIT, Reason.WAITING_FOR_QUOTA)
Condition = dict[str, Any]


def desired(view: views.KaiPodGroup, explanation: Explanation | None, now: float) -> list[Condition] | None:
    """Return all conditions as they should be; ``None`` if they already are.

    ``explanation``: why the group waits; ``None`` if it does not.
    ``now``: Unix seconds.
    """
    pool = view.pool or DEFAULT_POOL
    own = [
        condition
        for condition in view.conditions
        if (condition.get("type"), condition.get("nodePool")) == (TYPE, pool)
    ]
    remaining = [condition for condition in view.conditions if condition not in own]
    if explanation is None:
        return remaining if own else None
    fields = {
        "type": TYPE,
        "nodePool": pool,
        "status": "True",
        "reason": "Unschedulable",
        "message": explanation.statement,
        "reasons": [{"reason": _reason(explanation), "message": explanation.statement}],
    }
    if len(own) == 1 and all(own[0].get(name) == value for name, value in fields.items()):
        return None
    number = max((_number(condition) for condition in view.conditions), default=0) + 1
    return [*remaining, {**fields, "transitionID": str(number), "lastTransitionTime": rfc3339(now)}]


def _reason(explanation: Explanation) -> str:
    """Return KAI's reason for the explanation."""
    if explanation.code in _QUEUES:
        return "QueueDoesNotExist"
    if explanation.code in _LIMITS:
        by_quota = any(UNPREEMPTIBLE in blocker.detail for blocker in explanation.blockers)
        return "NonPreemptibleOverQuota" if by_quota else "OverLimit"
    return "PodSchedulingErrors"


def _number(condition: Condition) -> int:
    text = str(condition.get("transitionID") or "")
    return int(text) if text.isascii() and text.isdigit() else 0
