"""Spans of a job in the trace that its PodGroup's UID identifies.

The scheduler exports the spans of the group
(:mod:`windlass.scheduler.observability.traces`). This module adds spans of the job
below the same root:

* ``group created``: from the creation of the Job to its PodGroup
* ``pods created``: from the admission by its queue (or its first pod) to its last pod
* ``job pending``, ``job running``, ``job restarting`` …: phases, exported when they end
* ``job done``: from the creation of the Job to its last phase, with that phase and the
  number of retries

Exporting never blocks or raises. A phase that began before the process started is not
exported, except for ``job done``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.views.wire import moment
from windlass.controllers.vcjob import status as statuses
from windlass.controllers.vcjob.snapshot import JobSnapshot
from windlass.controllers.vcjob.spec import read
from windlass.controllers.vcjob.state_machine import FINAL, Phase
from windlass.observe.tracing import Exporter, Span, Value, root_id, trace_id

Json = dict[str, Any]
_WAITING = ("", "Pending")
"""Phases of a PodGroup that its queue has not admitted."""


@dataclass(slots=True)
class _Job:
    uid: str
    created: float
    trace: int = 0
    phase: Phase | None = None
    since: float = 0.0
    new: bool = False
    """The Job was observed before its PodGroup."""
    filling: float = 0.0
    """Start of the creation of its pods; 0.0: not begun, or before this process started."""
    filled: bool = False
    done: bool = False


class JobTraces:
    """Traces of Jobs by key. Times are Unix seconds."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._known: dict[str, _Job] = {}

    def forget(self, key: str) -> None:
        self._known.pop(key, None)

    def observe(self, key: str, job: Json, observed: JobSnapshot) -> None:
        """Export the spans that ended since the last observation."""
        try:
            spec, state = read(job), statuses.load(job)
        except (ValueError, TypeError, KeyError, AttributeError):
            return  # the reconciliation reports the problem
        metadata, now = job["metadata"], observed.now
        known = self._known.get(key)
        if known is None or known.uid != metadata["uid"]:
            known = _Job(metadata["uid"], moment(metadata.get("creationTimestamp")) or now)
            known.new = observed.group is None and state.phase is None
            known.done = state.phase in FINAL
            known.phase, known.since = state.phase, now
            known.filled = len(observed.pods) >= spec.replicas
            self._known[key] = known
        attributes: dict[str, Value] = {
            "k8s.namespace.name": metadata["namespace"],
            "windlass.job": metadata["name"],
            "windlass.job.uid": known.uid,
            "windlass.job.version": state.version,
        }
        self._group(known, observed, attributes)
        self._pods(known, observed, spec.replicas, attributes)
        if state.phase is not known.phase:
            self._phase(known, state, attributes, now)

    def _group(self, known: _Job, observed: JobSnapshot, attributes: Mapping[str, Value]) -> None:
        if known.trace or observed.group is None:
            return
        known.trace = trace_id(observed.group["metadata"].get("uid") or known.uid)
        if known.new:
            self._emit_transition_events(known, "group created", known.created, observed.now, attributes)

    def _pods(
        self, known: _Job, observed: JobSnapshot, replicas: int, attributes: Mapping[str, Value]
    ) -> None:
        if known.filled or observed.group is None:
            return
        admitted = ((observed.group.get("status") or {}).get("phase") or "") not in _WAITING
        if not known.filling and (admitted or observed.pods):
            known.filling = observed.now
        if known.filling and len(observed.pods) >= replicas:
            known.filled = True
            self._emit_transition_events(
                known, "pods created", known.filling, observed.now, {**attributes, "windlass.pods": replicas}
            )

    def _phase(
        self, known: _Job, state: statuses.JobState, attributes: Mapping[str, Value], now: float
    ) -> None:
        if known.phase is not None and known.phase not in FINAL:
            self._emit_transition_events(known, f"job {known.phase.lower()}", known.since, now, attributes)
        known.phase, known.since = state.phase, now
        if state.phase not in FINAL:
            known.done = False
        elif not known.done:
            known.done = True
            outcome = {
                **attributes,
                "windlass.outcome": str(state.phase),
                "windlass.job.retries": state.retries,
            }
            fault = state.message or str(state.phase) if state.phase is not Phase.COMPLETED else ""
            self._emit_transition_events(known, "job done", known.created, now, outcome, fault)

    def _emit_transition_events(
        self,
        known: _Job,
        name: str,
        started: float,
        finished: float,
        attributes: Mapping[str, Value],
        fault: str = "",
    ) -> None:
        trace = known.trace or trace_id(known.uid)
        self._exporter.export(
            Span(name, started, finished, trace, parent=root_id(trace), attributes=attributes, fault=fault)
        )
