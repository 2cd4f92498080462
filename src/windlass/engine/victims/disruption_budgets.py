"""PodDisruptionBudgets: what their status allows, less the evictions decided here that it does not show yet.

An eviction counts from the moment it is tried. It no longer counts when it is undone or has failed, or with
the first news of the budget after the pod was reported as terminating: from then on the status knows of it.
Where no such news comes, it counts until :data:`LAG` seconds after the pod is gone. Where the status changes
before the pod is reported, both count for that long: too few evictions then, never too many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from windlass.engine.groups.entries import FAILED, SUCCEEDED, TERMINATING, TaskEntry
from windlass.spi.objects import TaskState

LAG = 30.0
"""So many seconds after a pod is gone its budget's status shows it, if it ever does."""
_SHOWN = (TaskState.RELEASING, TaskState.STUCK)


class SpentRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """An eviction that counts. ``gone``: since when the pod is known to be gone, Unix seconds."""

    task: str
    uid: str
    gone: float | None = None


class BudgetRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str
    allowed: int
    spent: list[SpentRecord] = []


@dataclass(slots=True)
class _Spent:
    task: str
    uid: str
    entry: TaskEntry | None
    """``None``: it was gone when this was loaded."""
    gone: float | None = None


class EvictionBudgets:
    """``tasks``: all that there are, by key."""

    def __init__(self, tasks: Mapping[str, TaskEntry]) -> None:
        self._tasks = tasks
        self._allowed: dict[str, int] = {}
        self._spent: dict[str, dict[str, _Spent]] = {}
        """Budget → uid → an eviction that was decided here, or is being tried."""
        self.asked = 0
        """Counts the questions what is left of a budget there is."""
        self._granted: Mapping[str, int] | None = {}
        """What is let go beyond what is left; ``None``: anything."""
        self.version = 0
        """Counts the news of budgets, and what time alone gave back."""

    @property
    def any(self) -> bool:
        """Whether there are budgets at all."""
        return bool(self._allowed)

    def left(self, key: str) -> int | None:
        """How many more pods of a budget may go; ``None`` if there is no such budget."""
        allowed = self._allowed.get(key)
        if allowed is None or self._granted is None:
            return None
        self.asked += 1
        return allowed - sum(1 for _ in self._counting(key)) + self._granted.get(key, 0)

    @contextmanager
    def granting(self, more: Mapping[str, int] | None) -> Iterator[None]:
        """Inside, so many more pods of these budgets may go; ``None``: it is as if there were no budgets."""
        self._granted = more
        try:
            yield
        finally:
            self._granted = {}

    def upsert(self, key: str, allowed: int) -> None:
        """What a budget's status says now."""
        spent = self._spent.get(key)
        if spent is not None:
            self._keep(key, [each for each in spent.values() if not self._shown(each)])
        self._allowed[key] = allowed
        self.version += 1

    def remove(self, key: str) -> None:
        if self._allowed.pop(key, None) is not None:
            self._spent.pop(key, None)
            self.version += 1

    def evict(self, entry: TaskEntry) -> None:
        """A task is asked to go; whether that stands is told by its state."""
        uid = entry.task.uid
        for key in entry.task.budgets:
            self._spent.setdefault(key, {})[uid] = _Spent(entry.key, uid, entry)

    def tidy(self, now: float) -> None:
        """Forget evictions that do not stand, and those that time has ended. Before and after each cycle."""
        if not self._spent:
            return
        for key, spent in list(self._spent.items()):
            kept = []
            for each in spent.values():
                if self._is_gone(each):
                    if each.gone is None:
                        each.gone = now
                    if now - each.gone < LAG:
                        kept.append(each)
                    else:
                        self.version += 1
                elif each.entry is not None and each.entry.state is TERMINATING:
                    kept.append(each)
            self._keep(key, kept)

    def next_due(self) -> float | None:
        """When time alone gives something back, Unix seconds."""
        if not self._spent:
            return None
        moments = [each.gone for spent in self._spent.values() for each in spent.values()]
        return min((moment + LAG for moment in moments if moment is not None), default=None)

    def _keep(self, key: str, kept: list[_Spent]) -> None:
        if kept:
            self._spent[key] = {each.uid: each for each in kept}
        else:
            self._spent.pop(key, None)

    def _is_gone(self, each: _Spent) -> bool:
        entry = each.entry
        return entry is None or self._tasks.get(each.task) is not entry or entry.state in (SUCCEEDED, FAILED)

    def _shown(self, each: _Spent) -> bool:
        """Whether the pod had been reported as terminating, or is gone."""
        return each.entry is None or self._is_gone(each) or each.entry.task.state in _SHOWN

    def _counting(self, key: str) -> Iterator[_Spent]:
        for each in self._spent.get(key, {}).values():
            if self._is_gone(each) or (each.entry is not None and each.entry.state is TERMINATING):
                yield each

    # ------------------------------------------------------------------ for ``dump``

    def as_records(self) -> list[BudgetRecord]:
        """Budgets with what their status allows and the evictions that count against it."""
        return [
            BudgetRecord(
                key,
                self._allowed[key],
                [
                    SpentRecord(e.task, e.uid, e.gone)
                    for e in sorted(self._counting(key), key=lambda e: e.uid)
                ],
            )
            for key in sorted(self._allowed)
        ]

    def restore(self, records: Iterable[BudgetRecord]) -> None:
        """The inverse of :meth:`as_records`, once the tasks are there."""
        for record in records:
            self._allowed[record.key] = record.allowed
            kept = []
            for spent in record.spent:
                entry = self._tasks.get(spent.task)
                same = entry if entry is not None and entry.task.uid == spent.uid else None
                kept.append(_Spent(spent.task, spent.uid, same, spent.gone))
            self._keep(record.key, kept)
