"""All contributors of a model, by name, in the order of their calls."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.model.cluster.assumed_binds import AssumedBinds
from windlass.model.cluster.group_builder import GroupBuilder
from windlass.model.cluster.group_index import GroupIndex
from windlass.model.cluster.marks import DirtyMarks, SentState
from windlass.model.cluster.object_cache import ObjectCache
from windlass.model.contributors.budgets import ProtectedPods
from windlass.model.contributors.claim_sharing import ClaimSharing
from windlass.model.contributors.device_claims import DeviceClaims
from windlass.model.contributors.device_requests import DeviceRequests
from windlass.model.contributors.node_groups import QueueNodeGroups
from windlass.model.contributors.pod_annotations import PodAnnotations
from windlass.model.contributors.registry import Contributors
from windlass.model.contributors.sub_groups import SubGroups
from windlass.model.contributors.task_topology import TaskTopology
from windlass.model.contributors.topology_constraints import TopologyConstraints
from windlass.model.contributors.volumes import VolumeClaims
from windlass.model.nodes.topology import TopologyIndex
from windlass.model.pods.device_exclusion import Rules


@dataclass(frozen=True, slots=True)
class Features:
    """Contributors that are used directly, and not only through the registry."""

    volumes: VolumeClaims
    claims: DeviceClaims
    requests: DeviceRequests
    topology: TopologyConstraints
    budgets: ProtectedPods


def register(
    contributors: Contributors,
    marks: DirtyMarks,
    sent: SentState,
    objects: ObjectCache,
    index: GroupIndex,
    groups: GroupBuilder,
    binds: AssumedBinds,
    exclusive: Rules,
) -> Features:
    """Create all contributors and register them.

    Sub-groups come before constraints on them. Both come before the sub-groups of pods
    that share claims, which lie in them. ``exclusive``: pods that share no device with
    one another.
    """
    membership, pods, topology = index.membership, objects.pods, TopologyIndex()
    volumes = VolumeClaims(marks)
    claims = DeviceClaims(marks, sent, membership, pods, binds.assumed)
    binds.listeners.append(claims.bind_forgotten)
    sub_groups = SubGroups(objects.groups, objects.kai_groups, topology, index.pods_of)
    sharing = ClaimSharing(contributors, marks, membership, claims, sub_groups, binds.assumed, index.pods_of)
    requests = DeviceRequests(marks, claims, sharing, exclusive)
    constraints = TopologyConstraints(
        contributors,
        marks,
        membership,
        objects.groups,
        objects.kai_groups,
        sub_groups,
        topology,
        index.pods_of,
    )
    budgets = ProtectedPods(contributors, marks, pods)
    contributors.register(
        (
            volumes,
            claims,
            requests,
            PodAnnotations(),
            QueueNodeGroups(contributors, marks, membership, pods, objects.queues, groups.queue_named),
            TaskTopology(marks, membership, objects.groups),
            budgets,
            sub_groups,
            constraints,
            sharing,
        )
    )
    return Features(volumes, claims, requests, constraints, budgets)
