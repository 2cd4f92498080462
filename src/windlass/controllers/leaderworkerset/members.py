"""Ended and replaced pods of a group, and whether its restart policy applies. Pure.

The StatefulSet of the workers records the pods of a complete group. A worker that was deleted
and replaced between two reconciliations differs from that record, so its group starts again even
though its deletion was never observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields import leaderworkerset
from windlass.api.resources import STATEFUL_SETS
from windlass.controllers.effects import Patch
from windlass.jobs.leaderworkerset.spec import GroupTemplate

Json = dict[str, Any]
RESTART_POLICIES = (leaderworkerset.RECREATE_ON_RESTART, leaderworkerset.RECREATE_AFTER_START)


def first_ended(leader: Json, workers: Sequence[Json], workers_set: Json | None) -> str:
    """Return the name of the first pod of a group that ended or was replaced; empty where none did."""
    for pod in (leader, *workers):
        if _has_ended(pod):
            return str(pod["metadata"]["name"])
    if workers_set is None:
        return ""
    recorded = (workers_set["metadata"].get("annotations") or {}).get(names.LWS_WORKERS, "")
    present = {pod["metadata"]["name"]: _short(pod) for pod in workers}
    for entry in filter(None, recorded.split(",")):
        name, _, uid = entry.partition("=")
        if present.get(name) != uid:
            return name
    return ""


def record(template: GroupTemplate, workers: Sequence[Json], workers_set: Json | None) -> Patch | None:
    """Return the patch that records the workers of a complete group; None where there is nothing to record."""
    if workers_set is None or not workers or len(workers) != template.size - 1:
        return None
    meta = workers_set["metadata"]
    if (meta.get("annotations") or {}).get(names.LWS_WORKERS):
        return None
    entries = sorted(f"{pod['metadata']['name']}={_short(pod)}" for pod in workers)
    change = {"metadata": {"annotations": {names.LWS_WORKERS: ",".join(entries)}}}
    return Patch(STATEFUL_SETS, meta["name"], change, meta["namespace"], uid=meta["uid"])


def may_restart(template: GroupTemplate, members: Sequence[Json]) -> bool:
    """Return whether the restart policy lets a group start again now."""
    pending = any((pod.get("status") or {}).get("phase") in (None, "", "Pending") for pod in members)
    return template.restart_policy == leaderworkerset.RECREATE_ON_RESTART or not pending


def _short(pod: Json) -> str:
    """Return the first part of the UID of a pod: enough to tell it from one of the same name."""
    return str(pod["metadata"]["uid"])[:8]


def _has_ended(pod: Json) -> bool:
    """Return whether a pod is being deleted or has restarted a container."""
    if pod["metadata"].get("deletionTimestamp"):
        return True
    status = pod.get("status") or {}
    counts = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return status.get("phase") in ("Running", "Pending") and any(
        (one.get("restartCount") or 0) > 0 for one in counts
    )
