"""Pods of a gang that share ResourceClaims start together, on one node.

Such pods are a part of their gang of which all lie on one node: devices that nodes list are of one node, and so is
all that shares them. As long as none of them has a place, all of them start or none: each is a consumer of the same
allocation, which is written once, for all of them. Who comes later goes where the others are.

A pod is in one part of its gang at most: in a gang that has sub-groups already, pods wait for the one that carries
what they share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace as altered

from windlass.api import views
from windlass.spi.objects import Group, SubGroup
from windlass.spi.topology import NODE_NAME, Level, TopologyNeed

ONE_NODE = TopologyNeed("node", (Level(NODE_NAME, "node"),), required=0)
_PREFIX = "ResourceClaim "


def shares(pod: views.Pod) -> bool:
    """Whether a pod names a claim that others can name, too."""
    return any(reference.claim for reference in pod.shape.claims)


def part_of(claim: str) -> str:
    """The name of the part that shares a claim, and maybe others."""
    return _PREFIX + claim


def begun(pods: Iterable[views.Pod], assumed: Collection[str]) -> bool:
    """Whether one of the pods has a place."""
    return any(pod.node_name or pod.key in assumed for pod in pods)


def applied(group: Group, found: dict[str, list[views.Pod]], members: int, assumed: Collection[str]) -> Group:
    """The group with its parts. ``found``: claim → the pods that share it; ``members``: how many pods it has. A
    part that the gang's minimum can do without is not asked for."""
    if not found:
        return group
    sizes = {claim: 0 if begun(pods, assumed) else len(pods) for claim, pods in sorted(found.items())}
    parts = tuple(
        SubGroup(part_of(claim), min_members=size, topology=ONE_NODE) for claim, size in sizes.items()
    )
    needed = sum(members - len(pods) < group.min_member for pods in found.values())
    return altered(group, subgroups=parts, min_subgroups=needed)
