"""Reconciliation of a RayService: its clusters, its applications, its Services, its conditions.

The name of a new cluster is written to the status before the cluster is created, and the Services select it before
the status calls it active. A controller that stops in between does the same again.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.fields import ray
from windlass.api.resources import PODS, RAY_CLUSTERS, RAY_SERVICES, SERVICES, Resource
from windlass.controllers.effects import (
    NOTHING,
    Action,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Patch,
    Update,
    reference,
)
from windlass.jobs.ray import service as kinds
from windlass.jobs.ray import service_conditions as conditions
from windlass.jobs.ray.service import RayService, read_ray_service
from windlass.jobs.ray.service_conditions import ServiceConditions
from windlass.kits import durations
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
POLL_SECONDS = 2.0
"""Interval between two looks at Ray's dashboard and at the proxies."""


@dataclass(frozen=True, slots=True)
class HeadPod:
    """Head of a cluster. ``serves``: its proxy answers; ``label``: its label ``ray.io/serve``."""

    name: str
    uid: str
    label: str
    serves: bool


@dataclass(frozen=True, slots=True)
class ServeApplications:
    """Applications in one cluster as Ray's dashboard shows them.

    ``applications``: ``None`` if the dashboard cannot be read. ``submitted``: they were submitted just now.
    ``problem``: why this was not possible.
    """

    cluster: str
    applications: Mapping[str, Json] | None = None
    submitted: bool = False
    problem: str = ""

    @property
    def ready(self) -> bool:
        """``True`` while all applications run, at least one."""
        found = self.applications or {}
        return bool(found) and all(one.get("status") == "RUNNING" for one in found.values())


@dataclass(frozen=True, slots=True)
class RayServiceSnapshot:
    """Observed surroundings of a RayService.

    ``clusters``, ``services``: name → object that the service controls. ``foreign``: names of its Services that others
    hold. ``heads``: cluster → head. ``serve``: the applications, ``None`` if no cluster can have them yet.
    ``endpoints``: ready pods that the Service for requests selects. ``unused``: cluster → time since which it is
    neither active nor pending. ``now``: Unix seconds.
    """

    clusters: Mapping[str, Json]
    services: Mapping[str, Json]
    foreign: frozenset[str]
    heads: Mapping[str, HeadPod]
    serve: ServeApplications | None
    endpoints: int
    unused: Mapping[str, float]
    now: float


def reconcile_ray_service(obj: Json, observed: RayServiceSnapshot) -> Effects:
    """Reconcile one RayService. Pure."""
    if obj["metadata"].get("deletionTimestamp"):
        return NOTHING
    plan = EffectPlan(about=reference(RAY_SERVICES, obj))
    try:
        service = read_ray_service(obj)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return _invalid(obj, f"the spec cannot be read: {error}", observed.now, plan)
    return _RayServiceReconciliation(service, obj, observed, plan).effects()


def _invalid(obj: Json, message: str, now: float, plan: EffectPlan) -> Effects:
    assert plan.about is not None
    status: Json = copy.deepcopy(obj.get("status") or {})
    ServiceConditions(status, now).set(conditions.READY, "False", "ValidationFailed", message)
    if status != (obj.get("status") or {}):
        plan.stage(Update(RAY_SERVICES, {**obj, "status": status}, "status"))
    plan.event(EmitEvent(plan.about, "Warning", "InvalidRayServiceSpec", message, lasting=True))
    return plan.done()


class _RayServiceReconciliation:
    """State of one reconciliation. Used once."""

    def __init__(
        self, service: RayService, obj: Json, observed: RayServiceSnapshot, plan: EffectPlan
    ) -> None:
        self.service, self.obj, self.observed, self.plan = service, obj, observed, plan
        self.status: Json = copy.deepcopy(obj.get("status") or {})
        self.conditions = ServiceConditions(self.status, observed.now)
        self.deletions: list[Action] = []

    def effects(self) -> Effects:
        self._delete_unused()
        if not self._suspension() and not self.conditions.has_timed_out():
            self._serve()
            self.plan.requeue(POLL_SECONDS)
        self._write_status()
        self.plan.stage(*self.deletions)
        return self.plan.done()

    # Clusters.

    def _cluster(self, role: str) -> Json | None:
        return self.observed.clusters.get(self._name(role))

    def _name(self, role: str) -> str:
        return (self.status.get(f"{role}ServiceStatus") or {}).get("rayClusterName") or ""

    def _delete_unused(self) -> None:
        for name, since in self.observed.unused.items():
            cluster = self.observed.clusters.get(name)
            if cluster is None or name in (self._name("active"), self._name("pending")):
                continue
            left = since + self.service.deletion_delay - self.observed.now
            if left > 0:
                self.plan.requeue(left)
            else:
                self._delete(RAY_CLUSTERS, cluster, "")

    def _delete(self, resource: Resource, found: Json, why: str) -> None:
        metadata = found["metadata"]
        if metadata.get("deletionTimestamp"):
            return
        name, uid = metadata["name"], metadata.get("uid")
        self.deletions.append(Delete(resource, name, self.service.namespace, uid, propagation="Background"))
        words = f"Deleted the {resource.kind} {self.service.namespace}/{name}{why}"
        self._report(f"Deleted{resource.kind}", words)

    def _keep_clusters(self) -> None:
        name = self._name("pending")
        if name and name not in self.observed.clusters:
            self.plan.stage(Create(RAY_CLUSTERS, kinds.build_cluster(self.service, name)))
            self._report("CreatedRayCluster", f"Created the RayCluster {self.service.namespace}/{name}")
            return
        if not self.conditions.is_true(conditions.UPGRADING):
            self._update("active")
        self._update("pending")

    def _update(self, role: str) -> None:
        """Add new groups of workers to a cluster."""
        cluster, service = self._cluster(role), self.service
        if cluster is None or kinds.is_same(service, cluster) or not kinds.only_adds_groups(service, cluster):
            return
        goal = kinds.build_cluster(service, cluster["metadata"]["name"])
        metadata = {
            **cluster["metadata"],
            **{key: goal["metadata"][key] for key in ("labels", "annotations")},
        }
        spec = goal["spec"]
        if "suspend" in cluster["spec"]:
            spec["suspend"] = cluster["spec"]["suspend"]
        self.plan.stage(Update(RAY_CLUSTERS, {**cluster, "metadata": metadata, "spec": spec}))
        words = f"Updated the {role} RayCluster {service.namespace}/{metadata['name']}"
        self._report("UpdatedRayCluster", words)

    # Serving.

    def _serve(self) -> None:
        self._keep_clusters()
        active, pending = self._cluster("active"), self._cluster("pending")
        for cluster in (active, pending):
            self._label_head(cluster)
        serve = self.observed.serve
        self._report_serve(serve)
        target = None
        if serve is not None and serve.ready:
            target = self.observed.clusters.get(serve.cluster)
        if target is not None and not self._keep_services(target):
            target = None
        self._calculate_status(active, pending, target)

    def _label_head(self, cluster: Json | None) -> None:
        """Let requests go to the head while its proxy answers. Workers are probed by the node."""
        head = self.observed.heads.get(cluster["metadata"]["name"]) if cluster is not None else None
        if head is None:
            return
        label = "true" if head.serves and not self.service.exclude_head else "false"
        if head.label == label:
            return
        namespace = self.service.namespace
        patch = {"metadata": {"labels": {ray.SERVE_LABEL: label}}}
        self.plan.stage(Patch(PODS, head.name, patch, namespace, uid=head.uid))
        words = f'Updated the serve label to "{label}" for the Head Pod {namespace}/{head.name}'
        self._report("UpdatedHeadPodServeLabel", words)

    def _report_serve(self, serve: ServeApplications | None) -> None:
        if serve is None:
            return
        where = f"serve applications to the RayCluster {self.service.namespace}/{serve.cluster}"
        if serve.problem:
            self._warn("FailedToUpdateServeApplications", f"Failed to update {where}: {serve.problem}")
        elif serve.submitted:
            self._report("UpdatedServeApplications", f"Updated {where}")

    def _keep_services(self, cluster: Json) -> bool:
        """Let the Services select a cluster; return whether this is possible."""
        bodies = kinds.build_services(self.service, cluster)
        for body in bodies:
            if body["metadata"]["name"] in self.observed.foreign:
                name = f"{self.service.namespace}/{body['metadata']['name']}"
                words = f"Service {name} exists and does not belong to the RayService: delete or rename it"
                self._warn("FailedToCreateService", words)
                return False
        for body in bodies:
            self._keep_service(body)
        return True

    def _keep_service(self, body: Json) -> None:
        name = body["metadata"]["name"]
        present = self.observed.services.get(name)
        if present is None:
            self.plan.stage(Create(SERVICES, body))
            self._report("CreatedService", f"Created the service {self.service.namespace}/{name}")
            return
        selector = present["spec"].get("selector") or {}
        if selector.get(ray.CLUSTER) == body["spec"]["selector"][ray.CLUSTER]:
            return
        patch = {"spec": {"selector": body["spec"]["selector"]}}
        version = present["metadata"].get("resourceVersion")
        self.plan.stage(Patch(SERVICES, name, patch, self.service.namespace, resource_version=version))
        self._report("UpdatedService", f"Updated the service {self.service.namespace}/{name}")

    # Status.

    def _calculate_status(self, active: Json | None, pending: Json | None, target: Json | None) -> None:
        self.status["observedGeneration"] = self.service.generation
        serve = self.observed.serve
        for role, cluster in (("active", active), ("pending", pending)):
            part: Json = {"rayClusterName": self._name(role)}
            if cluster is not None:
                part["rayClusterStatus"] = cluster.get("status") or {}
                if serve is not None and serve.cluster == cluster["metadata"]["name"]:
                    part["applicationStatuses"] = dict(serve.applications or {})
            self.status[f"{role}ServiceStatus"] = _set(part)
        serving = target["metadata"]["name"] if target is not None else ""
        is_new = bool(serving) and serving == self._name("pending")
        if is_new:
            self.status["activeServiceStatus"] = self.status["pendingServiceStatus"]
            self.status["pendingServiceStatus"] = {}
        elif kinds.needs_new_cluster(self.service, active, pending) and not self._is_awaited(pending):
            self.status["pendingServiceStatus"] = {"rayClusterName": self.service.cluster_name()}
        self.status["numServeEndpoints"] = self.observed.endpoints
        self.conditions.count_endpoints(self.observed.endpoints)
        self._check_timeout()
        self.conditions.follow_clusters(self._name("active"), self._name("pending"))

    def _is_awaited(self, pending: Json | None) -> bool:
        """Return whether the pending cluster has a name, but is being created only now."""
        return pending is None and bool(self._name("pending"))

    def _check_timeout(self) -> None:
        passed = self.conditions.overdue(self.service.timeout)
        if passed is None or self.service.timeout is None:
            return
        limit, spent = durations.write(self.service.timeout), durations.write(passed)
        words = (
            f"RayService failed to become ready within the configured timeout of {limit}. "
            f"Time spent initializing: {spent}"
        )
        self.conditions.set(conditions.READY, "False", conditions.TIMED_OUT, words)
        for role in ("active", "pending"):
            self.status[f"{role}ServiceStatus"] = {}
        self._warn("RayServiceInitializingTimeout", words)

    def _write_status(self) -> None:
        self.status["serviceStatus"] = "Running" if self.conditions.is_true(conditions.READY) else ""
        status, before = _set(self.status), self.obj.get("status") or {}
        if {**status, "lastUpdateTime": ""} != {**before, "lastUpdateTime": ""}:
            status["lastUpdateTime"] = rfc3339(self.observed.now)
            self.plan.stage(Update(RAY_SERVICES, {**self.obj, "status": status}, "status"))

    # Suspension.

    def _suspension(self) -> bool:
        """Suspend the service or keep it suspended; return whether this is so.

        A suspension that has begun goes on until everything is deleted, also if ``suspend`` is taken back.
        """
        if self.conditions.is_true(conditions.SUSPENDED):
            if not self.service.suspend:
                self._resume()
            return self.service.suspend
        if self.conditions.is_true(conditions.SUSPENDING):
            self._delete_everything()
            return True
        if not self.service.suspend:
            return False
        self.status["observedGeneration"] = self.service.generation
        words = "Spec.Suspend is true; will delete all Kubernetes resources owned by this RayService."
        self.conditions.set(conditions.SUSPENDING, "True", "SuspendRequested", words)
        self._stop_serving("SuspendInProgress", "RayService is suspending.")
        for role in ("active", "pending"):
            self.status[f"{role}ServiceStatus"] = {}
        self.status["numServeEndpoints"] = 0
        self.plan.requeue(0.0)
        return True

    def _delete_everything(self) -> None:
        self.deletions.clear()
        self.plan.events.clear()
        for resource, objects in (
            (RAY_CLUSTERS, self.observed.clusters),
            (SERVICES, self.observed.services),
        ):
            for found in objects.values():
                self._delete(resource, found, " during suspend")
        if self.observed.clusters or self.observed.services:
            words = "Waiting for all Kubernetes resources owned by this RayService to be deleted."
            self.conditions.set(conditions.SUSPENDING, "True", "SuspendInProgress", words)
            self.plan.requeue(POLL_SECONDS)
            return
        words = "All owned resources have been deleted."
        self.conditions.set(conditions.SUSPENDING, "False", "SuspendComplete", words)
        self.conditions.set(conditions.SUSPENDED, "True", "SuspendComplete", words)
        self._stop_serving("SuspendComplete", "RayService is suspended.")
        self.plan.requeue(0.0)

    def _stop_serving(self, reason: str, words: str) -> None:
        self.conditions.set(conditions.READY, "False", reason, words)
        self.conditions.set(conditions.UPGRADING, "False", reason, "No upgrade in progress.")
        self.conditions.set(conditions.ROLLING_BACK, "False", reason, "No rollback in progress.")

    def _resume(self) -> None:
        self.status["observedGeneration"] = self.service.generation
        words = "Spec.Suspend is false; RayService has resumed."
        self.conditions.set(conditions.SUSPENDED, "False", "RayServiceResumed", words)
        words = "RayService is initializing after resuming from suspend."
        for kind in (conditions.READY, conditions.UPGRADING):
            self.conditions.restart(kind, conditions.INITIALIZING, words)

    def _report(self, reason: str, message: str) -> None:
        assert self.plan.about is not None
        self.plan.event(EmitEvent(self.plan.about, "Normal", reason, message))

    def _warn(self, reason: str, message: str) -> None:
        assert self.plan.about is not None
        self.plan.event(EmitEvent(self.plan.about, "Warning", reason, message, lasting=True))


def _set(part: Mapping[str, Any]) -> Json:
    """Return the fields with a value; a number counts as one."""
    return {key: value for key, value in part.items() if value not in ("", None, {}, [])}
