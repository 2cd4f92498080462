"""Decided binds: assumed until the pod shows them, with what some of them wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from windlass.api import views
from windlass.api.reasons import Reason
from windlass.engine.decision import Bind, DeviceShare
from windlass.model.cluster.marks import DirtyMarks, Membership
from windlass.model.devices.assignment import names_devices
from windlass.spi.objects import HeldSlice


@dataclass(frozen=True, slots=True)
class AssumedBind:
    """Decided bind that its pod does not show yet. ``at``: Unix seconds; 0.0 if unknown."""

    uid: str
    node: str
    devices: tuple[int, ...] = ()
    slices: tuple[HeldSlice, ...] = ()
    shares: tuple[DeviceShare, ...] = ()
    """The same devices, each with the share of it that was decided."""
    at: float = 0.0

    def shown_by(self, pod: views.Pod) -> bool:
        """Return whether the pod is bound as was decided; otherwise another scheduler has bound it first."""
        where = (pod.uid, pod.node_name) == (self.uid, self.node)
        return where and names_devices(pod.annotations, self.devices, self.slices)


class AssumedBinds:
    """Decided binds by pod. ``pods``: all pods, by key."""

    def __init__(self, marks: DirtyMarks, membership: Membership, pods: Mapping[str, views.Pod]) -> None:
        self._marks = marks
        self._membership = membership
        self._pods = pods
        self.assumed: dict[str, AssumedBind] = {}
        """Pod → its bind."""
        self.decided: dict[str, tuple[str, float]] = {}
        """Pod that was bound as decided → its uid, and the time of the decision (Unix seconds)."""
        self.awaited: dict[str, dict[Reason, str]] = {}
        """Assumed pod that waits to be bound → what it waits for, as text."""
        self.listeners: list[Callable[[str], None]] = []
        """Callbacks, called with the key of each pod when its bind is no longer assumed."""

    def assume(self, bind: Bind, now: float = 0.0) -> None:
        """Record a decided bind. The engine knows it. ``now``: Unix seconds; 0.0 if unknown."""
        indices: list[int] = []
        held: list[HeldSlice] = []
        for share in bind.devices:
            indices.append(share.index)
            if share.start >= 0:
                held.append(HeldSlice(share.index, share.profile, share.start))
        self.assumed[bind.task] = AssumedBind(
            bind.uid, bind.node, tuple(indices), tuple(held), bind.devices, now
        )

    def forget(self, key: str, uid: str) -> bool:
        """End the assumption: the bind was seen, or failed. Return whether it was still assumed."""
        known = self.assumed.get(key)
        if known is None or known.uid != uid:
            return False
        del self.assumed[key]
        pod = self._pods.get(key)
        if pod is not None and (pod.uid, pod.node_name) == (uid, known.node):
            self.decided[key] = uid, known.at
        self.awaited.pop(key, None)
        for listener in self.listeners:
            listener(key)
        return True

    def drop(self, key: str) -> None:
        """Forget a deleted pod."""
        self.assumed.pop(key, None)
        self.decided.pop(key, None)
        self.awaited.pop(key, None)

    def set_awaited(self, pod: str, reason: Reason, what: str) -> None:
        """Set what a pod with a decided bind waits for; ``""``: nothing for this reason.

        ``reason``: ``RESERVING_DEVICE``, ``AWAITING_VOLUME``, ``AWAITING_DEVICE`` or ``AWAITING_NODE_LOCK``.
        """
        waiting = self.awaited.get(pod, {})
        if waiting.get(reason, "") == what:
            return
        remaining = {code: text for code, text in waiting.items() if code is not reason}
        if what:
            remaining[reason] = what
        if remaining:
            self.awaited[pod] = remaining
        else:
            del self.awaited[pod]
        if (group := self._membership.group_of.get(pod)) is not None:
            self._marks.reported[group] = None
