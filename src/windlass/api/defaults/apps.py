"""Defaults of ``apps/v1``: Deployment, ReplicaSet, StatefulSet and DaemonSet."""

from __future__ import annotations

from typing import Any

from windlass.api.defaults import pod

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
"""Annotation that counts the pod templates of a DaemonSet."""
_REVISIONS = 10
_PROGRESS_DEADLINE_SECONDS = 600
Json = dict[str, Any]


def deployment(obj: Json) -> None:
    spec = _spec(obj)
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    _rolling(strategy, {"maxUnavailable": "25%", "maxSurge": "25%"})
    spec.setdefault("revisionHistoryLimit", _REVISIONS)
    spec.setdefault("progressDeadlineSeconds", _PROGRESS_DEADLINE_SECONDS)


def replica_set(obj: Json) -> None:
    _spec(obj).setdefault("replicas", 1)


def stateful_set(obj: Json) -> None:
    spec = _spec(obj)
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        strategy["rollingUpdate"].setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    spec.setdefault("revisionHistoryLimit", _REVISIONS)
    for claim in spec.get("volumeClaimTemplates") or ():
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
        claim.setdefault("status", {}).setdefault("phase", "Pending")


def daemon_set(obj: Json) -> None:
    spec = _spec(obj)
    _rolling(spec.setdefault("updateStrategy", {}), {"maxUnavailable": 1, "maxSurge": 0})
    spec.setdefault("revisionHistoryLimit", _REVISIONS)
    obj["metadata"].setdefault("annotations", {}).setdefault(TEMPLATE_GENERATION, "1")


def _spec(obj: Json) -> Json:
    spec = obj.setdefault("spec", {})
    pod.template(spec.setdefault("template", {}))
    return spec


def _rolling(strategy: Json, defaults: Json) -> None:
    """Fill in type and parameters of a rolling update."""
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        for name, value in defaults.items():
            rolling.setdefault(name, value)
