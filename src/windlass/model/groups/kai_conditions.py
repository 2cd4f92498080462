"""``status.schedulingConditions`` of a PodGroup of KAI, where KAI's users and their tools look for why it waits. Pure.

One condition, ``UnschedulableOnNodePool`` of the pool that the group is in, stands while the group lacks its minimum,
and is taken away after that. It is renewed only where its words change. What stands there of other pools, or of other
types, is left as it is.
"""

from __future__ import annotations

from typing import Any

from windlass.api import views
from windlass.api.reasons import UNPREEMPTIBLE, Explanation, Reason
from windlass.kits.timestamps import rfc3339

TYPE = "UnschedulableOnNodePool"
DEFAULT_POOL = "default"
"""What KAI calls the pool of groups that name none."""
_QUEUES = (Reason.QUEUE_NOT_FOUND, Reason.QUEUE_NOT_LEAF)
_LIMITS = (Reason.EXCEEDS_QUEUE_LIMIT, Reason.WAITING_FOR_QUOTA)
Condition = dict[str, Any]


def desired(view: views.KaiPodGroup, told: Explanation | None, now: float) -> list[Condition] | None:
    """All conditions as they should be; ``None`` if they are. ``told``: why the group waits, ``None``: it does not.
    ``now``: Unix seconds."""
    pool = view.pool or DEFAULT_POOL
    mine = [one for one in view.conditions if (one.get("type"), one.get("nodePool")) == (TYPE, pool)]
    others = [one for one in view.conditions if one not in mine]
    if told is None:
        return others if mine else None
    words = {
        "type": TYPE,
        "nodePool": pool,
        "status": "True",
        "reason": "Unschedulable",
        "message": told.statement,
        "reasons": [{"reason": _reason(told), "message": told.statement}],
    }
    if len(mine) == 1 and all(mine[0].get(name) == value for name, value in words.items()):
        return None
    number = max((_number(one) for one in view.conditions), default=0) + 1
    return [*others, {**words, "transitionID": str(number), "lastTransitionTime": rfc3339(now)}]


def _reason(told: Explanation) -> str:
    """In KAI's words."""
    if told.code in _QUEUES:
        return "QueueDoesNotExist"
    if told.code in _LIMITS:
        by_quota = any(UNPREEMPTIBLE in blocker.detail for blocker in told.blockers)
        return "NonPreemptibleOverQuota" if by_quota else "OverLimit"
    return "PodSchedulingErrors"


def _number(condition: Condition) -> int:
    text = str(condition.get("transitionID") or "")
    return int(text) if text.isascii() and text.isdigit() else 0
