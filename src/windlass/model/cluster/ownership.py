"""Ownership of gangs while another scheduler serves the same scheduler name.

A cluster is migrated queue by queue. While the other scheduler still runs, a gang
belongs to Windlass exactly if its PodGroup is marked so that the other scheduler
ignores it:

* Volcano's PodGroup names a queue that only Windlass knows
  (:data:`~windlass.api.annotations.ADOPTED_SUFFIX`).
* KAI's PodGroup is in a node pool that no shard of KAI serves
  (:data:`~windlass.api.annotations.ADOPTED_POOL`).

So one write of one object hands over a whole gang, and the object shows its owner.

Invariant: a pod of a shared scheduler name with an unknown group only occupies its
node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from windlass.api import annotations as names
from windlass.api import views
from windlass.model.groups import podgroups

VOLCANO, KAI = "volcano", "kai"
_NAMES = {VOLCANO: ("volcano",), KAI: (podgroups.KAI_SCHEDULER,)}
_PREFIXES = {VOLCANO: "", KAI: podgroups.KAI}


@dataclass(frozen=True, slots=True)
class OtherScheduler:
    """Scheduler that still runs and hands over its queues.

    ``kind``: :data:`VOLCANO` or :data:`KAI`.
    ``names``: the ``schedulerName`` of the pods that it places.
    """

    kind: str
    names: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> OtherScheduler:
        """Parse ``volcano``, or ``volcano:NAME,NAME`` for other scheduler names.

        Raises ``ValueError``.
        """
        kind, _, listed = text.partition(":")
        if kind not in _NAMES:
            raise ValueError(f"{text!r}: must be one of {', '.join(_NAMES)}")
        return cls(kind, tuple(listed.split(",")) if listed else _NAMES[kind])

    def __str__(self) -> str:
        return self.kind if self.names == _NAMES[self.kind] else f"{self.kind}:{','.join(self.names)}"


def requests_device_share(annotations: Mapping[str, str]) -> bool:
    """Return whether a pod of KAI requests a device share.

    KAI's binder reserves such a device with a pod of its own, so that the kubelet
    allocates it to no other pod. The gang stays with KAI as long as that pod runs.
    """
    return names.FRACTION_KAI in annotations or names.MEMORY_KAI in annotations


@dataclass(frozen=True, slots=True)
class ForeignGroup:
    """Group of another scheduler.

    ``kind``: the scheduler's kind.
    ``scheduler``: the name under which it places pods.
    ``queue``: the group's queue, as that scheduler names it.
    """

    kind: str
    scheduler: str
    queue: str


class Ownership:
    """Owners of groups. ``others``: schedulers that serve the same pods."""

    def __init__(self, others: Collection[OtherScheduler]) -> None:
        self._kinds = frozenset(peer.kind for peer in others)
        self.active = bool(self._kinds)
        """True if another scheduler serves the same pods."""
        self._named = {peer.kind: peer.names[0] for peer in others}
        self._prefix = {name: _PREFIXES[peer.kind] for peer in others for name in peer.names}
        self._pods: dict[str, dict[str, None]] = {}
        self._group_of: dict[str, str] = {}
        self.foreign: dict[str, ForeignGroup] = {}
        """Groups of other schedulers, by key."""

    def note(self, pod: views.Pod) -> None:
        """Record a pod."""
        if pod.scheduler_name not in self._prefix:
            return
        group = podgroups.group_key(pod)
        if self._group_of.get(pod.key) != group:
            self.forget(pod.key)
            self._group_of[pod.key] = group
            self._pods.setdefault(group, {})[pod.key] = None

    def forget(self, key: str) -> None:
        """Forget a deleted pod."""
        group = self._group_of.pop(key, None)
        if group is None:
            return
        mates = self._pods[group]
        del mates[key]
        if not mates:
            del self._pods[group]

    def pods_of(self, group: str) -> Iterable[str]:
        """Return the pods that change their owner together with a group."""
        return self._pods.get(group, ())

    def record_group(self, key: str, group: views.PodGroup | views.KaiPodGroup) -> bool:
        """Record the owner of a group. Return whether it is another scheduler."""
        kind = KAI if isinstance(group, views.KaiPodGroup) else VOLCANO
        if kind in self._kinds and not group.adopted:
            self.foreign[key] = ForeignGroup(kind, self._named[kind], group.queue)
            return True
        self.foreign.pop(key, None)
        return False

    def owns(self, pod: views.Pod, known: Callable[[str], bool]) -> bool:
        """Return whether Windlass places the pod. ``known``: whether it owns the group with a key."""
        prefix = self._prefix.get(pod.scheduler_name)
        if prefix is None:
            return True
        group = podgroups.group_key(pod)
        if podgroups.kind_prefix(group) != prefix or not known(group):
            return False
        return not (prefix == podgroups.KAI and requests_device_share(pod.annotations))
