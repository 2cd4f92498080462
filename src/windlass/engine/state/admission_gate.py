"""Admission of groups, if an action decides it (Volcano's ``enqueue``).

A group that is not admitted has no next tasks: its controller creates no pods, and none
of its tasks is placed. Without such an action every group is admitted. A group that
holds tasks is admitted, and stays so until its object states otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.queues.tree import QueueEntry
from windlass.spi.objects import Resources
from windlass.spi.plugins import Rejection


class AdmissionGate:
    """Admission of groups. ``applies_to``: set by the deciding action, for the queues it serves."""

    def __init__(self) -> None:
        self.applies_to: Callable[[QueueEntry], bool] | None = None
        self.admitted: set[str] = set()
        """Keys of groups that were admitted here, whether or not their objects state it yet."""
        self.waiting: dict[str, Hashable] = {}
        """Waiting group → its booking. Groups with the same booking request the same."""
        self.rejections: dict[Hashable, Rejection] = {}
        """Booking → last rejection of its first group."""
        self.reserved: Mapping[str, Resources] = {}
        """Queue → amounts reserved for admitted groups that do not hold them yet."""

    def is_closed(self, group: GroupEntry) -> bool:
        """Return whether the group has to wait for admission."""
        spec = group.group
        if self.applies_to is None or spec is None or spec.admitted or group.key in self.admitted:
            return False
        if group.active or group.succeeded or group.queue is None:
            return False
        return self.applies_to(group.queue)

    def rejection(self, group: GroupEntry) -> Rejection | None:
        """Return the rejection of the group, or ``None`` if it is admitted or not yet evaluated."""
        line = self.waiting.get(group.key)
        return None if line is None or not self.is_closed(group) else self.rejections.get(line)

    def reject(self, booking: Hashable, rejection: Rejection) -> bool:
        """Record a rejection. Return whether it differs from the last one."""
        known = self.rejections.get(booking)
        self.rejections[booking] = rejection
        if known is None:
            return True
        return (known.code, known.resource, known.queue) != (
            rejection.code,
            rejection.resource,
            rejection.queue,
        )

    def forget(self, key: str) -> None:
        """Forget a group that is deleted or needs a new admission."""
        self.admitted.discard(key)
