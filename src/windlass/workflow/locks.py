"""Mutexes and semaphores of workflows: which holder may go on, in the order of the requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(slots=True)
class LockTable:
    """Locks, as the statuses of workflows tell.

    A holder is ``namespace/workflow``, or ``namespace/workflow/node`` for a template.
    ``limits``: lock → number of holders; a mutex has 1. ``holders``: lock → holders.
    ``waiting``: lock → holders that wait, the first one first.
    """

    limits: dict[str, int] = field(default_factory=dict)
    holders: dict[str, set[str]] = field(default_factory=dict)
    waiting: dict[str, list[str]] = field(default_factory=dict)

    def acquire(self, locks: list[str], holder: str) -> str:
        """Take all locks. Return ``""``, or the lock that is not free (then none is taken)."""
        for lock in locks:
            held = self.holders.get(lock, set())
            if holder in held:
                continue
            free = self.limits.get(lock, 1) - len(held)
            ahead = 0
            for other in self.waiting.get(lock, ()):
                if other == holder:
                    break
                ahead += other not in held
            if free <= ahead:
                if holder not in self.waiting.setdefault(lock, []):
                    self.waiting[lock].append(holder)
                return lock
        for lock in locks:
            self.holders.setdefault(lock, set()).add(holder)
            if holder in self.waiting.get(lock, ()):
                self.waiting[lock].remove(holder)
        return ""

    def describe(self, lock: str) -> str:
        """Return how many of a lock's places are taken, in words."""
        limit = self.limits.get(lock, 1)
        return f"Lock status: {max(0, limit - len(self.holders.get(lock, ())))}/{limit}"

    def release(self, holder: str) -> None:
        for held in self.holders.values():
            held.discard(holder)
        for queue in self.waiting.values():
            if holder in queue:
                queue.remove(holder)

    def forget(self, workflow: str) -> None:
        """Release what a workflow (``namespace/name``) and its nodes hold."""
        found = {one for held in (*self.holders.values(), *self.waiting.values()) for one in held}
        for holder in found:
            if holder == workflow or holder.startswith(f"{workflow}/"):
                self.release(holder)


def locks_of(synchronization: Mapping[str, Any], namespace: str) -> list[str]:
    """Return the names of the locks that ``synchronization`` asks for.

    ``NAMESPACE/Mutex/NAME`` or ``NAMESPACE/ConfigMap/NAME/KEY``.
    """
    found: list[str] = []
    mutexes = list(synchronization.get("mutexes") or ())
    if synchronization.get("mutex"):
        mutexes.append(synchronization["mutex"])
    found += [f"{mutex.get('namespace') or namespace}/Mutex/{mutex.get('name')}" for mutex in mutexes]
    semaphores = list(synchronization.get("semaphores") or ())
    if synchronization.get("semaphore"):
        semaphores.append(synchronization["semaphore"])
    for semaphore in semaphores:
        reference = semaphore.get("configMapKeyRef") or {}
        place = semaphore.get("namespace") or namespace
        found.append(f"{place}/ConfigMap/{reference.get('name')}/{reference.get('key')}")
    return found
