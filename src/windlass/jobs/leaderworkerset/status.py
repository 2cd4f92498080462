"""Status of a LeaderWorkerSet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.api.fields import leaderworkerset
from windlass.jobs.leaderworkerset.rollout import GroupState
from windlass.jobs.leaderworkerset.spec import LeaderWorkerSet
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
AVAILABLE = ("Available", "AllGroupsReady", "All replicas are ready")
UPDATING = ("UpdateInProgress", "GroupsUpdating", "Rolling Upgrade is in progress")
PROGRESSING = ("Progressing", "GroupsProgressing", "Replicas are progressing")


def next_status(
    found: LeaderWorkerSet, obj: Json, states: Sequence[GroupState], created: int, now: float
) -> tuple[Json, list[tuple[str, str]]]:
    """Return the status, and reason and message of each condition that became true.

    ``states``: groups by index. ``created``: number of leaders that exist.
    """
    before = obj.get("status") or {}
    wanted = list(states[: found.replicas])
    ready = sum(one.ready for one in states)
    updated = sum(one.updated for one in wanted)
    done = sum(one.ready and one.updated for one in wanted[found.partition :])
    done += sum(one.ready for one in wanted[: found.partition])
    outdated = any(not one.updated for one in wanted[found.partition :])
    true: list[tuple[str, str, str]] = []
    if outdated and len(wanted) == found.replicas:
        true = [UPDATING, PROGRESSING]
    elif done == found.replicas and created == found.replicas:
        true = [AVAILABLE]
    else:
        true = [PROGRESSING]
    conditions, changed = _conditions(before.get("conditions") or [], true, now)
    status: Json = {
        "conditions": conditions,
        "hpaPodSelector": f"{leaderworkerset.NAME}={found.name},{leaderworkerset.WORKER_INDEX}=0",
        "observedGeneration": obj["metadata"].get("generation", 1),
        "readyReplicas": ready,
        "replicas": created,
        "updatedReplicas": updated,
    }
    shown = f", with {ready} groups ready of total {found.replicas} groups"
    return status, [(reason, message + shown) for reason, message in changed]


def _conditions(
    before: list[Json], true: list[tuple[str, str, str]], now: float
) -> tuple[list[Json], list[tuple[str, str]]]:
    found = {one["type"]: dict(one) for one in before}
    changed = []
    wanted = {kind: (reason, message) for kind, reason, message in true}
    for kind, reason, message in (AVAILABLE, PROGRESSING, UPDATING):
        is_true = kind in wanted
        status = "True" if is_true else "False"
        if kind not in found and not is_true:
            continue
        if found.get(kind, {}).get("status") != status:
            found[kind] = {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": rfc3339(now),
            }
            if is_true:
                changed.append((reason, message))
    return list(found.values()), changed
