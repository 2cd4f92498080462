"""Pods of a gang that share ResourceClaims: they start together, on one node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from windlass.api import views
from windlass.model.cluster.marks import DirtyMarks, Membership
from windlass.model.contributors.device_claims import DeviceClaims
from windlass.model.contributors.registry import Contributor, Contributors
from windlass.model.contributors.sub_groups import SubGroups
from windlass.model.devices.dra_claims import stays
from windlass.model.groups import claim_sharing, podgroups
from windlass.spi.objects import Group


class ClaimSharing(Contributor):
    """Sub-groups of pods that share claims. ``pods_of``: the pods of a group, by its key."""

    pod_traits = ("shape.claims",)

    def __init__(
        self,
        contributors: Contributors,
        marks: DirtyMarks,
        membership: Membership,
        claims: DeviceClaims,
        sub_groups: SubGroups,
        assumed: Collection[str],
        pods_of: Callable[[str], Iterator[views.Pod]],
    ) -> None:
        self._contributors = contributors
        self._marks = marks
        self._membership = membership
        self._claims = claims
        self._sub_groups = sub_groups
        self._assumed = assumed
        self._pods_of = pods_of

    def pod_joined(self, pod: views.Pod, group: str) -> None:
        """Register the pod's group if the pod names a claim that other pods may name."""
        if claim_sharing.shares(pod):
            self._contributors.register_group(self, group)

    def group_shown(self, group: str) -> None:
        """Mark the pods with claims: whether they can start together depends on the gang's sub-groups."""
        for key in self._membership.pods.get(group, ()):
            if key in self._claims.pods:
                self._marks.pods[key] = None

    def subgroup_of(self, pod: views.Pod, group: str) -> str:
        """Return the sub-group of the pods that share claims with the pod."""
        claim, _ = self._sharing(pod, group)
        return claim_sharing.subgroup_name(claim) if claim else ""

    def starting_with(self, pod: views.Pod, group: str) -> Collection[str]:
        """Return the pods with which a pod starts on one node because they share claims."""
        mates = self._sharing(pod, group)[1] if group else {}
        started = pod.key not in self._assumed and claim_sharing.started(mates.values(), self._assumed)
        return () if started else mates

    def applied(self, group: Group) -> Group:
        """Return the group with a sub-group for the pods of each shared claim."""
        key = group.key
        pods = [pod for pod in self._pods_of(key) if stays(pod)]
        shared: dict[str, dict[str, list[views.Pod]]] = {}
        assigned: set[str] = set()
        for pod in pods:
            if pod.key not in assigned and claim_sharing.shares(pod):
                claim, mates = self._sharing(pod, key)
                assigned.update(mates)
                if claim:
                    inside = self._sub_groups.subgroup_or_segment(pod, key)
                    shared.setdefault(inside, {})[claim] = list(mates.values())
        for inside, claims in sorted(shared.items()):
            members = sum(self._sub_groups.subgroup_or_segment(pod, key) == inside for pod in pods)
            group = claim_sharing.applied(group, inside, claims, members, self._assumed)
        return group

    def _sharing(self, pod: views.Pod, group: str) -> tuple[str, dict[str, views.Pod]]:
        """Return the pods that share claims with a pod, and the claim that identifies them.

        ``""`` and none if no other pod of the gang does, or if they are in different
        sub-groups.
        """
        if podgroups.is_implicit(group) or not (claim_sharing.shares(pod) and stays(pod)):
            return "", {}
        claim, mates = self._claims.sharers(
            pod,
            lambda other: (
                other.scheduler_name == pod.scheduler_name
                and stays(other)
                and podgroups.group_key(other) == group
            ),
        )
        parts = {self._sub_groups.subgroup_or_segment(mate, group) for mate in mates.values()}
        divided = len(parts) > 1 or (parts == {""} and self._sub_groups.divides(group))
        return (claim, mates) if len(mates) > 1 and not divided else ("", {})
