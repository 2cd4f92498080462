"""Replicas of several pods: a gang in a job, which is lost, replaced and counted as a whole. Pure.

The first pod of a replica (rank 0) leads it: once it has succeeded, the ends of the others
do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from windlass.jobs.definition import JobDefinition, Role
from windlass.jobs.members import RolePod

Place = tuple[str, int]
"""Name of the role and number of the replica."""


def has_replicas(job: JobDefinition) -> bool:
    """Return whether a role has replicas of several pods."""
    return any(role.size > 1 for role in job.roles)


class WholeReplicas:
    """Pods of a job by replica. Pods beyond the replicas of their role are left out."""

    def __init__(self, job: JobDefinition, pods: Sequence[RolePod]) -> None:
        self._job, self._pods = job, pods
        self._roles = {role.name: role for role in job.roles if role.size > 1}
        self._members: dict[Place, list[RolePod]] = {}
        for pod in pods:
            if (place := self._place(pod)) is not None:
                self._members.setdefault(place, []).append(pod)

    def _place(self, pod: RolePod) -> Place | None:
        role = self._roles.get(pod.role)
        if role is None or not 0 <= pod.index < role.replicas:
            return None
        return role.name, role.place_of(pod.index)[0]

    def _is_done(self, place: Place) -> bool:
        """Return whether the first pod of a replica has succeeded."""
        size = self._roles[place[0]].size
        return any(pod.succeeded and pod.index % size == 0 for pod in self._members[place])

    def _is_broken(self, place: Place) -> bool:
        """Return whether a pod has vanished from a replica that has nodes already."""
        members = self._members[place]
        if self._is_done(place) or len({pod.index for pod in members}) == self._roles[place[0]].size:
            return False
        return any(pod.node or pod.finished or pod.deleting for pod in members)

    def with_causes(self) -> tuple[RolePod, ...]:
        """Return all pods, each failure with the cause of its replica.

        A pod that fails while it is deleted, or next to one that was disrupted, is disrupted itself.
        """
        disrupted = {
            place
            for place, members in self._members.items()
            if any(pod.disrupted and (pod.failed or pod.deleting) for pod in members)
        }
        killed = {
            place for place in disrupted if all(pod.killed for pod in self._members[place] if pod.disrupted)
        }
        return tuple(
            replace(pod, disrupted=True, killed=place in killed)
            if pod.failed and (place := self._place(pod)) is not None and (pod.deleting or place in disrupted)
            else pod
            for pod in self._pods
        )

    def unfinished(self, lost: Iterable[RolePod]) -> list[RolePod]:
        """Return lost pods without those of replicas that are done."""
        return [pod for pod in lost if (place := self._place(pod)) is None or not self._is_done(place)]

    def siblings(self, pods: Iterable[RolePod]) -> tuple[RolePod, ...]:
        """Return the other pods of the replicas of these pods."""
        return self._others(pods, ())

    def others(self, lost: Iterable[RolePod]) -> tuple[RolePod, ...]:
        """Return the pods that are deleted with lost ones, and those of replicas from which a pod vanished."""
        return self._others(lost, (place for place in self._members if self._is_broken(place)))

    def _others(self, pods: Iterable[RolePod], more: Iterable[Place]) -> tuple[RolePod, ...]:
        listed = tuple(pods)
        uids = {pod.uid for pod in listed}
        places = {place for pod in listed if (place := self._place(pod)) is not None}.union(more)
        return tuple(pod for pod in self._pods if pod.uid not in uids and self._place(pod) in places)

    def first_of_each(self, lost: Iterable[RolePod], counted: frozenset[str]) -> list[RolePod]:
        """Return lost pods, of each replica the first one, if none of its pods was counted before."""
        found: dict[Place | str, RolePod] = {}
        for pod in sorted(lost, key=lambda pod: (not pod.disrupted, pod.ended, pod.index)):
            place = self._place(pod)
            if place is None:
                found[pod.uid] = pod
            elif not any(other.uid in counted for other in self._members[place]):
                found.setdefault(place, pod)
        return list(found.values())

    def to_create(self, missing: Iterable[tuple[Role, int]]) -> tuple[tuple[Role, int], ...]:
        """Return missing pods that may be created: no pod joins a replica that ends."""
        return tuple((role, index) for role, index in missing if not self._ends(role, index))

    def _ends(self, role: Role, index: int) -> bool:
        if role.size == 1:
            return False
        place = role.name, role.place_of(index)[0]
        members = self._members.get(place, [])
        return bool(members) and (self._is_done(place) or self._is_broken(place))

    def running(self, role: Role) -> int:
        """Return the number of replicas of which all pods run."""
        return sum(
            sum(pod.running for pod in members) == role.size
            for place, members in self._members.items()
            if place[0] == role.name
        )
