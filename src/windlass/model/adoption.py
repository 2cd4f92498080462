"""Which gangs are ours while another scheduler of the same name still runs.

A cluster is taken over queue by queue. As long as Volcano runs beside, a gang is Windlass' exactly when its PodGroup
names a queue that only Windlass knows (:data:`~windlass.api.annotations.ADOPTED_SUFFIX`): Volcano passes over groups
whose queue does not exist. So one write of one object hands a gang over, whole, and the object shows whose it is.

Invariant: a pod of a shared name whose group is not known here is nobody's business but its node's, where it counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from windlass.api import views
from windlass.model import groups


class Fence:
    """``shared``: scheduler names that the other one serves too."""

    def __init__(self, shared: Collection[str]) -> None:
        self.shared = frozenset(shared)
        self._pods: dict[str, dict[str, None]] = {}
        self._group_of: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.shared)

    def note(self, pod: views.Pod) -> None:
        """A pod was seen."""
        if pod.scheduler_name not in self.shared:
            return
        group = groups.group_key(pod)
        if self._group_of.get(pod.key) != group:
            self.forget(pod.key)
            self._group_of[pod.key] = group
            self._pods.setdefault(group, {})[pod.key] = None

    def forget(self, key: str) -> None:
        """A pod is gone."""
        group = self._group_of.pop(key, None)
        if group is None:
            return
        mates = self._pods[group]
        del mates[key]
        if not mates:
            del self._pods[group]

    def pods_of(self, group: str) -> Iterable[str]:
        """The pods that become ours, or cease to be, with a group."""
        return self._pods.get(group, ())

    def lets(self, pod: views.Pod, known: Collection[str]) -> bool:
        """Whether the pod is ours. ``known``: the keys of the groups that are."""
        return pod.scheduler_name not in self.shared or groups.group_key(pod) in known
