"""Conditions of a JobSet, and the events that report their changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.kits.timestamps import rfc3339

Json = Mapping[str, Any]
COMPLETED, FAILED, SUSPENDED = "Completed", "Failed", "Suspended"
RESTARTING = "RestartingJobSet"
STARTUP_IN_PROGRESS, STARTUP_COMPLETED = "StartupPolicyInProgress", "StartupPolicyCompleted"
CREATION_FAILED = "CreationFailed"
"""Condition of Windlass while the server refuses an object of the JobSet."""
_EXCLUSIVE = frozenset({STARTUP_IN_PROGRESS, STARTUP_COMPLETED})


@dataclass(frozen=True, slots=True)
class JobSetEvent:
    """Event about a JobSet. ``warning``: its type is Warning, or else Normal."""

    reason: str
    message: str
    warning: bool = False


class Conditions:
    """Conditions of one JobSet while it is reconciled, and the events of their changes."""

    def __init__(self, conditions: Iterable[Json], now: float) -> None:
        self.items = [dict(condition) for condition in conditions]
        self.events: list[JobSetEvent] = []
        self._now = rfc3339(now)

    def is_true(self, kind: str) -> bool:
        return any(found.get("type") == kind and found.get("status") == "True" for found in self.items)

    def set(self, kind: str, value: bool, reason: str, message: str, warning: bool = False) -> None:
        """Set a condition. One that was never true is not added as false."""
        status = "True" if value else "False"
        changed = self._set(kind, status, reason, message)
        if value and kind in _EXCLUSIVE:
            for other in self.items:
                if other["type"] in _EXCLUSIVE - {kind} and other.get("status") == "True":
                    other["status"] = "False"
                    changed = True
        if changed:
            self.events.append(JobSetEvent(reason, message, warning))

    def _set(self, kind: str, status: str, reason: str, message: str) -> bool:
        present = next((found for found in self.items if found.get("type") == kind), None)
        wanted = {"type": kind, "status": status, "reason": reason, "message": message}
        if present is None:
            if status == "True":
                self.items.append({**wanted, "lastTransitionTime": self._now})
            return status == "True"
        if all(present.get(name) == text for name, text in wanted.items()):
            return False
        if present.get("status") != status:
            present["lastTransitionTime"] = self._now
        present.update(wanted)
        return True
