"""Index of the pending groups: why each waits, and what has been reported of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from windlass.api.reasons import Explanation, Reason


@dataclass(slots=True)
class PendingGroup:
    """One pending group. All times are monotonic seconds.

    ``current`` is the newest explanation. ``reported`` is the one shown, with all
    details, and ``basis`` the short form that it was made from. The fields ``pods_…``
    describe what was last reported on the group's pods.
    """

    current: Explanation
    since: float
    due: float
    queue: str = ""
    order: tuple[str, int] = ("", 0)
    """Queue and priority, by which its position changes."""
    basis: Explanation | None = None
    reported: Explanation | None = None
    reported_at: float = 0.0
    pods_code: Reason | None = None
    pods_reason: str = ""
    pods_count: int = 0
    """Number of pending pods when they were last reported on."""
    pods_message: str = ""
    pods_at: float = 0.0
    lacks_nodes: bool = False
    """True if, as reported, more nodes would help and nothing else is in the way."""
    requests_nodes: bool = False
    """True if nodes for the whole group are requested."""


class PendingGroups:
    """The pending groups by key, and their number by reason."""

    def __init__(self) -> None:
        self._groups: dict[str, PendingGroup] = {}
        self._reasons: dict[str, int] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._groups

    def get(self, key: str) -> PendingGroup | None:
        """Return the group if it is pending."""
        return self._groups.get(key)

    def items(self) -> Iterable[tuple[str, PendingGroup]]:
        """Return all pending groups with their keys."""
        return self._groups.items()

    @property
    def reasons(self) -> Mapping[str, int]:
        """Number of pending groups by reason.

        A reason of no group any more stays with 0.
        """
        return self._reasons

    def lacks_nodes(self, key: str) -> bool | None:
        """Return whether a group is reported to lack nodes and nothing else.

        ``None``: it is pending and not reported yet.
        """
        group = self._groups.get(key)
        if group is None:
            return False
        return None if group.reported is None else group.lacks_nodes

    def add(self, key: str, group: PendingGroup) -> None:
        self._groups[key] = group
        self._count(group.current, 1)

    def explain(self, key: str, explanation: Explanation) -> None:
        """Replace the current explanation of a group."""
        group = self._groups[key]
        self._count(group.current, -1)
        self._count(explanation, 1)
        group.current = explanation

    def remove(self, key: str) -> PendingGroup | None:
        """Remove a group that is no longer pending, and return it if it was."""
        group = self._groups.pop(key, None)
        if group is not None:
            self._count(group.current, -1)
        return group

    def _count(self, explanation: Explanation, change: int) -> None:
        code = str(explanation.code)
        self._reasons[code] = self._reasons.get(code, 0) + change
