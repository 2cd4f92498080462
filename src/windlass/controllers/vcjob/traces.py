"""The controllers' part of a job's life, as spans of the trace that its PodGroup's uid names.

The scheduler tells of the group (:mod:`windlass.scheduler.observability.traces`); here, below the same root, is told
what happens before and around that:

* ``group created``: the Job was made … its PodGroup is there
* ``pods created``: its queue has let it in (or the first of its pods is there) … all its pods are there
* ``job pending``, ``job running``, ``job restarting`` …: the Job's phases, each told when it is over
* ``job done``: the Job was made … its last phase, with that phase, and how often it was tried

Nothing here waits or fails. What began before this process looked is not told, but for ``job done``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.views.wire import moment
from windlass.controllers.vcjob import status as statuses
from windlass.controllers.vcjob.observed import JobSnapshot
from windlass.controllers.vcjob.spec import read
from windlass.controllers.vcjob.state_machine import FINAL, Phase
from windlass.observe.tracing import Exporter, Span, Value, root_id, trace_id

Json = dict[str, Any]
_WAITING = ("", "Pending")
"""Phases of a PodGroup that its queue has not let in."""


@dataclass(slots=True)
class _Job:
    uid: str
    created: float
    trace: int = 0
    phase: Phase | None = None
    since: float = 0.0
    new: bool = False
    """It was seen before its PodGroup was."""
    filling: float = 0.0
    """Since when its pods are being made; 0.0: they are not, or were found."""
    filled: bool = False
    done: bool = False


class JobTraces:
    """Is told of each look at a Job, by its key. All moments are Unix seconds."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._known: dict[str, _Job] = {}

    def gone(self, key: str) -> None:
        self._known.pop(key, None)

    def look(self, key: str, job: Json, seen: JobSnapshot) -> None:
        """How a Job stands. Nothing is told twice."""
        try:
            spec, state = read(job), statuses.load(job)
        except (ValueError, TypeError, KeyError, AttributeError):
            return  # its own step says what is wrong
        metadata, now = job["metadata"], seen.now
        known = self._known.get(key)
        if known is None or known.uid != metadata["uid"]:
            known = _Job(metadata["uid"], moment(metadata.get("creationTimestamp")) or now)
            known.new = seen.group is None and state.phase is None
            known.done = state.phase in FINAL
            known.phase, known.since = state.phase, now
            known.filled = len(seen.pods) >= spec.replicas
            self._known[key] = known
        words: dict[str, Value] = {
            "k8s.namespace.name": metadata["namespace"],
            "windlass.job": metadata["name"],
            "windlass.job.uid": known.uid,
            "windlass.job.version": state.version,
        }
        self._group(known, seen, words)
        self._pods(known, seen, spec.replicas, words)
        if state.phase is not known.phase:
            self._phase(known, state, words, now)

    def _group(self, known: _Job, seen: JobSnapshot, words: Mapping[str, Value]) -> None:
        if known.trace or seen.group is None:
            return
        known.trace = trace_id(seen.group["metadata"].get("uid") or known.uid)
        if known.new:
            self._tell(known, "group created", known.created, seen.now, words)

    def _pods(self, known: _Job, seen: JobSnapshot, replicas: int, words: Mapping[str, Value]) -> None:
        if known.filled or seen.group is None:
            return
        let_in = ((seen.group.get("status") or {}).get("phase") or "") not in _WAITING
        if not known.filling and (let_in or seen.pods):
            known.filling = seen.now
        if known.filling and len(seen.pods) >= replicas:
            known.filled = True
            self._tell(known, "pods created", known.filling, seen.now, {**words, "windlass.pods": replicas})

    def _phase(self, known: _Job, state: statuses.JobState, words: Mapping[str, Value], now: float) -> None:
        if known.phase is not None and known.phase not in FINAL:
            self._tell(known, f"job {known.phase.lower()}", known.since, now, words)
        known.phase, known.since = state.phase, now
        if state.phase not in FINAL:
            known.done = False
        elif not known.done:
            known.done = True
            outcome = {**words, "windlass.outcome": str(state.phase), "windlass.job.retries": state.retries}
            fault = state.message or str(state.phase) if state.phase is not Phase.COMPLETED else ""
            self._tell(known, "job done", known.created, now, outcome, fault)

    def _tell(
        self,
        known: _Job,
        name: str,
        begun: float,
        ended: float,
        words: Mapping[str, Value],
        fault: str = "",
    ) -> None:
        trace = known.trace or trace_id(known.uid)
        self._exporter.tell(
            Span(name, begun, ended, trace, parent=root_id(trace), attributes=words, fault=fault)
        )
