"""Sub-groups of a gang by its PodGroup, and segments by its pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace as altered

from windlass.api import annotations as names
from windlass.api import views
from windlass.model.contributors.registry import Contributor
from windlass.model.groups import podgroups, subgroups, topology_constraint
from windlass.model.nodes.topology import TopologyIndex
from windlass.spi.objects import Group


class SubGroups(Contributor):
    """Sub-groups and segments of gangs. ``pods_of``: the pods of a group, by its key."""

    group_traits = ("subgroup_policies", "subgroups")

    def __init__(
        self,
        groups: Mapping[str, views.PodGroup],
        kai_groups: Mapping[str, views.KaiPodGroup],
        topology: TopologyIndex,
        pods_of: Callable[[str], Iterator[views.Pod]],
    ) -> None:
        self._groups = groups
        self._kai_groups = kai_groups
        self._topology = topology
        self._pods_of = pods_of

    def subgroup_of(self, pod: views.Pod, group: str) -> str:
        """Return the sub-group that the PodGroup puts the pod in, else its segment."""
        return self.subgroup_or_segment(pod, group)

    def applied(self, group: Group) -> Group:
        """Return a group of Volcano with the sub-groups of its policies; KAI's are in the group already."""
        view = self._groups.get(group.key)
        if view is None or not view.subgroup_policies:
            return group
        topologies = topology_constraint.of_policies(view, self._topology)
        return altered(group, subgroups=subgroups.subgroups(view, self._pods_of(group.key), topologies))

    def subgroup_or_segment(self, pod: views.Pod, group: str) -> str:
        """Return the sub-group of a pod by the gang's object, else its segment; ``""`` for none."""
        if podgroups.kind_prefix(group) == podgroups.KAI:
            kai = self._kai_groups.get(podgroups.shown_key(group))
            part = pod.labels.get(names.SUBGROUP_KAI, "")
            known = kai is not None and any(subgroup.name == part for subgroup in kai.subgroups)
            return part if known else topology_constraint.segment_of(pod)
        view = self._groups.get(group)
        policies = view.subgroup_policies if view is not None else ()
        return (
            subgroups.subgroup_of(policies, pod.labels) if policies else topology_constraint.segment_of(pod)
        )

    def divides(self, group: str) -> bool:
        """Return whether the object of a group names sub-groups."""
        if podgroups.kind_prefix(group) == podgroups.KAI:
            kai = self._kai_groups.get(podgroups.shown_key(group))
            return kai is not None and bool(kai.subgroups)
        view = self._groups.get(group)
        return view is not None and bool(view.subgroup_policies)
