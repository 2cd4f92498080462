"""Timestamps that KAI keeps on its PodGroups, as its own scheduler writes them.

They say since when a gang has held less than its minimum, when it last started and when
it was last evicted. They outlive a restart of the scheduler. Rules about minimum run
times, delays and grace periods read them.
"""

from __future__ import annotations

from windlass.api import annotations as names
from windlass.engine.decision import Decision
from windlass.kits.timestamps import rfc3339
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups.podgroups import KAI, kind_prefix, shown_key

Timestamps = dict[str, dict[str, str | None]]
"""Group → annotation → time. ``None`` removes the annotation."""


def timestamps_of(decision: Decision, model: ClusterModel, now: float) -> Timestamps:
    """Return the timestamps that a decision changes. ``now``: Unix seconds."""
    changes: Timestamps = {}
    for status in decision.groups:
        if kind_prefix(status.group) == KAI:
            since = status.stale_since
            changes[status.group] = {names.STALE_SINCE_KAI: None if since is None else rfc3339(since)}
    for bind in decision.binds:
        if kind_prefix(bind.group) == KAI and not _has(model, bind.group, names.LAST_START_KAI):
            changes.setdefault(bind.group, {})[names.LAST_START_KAI] = rfc3339(now)
    evicted: dict[str, set[str]] = {}
    for eviction in decision.evictions:
        if kind_prefix(eviction.group) == KAI:
            evicted.setdefault(eviction.group, set()).add(eviction.task)
    for group, pods in evicted.items():
        changes.setdefault(group, {})[names.LAST_EVICTION_KAI] = rfc3339(now)
        if all(pod.finished or not pod.node_name or pod.key in pods for pod in model.groups.pods_of(group)):
            changes[group][names.LAST_START_KAI] = None
    return changes


def _has(model: ClusterModel, group: str, annotation: str) -> bool:
    view = model.objects.kai_groups.get(shown_key(group))
    return view is not None and annotation in view.annotations
