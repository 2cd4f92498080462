"""Units that could be taken, and what queues offer of them.

A unit is what goes together (:mod:`windlass.engine.units`). While one claim after the other is served, what a
queue offers is kept sorted; only groups that gave something are looked at again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from windlass.engine.groups import GroupEntry, TaskEntry
from windlass.spi.victims import Claim, Terms, VictimUnit


@dataclass(slots=True, eq=False)
class Unit:
    """A unit with its place in the engine."""

    view: VictimUnit
    group: GroupEntry
    entries: list[TaskEntry]


class Taking:
    """What units give back, by queue."""

    def __init__(self) -> None:
        self.by_queue: dict[str, dict[str, int]] = {}

    def add(self, unit: Unit, sign: int = 1) -> None:
        queue = unit.group.queue
        if queue is None:
            raise RuntimeError(f"{unit.group.key} holds something in no queue")
        for ancestor in queue.path:
            sums = self.by_queue.setdefault(ancestor.name, {})
            for name, units in unit.view.request.items():
                sums[name] = sums.get(name, 0) + sign * units


Places = list[tuple[Any, str, Unit]]
"""Units with their place in the order, and the key of their group."""


@dataclass(slots=True)
class Offer:
    """The first units of the groups of one queue, sorted. ``stale``: groups that have changed since."""

    first: Places
    wake_at: float | None
    stale: dict[str, GroupEntry] = field(default_factory=dict)


class Pool:
    """What queues offer to claims of one kind, kept while one claim after the other is served.

    Whether a unit is spared, and its place in the order, depend on nothing of a claim but what makes its
    kind: its action, its queue, its group's API and priority, and the time.
    """

    def __init__(self) -> None:
        self._kinds: dict[Hashable, dict[str, Offer]] = {}

    def offers(self, claim: Claim, terms: Terms) -> dict[str, Offer]:
        """Those for the claim's kind, by queue."""
        kind = (claim.action, claim.path[0].name, claim.group.dialect, claim.group.priority, terms)
        return self._kinds.setdefault(kind, {})

    def touch(self, groups: Iterable[GroupEntry]) -> None:
        """The groups hold something else now."""
        changed = {group.key: group for group in groups}
        for offers in self._kinds.values():
            for offer in offers.values():
                offer.stale.update(changed)
