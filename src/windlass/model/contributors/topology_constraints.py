"""Topology constraints: maximum distance between the pods of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from windlass.api import views
from windlass.api.errors import FieldError
from windlass.model.cluster.marks import DirtyMarks, Membership
from windlass.model.contributors.registry import Contributor, Contributors
from windlass.model.contributors.sub_groups import SubGroups
from windlass.model.groups import podgroups, topology_constraint
from windlass.model.nodes.topology import TopologyIndex
from windlass.spi.objects import Group


class TopologyConstraints(Contributor):
    """Topology constraints of groups. ``pods_of``: the pods of a group, by its key."""

    group_traits = ("topology", "subgroup_policies", "subgroups")
    follows_nodes = True

    def __init__(
        self,
        contributors: Contributors,
        marks: DirtyMarks,
        membership: Membership,
        groups: Mapping[str, views.PodGroup],
        kai_groups: Mapping[str, views.KaiPodGroup],
        sub_groups: SubGroups,
        index: TopologyIndex,
        pods_of: Callable[[str], Iterator[views.Pod]],
    ) -> None:
        self._contributors = contributors
        self._marks = marks
        self._membership = membership
        self._groups = groups
        self._kai_groups = kai_groups
        self._sub_groups = sub_groups
        self.index = index
        self._pods_of = pods_of

    def upsert(self, item: views.HyperNode | views.Topology) -> None:
        """Enter a HyperNode of Volcano or a Topology of KAI."""
        if self.index.upsert(item):
            self.mark_all()

    def remove(self, item: views.HyperNode | views.Topology) -> None:
        """Remove one of them."""
        if self.index.remove(item):
            self.mark_all()

    def mark_all(self) -> None:
        """Mark all groups with a constraint."""
        marks = self._marks
        marks.mark_groups(key for key, group in self._groups.items() if _is_constrained(group))
        marks.mark_groups(podgroups.kai_key(group) for group in self._kai_groups.values())
        for key, contributors in self._contributors.by_pods.items():
            if self in contributors:
                marks.groups[key] = None
                marks.mark_pods(self._membership.pods.get(key, ()))

    def constraint_of(self, group: str) -> topology_constraint.GroupTopology | None:
        """Return the constraint of a group, by its key; ``None`` without one."""
        demand: topology_constraint.GroupTopology | None = None
        if (view := self._groups.get(group)) is not None:
            demand = topology_constraint.of_pod_group(view, self.index)
        elif podgroups.kind_prefix(group) == podgroups.KAI and (
            kai := self._kai_groups.get(podgroups.shown_key(group))
        ):
            demand = topology_constraint.of_kai_group(kai, self.index)
        if (demand is None or not demand.is_set) and self in self._contributors.by_pods.get(group, ()):
            demand = topology_constraint.of_pods(self._pods_of(group), self.index)
        return demand if demand is not None and demand.is_set else None

    def problems(self, group: str) -> tuple[FieldError, ...]:
        """Return the problems of a group's constraint."""
        demand = self.constraint_of(group)
        return demand.problems if demand is not None else ()

    # ------------------------------------------------------------------ as a contributor

    def reads_pod(self, annotation: str) -> bool:
        """Return whether the annotation states a constraint."""
        return annotation in topology_constraint.ANNOTATIONS

    def nodes_relabelled(self) -> None:
        """Assign the nodes to the HyperNodes again."""
        self.index.nodes_changed()

    def pod_joined(self, pod: views.Pod, group: str) -> None:
        """Register the pod's group if the pod states a constraint."""
        if topology_constraint.states_topology(pod.annotations):
            self._contributors.register_group(self, group)

    def subgroup_of(self, pod: views.Pod, group: str) -> str:
        """Return the sub-group or segment of the pod."""
        return self._sub_groups.subgroup_or_segment(pod, group)

    def applied(self, group: Group) -> Group:
        """Return the group with its constraint."""
        demand = self.constraint_of(group.key)
        return (
            group if demand is None else topology_constraint.applied(group, demand, self._pods_of(group.key))
        )


def _is_constrained(group: views.PodGroup) -> bool:
    return group.topology is not None or any(policy.topology for policy in group.subgroup_policies)
