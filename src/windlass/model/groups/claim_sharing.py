"""Sub-groups of a gang's pods that share ResourceClaims: they start together, on one node.

Such pods form a sub-group on one node: listed devices belong to one node, and so do all
pods that share them. While none of them has a node, all of them start or none. Each is
a consumer of the same allocation, which is written once for all of them. A pod that is
created later is placed on the node of the others.

In a gang with sub-groups they form a sub-group of their sub-group, if all of them are
in the same one. Pods of different sub-groups wait for the pod that carries the shared
claim.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from msgspec.structs import replace as altered

from windlass.api import views
from windlass.spi.objects import Group, SubGroup
from windlass.spi.topology import NODE_NAME, Level, TopologyNeed

ONE_NODE = TopologyNeed("node", (Level(NODE_NAME, "node"),), required=0)
_PREFIX = "ResourceClaim "


def shares(pod: views.Pod) -> bool:
    """Return whether a pod names a claim that others can name, too."""
    return any(reference.claim for reference in pod.shape.claims)


def subgroup_name(claim: str) -> str:
    """Return the name of the sub-group that shares a claim (and maybe further claims)."""
    return _PREFIX + claim


def started(pods: Iterable[views.Pod], assumed: Collection[str]) -> bool:
    """Return whether one of the pods is bound or has a decided bind."""
    return any(pod.node_name or pod.key in assumed for pod in pods)


def applied(
    group: Group, inside: str, shared: dict[str, list[views.Pod]], members: int, assumed: Collection[str]
) -> Group:
    """Return the group with its sharing pods as sub-groups of ``inside`` ("": of the group).

    ``shared``: claim → the pods that share it.
    ``members``: number of pods in ``inside``.

    A sub-group is optional if the minimum can be met without it.
    """
    parts = tuple(
        SubGroup(subgroup_name(claim), inside, 0 if started(pods, assumed) else len(pods), topology=ONE_NODE)
        for claim, pods in sorted(shared.items())
    )
    if not inside:
        needed = sum(members - len(pods) < group.min_member for pods in shared.values())
        return altered(group, subgroups=(*group.subgroups, *parts), min_subgroups=needed)
    whole = tuple(
        _with(subgroup, shared, members) if subgroup.name == inside else subgroup
        for subgroup in group.subgroups
    )
    return altered(group, subgroups=(*whole, *parts))


def _with(part: SubGroup, shared: dict[str, list[views.Pod]], members: int) -> SubGroup:
    """Return a sub-group with sharing sub-groups in it. The remaining pods are its own.

    Its minimum consists of its own pods and of those sharing sub-groups without which
    it cannot be met.
    """
    sizes = [len(pods) for pods in shared.values()]
    needed = [size for size in sizes if members - size < part.min_members]
    own = min(max(0, part.min_members - sum(needed)), members - sum(sizes))
    return replace(part, min_members=own, min_subgroups=len(needed))
