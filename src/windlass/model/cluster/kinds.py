"""Kinds that the model reads, with their decoders and handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from windlass.api import resources, views
from windlass.model.cluster.cluster_model import ClusterModel

Decode = Callable[[bytes], Any]
Handle = Callable[[ClusterModel, Any], None]


class Kind(NamedTuple):
    """One kind. ``upsert`` and ``remove`` take what ``decode`` returns."""

    decode: Decode
    upsert: Handle
    remove: Handle
    resource: resources.Resource | None
    """As a server lists it; ``None``: read from dumps only."""
    required: bool = False
    """True if the scheduler cannot decide without it.

    A cluster may lack, or hide, the other kinds.
    """
    dumps: tuple[str, ...] = ()
    """Names (``apiVersion/kind``) in dumps, in addition to that of the resource."""
    dumped: bool = True
    """True if it is read from dumps."""

    @property
    def names(self) -> Iterator[str]:
        """Names in dumps."""
        if self.resource is not None and self.dumped:
            yield f"{self.resource.api_version}/{self.resource.kind}"
        yield from self.dumps


def _upsert_workload(model: ClusterModel, groups: tuple[views.NativeGroup, ...]) -> None:
    for group in groups:
        model.objects.upsert_native_group(group)


def _remove_workload(model: ClusterModel, groups: tuple[views.NativeGroup, ...]) -> None:
    for group in groups:
        model.objects.remove_native_group(group.key)


def _storage(decode: Decode, resource: resources.Resource) -> Kind:
    return Kind(
        decode,
        lambda model, item: model.features.volumes.upsert(item),
        lambda model, item: model.features.volumes.remove(item),
        resource,
    )


def _claim(decode: Decode, resource: resources.Resource) -> Kind:
    return Kind(
        decode,
        lambda model, item: model.features.claims.upsert(item),
        lambda model, item: model.features.claims.remove(item),
        resource,
    )


def _topology(decode: Decode, resource: resources.Resource) -> Kind:
    return Kind(
        decode,
        lambda model, item: model.features.topology.upsert(item),
        lambda model, item: model.features.topology.remove(item),
        resource,
    )


def _numa(decode: Decode, resource: resources.Resource, *dumps: str) -> Kind:
    return Kind(
        decode,
        lambda model, report: model.objects.upsert_numa_report(report),
        lambda model, report: model.objects.remove_numa_report(report),
        resource,
        dumps=dumps,
    )


PODS = Kind(
    views.decode_pod,
    lambda model, pod: model.objects.upsert_pod(pod),
    lambda model, pod: model.objects.remove_pod(pod.key),
    resources.PODS,
    required=True,
)
KINDS = (
    PODS,
    Kind(
        views.decode_node,
        lambda model, node: model.objects.upsert_node(node),
        lambda model, node: model.objects.remove_node(node.name),
        resources.NODES,
        required=True,
    ),
    Kind(
        views.decode_namespace,
        lambda model, namespace: model.objects.upsert_namespace(namespace),
        lambda model, namespace: model.objects.remove_namespace(namespace.name),
        resources.NAMESPACES,
        required=True,
    ),
    _storage(views.decode_volume, resources.PERSISTENT_VOLUMES),
    _storage(views.decode_persistent_volume_claim, resources.PERSISTENT_VOLUME_CLAIMS),
    _storage(views.decode_storage_class, resources.STORAGE_CLASSES),
    _storage(views.decode_csi_node, resources.CSI_NODES),
    _storage(views.decode_csi_driver, resources.CSI_DRIVERS),
    _storage(views.decode_storage_capacity, resources.STORAGE_CAPACITIES),
    _claim(views.decode_device_class, resources.DEVICE_CLASSES),
    _claim(views.decode_device_claim, resources.RESOURCE_CLAIMS),
    _claim(views.decode_claim_template, resources.RESOURCE_CLAIM_TEMPLATES),
    _claim(views.decode_resource_slice, resources.RESOURCE_SLICES),
    Kind(
        views.decode_disruption_budget,
        lambda model, budget: model.features.budgets.upsert(budget),
        lambda model, budget: model.features.budgets.remove(budget),
        resources.POD_DISRUPTION_BUDGETS,
    ),
    Kind(
        views.decode_resource_quota,
        lambda model, quota: model.objects.upsert_quota(quota),
        lambda model, quota: model.objects.remove_quota(quota),
        resources.RESOURCE_QUOTAS,
    ),
    Kind(
        views.decode_priority_class,
        lambda model, priority: model.objects.upsert_class(priority),
        lambda model, priority: model.objects.remove_class(priority.name),
        resources.PRIORITY_CLASSES,
        required=True,
    ),
    Kind(
        views.decode_queue,
        lambda model, queue: model.objects.upsert_queue(queue),
        lambda model, queue: model.objects.remove_queue(queue.name),
        resources.QUEUES,
        required=True,
    ),
    Kind(
        views.decode_pod_group,
        lambda model, group: model.objects.upsert_group(group),
        lambda model, group: model.objects.remove_group(group.key),
        resources.POD_GROUPS,
        required=True,
    ),
    Kind(
        views.decode_kai_queue,
        lambda model, queue: model.objects.upsert_kai_queue(queue),
        lambda model, queue: model.objects.remove_kai_queue(queue.name),
        resources.KAI_QUEUES,
    ),
    Kind(
        views.decode_kai_pod_group,
        lambda model, group: model.objects.upsert_kai_group(group),
        lambda model, group: model.objects.remove_kai_group(group.key),
        resources.KAI_POD_GROUPS,
    ),
    Kind(
        views.decode_coscheduling_group,
        lambda model, group: model.objects.upsert_coscheduling_group(group),
        lambda model, group: model.objects.remove_coscheduling_group(group.key),
        resources.COSCHEDULING_POD_GROUPS,
    ),
    _topology(views.decode_hypernode, resources.HYPERNODES),
    _topology(views.decode_topology, resources.KAI_TOPOLOGIES),
    _numa(views.decode_numatopology, resources.NUMATOPOLOGIES),
    _numa(
        views.decode_node_resource_topology,
        resources.NODE_RESOURCE_TOPOLOGIES,
        "topology.node.k8s.io/v1alpha1/NodeResourceTopology",
    ),
    Kind(
        views.decode_workload,
        _upsert_workload,
        _remove_workload,
        None,
        dumps=("scheduling.k8s.io/v1alpha1/Workload",),
    ),
    Kind(
        views.decode_native_group,
        lambda model, group: model.objects.upsert_native_group(group),
        lambda model, group: model.objects.remove_native_group(group.key),
        resources.NATIVE_POD_GROUPS,
        dumps=("scheduling.k8s.io/v1alpha3/PodGroup",),
    ),
    Kind(
        views.decode_provisioning_request,
        lambda model, request: model.objects.upsert_request(request),
        lambda model, request: model.objects.remove_request(request),
        resources.PROVISIONING_REQUESTS,
        dumped=False,
    ),
)
"""All kinds. In a dump, an object may come before those that it refers to."""
BY_NAME: Mapping[str, Kind] = {name: kind for kind in KINDS for name in kind.names}
"""Kinds of dumps, by ``apiVersion/kind``."""
