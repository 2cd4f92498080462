"""Reconciliation of a RayCluster: head Service, PodGroup, pods, status.

Failed pods are deleted, and created again under their names when they are gone. One that fails again and again stays
for a while before that, so that its node has rest and its end can be read. Pods above the wanted number of a
group are deleted, those that are not ready first, then those with the highest numbers. With Ray's autoscaler only the
pods in ``workersToDelete`` are deleted: it knows which ones are idle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from windlass.api.fields import ray
from windlass.api.resources import POD_GROUPS, PODS, RAY_CLUSTERS, SERVICES
from windlass.controllers.effects import (
    NOTHING,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Update,
    reference,
)
from windlass.controllers.pod_groups import is_admitted, own_group, patch_group, spec_patch
from windlass.jobs.members import RolePod
from windlass.jobs.ray import cluster_status
from windlass.jobs.ray import pods as bodies
from windlass.jobs.ray.autoscaler import build_rights
from windlass.jobs.ray.cluster import NodeGroup, RayCluster, read_cluster

Json = dict[str, Any]
BATCH = 500
"""Maximum number of pods that one reconciliation creates."""


@dataclass(frozen=True, slots=True)
class RayClusterSnapshot:
    """Observed surroundings of a cluster.

    ``pods``: with the group as role.
    ``addresses``: pod → IP.
    ``group``: PodGroup with the cluster's name, of any owner.
    ``service``: Service with the name of the head's.
    ``now``: Unix seconds.
    ``not_before``: name of a pod → time before which it is not replaced after a failure.
    ``scheduler``: default scheduler of pods.
    ``roles``: the server has role-based access.
    """

    pods: tuple[RolePod, ...]
    addresses: Mapping[str, str]
    group: Json | None
    service: Json | None
    priorities: Mapping[str, int]
    now: float
    scheduler: str
    roles: bool = False
    not_before: Mapping[str, float] = field(default_factory=dict)


def reconcile_cluster(obj: Json, observed: RayClusterSnapshot) -> Effects:
    """Reconcile one RayCluster. Pure."""
    if obj["metadata"].get("deletionTimestamp"):
        return NOTHING
    about = reference(RAY_CLUSTERS, obj)
    try:
        cluster = read_cluster(obj)
        for group, number, _ in cluster.slots():
            bodies.build_pod(cluster, group, number, observed.scheduler)
            break
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"the spec cannot be read: {error}"
        return Effects(events=(EmitEvent(about, "Warning", "InvalidRayClusterSpec", message, lasting=True),))
    plan = EffectPlan(about=about)
    if cluster.suspend:
        _suspend(cluster, observed, plan)
    else:
        _keep(obj, cluster, observed, plan)
    service_ip = ((observed.service or {}).get("spec") or {}).get("clusterIP") or ""
    status = cluster_status.render(
        cluster,
        obj,
        observed.pods,
        observed.addresses,
        "" if service_ip == "None" else service_ip,
        observed.now,
    )
    if status != (obj.get("status") or {}):
        plan.stage(Update(RAY_CLUSTERS, {**obj, "status": status}, "status"))
    return plan.done()


def _suspend(cluster: RayCluster, observed: RayClusterSnapshot, plan: EffectPlan) -> None:
    plan.stage(
        *(Delete(PODS, pod.name, cluster.namespace, pod.uid) for pod in observed.pods if not pod.deleting)
    )
    group = own_group(observed.group, cluster.uid)
    if group is not None and not observed.pods:
        plan.stage(Delete(POD_GROUPS, cluster.name, cluster.namespace, group["metadata"].get("uid")))


def _keep(obj: Json, cluster: RayCluster, observed: RayClusterSnapshot, plan: EffectPlan) -> None:
    named = _named(obj)
    _delete_pods(cluster, named, observed, plan)
    if observed.service is None:
        kind = (obj["spec"].get("headGroupSpec") or {}).get("serviceType") or ""
        plan.stage(Create(SERVICES, bodies.build_head_service(cluster, kind)))
    group = own_group(observed.group, cluster.uid)
    if observed.group is None:
        plan.stage(Create(POD_GROUPS, bodies.build_group(cluster, observed.priorities)))
    elif group is None:
        if not observed.group["metadata"].get("deletionTimestamp"):
            message = (
                f"PodGroup {cluster.name} exists and does not belong to the cluster: delete or rename it"
            )
            assert plan.about is not None
            plan.event(EmitEvent(plan.about, "Warning", "PodGroupConflict", message, lasting=True))
        return
    elif patch := spec_patch(group, bodies.group_spec(cluster, observed.priorities)):
        plan.stage(patch_group(group, patch))
    if is_admitted(group):
        _create_pods(cluster, named, observed, plan)


def _create_pods(
    cluster: RayCluster, named: Set[str], observed: RayClusterSnapshot, plan: EffectPlan
) -> None:
    missing = [slot for group in cluster.groups for slot in _free_slots(cluster, group, named, observed)]
    if cluster.autoscaling and any(group.type == ray.HEAD for group, _ in missing):
        rights = build_rights(cluster, roles=observed.roles)
        plan.stage(*(Create(resource, body) for resource, body in rights))
    plan.stage(
        *(
            Create(PODS, bodies.build_pod(cluster, found, number, observed.scheduler))
            for found, number in missing[:BATCH]
        )
    )


def _free_slots(
    cluster: RayCluster, group: NodeGroup, named: Set[str], observed: RayClusterSnapshot
) -> Iterator[tuple[NodeGroup, int]]:
    """Yield the slots of a group in which pods are created: the lowest that are free.

    A pod that failed or is being deleted holds its slot until it is gone, and returns under its name. Names in
    ``workersToDelete`` are not used again.
    """
    pods = {pod.name: pod for pod in observed.pods}
    missing = group.replicas - sum(_is_live(pod, named) for pod in observed.pods if pod.role == group.key)
    number = 0
    while missing > 0:
        name = cluster.pod_name(group, number)
        present = pods.get(name)
        if name not in named and not (present is not None and _is_live(present, named)):
            missing -= 1
            if present is None:
                yield group, number
        number += 1


def _is_live(pod: RolePod, named: Set[str]) -> bool:
    return not (pod.deleting or pod.finished or pod.name in named)


def _named(obj: Json) -> frozenset[str]:
    """Return the pods that the user or Ray's autoscaler wants to be deleted."""
    return frozenset(
        name
        for group in obj["spec"].get("workerGroupSpecs") or ()
        for name in (group.get("scaleStrategy") or {}).get("workersToDelete") or ()
    )


def _delete_pods(
    cluster: RayCluster, named: Set[str], observed: RayClusterSnapshot, plan: EffectPlan
) -> None:
    unwanted = [pod for pod in observed.pods if not pod.deleting and not _is_live(pod, named)]
    known = {group.key for group in cluster.groups}
    unwanted += [pod for pod in observed.pods if pod.role not in known and _is_live(pod, named)]
    for group in cluster.groups:
        live = [pod for pod in observed.pods if pod.role == group.key and _is_live(pod, named)]
        if len(live) > group.replicas and not (cluster.autoscaling and group.replicas):
            slots = {cluster.pod_name(group, number): number for number in range(2 * len(live) + BATCH)}
            live.sort(key=lambda pod: (not pod.ready, slots.get(pod.name, len(slots))))
            unwanted += live[group.replicas :]
    unwanted = [pod for pod in unwanted if not _waits(pod, named, observed, plan)]
    for pod in unwanted:
        if pod.failed and plan.about is not None:
            cause = cluster_status.cause_of(pod)
            words = f"Deleted {pod.role} pod {cluster.namespace}/{pod.name}, which has failed"
            words += f": {cause}" * bool(cause)
            plan.event(EmitEvent(plan.about, "Normal", f"Deleted{_type_of(pod)}Pod", words))
    plan.stage(*(Delete(PODS, pod.name, cluster.namespace, pod.uid) for pod in unwanted))


def _waits(pod: RolePod, named: Set[str], observed: RayClusterSnapshot, plan: EffectPlan) -> bool:
    """Return whether a pod that has failed is replaced only later."""
    left = observed.not_before.get(pod.name, 0.0) - observed.now
    if not pod.failed or pod.disrupted or pod.name in named or left <= 0:
        return False
    plan.requeue(left)
    return True


def _type_of(pod: RolePod) -> str:
    return "Head" if pod.role == ray.HEAD else "Worker"
