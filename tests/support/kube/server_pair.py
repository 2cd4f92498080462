"""The embedded server and a real kube-apiserver, asked alike and held against one another."""

from __future__ import annotations

import json
from typing import Any

from clusters import Answer, Cluster
from server_deviations import deviates

Pair = tuple[Cluster, Cluster]
"""(embedded, real)."""
PODS = "/api/v1/namespaces/default/pods"


def verdict(answer: Answer) -> Any:
    """What a client can tell of an answer: of an error the Status, of an object all that is not identity."""
    if answer.status >= 400:
        status = answer.json
        causes = status.get("details", {}).get("causes", [])
        if len(causes) > 1:  # Go walks maps in random order
            causes.sort(key=lambda cause: (cause["field"], cause["message"]))
            status["message"] = status["message"].partition(" is invalid: ")[0]
        return answer.status, status
    return answer.status, stripped(answer.json)


def stripped(obj: Any) -> Any:
    """Without identity, and without what a real cluster adds so that its controllers protect volumes."""
    metadata = obj.get("metadata", {})
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        metadata.pop(key, None)
    if metadata.get("finalizers") in (["kubernetes.io/pvc-protection"], ["kubernetes.io/pv-protection"]):
        del metadata["finalizers"]
    if isinstance(obj.get("status"), dict):
        obj["status"].pop("lastPhaseTransitionTime", None)
    return obj


def warnings(answer: Answer) -> list[str]:
    header = answer.headers.get("warning", "")
    return [part.strip() for part in header.split("299 - ") if part.strip(", ")]


def same(both: Pair, method: str, path: str, body: Any, query: str = "", **options: Any) -> tuple[Any, Any]:
    embedded, real = (cluster.send(method, path, body, query=query, **options) for cluster in both)
    left, right = verdict(embedded), verdict(real)
    if deviates(both[0], "phase of a new PodGroup") and left[1].get("kind") == "PodGroup":
        assert left[1].pop("status") == {"phase": "Pending"}
    assert left == right, f"{json.dumps(left)}\n{json.dumps(right)}"
    return embedded, real
