"""Status of a Job: its content and its encoding.

Besides Volcano's own fields the status holds the controller's state, so that every
decision is one atomic write. ``status.controlledResources`` holds

* ``restart``: targets of the restart in progress (``all``, ``unsucceeded``, ``pod/…``,
  ``task/…``, ``partition/TASK/ID``; several are separated by a space),
* ``pods/TASK``: indices of the pods that existed (``0-3``); a pod that is missing later
  was evicted or deleted by another client,
* ``timer/POD``: an eviction that a policy handles later (``PodEvicted@TIME``),
* ``command``: UID of the last Command that was executed,
* ``windlass.dev/attained…`` and ``windlass.dev/suspensions``: service attained by
  earlier runs of a job that shares time, for its next PodGroup,

and as in Volcano ``plugin-NAME`` and ``volume-pvc-NAME``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windlass.api.views.wire import moment
from windlass.controllers.vcjob.members import parse_spans, spans
from windlass.controllers.vcjob.spec import JobSpec
from windlass.controllers.vcjob.state_machine import FINAL, Phase
from windlass.kits import durations
from windlass.kits.timestamps import rfc3339
from windlass.model.records import attained_service

RESTART = "restart"
COMMAND = "command"
_PODS = "pods/"
_TIMER = "timer/"
_PLUGIN = "plugin-"
_VOLUME = "volume-pvc-"
_WRITTEN = frozenset(
    {
        "state",
        "minAvailable",
        "taskStatusCount",
        "pending",
        "running",
        "succeeded",
        "failed",
        "terminating",
        "unknown",
        "version",
        "retryCount",
        "controlledResources",
        "conditions",
        "runningDuration",
    }
)
EVERYTHING = "all"
UNSUCCEEDED = "unsucceeded"


@dataclass(frozen=True, slots=True)
class JobState:
    """Controller's state in the status. ``phase`` is ``None`` before the first reconciliation."""

    phase: Phase | None = None
    reason: str = ""
    message: str = ""
    since: float = 0.0
    version: int = 0
    retries: int = 0
    targets: frozenset[str] = frozenset()
    command: str = ""
    known: Mapping[str, frozenset[int]] = field(default_factory=dict)
    timers: Mapping[str, float] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    """``plugin-…`` and ``volume-pvc-…`` entries."""
    attained: Mapping[str, str] = field(default_factory=dict)
    """Annotations of earlier PodGroups (:func:`windlass.model.records.attained_service.carried`)."""


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Number of pods by phase. Terminating pods count only as terminating.

    ``by_task``: task → pod phase → number.
    ``to_delete``: terminating pods that the controller has yet to delete.
    """

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    unknown: int = 0
    to_delete: int = 0
    by_task: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def started(self) -> int:
        return self.running + self.succeeded + self.failed

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed


def load(job: Mapping[str, Any]) -> JobState:
    """The state that was written. A phase that does not exist is Pending, as in Volcano."""
    status = job.get("status") or {}
    state = status.get("state") or {}
    stored: Mapping[str, str] = status.get("controlledResources") or {}
    return JobState(
        phase=_phase(state.get("phase")),
        reason=state.get("reason") or "",
        message=state.get("message") or "",
        since=moment(state.get("lastTransitionTime")),
        version=int(status.get("version") or 0),
        retries=int(status.get("retryCount") or 0),
        targets=frozenset(stored.get(RESTART, "").split()),
        command=stored.get(COMMAND, ""),
        known={
            key.removeprefix(_PODS): parse_spans(text)
            for key, text in stored.items()
            if key.startswith(_PODS) and text
        },
        timers={
            key.removeprefix(_TIMER): moment(text.partition("@")[2])
            for key, text in stored.items()
            if key.startswith(_TIMER)
        },
        resources={key: text for key, text in stored.items() if key.startswith((_PLUGIN, _VOLUME))},
        attained={name: stored[name] for name in attained_service.CARRIED if name in stored},
    )


def _phase(text: str | None) -> Phase | None:
    if not text:
        return None
    try:
        return Phase(text)
    except ValueError:
        return Phase.PENDING


def render(job: Mapping[str, Any], spec: JobSpec, state: JobState, counts: PodCounts) -> dict[str, Any]:
    """The whole status. As in Volcano, zeros and empty fields are left out.

    ``runningDuration`` appears with the end of the job: from its (last) start, or from its creation
    when it never ran, to the end.
    """
    phase = state.phase or Phase.PENDING
    old = job.get("status") or {}
    conditions = _conditions(old.get("conditions") or [], phase, state.since)
    status: dict[str, Any] = {name: value for name, value in old.items() if name not in _WRITTEN}
    written: dict[str, Any] = {
        "state": _without_zeros(
            {
                "phase": str(phase),
                "reason": state.reason,
                "message": state.message,
                "lastTransitionTime": rfc3339(state.since),
            }
        ),
        "minAvailable": spec.min_available,
        "taskStatusCount": {task: {"phase": dict(phases)} for task, phases in counts.by_task.items()},
        "pending": counts.pending,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "terminating": counts.terminating,
        "unknown": counts.unknown,
        "version": state.version,
        "retryCount": state.retries,
        "controlledResources": _controlled_resources(state),
        "conditions": conditions,
    }
    if phase in FINAL or phase is Phase.ABORTED:
        written["runningDuration"] = durations.write(state.since - _start(job, conditions, state.since))
    return {**status, **_without_zeros(written)}


def _controlled_resources(state: JobState) -> dict[str, str]:
    stored = {**state.resources, **state.attained}
    if state.targets:
        stored[RESTART] = " ".join(sorted(state.targets))
    if state.command:
        stored[COMMAND] = state.command
    stored.update({_PODS + task: spans(indices) for task, indices in state.known.items() if indices})
    stored.update({_TIMER + pod: f"PodEvicted@{rfc3339(since)}" for pod, since in state.timers.items()})
    return dict(sorted(stored.items()))


def _conditions(old: list[dict[str, Any]], phase: Phase, since: float) -> list[dict[str, Any]]:
    """One entry per phase, the newest last."""
    if old and old[-1].get("status") == phase and moment(old[-1].get("lastTransitionTime")) == int(since):
        return old
    stored = [condition for condition in old if condition.get("status") != phase]
    return [*stored, {"status": str(phase), "lastTransitionTime": rfc3339(since)}]


def _start(job: Mapping[str, Any], conditions: list[dict[str, Any]], end: float) -> float:
    for condition in conditions:
        if condition.get("status") == Phase.RUNNING:
            return moment(condition.get("lastTransitionTime"))
    return moment(job["metadata"].get("creationTimestamp")) or end


def _without_zeros(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in (None, "", 0, {}, [])}


def enter(state: JobState, phase: Phase, now: float, reason: str, message: str) -> JobState:
    """The state in a new phase, with why."""
    return replace(state, phase=phase, since=float(int(now)), reason=reason, message=message)
