"""Ray's kinds by themselves: the rules of KubeRay's validation that a cluster cannot run without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import ray_fields as fields
from windlass.api.validation.collector import Collector, part

Obj = Mapping[str, Any]
_NAME_LIMIT = 50
"""Maximum length of a name, so that names of pods and Services fit."""


def ray_cluster(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Check a RayCluster."""
    _name(obj, "RayCluster", out)
    _cluster(part(obj, "spec"), "spec", out)


def ray_job(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Check a RayJob."""
    _name(obj, "RayJob", out)
    spec = part(obj, "spec")
    selector = spec.get("clusterSelector")
    if not selector and not spec.get("rayClusterSpec"):
        out.required("spec.rayClusterSpec", "one of rayClusterSpec and clusterSelector must be set")
    if selector and fields.CLUSTER not in selector:
        why = f"the cluster is named by the key {fields.CLUSTER}: {fields.CLUSTER}: NAME"
        out.invalid("spec.clusterSelector", selector, why)
    if selector and spec.get("suspend"):
        out.forbidden(
            "spec.suspend", "a job in a cluster of its user cannot be suspended: suspend the RayCluster"
        )
    if spec.get("rayClusterSpec"):
        _cluster(part(spec, "rayClusterSpec"), "spec.rayClusterSpec", out)
    mode = spec.get("submissionMode") or fields.K8S_JOB_MODE
    out.choice("spec.submissionMode", mode, (fields.K8S_JOB_MODE, fields.HTTP_MODE, fields.INTERACTIVE_MODE))
    if mode != fields.INTERACTIVE_MODE and not str(spec.get("entrypoint") or "").strip():
        out.required(
            "spec.entrypoint", f"the command to run, unless submissionMode is {fields.INTERACTIVE_MODE}"
        )
    deletes = spec.get("shutdownAfterJobFinishes") or spec.get("deletionStrategy")
    if spec.get("ttlSecondsAfterFinished") and not deletes:
        out.invalid(
            "spec.ttlSecondsAfterFinished",
            spec["ttlSecondsAfterFinished"],
            "it needs shutdownAfterJobFinishes: true, or a deletionStrategy",
        )


def _name(obj: Obj, kind: str, out: Collector) -> None:
    name = str(part(obj, "metadata").get("name") or "")
    if len(name) > _NAME_LIMIT:
        out.invalid("metadata.name", name, f"a {kind} has a name of at most {_NAME_LIMIT} characters")


def _cluster(spec: Obj, path: str, out: Collector) -> None:
    _containers(part(spec, "headGroupSpec"), f"{path}.headGroupSpec", out)
    seen: set[str] = set()
    for index, group in enumerate(spec.get("workerGroupSpecs") or ()):
        if not isinstance(group, Mapping):
            continue
        at = f"{path}.workerGroupSpecs[{index}]"
        _containers(group, at, out)
        name = str(group.get("groupName") or "")
        if name in seen:
            out.duplicate(f"{at}.groupName", name)
        seen.add(name)
        low, high = group.get("minReplicas") or 0, group.get("maxReplicas")
        if isinstance(low, int) and isinstance(high, int) and low > high:
            out.invalid(f"{at}.minReplicas", low, f"it must not be above maxReplicas ({high})")
        if group.get("suspend") and spec.get("enableInTreeAutoscaling"):
            out.forbidden(
                f"{at}.suspend", "Ray's autoscaler decides about the group: disable enableInTreeAutoscaling"
            )


def _containers(group: Obj, path: str, out: Collector) -> None:
    if not part(part(group, "template"), "spec").get("containers"):
        out.required(f"{path}.template.spec.containers", "the first container runs Ray")
