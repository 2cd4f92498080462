"""Signal that something reported of a pending group has changed."""

from __future__ import annotations

from collections.abc import Callable


class GroupSignal:
    """Calls its subscribers with the key of a group.

    Estimates and provisioning requests emit it. The decision reporter subscribes and
    reports the group again.
    """

    def __init__(self) -> None:
        self._subscribers: list[Callable[[str], None]] = []

    def subscribe(self, subscriber: Callable[[str], None]) -> None:
        """Call ``subscriber`` with each group of which something has changed."""
        self._subscribers.append(subscriber)

    def emit(self, group: str) -> None:
        """Tell all subscribers that something about ``group`` has changed."""
        for subscriber in self._subscribers:
            subscriber(group)
