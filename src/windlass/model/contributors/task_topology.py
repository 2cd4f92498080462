"""Roles of a job that are placed together or apart, by annotations of its PodGroup."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import views
from windlass.model.cluster.marks import DirtyMarks, Membership
from windlass.model.contributors.registry import Contributor, Place
from windlass.model.groups import task_topology
from windlass.model.groups.podgroups import role_of


class TaskTopology(Contributor):
    """Placement preferences of roles. ``groups``: the PodGroups of Volcano, by key."""

    def __init__(
        self, marks: DirtyMarks, membership: Membership, groups: Mapping[str, views.PodGroup]
    ) -> None:
        self._marks = marks
        self._membership = membership
        self._groups = groups

    def reads_group(self, annotation: str) -> bool:
        """Return whether the annotation is about roles."""
        return annotation in task_topology.ANNOTATIONS

    def group_translated(self, group: str) -> None:
        """Mark the pods of the group: their preferences may have changed."""
        self._marks.pods.update(self._membership.pods.get(group, {}))

    def add_extras(self, pod: views.Pod, place: Place, extras: dict[str, Any]) -> None:
        """Add the preferences of the pod's role."""
        view = self._groups.get(place.group)
        if view is None:
            return
        roles = task_topology.role_preferences(view.annotations, place.group, role_of(pod))
        if roles is not None:
            extras["roles"] = roles
