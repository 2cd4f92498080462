"""What probes say about one container: probe results in, ``started``, ``ready`` and "kill it" out. Pure.

The semantics are the kubelet's (``pkg/kubelet/prober``): a startup probe gates the other two; a state changes
after as many like results in a row as the threshold says; a container with a readiness probe is not ready until
that has passed; what has failed its liveness or startup probe is not asked again before it was started anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ProbeKind(StrEnum):
    """The value is how the kubelet's events begin."""

    STARTUP = "Startup"
    READINESS = "Readiness"
    LIVENESS = "Liveness"

    @property
    def field(self) -> str:
        """Its name in the manifest."""
        return f"{self.value.lower()}Probe"


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe as the manifest describes it. ``action``: ``exec``, ``httpGet``, ``tcpSocket`` or ``grpc``."""

    kind: ProbeKind
    action: str
    detail: Mapping[str, Any]
    initial_delay_seconds: float = 0.0
    period_seconds: float = 10.0
    timeout_seconds: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3
    grace_seconds: float | None = None
    """Between SIGTERM and SIGKILL when this probe has the container killed; None: the pod's."""


ACTIONS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")


def action_of(record: Mapping[str, Any]) -> str:
    """Which action a probe or a hook names; empty for none."""
    return next((name for name in ACTIONS if record.get(name) is not None), "")


def probes_of(container: Mapping[str, Any]) -> dict[ProbeKind, Probe]:
    """The probes of a container."""
    found = {}
    for kind in ProbeKind:
        record = container.get(kind.field)
        action = action_of(record) if record else ""
        if record and action:
            found[kind] = _probe(kind, action, record)
    return found


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
    """Of the present attempt of one container. Without probes it is started and ready as soon as it runs."""

    probes: Mapping[ProbeKind, Probe] = field(default_factory=dict)
    started: bool = True
    ready: bool = True
    failed: ProbeKind | None = None
    """The probe that has the container killed."""
    _last: dict[ProbeKind, tuple[bool, int]] = field(default_factory=dict)
    """Per probe: the last result, and how often in a row it came."""

    def begin(self) -> None:
        """A new attempt runs: nothing is known of it."""
        self.started = ProbeKind.STARTUP not in self.probes
        self.ready = ProbeKind.READINESS not in self.probes
        self.failed = None
        self._last.clear()

    def keep(self, started: bool, ready: bool) -> None:
        """An attempt of an earlier agent runs on: what was known of it holds until a probe says otherwise."""
        self.started = self.started or started
        self.ready = self.ready or ready

    def wants(self, kind: ProbeKind) -> bool:
        """Return whether this probe is to be carried out now."""
        if kind not in self.probes or (self.failed is not None and kind is not ProbeKind.READINESS):
            return False
        return self.started is not (kind is ProbeKind.STARTUP)

    def take(self, kind: ProbeKind, passed: bool) -> bool:
        """Count one result. True: the container is to be killed. What is not wanted any more changes nothing."""
        if not self.wants(kind):
            return False
        last, run = self._last.get(kind, (passed, 0))
        run = run + 1 if last is passed else 1
        self._last[kind] = (passed, run)
        probe = self.probes[kind]
        if run < (probe.success_threshold if passed else probe.failure_threshold):
            return False
        if kind is ProbeKind.READINESS:
            self.ready = passed
        elif not passed:
            self.failed = kind
        elif kind is ProbeKind.STARTUP:
            self.started = True
        return self.failed is kind
