"""Which groups are let in at all, where an action decides that (Volcano's ``enqueue``).

A group that is not let in gets no step: its controller creates no pods, and nothing of it is placed.
Without such an action everybody is in. What holds or held something is in for good.
"""

from __future__ import annotations

from collections.abc import Callable

from windlass.engine.groups import GroupEntry
from windlass.engine.queues import QueueEntry
from windlass.spi.plugins import Refusal


class Gate:
    """``serves``: set by the action that decides, for the queues of which it decides."""

    def __init__(self) -> None:
        self.serves: Callable[[QueueEntry], bool] | None = None
        self.let_in: set[str] = set()
        """Keys of groups that were let in here, whether their objects say so yet or not."""
        self.refusals: dict[str, Refusal] = {}
        """Group → why it was not let in when it was last looked at."""

    def closed(self, group: GroupEntry) -> bool:
        """Whether the group has to wait for being let in."""
        spec = group.group
        if self.serves is None or spec is None or spec.admitted or group.key in self.let_in:
            return False
        if group.active or group.succeeded or group.queue is None:
            return False
        return self.serves(group.queue)

    def open(self, group: GroupEntry) -> None:
        self.let_in.add(group.key)
        self.refusals.pop(group.key, None)

    def refuse(self, group: GroupEntry, refusal: Refusal) -> bool:
        """Note why not. Whether that is news."""
        known = self.refusals.get(group.key)
        self.refusals[group.key] = refusal
        return known is None or (known.code, known.resource, known.queue) != (
            refusal.code,
            refusal.resource,
            refusal.queue,
        )

    def forget(self, key: str) -> None:
        """The group is gone."""
        self.let_in.discard(key)
        self.refusals.pop(key, None)
