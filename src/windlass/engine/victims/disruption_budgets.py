"""Disruption budgets: what their status allows, less evictions that it does not show yet.

An eviction counts from its first try. It stops counting when it is undone or has
failed. It also stops with the first update of the budget after the pod was reported as
terminating: from then on the status includes it. Without such an update, it counts
until :data:`LAG` seconds after the pod is gone. If the status changes before the pod is
reported, both count for that time: too few evictions then, never too many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from windlass.engine.groups.entries import FAILED, SUCCEEDED, TERMINATING, TaskEntry
from windlass.spi.objects import TaskState

LAG = 30.0
"""Delay in seconds after which the status of a budget shows that a pod is gone."""
_SHOWN = (TaskState.RELEASING, TaskState.STUCK)


class SpentRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Eviction that counts against a budget.

    ``gone_since``: time since which the pod is known to be gone, Unix seconds.
    """

    task: str
    uid: str
    gone_since: float | None = msgspec.field(default=None, name="gone")


class BudgetRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str
    allowed: int
    spent: list[SpentRecord] = []


@dataclass(slots=True)
class _Eviction:
    task: str
    uid: str
    entry: TaskEntry | None
    """``None``: the task was gone when this was loaded."""
    gone_since: float | None = None


class EvictionBudgets:
    """Budgets with the evictions that count against them.

    ``tasks``: all tasks by key.
    """

    def __init__(self, tasks: Mapping[str, TaskEntry]) -> None:
        self._tasks = tasks
        self._allowed: dict[str, int] = {}
        self.spent: dict[str, dict[str, _Eviction]] = {}
        """Budget → uid → eviction that was decided here, or is tried now."""
        self.queries = 0
        """Number of queries for the rest of a budget."""
        self._granted: Mapping[str, int] | None = {}
        """Additional evictions that are allowed now; ``None``: any number."""
        self.version = 0
        """Number of changes of budgets, by updates or by time alone."""

    @property
    def any(self) -> bool:
        """Return whether there are budgets."""
        return bool(self._allowed)

    def left(self, key: str) -> int | None:
        """Return how many more pods of a budget may be evicted; ``None`` if there is no such budget."""
        allowed = self._allowed.get(key)
        if allowed is None or self._granted is None:
            return None
        self.queries += 1
        return allowed - sum(1 for _ in self._counting(key)) + self._granted.get(key, 0)

    @contextmanager
    def granting(self, extra: Mapping[str, int] | None) -> Iterator[None]:
        """Allow additional evictions for these budgets inside the context.

        ``None``: ignore all budgets.
        """
        self._granted = extra
        try:
            yield
        finally:
            self._granted = {}

    def upsert(self, key: str, allowed: int) -> None:
        """Set what the status of a budget allows now."""
        spent = self.spent.get(key)
        if spent is not None:
            self._set_spent(key, [eviction for eviction in spent.values() if not self._is_shown(eviction)])
        self._allowed[key] = allowed
        self.version += 1

    def remove(self, key: str) -> None:
        if self._allowed.pop(key, None) is not None:
            self.spent.pop(key, None)
            self.version += 1

    def evict(self, entry: TaskEntry) -> None:
        """Count the eviction of a task.

        The state of the task tells whether the eviction is still valid.
        """
        uid = entry.task.uid
        for key in entry.task.budgets:
            self.spent.setdefault(key, {})[uid] = _Eviction(entry.key, uid, entry)

    def prune(self, now: float) -> None:
        """Forget evictions that are not valid any more or have expired.

        Call it before and after each cycle.
        """
        if not self.spent:
            return
        for key, spent in list(self.spent.items()):
            counting = []
            for eviction in spent.values():
                if self._is_gone(eviction):
                    if eviction.gone_since is None:
                        eviction.gone_since = now
                    if now - eviction.gone_since < LAG:
                        counting.append(eviction)
                    else:
                        self.version += 1
                elif eviction.entry is not None and eviction.entry.state is TERMINATING:
                    counting.append(eviction)
            self._set_spent(key, counting)

    def next_due(self) -> float | None:
        """Return the time at which time alone frees a budget, Unix seconds."""
        if not self.spent:
            return None
        times = [eviction.gone_since for spent in self.spent.values() for eviction in spent.values()]
        return min((time + LAG for time in times if time is not None), default=None)

    def _set_spent(self, key: str, counting: list[_Eviction]) -> None:
        if counting:
            self.spent[key] = {eviction.uid: eviction for eviction in counting}
        else:
            self.spent.pop(key, None)

    def _is_gone(self, eviction: _Eviction) -> bool:
        entry = eviction.entry
        return (
            entry is None or self._tasks.get(eviction.task) is not entry or entry.state in (SUCCEEDED, FAILED)
        )

    def _is_shown(self, eviction: _Eviction) -> bool:
        """Return whether the pod was reported as terminating, or is gone."""
        return eviction.entry is None or self._is_gone(eviction) or eviction.entry.task.state in _SHOWN

    def _counting(self, key: str) -> Iterator[_Eviction]:
        for eviction in self.spent.get(key, {}).values():
            if self._is_gone(eviction) or (
                eviction.entry is not None and eviction.entry.state is TERMINATING
            ):
                yield eviction

    # ------------------------------------------------------------------ for ``dump``

    def as_records(self) -> list[BudgetRecord]:
        """Return the budgets with what their status allows and the evictions that count."""
        return [
            BudgetRecord(
                key,
                self._allowed[key],
                [
                    SpentRecord(e.task, e.uid, e.gone_since)
                    for e in sorted(self._counting(key), key=lambda e: e.uid)
                ],
            )
            for key in sorted(self._allowed)
        ]

    def restore(self, records: Iterable[BudgetRecord]) -> None:
        """Restore the result of :meth:`as_records`, after the tasks have been restored."""
        for record in records:
            self._allowed[record.key] = record.allowed
            counting = []
            for spent in record.spent:
                entry = self._tasks.get(spent.task)
                known_entry = entry if entry is not None and entry.task.uid == spent.uid else None
                counting.append(_Eviction(spent.task, spent.uid, known_entry, spent.gone_since))
            self._set_spent(record.key, counting)
