"""Ray's kinds by themselves: the rules of KubeRay's validation that a cluster cannot run without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.fields import ray
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.jobs.volcano_cronjob import check_schedule, check_time_zone
from windlass.kits import durations

Obj = Mapping[str, Any]
_NAME_LIMIT = 50
"""Maximum length of a name, so that names of pods and Services fit."""
_SERVICE_NAME_LIMIT = _NAME_LIMIT - 6
"""Maximum length of the name of a RayService. Names of its clusters are six characters longer."""
_CRON_NAME_LIMIT = _NAME_LIMIT - 11
"""Maximum length of the name of a RayCronJob. Names of its jobs are up to eleven characters longer."""


def ray_cluster(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Check a RayCluster."""
    _name(obj, "RayCluster", out)
    _managed_by(obj, old, out)
    _cluster(part(obj, "spec"), "spec", out)


def ray_job(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Check a RayJob."""
    _name(obj, "RayJob", out)
    _managed_by(obj, old, out)
    _job(part(obj, "spec"), "spec", out)


def _job(spec: Obj, path: str, out: Collector) -> None:
    selector = spec.get("clusterSelector")
    if not selector and not spec.get("rayClusterSpec"):
        out.required(f"{path}.rayClusterSpec", "one of rayClusterSpec and clusterSelector must be set")
    if selector and ray.CLUSTER not in selector:
        why = f"the cluster is named by the key {ray.CLUSTER}: {ray.CLUSTER}: NAME"
        out.invalid(f"{path}.clusterSelector", selector, why)
    if selector and spec.get("suspend"):
        out.forbidden(
            f"{path}.suspend", "a job in a cluster of its user cannot be suspended: suspend the RayCluster"
        )
    if spec.get("rayClusterSpec"):
        _cluster(part(spec, "rayClusterSpec"), f"{path}.rayClusterSpec", out)
    mode = spec.get("submissionMode") or ray.K8S_JOB_MODE
    out.choice(f"{path}.submissionMode", mode, (ray.K8S_JOB_MODE, ray.HTTP_MODE, ray.INTERACTIVE_MODE))
    if mode != ray.INTERACTIVE_MODE and not str(spec.get("entrypoint") or "").strip():
        out.required(
            f"{path}.entrypoint", f"the command to run, unless submissionMode is {ray.INTERACTIVE_MODE}"
        )
    deletes = spec.get("shutdownAfterJobFinishes") or spec.get("deletionStrategy")
    if spec.get("ttlSecondsAfterFinished") and not deletes:
        out.invalid(
            f"{path}.ttlSecondsAfterFinished",
            spec["ttlSecondsAfterFinished"],
            "it needs shutdownAfterJobFinishes: true, or a deletionStrategy",
        )


def ray_service(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Check a RayService."""
    _name(obj, "RayService", out)
    _managed_by(obj, old, out)
    spec = part(obj, "spec")
    _cluster(part(spec, "rayClusterConfig"), "spec.rayClusterConfig", out)
    strategy = part(spec, "upgradeStrategy").get("type")
    if strategy == ray.INCREMENTAL_UPGRADE:
        why = (
            "it needs the Gateway API, which Windlass does not operate: use NewCluster, which switches all requests "
            "to the new cluster when its applications run"
        )
        out.invalid("spec.upgradeStrategy.type", strategy, why)
    elif strategy is not None:
        out.choice("spec.upgradeStrategy.type", strategy, (ray.NEW_CLUSTER, ray.NO_UPGRADE))
    timeout = part(part(obj, "metadata"), "annotations").get(ray.INITIALIZING_TIMEOUT)
    if timeout and not _is_timeout(str(timeout)):
        path = f"metadata.annotations[{ray.INITIALIZING_TIMEOUT}]"
        out.invalid(path, timeout, "write a positive duration such as 5m or 1h, or a number of seconds")


def _managed_by(obj: Obj, old: Obj | None, out: Collector) -> None:
    given = part(obj, "spec").get("managedBy")
    if old is not None and part(old, "spec").get("managedBy") != given:
        out.invalid("spec.managedBy", given, "the managedBy field is immutable")
    elif given is not None:
        out.choice("spec.managedBy", given, (ray.OPERATOR, ray.MULTIKUEUE))


def _is_timeout(text: str) -> bool:
    try:
        return (float(text) if text.isdecimal() else durations.parse(text)) > 0
    except ValueError:
        return False


def ray_cron_job(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Check a RayCronJob."""
    name, spec = str(part(obj, "metadata").get("name") or ""), part(obj, "spec")
    if len(name) > _CRON_NAME_LIMIT:
        why = f"a RayCronJob has a name of at most {_CRON_NAME_LIMIT} characters: the names of its jobs are longer"
        out.invalid("metadata.name", name, why)
    check_schedule(spec.get("schedule") or "", out)
    check_time_zone(spec.get("timeZone"), out)
    _job(part(spec, "jobTemplate"), "spec.jobTemplate", out)


def _name(obj: Obj, kind: str, out: Collector) -> None:
    name = str(part(obj, "metadata").get("name") or "")
    limit = _SERVICE_NAME_LIMIT if kind == "RayService" else _NAME_LIMIT
    if len(name) > limit:
        out.invalid("metadata.name", name, f"a {kind} has a name of at most {limit} characters")


def _cluster(spec: Obj, path: str, out: Collector) -> None:
    head = part(spec, "headGroupSpec")
    _containers(head, f"{path}.headGroupSpec", out)
    _restarts(head, spec, f"{path}.headGroupSpec", out)
    if part(part(head, "headService"), "metadata").get("name"):
        why = "Windlass names the head's Service after the cluster, NAME-head-svc: leave it out"
        out.forbidden(f"{path}.headGroupSpec.headService.metadata.name", why)
    seen: set[str] = set()
    for index, group in enumerate(spec.get("workerGroupSpecs") or ()):
        if not isinstance(group, Mapping):
            continue
        at = f"{path}.workerGroupSpecs[{index}]"
        _containers(group, at, out)
        _restarts(group, spec, at, out)
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


def _restarts(group: Obj, spec: Obj, path: str, out: Collector) -> None:
    policy = part(part(group, "template"), "spec").get("restartPolicy")
    version = part(spec, "autoscalerOptions").get("version")
    if spec.get("enableInTreeAutoscaling") and version == "v2" and policy not in (None, "Never"):
        why = "version 2 of Ray's autoscaler needs Never: leave it out"
        out.invalid(f"{path}.template.spec.restartPolicy", policy, why)


def _resources(group: Obj, path: str, out: Collector) -> None:
    flags = [
        name
        for name in ("num-cpus", "num-gpus", "memory", "resources")
        if part(group, "rayStartParams").get(name)
    ]
    if flags and group.get("resources"):
        why = f"rayStartParams.{flags[0]} states resources, too: use only one of the two"
        out.forbidden(f"{path}.resources", why)
    if "labels" in part(group, "rayStartParams"):
        out.forbidden(f"{path}.rayStartParams.labels", f"write the labels to {path}.labels")


def _containers(group: Obj, path: str, out: Collector) -> None:
    if not part(part(group, "template"), "spec").get("containers"):
        out.required(f"{path}.template.spec.containers", "the first container runs Ray")
    _resources(group, path, out)
