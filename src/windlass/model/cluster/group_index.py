"""Groups by key: their pods, their object of any API, and the scheduler that places them."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.api import resources, views
from windlass.model.cluster.marks import DirtyMarks, Membership
from windlass.model.cluster.object_cache import ObjectCache
from windlass.model.groups import member_counts, podgroups

WrittenGroup = views.PodGroup | views.KaiPodGroup | views.CoschedulingGroup
"""Objects of groups that have a status of their own."""


class GroupIndex:
    """Pods by group as of the last translation, and the objects of groups."""

    def __init__(self, objects: ObjectCache, marks: DirtyMarks, membership: Membership) -> None:
        self._objects = objects
        self._marks = marks
        self.membership = membership
        self._members = membership.pods
        self.others: dict[str, dict[str, None]] = {}
        """Group → pods that name it and are placed by another scheduler."""
        self.others_group: dict[str, str] = {}
        """Pod that another scheduler places → the group that it names."""

    # ------------------------------------------------------------------ pods

    def pods_of(self, group: str) -> Iterator[views.Pod]:
        """Yield the pods of a group, as of the last translation."""
        pods = self._objects.pods
        for key in self._members.get(group, ()):
            pod = pods.get(key)
            if pod is not None:
                yield pod

    def members(self, group: str) -> member_counts.Members:
        """Return how many pods of a group are in each state."""
        return member_counts.count(self.pods_of(group))

    def group_of(self, key: str) -> str | None:
        """Return the group of a managed pod, as of the last translation."""
        return self.membership.group_of.get(key)

    def join(self, pod: str, group: str) -> None:
        """Enter a pod as a member of a group."""
        self.membership.group_of[pod] = group
        self._members.setdefault(group, {})[pod] = None
        if group in self.others:  # the group may have belonged to another scheduler
            self._marks.groups[group] = None

    def leave(self, pod: str) -> str | None:
        """Take a pod out of its group; return the group, if it had one."""
        group = self.membership.group_of.pop(pod, None)
        if group is not None:
            mates = self._members[group]
            del mates[pod]
            if not mates:
                del self._members[group]
        return group

    def started_before(self, group: str, time: float) -> bool:
        """Return whether a pod of the group has run since before ``time`` (Unix seconds)."""
        return any(pod.phase == "Running" and 0 < pod.started < time for pod in self.pods_of(group))

    # ------------------------------------------------------------------ scheduler of a group

    def known(self, group: str) -> bool:
        """Return whether the group has an object or pods, and is not another scheduler's."""
        return group in self._members or (self.defined(group) and not self.is_elsewhere(group))

    def is_elsewhere(self, group: str) -> bool:
        """Return whether the group is another scheduler's: it has pods, and none of them is placed here."""
        return group in self.others and group not in self._members

    def add_other(self, pod: views.Pod) -> None:
        """Record that another scheduler places a pod."""
        group = podgroups.group_key(pod)
        if self.others_group.get(pod.key) == group:
            return
        self.forget_other(pod.key)
        if podgroups.is_implicit(group):
            return
        self.others_group[pod.key] = group
        self.others.setdefault(group, {})[pod.key] = None
        self._marks.groups[group] = None

    def forget_other(self, key: str) -> None:
        """Forget such a pod: it is deleted, or placed by this scheduler."""
        group = self.others_group.pop(key, None)
        if group is None:
            return
        mates = self.others[group]
        del mates[key]
        if not mates:
            del self.others[group]
        self._marks.groups[group] = None

    # ------------------------------------------------------------------ objects

    def defined(self, key: str) -> bool:
        """Return whether the group has an object.

        A group of an API without group objects is defined if it has pods.
        """
        kind = podgroups.kind_prefix(key)
        if kind == podgroups.KAI:
            return podgroups.shown_key(key) in self._objects.kai_groups
        if kind == podgroups.NATIVE:
            return self.native_of(key) is not None
        if kind == podgroups.COSCHEDULING:
            return self.coscheduling_of(key) is not None
        if kind in (podgroups.OWNER, podgroups.KUEUE):
            return key in self._members
        return key in self._objects.groups

    def native_of(self, key: str) -> views.NativeGroup | None:
        """Return the object of a group of Kubernetes' own API.

        All replicas of a Workload share the object of their pod group.
        """
        return self._objects.native_groups.get(podgroups.shown_key(key).partition(":")[0])

    def coscheduling_of(self, key: str) -> views.CoschedulingGroup | None:
        """Return the object of a group of the coscheduling plugin."""
        return self._objects.coscheduling_groups.get(podgroups.shown_key(key))

    def native_object_of(self, group: str) -> views.NativeGroup | None:
        """Return the PodGroup of Kubernetes' own API that a group is; ``None`` for any other."""
        if podgroups.kind_prefix(group) != podgroups.NATIVE:
            return None
        return self._objects.native_groups.get(podgroups.shown_key(group))

    def object_of(self, group: str) -> tuple[resources.Resource, WrittenGroup] | None:
        """Return the object of a group that takes its status; ``None`` for a group without one.

        An object of Kubernetes' own API has nothing but a condition.
        """
        kind = podgroups.kind_prefix(group)
        view: WrittenGroup | None
        if kind == podgroups.KAI:
            resource, view = (
                resources.KAI_POD_GROUPS,
                self._objects.kai_groups.get(podgroups.shown_key(group)),
            )
        elif kind == podgroups.COSCHEDULING:
            resource, view = resources.COSCHEDULING_POD_GROUPS, self.coscheduling_of(group)
        else:
            resource, view = resources.POD_GROUPS, self._objects.groups.get(group)
        return None if view is None else (resource, view)

    def other_api_keys(self) -> Iterator[str]:
        """Yield the keys of the groups of KAI and of the coscheduling plugin."""
        yield from map(podgroups.kai_key, self._objects.kai_groups.values())
        yield from map(podgroups.coscheduling_key, self._objects.coscheduling_groups.values())
