"""Pods of a gang that share ResourceClaims start together, on one node.

Such pods are a part of their gang of which all lie on one node: devices that nodes list are of one node, and so is
all that shares them. As long as none of them has a place, all of them start or none: each is a consumer of the same
allocation, which is written once, for all of them. Who comes later goes where the others are.

In a gang that has sub-groups already they are a part of their sub-group, if all of them are in the same; pods of
different sub-groups wait for the one that carries what they share.
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


def part_of(claim: str) -> str:
    """The name of the part that shares a claim, and maybe others."""
    return _PREFIX + claim


def started(pods: Iterable[views.Pod], assumed: Collection[str]) -> bool:
    """Return whether one of the pods has a place."""
    return any(pod.node_name or pod.key in assumed for pod in pods)


def applied(
    group: Group, inside: str, found: dict[str, list[views.Pod]], members: int, assumed: Collection[str]
) -> Group:
    """The group with parts inside one of its sub-groups (empty: of itself). ``found``: claim → the pods that share it;
    ``members``: how many pods that has. A part that its minimum can do without is not asked for."""
    parts = tuple(
        SubGroup(part_of(claim), inside, 0 if started(pods, assumed) else len(pods), topology=ONE_NODE)
        for claim, pods in sorted(found.items())
    )
    if not inside:
        needed = sum(members - len(pods) < group.min_member for pods in found.values())
        return altered(group, subgroups=(*group.subgroups, *parts), min_subgroups=needed)
    whole = tuple(_with(one, found, members) if one.name == inside else one for one in group.subgroups)
    return altered(group, subgroups=(*whole, *parts))


def _with(part: SubGroup, found: dict[str, list[views.Pod]], members: int) -> SubGroup:
    """A sub-group some of whose pods are parts of it: the others are its own. Its minimum is theirs and those parts'
    without which it cannot be met."""
    sizes = [len(pods) for pods in found.values()]
    needed = [size for size in sizes if members - size < part.min_members]
    own = min(max(0, part.min_members - sum(needed)), members - sum(sizes))
    return replace(part, min_members=own, min_subgroups=len(needed))
