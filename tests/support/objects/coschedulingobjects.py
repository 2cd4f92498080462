"""What Kubeflow Trainer and others write for the coscheduling plug-in, short to write."""

from __future__ import annotations

from typing import Any

from kubeobjects import pod

Json = dict[str, Any]
LABEL = "scheduling.x-k8s.io/pod-group"


def coscheduling_group(
    name: str, members: Any = None, *, needs: dict[str, Any] | None = None, timeout: int = 60, **meta: Any
) -> Json:
    """As Trainer makes it: with all that its pods ask for as ``minResources`` (``needs``)."""
    spec: Json = {"scheduleTimeoutSeconds": timeout}
    if members is not None:
        spec["minMember"] = members
    if needs:
        spec["minResources"] = needs
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T12:00:00Z",
            "ownerReferences": [
                {
                    "apiVersion": "trainer.kubeflow.org/v1alpha1",
                    "kind": "TrainJob",
                    "name": name,
                    "uid": f"uid-job-{name}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            **meta,
        },
        "spec": spec,
    }


def member(name: str, group: str, *, labels: dict[str, str] | None = None, **more: Any) -> Json:
    """A pod as Jobs of a JobSet of a TrainJob make it."""
    made = {
        LABEL: group,
        "jobset.sigs.k8s.io/jobset-name": group,
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "batch.kubernetes.io/job-name": f"{group}-node-0",
        **(labels or {}),
    }
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": f"{group}-node-0",
        "uid": f"uid-{group}-node-0",
        "controller": True,
    }
    return pod(name, labels=made, metadata={"ownerReferences": [owner]}, **more)
