"""Typed partial views on wire objects: only the fields that scheduler, controllers and agent read.

``decode_KIND(raw)`` takes an object's JSON bytes. Every decoder is total: a field of the wrong type
becomes an entry of ``problems``; only something that is not an object with a name raises
``msgspec.DecodeError``. A plain object goes through :func:`encode` first.
"""

from __future__ import annotations

from windlass.api.views.autoscaling import ProvisioningRequest, decode_provisioning_request
from windlass.api.views.claims import (
    AwaitedDevice,
    ClaimRequest,
    ClaimTemplate,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceResult,
    DeviceTaint,
    DeviceToleration,
    ResourceSlice,
    SliceDevice,
    decode_claim_template,
    decode_device_claim,
    decode_device_class,
    decode_resource_slice,
)
from windlass.api.views.cluster import Namespace, ResourceQuota, decode_namespace, decode_resource_quota
from windlass.api.views.coscheduling import CoschedulingGroup, decode_coscheduling_group
from windlass.api.views.kai import (
    KaiPodGroup,
    KaiQueue,
    KaiSubGroup,
    decode_kai_pod_group,
    decode_kai_queue,
)
from windlass.api.views.native import NativeGroup, decode_native_group, decode_workload
from windlass.api.views.node import NodeObject, TaintView, decode_node
from windlass.api.views.numa import NodeTopology, decode_node_resource_topology, decode_numatopology
from windlass.api.views.pod import DEFAULT_SCHEDULER, ContainerExit, Pod, decode_pod
from windlass.api.views.podshape import PodShape
from windlass.api.views.policy import PodDisruptionBudget, decode_disruption_budget
from windlass.api.views.scheduling import (
    Condition,
    PodGroup,
    PriorityClass,
    QueueAffinity,
    QueueObject,
    SubGroupPolicy,
    decode_pod_group,
    decode_priority_class,
    decode_queue,
)
from windlass.api.views.storage import (
    CsiDriver,
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageCapacity,
    StorageClass,
    decode_csi_driver,
    decode_csi_node,
    decode_persistent_volume_claim,
    decode_storage_capacity,
    decode_storage_class,
    decode_volume,
)
from windlass.api.views.topology import (
    HyperNode,
    HyperNodeMember,
    NetworkTopology,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    decode_hypernode,
    decode_topology,
)
from windlass.api.views.wire import OwnerReference, controller_of, encode

__all__ = [
    "DEFAULT_SCHEDULER",
    "AwaitedDevice",
    "ClaimRequest",
    "ClaimTemplate",
    "Condition",
    "ContainerExit",
    "CoschedulingGroup",
    "CsiDriver",
    "CsiNode",
    "DeviceCapacity",
    "DeviceClaim",
    "DeviceClass",
    "DeviceConstraint",
    "DeviceRequest",
    "DeviceResult",
    "DeviceTaint",
    "DeviceToleration",
    "HyperNode",
    "HyperNodeMember",
    "KaiPodGroup",
    "KaiQueue",
    "KaiSubGroup",
    "Namespace",
    "NativeGroup",
    "NetworkTopology",
    "NodeObject",
    "NodeTopology",
    "OwnerReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "PodGroup",
    "PodShape",
    "PriorityClass",
    "ProvisioningRequest",
    "QueueAffinity",
    "QueueObject",
    "ResourceQuota",
    "ResourceSlice",
    "SliceDevice",
    "StorageCapacity",
    "StorageClass",
    "SubGroupPolicy",
    "TaintView",
    "Topology",
    "TopologyConstraint",
    "TopologyLevel",
    "controller_of",
    "decode_claim_template",
    "decode_coscheduling_group",
    "decode_csi_driver",
    "decode_csi_node",
    "decode_device_claim",
    "decode_device_class",
    "decode_disruption_budget",
    "decode_hypernode",
    "decode_kai_pod_group",
    "decode_kai_queue",
    "decode_namespace",
    "decode_native_group",
    "decode_node",
    "decode_node_resource_topology",
    "decode_numatopology",
    "decode_persistent_volume_claim",
    "decode_pod",
    "decode_pod_group",
    "decode_priority_class",
    "decode_provisioning_request",
    "decode_queue",
    "decode_resource_quota",
    "decode_resource_slice",
    "decode_storage_capacity",
    "decode_storage_class",
    "decode_topology",
    "decode_volume",
    "decode_workload",
    "encode",
]
