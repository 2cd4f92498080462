"""The moments that KAI keeps on its PodGroups, as its own scheduler writes them.

Since when a gang has held less than its minimum, when it last started, when it was last evicted: they
outlive a restart there, and rules about minimum run times, delays and graces read them.
"""

from __future__ import annotations

from windlass.api import annotations as names
from windlass.engine.decision import Decision
from windlass.kits.timestamps import rfc3339
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups.podgroups import KAI, kind_prefix, shown_key

Moments = dict[str, dict[str, str | None]]
"""Group → annotation → time, ``None`` where it is to be taken away."""


def moments_of(decision: Decision, model: ClusterModel, now: float) -> Moments:
    """What a decision changes. ``now``: Unix seconds."""
    found: Moments = {}
    for status in decision.groups:
        if kind_prefix(status.group) == KAI:
            since = status.stale_since
            found[status.group] = {names.STALE_SINCE_KAI: None if since is None else rfc3339(since)}
    for bind in decision.binds:
        if kind_prefix(bind.group) == KAI and not _says(model, bind.group, names.LAST_START_KAI):
            found.setdefault(bind.group, {})[names.LAST_START_KAI] = rfc3339(now)
    leaving: dict[str, set[str]] = {}
    for eviction in decision.evictions:
        if kind_prefix(eviction.group) == KAI:
            leaving.setdefault(eviction.group, set()).add(eviction.task)
    for group, pods in leaving.items():
        found.setdefault(group, {})[names.LAST_EVICTION_KAI] = rfc3339(now)
        if all(pod.finished or not pod.node_name or pod.key in pods for pod in model.pods_of(group)):
            found[group][names.LAST_START_KAI] = None
    return found


def _says(model: ClusterModel, group: str, annotation: str) -> bool:
    view = model.kai_groups.get(shown_key(group))
    return view is not None and annotation in view.annotations
