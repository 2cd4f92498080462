"""Defaults of LeaderWorkerSets: those of the CRD and of its webhook."""

from __future__ import annotations

from typing import Any


def leader_worker_set(obj: dict[str, Any]) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("startupPolicy", "LeaderCreated")
    template = spec.get("leaderWorkerTemplate")
    if isinstance(template, dict):
        template.setdefault("size", 1)
        if template.get("restartPolicy") in (None, "Default"):
            policy = "None" if template.get("restartPolicy") == "Default" else "RecreateGroupOnPodRestart"
            template["restartPolicy"] = policy
        if isinstance(template.get("subGroupPolicy"), dict):
            template["subGroupPolicy"].setdefault("subGroupPolicyType", "LeaderWorker")
    strategy = spec.setdefault("rolloutStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    rolling = strategy.setdefault("rollingUpdateConfiguration", {})
    for field, value in (("partition", 0), ("maxUnavailable", 1), ("maxSurge", 0)):
        rolling.setdefault(field, value)
    network = spec.setdefault("networkConfig", {})
    if isinstance(network, dict):
        network.setdefault("subdomainPolicy", "Shared")
