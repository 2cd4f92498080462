"""Conditions in the status of ``apps/v1`` objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]


def find_condition(status: Mapping[str, Any], kind: str) -> Json | None:
    """Return the condition of this type; ``None`` if there is none."""
    return next((one for one in status.get("conditions") or () if one.get("type") == kind), None)


def new_condition(
    kind: str, state: str, reason: str, message: str, now: float, *, updated: bool = True
) -> Json:
    """Return a new condition. ``updated``: the kind records the time of the last update, too."""
    text = rfc3339(now)
    condition: Json = {"type": kind, "status": state}
    if updated:
        condition["lastUpdateTime"] = text
    return {**condition, "lastTransitionTime": text, "reason": reason, "message": message}


def set_condition(status: Json, condition: Json) -> None:
    """Replace the condition of its type, unless state and reason are those that it has."""
    present = find_condition(status, condition["type"])
    if present is not None and present.get("status") == condition["status"]:
        if present.get("reason") == condition.get("reason"):
            return
        if present.get("lastTransitionTime"):
            condition = {**condition, "lastTransitionTime": present["lastTransitionTime"]}
    remove_condition(status, condition["type"])
    status["conditions"] = [*(status.get("conditions") or ()), condition]


def remove_condition(status: Json, kind: str) -> None:
    left = [one for one in status.get("conditions") or () if one.get("type") != kind]
    if left:
        status["conditions"] = left
    else:
        status.pop("conditions", None)


def without_zeros(counts: Mapping[str, int]) -> Json:
    """Return the counts that a status holds: the server omits those that are 0."""
    return {name: count for name, count in counts.items() if count}
