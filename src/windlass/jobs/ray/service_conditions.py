"""Conditions of a RayService."""

from __future__ import annotations

from typing import Any

from windlass.kits.timestamps import parse_rfc3339, rfc3339

READY, UPGRADING, ROLLING_BACK = "Ready", "UpgradeInProgress", "RollbackInProgress"
SUSPENDING, SUSPENDED = "Suspending", "Suspended"
INITIALIZING, TIMED_OUT = "Initializing", "InitializingTimeout"


class ServiceConditions:
    """Conditions of one RayService, read from its status and changed in place."""

    def __init__(self, status: dict[str, Any], now: float) -> None:
        self._status, self._now = status, now
        self._list: list[dict[str, Any]] = [dict(one) for one in status.get("conditions") or ()]
        status["conditions"] = self._list

    def is_empty(self) -> bool:
        return not self._list

    def is_true(self, kind: str) -> bool:
        found = self.find(kind)
        return found is not None and found.get("status") == "True"

    def find(self, kind: str) -> dict[str, Any] | None:
        return next((one for one in self._list if one.get("type") == kind), None)

    def set(self, kind: str, status: str, reason: str, message: str) -> None:
        """Set a condition. Its transition time only changes with its status."""
        wanted = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": self._status.get("observedGeneration", 0),
        }
        found = self.find(kind)
        if found is None:
            self._list.append({**wanted, "lastTransitionTime": rfc3339(self._now)})
            return
        if found.get("status") != status:
            found["lastTransitionTime"] = rfc3339(self._now)
        found.update(wanted)

    def restart(self, kind: str, reason: str, message: str) -> None:
        """Set a condition to False from now on, whatever it was."""
        self._list[:] = [one for one in self._list if one.get("type") != kind]
        self.set(kind, "False", reason, message)

    def count_endpoints(self, number: int) -> None:
        """Set the conditions that follow from the number of pods that serve."""
        if self.is_empty():
            for kind in (READY, UPGRADING):
                self.set(kind, "False", INITIALIZING, "RayService is initializing")
        if number > 0:
            self.set(READY, "True", "NonZeroServeEndpoints", "Number of serve endpoints is greater than 0")
        elif self.is_true(READY):
            self.set(READY, "False", "ZeroServeEndpoints", "Number of serve endpoints dropped to 0")

    def follow_clusters(self, active: str, pending: str) -> None:
        """Set ``UpgradeInProgress`` from the names of the clusters."""
        if active and pending:
            words = "Both active and pending Ray clusters exist"
            self.set(UPGRADING, "True", "BothActivePendingClustersExist", words)
        elif active:
            words = "Active Ray cluster exists and no pending Ray cluster"
            self.set(UPGRADING, "False", "NoPendingCluster", words)
        else:
            found = self.find(UPGRADING) or {}
            if found.get("reason") not in (INITIALIZING, TIMED_OUT):
                words = "No active Ray cluster exists, and the RayService is not initializing"
                self.set(UPGRADING, "Unknown", "NoActiveCluster", words)

    def overdue(self, timeout: float | None) -> float | None:
        """Return the seconds of an initialization that took longer than ``timeout``."""
        found = self.find(READY)
        if timeout is None or found is None or found.get("status") != "False":
            return None
        if found.get("reason") != INITIALIZING:
            return None
        passed = self._now - parse_rfc3339(found["lastTransitionTime"])
        return passed if passed >= timeout else None

    def has_timed_out(self) -> bool:
        found = self.find(READY) or {}
        return found.get("status") == "False" and found.get("reason") == TIMED_OUT
