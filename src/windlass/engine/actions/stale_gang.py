"""Action ``stalegangeviction``: evicts gangs that stay below their minimum.

The grace period starts when a cycle first finds that the gang holds something, but less
than its minimum. A start that the group itself reports is used as well. The period ends
when the minimum is reached again. After ``stale_grace`` all tasks of the gang are
evicted. Exceptions are groups without a grace, or with a negative one, and groups with
a succeeded member, since these are about to end. Failed evictions are repeated after a
pause.

The rules are those of KAI Scheduler. Its default grace of 60 s is set where KAI's
groups are read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from windlass.engine.actions.context import ActionContext, CycleContext
from windlass.engine.groups.entries import ACTIVE, GroupEntry

ACTION = "stale-gang"


class StaleGangEviction:
    """The action, skipped while no group has a grace period."""

    name = "stalegangeviction"

    def __init__(self, context: ActionContext) -> None:
        self._context = context
        self.subjects: Collection[object] = context.state.groups_with_grace
        self._watched: dict[str, GroupEntry] | None = None
        """Groups below their minimum."""
        self._ended: dict[str, float] = {}
        """Group → reported start of a period below its minimum that has ended."""

    def run(self, cycle: CycleContext) -> None:
        groups = self._context.state.groups
        if self._watched is None:
            self._watched = {}
            self._watch(groups.values(), self._watched, cycle.now)
        else:
            self._watch(cycle.touched.values(), self._watched, cycle.now)
        due = []
        for key, group in list(self._watched.items()):
            if groups.get(key) is not group:
                del self._watched[key]
                continue
            time = self._due(group)
            if time <= cycle.now:
                due.append(group)
            else:
                cycle.wake(time)
        if due:
            for group in due:
                self._evict(group, cycle.now)
                del self._watched[group.key]
            cycle.commit()

    def _watch(self, groups: Iterable[GroupEntry], watched: dict[str, GroupEntry], now: float) -> None:
        """Start and stop grace periods of groups that may have crossed their minimum."""
        for group in groups:
            spec = group.group
            grace = None if spec is None else spec.stale_grace
            if spec is None or grace is None or grace < 0:
                group.stale_since = None  # it may have had a grace before
                watched.pop(group.key, None)
                continue
            if group.active and not group.succeeded and not group.ready():
                if group.stale_since is None:
                    group.stale_since = now
                    reported = spec.stale_since
                    if reported is not None and reported < now and self._ended.get(group.key) != reported:
                        group.stale_since = reported
                watched[group.key] = group
                continue
            group.stale_since = None
            watched.pop(group.key, None)
            if spec.stale_since is not None:
                self._ended[group.key] = spec.stale_since
            else:
                self._ended.pop(group.key, None)

    def _due(self, group: GroupEntry) -> float:
        since, grace = group.stale_since, group.spec.stale_grace
        if since is None or grace is None:
            raise RuntimeError(f"the clock of {group.key} does not run")
        if group.stale_tried is None:
            return since + grace
        return max(since + grace, group.stale_tried + self._context.state.config.backoff_seconds)

    def _evict(self, group: GroupEntry, now: float) -> None:
        for entry in list(group.tasks.values()):
            if entry.state in ACTIVE:
                self._context.statement.evict(entry, ACTION)
        group.stale_since = None
        group.stale_tried = now
