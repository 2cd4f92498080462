"""Defaults of a JobSet: those of the CRD file, then those of JobSet's mutating webhook."""

from __future__ import annotations

from typing import Any

from windlass.api.defaults.volcano import structural
from windlass.api.resources import JOB_SETS


def job_set(obj: dict[str, Any]) -> None:
    """Fill in a JobSet."""
    structural(JOB_SETS, obj)
    spec = obj.get("spec")
    if isinstance(spec, dict):
        fill_spec(spec)


def fill_spec(spec: dict[str, Any]) -> None:
    """Fill in the spec of a JobSet, whatever object it is part of."""
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    for replicated in spec.get("replicatedJobs") or ():
        job = replicated.setdefault("template", {}).setdefault("spec", {})
        job.setdefault("completionMode", "Indexed")
        pod = job.setdefault("template", {}).setdefault("spec", {})
        pod.setdefault("restartPolicy", "OnFailure")
    for index, rule in enumerate((spec.get("failurePolicy") or {}).get("rules") or ()):
        if not rule.get("name"):
            rule["name"] = f"failurePolicyRule{index}"
    for policy in spec.get("volumeClaimPolicies") or ():
        policy.setdefault("retentionPolicy", {"whenDeleted": "Delete"})
