"""Pods that are grouped by their owner."""

from __future__ import annotations

from windlass.api.views import Pod

PLAIN_GROUPS = frozenset(("", "apps", "batch", "kurator.dev"))
"""API groups of Kubernetes' own workloads and of generation jobs: their pods start one by one."""
GANG_LABELS = ("jobset.sigs.k8s.io/jobset-name", "leaderworkerset.sigs.k8s.io/name")
"""Labels of pods that belong to a gang by the owner of their plain owner."""


def grouped_by_owner(pod: Pod) -> bool:
    """Return whether the top owner decides the group of a pod that names none."""
    owner = pod.controller
    if owner is None or pod.is_static:
        return False
    if owner.api_version.rpartition("/")[0] not in PLAIN_GROUPS:
        return True
    return any(label in pod.labels for label in GANG_LABELS)
