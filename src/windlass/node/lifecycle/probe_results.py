"""Health of one container, computed from its probe results. Pure.

The semantics are the kubelet's (``pkg/kubelet/prober``):

- A startup probe delays the other two.
- A state changes after as many equal results in a row as the threshold says.
- A container with a readiness probe is not ready before the probe has passed.
- After a failed liveness or startup probe, no result counts until the container is restarted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ProbeKind(StrEnum):
    """Kind of a probe. The value begins the messages of the kubelet's events."""

    STARTUP = "Startup"
    READINESS = "Readiness"
    LIVENESS = "Liveness"

    @property
    def field(self) -> str:
        """Name of the probe in the manifest."""
        return f"{self.value.lower()}Probe"


@dataclass(frozen=True, slots=True)
class Probe:
    """Probe of the manifest. ``action``: ``exec``, ``httpGet``, ``tcpSocket`` or ``grpc``."""

    kind: ProbeKind
    action: str
    detail: Mapping[str, Any]
    initial_delay_seconds: float = 0.0
    period_seconds: float = 10.0
    timeout_seconds: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3
    grace_seconds: float | None = None
    """Seconds between SIGTERM and SIGKILL if this probe fails. None: the pod's grace period."""


ACTIONS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")


def action_of(record: Mapping[str, Any]) -> str:
    """Return the action of a probe or hook. Empty if it has none."""
    return next((name for name in ACTIONS if record.get(name) is not None), "")


def probes_of(container: Mapping[str, Any]) -> dict[ProbeKind, Probe]:
    """Return the probes of a container."""
    probes = {}
    for kind in ProbeKind:
        record = container.get(kind.field)
        action = action_of(record) if record else ""
        if record and action:
            probes[kind] = _probe(kind, action, record)
    return probes


def _probe(kind: ProbeKind, action: str, record: Mapping[str, Any]) -> Probe:
    grace = record.get("terminationGracePeriodSeconds")
    return Probe(
        kind,
        action,
        record[action],
        initial_delay_seconds=float(record.get("initialDelaySeconds") or 0),
        period_seconds=float(record.get("periodSeconds") or 10),
        timeout_seconds=float(record.get("timeoutSeconds") or 1),
        success_threshold=int(record.get("successThreshold") or 1),
        failure_threshold=int(record.get("failureThreshold") or 3),
        grace_seconds=None if grace is None else float(grace),
    )


@dataclass(slots=True)
class Health:
    """Health of a container's current attempt. Without probes it is started and ready at once."""

    probes: Mapping[ProbeKind, Probe] = field(default_factory=dict)
    started: bool = True
    ready: bool = True
    failed: ProbeKind | None = None
    """Failed probe that requires that the container is killed."""
    _last: dict[ProbeKind, tuple[bool, int]] = field(default_factory=dict)
    """Probe → last result and how often in a row it occurred."""

    def begin(self) -> None:
        """Reset the results for a new attempt."""
        self.started = ProbeKind.STARTUP not in self.probes
        self.ready = ProbeKind.READINESS not in self.probes
        self.failed = None
        self._last.clear()

    def restore(self, started: bool, ready: bool) -> None:
        """Restore results of an earlier agent. They hold until the next result of a probe."""
        self.started = self.started or started
        self.ready = self.ready or ready

    def is_due(self, kind: ProbeKind) -> bool:
        """Return whether this probe has to run now."""
        if kind not in self.probes or (self.failed is not None and kind is not ProbeKind.READINESS):
            return False
        return self.started is not (kind is ProbeKind.STARTUP)

    def count_result(self, kind: ProbeKind, passed: bool) -> bool:
        """Count one result. Return whether the container must be killed now.

        Results of probes that no longer have to run are ignored.
        """
        if not self.is_due(kind):
            return False
        last, streak = self._last.get(kind, (passed, 0))
        streak = streak + 1 if last is passed else 1
        self._last[kind] = (passed, streak)
        probe = self.probes[kind]
        if streak < (probe.success_threshold if passed else probe.failure_threshold):
            return False
        if kind is ProbeKind.READINESS:
            self.ready = passed
        elif not passed:
            self.failed = kind
        elif kind is ProbeKind.STARTUP:
            self.started = True
        return self.failed is kind
