"""Which gangs are ours while another scheduler of the same name still runs.

A cluster is taken over queue by queue. As long as the other scheduler runs beside, a gang is Windlass' exactly when
its PodGroup says so in words that make the other pass it over: Volcano's names a queue that only Windlass knows
(:data:`~windlass.api.annotations.ADOPTED_SUFFIX`), KAI's is in a pool of nodes that no shard of KAI serves
(:data:`~windlass.api.annotations.ADOPTED_POOL`). So one write of one object hands a gang over, whole, and the object
shows whose it is.

Invariant: a pod of a shared name whose group is not known here is nobody's business but its node's, where it counts.
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
    """A scheduler that still runs and hands its queues over. ``kind``: :data:`VOLCANO` or :data:`KAI`. ``names``: the
    ``schedulerName`` of the pods that it places."""

    kind: str
    names: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> OtherScheduler:
        """``volcano``, or ``volcano:NAME,NAME`` where it serves other names. Raises ``ValueError``."""
        kind, _, given = text.partition(":")
        if kind not in _NAMES:
            raise ValueError(f"{text!r}: must be one of {', '.join(_NAMES)}")
        return cls(kind, tuple(given.split(",")) if given else _NAMES[kind])

    def __str__(self) -> str:
        return self.kind if self.names == _NAMES[self.kind] else f"{self.kind}:{','.join(self.names)}"


def keeps_devices(annotations: Mapping[str, str]) -> bool:
    """Return whether a pod of KAI asks for a part of a device. KAI's binder reserves that device with a pod of its own,
    so that the kubelet gives it to nobody else; such a gang stays with KAI as long as that runs."""
    return names.FRACTION_KAI in annotations or names.MEMORY_KAI in annotations


@dataclass(frozen=True, slots=True)
class ForeignGroup:
    """A group that is the other one's: whose (``kind``, and under which ``scheduler`` name he places pods), and of
    which queue by his name for it."""

    kind: str
    scheduler: str
    queue: str


class Ownership:
    """``beside``: who serves the same pods."""

    def __init__(self, beside: Collection[OtherScheduler]) -> None:
        self._kinds = frozenset(peer.kind for peer in beside)
        self.active = bool(self._kinds)
        """True if another scheduler serves the same pods."""
        self._named = {peer.kind: peer.names[0] for peer in beside}
        self._prefix = {name: _PREFIXES[peer.kind] for peer in beside for name in peer.names}
        self._pods: dict[str, dict[str, None]] = {}
        self._group_of: dict[str, str] = {}
        self.foreign: dict[str, ForeignGroup] = {}
        """The groups that are the other one's, by key."""

    def note(self, pod: views.Pod) -> None:
        """A pod was seen."""
        if pod.scheduler_name not in self._prefix:
            return
        group = podgroups.group_key(pod)
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

    def hides(self, key: str, group: views.PodGroup | views.KaiPodGroup) -> bool:
        """Return whether the group is the other one's. Keeps which are."""
        kind = KAI if isinstance(group, views.KaiPodGroup) else VOLCANO
        if kind in self._kinds and not group.adopted:
            self.foreign[key] = ForeignGroup(kind, self._named[kind], group.queue)
            return True
        self.foreign.pop(key, None)
        return False

    def lets(self, pod: views.Pod, known: Callable[[str], bool]) -> bool:
        """Return whether the pod is ours. ``known``: whether a group of that key is."""
        prefix = self._prefix.get(pod.scheduler_name)
        if prefix is None:
            return True
        group = podgroups.group_key(pod)
        if podgroups.kind_prefix(group) != prefix or not known(group):
            return False
        return not (prefix == podgroups.KAI and keeps_devices(pod.annotations))
