"""Which groups are let in at all, where an action decides that (Volcano's ``enqueue``).

A group that is not let in gets no step: its controller creates no pods, and nothing of it is placed.
Without such an action everybody is in. What holds something is in, and what held something until its object says
otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.queues.tree import QueueEntry
from windlass.spi.plugins import Rejection


class AdmissionGate:
    """``serves``: set by the action that decides, for the queues of which it decides."""

    def __init__(self) -> None:
        self.serves: Callable[[QueueEntry], bool] | None = None
        self.let_in: set[str] = set()
        """Keys of groups that were let in here, whether their objects say so yet or not."""
        self.lines: dict[str, Hashable] = {}
        """Group that waits → the line in which it stands: groups of one line ask for the same."""
        self.rejections: dict[Hashable, Rejection] = {}
        """Line → why its first group was not let in when it was last looked at."""

    def closed(self, group: GroupEntry) -> bool:
        """Whether the group has to wait for being let in."""
        spec = group.group
        if self.serves is None or spec is None or spec.admitted or group.key in self.let_in:
            return False
        if group.active or group.succeeded or group.queue is None:
            return False
        return self.serves(group.queue)

    def rejection(self, group: GroupEntry) -> Rejection | None:
        """Why the group has not been let in; ``None`` if it is in, or was not looked at yet."""
        line = self.lines.get(group.key)
        return None if line is None or not self.closed(group) else self.rejections.get(line)

    def refuse(self, line: Hashable, rejection: Rejection) -> bool:
        """Note why not. Whether that is news."""
        known = self.rejections.get(line)
        self.rejections[line] = rejection
        if known is None:
            return True
        return (known.code, known.resource, known.queue) != (
            rejection.code,
            rejection.resource,
            rejection.queue,
        )

    def forget(self, key: str) -> None:
        """The group is gone, or has to be let in anew."""
        self.let_in.discard(key)
