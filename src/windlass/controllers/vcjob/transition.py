"""Decision of a reconciliation: the transition of the job, if any, and its cause.

Commands precede policies, and policies precede facts. At most one transition is made
per reconciliation. It is written with the observed resourceVersion before its
consequences are executed, so a restart happens once, whenever the controller is
stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.controllers.vcjob.members import Members
from windlass.controllers.vcjob.policies import (
    POD_EVICTED,
    PolicyAction,
    job_events,
    policy_actions,
    target_of,
    targeted,
)
from windlass.controllers.vcjob.spec import JobSpec
from windlass.controllers.vcjob.state_machine import (
    ACTIONS,
    RESTARTABLE,
    TARGETED,
    JobTrigger,
    Phase,
    RestartScope,
    Transition,
    follow,
)
from windlass.controllers.vcjob.status import EVERYTHING, UNSUCCEEDED, JobState, PodCounts, enter

Json = dict[str, Any]
COMMAND_ISSUED = "CommandIssued"


@dataclass(frozen=True, slots=True)
class TransitionCause:
    """Cause of a transition.

    ``targets``: targets of a partial restart.
    ``command``: UID of the Command.
    """

    trigger: JobTrigger
    reason: str
    message: str
    targets: frozenset[str] = frozenset()
    command: str = ""


@dataclass(frozen=True, slots=True)
class JobDecision:
    """Decision. ``state``: state after it. ``cause``: ``None`` without a transition.

    ``refused``: messages about Commands that change nothing.
    ``next_due``: seconds until the next policy action is due.
    """

    state: JobState
    cause: TransitionCause | None = None
    refused: tuple[str, ...] = ()
    next_due: float | None = None


def decide(
    spec: JobSpec,
    state: JobState,
    pods: Members,
    counts: PodCounts,
    *,
    group: Json | None,
    commands: Sequence[Json],
    now: float,
) -> JobDecision:
    """Return the transition that a Command, a policy or a fact causes now.

    ``counts``: pods as they are.
    ``group``: ``None`` if it is missing or of an earlier version.
    """
    if state.phase is None:
        return JobDecision(
            enter(state, Phase.PENDING, now, "", ""), TransitionCause(JobTrigger.CLEARED, "", "")
        )
    refused: list[str] = []
    for command in commands:
        if command["metadata"].get("uid") == state.command:
            continue
        cause, problem = _of_command(command, state)
        if cause is not None:
            return JobDecision(_apply(spec, state, cause, pods, now), cause, tuple(refused))
        refused.append(problem)
    next_due = None
    if state.phase in RESTARTABLE:
        state = replace(state, timers=_live_timers(state, pods))
        found = policy_actions(spec, job_events(spec, state, pods, group, now))
        cause = _of_policy(state, [policy_action for policy_action in found if policy_action.due <= now])
        if cause is not None:
            return JobDecision(_apply(spec, state, cause, pods, now), cause, tuple(refused))
        waiting = [policy_action for policy_action in found if policy_action.due > now]
        next_due = min((policy_action.due - now for policy_action in waiting), default=None)
        timers = {a.event.pod: float(int(a.event.since)) for a in waiting if a.event.event == POD_EVICTED}
        state = replace(state, timers=timers)
    cause = _of_facts(spec, state, counts)
    if cause is not None:
        return JobDecision(_apply(spec, state, cause, pods, now), cause, tuple(refused))
    return JobDecision(state, None, tuple(refused), next_due)


def _of_command(command: Json, state: JobState) -> tuple[TransitionCause | None, str]:
    name, action = command["metadata"]["name"], command.get("action") or ""
    assert state.phase is not None
    if action not in ACTIONS or action in TARGETED:
        return None, f"command {name}: {action or 'no action'} is not an action for a job"
    trigger = JobTrigger(action)
    if _changes(state, trigger) is None:
        return None, f"command {name}: {action} changes nothing while the job is {state.phase}"
    message = command.get("message") or command.get("reason") or ""
    message = f"{action} by command {name}" + (f": {message}" if message else "")
    return TransitionCause(trigger, COMMAND_ISSUED, message, command=command["metadata"].get("uid", "")), ""


def _of_policy(state: JobState, due: list[PolicyAction]) -> TransitionCause | None:
    for policy_action in due:
        trigger = policy_action.action
        if _changes(state, trigger) is None:
            continue
        message = f"{policy_action.event.describe()}: {trigger} by policy"
        if trigger not in TARGETED:
            return TransitionCause(trigger, policy_action.event.event, message)
        # All parts that are due are restarted together, as one retry.
        targets = frozenset(target_of(a) for a in due if a.action in TARGETED)
        if targets <= state.targets:
            continue
        return TransitionCause(trigger, policy_action.event.event, message, targets)
    return None


def _changes(state: JobState, trigger: JobTrigger) -> Transition | None:
    assert state.phase is not None
    transition = follow(state.phase, trigger)
    if transition is not None and transition.scope is RestartScope.ALL and EVERYTHING in state.targets:
        return None
    return transition


def _live_timers(state: JobState, pods: Members) -> dict[str, float]:
    """An eviction is forgotten when the pod runs again."""
    return {
        name: since
        for name, since in state.timers.items()
        if not (name in pods and pods[name].phase == "Running" and not pods[name].deleting)
    }


def _of_facts(spec: JobSpec, state: JobState, counts: PodCounts) -> TransitionCause | None:
    fact = _fact(spec, state, counts)
    if fact is None or state.phase is None or follow(state.phase, fact) is None:
        return None
    reason, message = "", ""
    if fact is JobTrigger.TOO_FEW_SUCCEEDED:
        reason, message = "PodFailed", _shortfall(spec, counts)
    elif fact is JobTrigger.RETRIES_SPENT:
        reason, message = _spent(spec, state)
    elif fact is JobTrigger.STALLED:
        reason, message = "PodPending", f"{counts.pending} of {spec.replicas} pods are pending"
    elif fact in (JobTrigger.CLEARED, JobTrigger.QUIET):
        reason, message = state.reason, state.message
    return TransitionCause(fact, reason, message)


def _fact(spec: JobSpec, state: JobState, counts: PodCounts) -> JobTrigger | None:
    match state.phase:
        case Phase.PENDING:
            return JobTrigger.STARTED if counts.started >= spec.min_available else None
        case Phase.RUNNING:
            return _running_fact(spec, counts)
        case Phase.RESTARTING:
            if state.retries >= spec.max_retry:
                return JobTrigger.RETRIES_SPENT
            if counts.to_delete == 0 and spec.replicas - counts.terminating >= spec.min_available:
                return JobTrigger.CLEARED
        case Phase.ABORTING | Phase.TERMINATING | Phase.COMPLETING:
            if counts.pending == counts.running == counts.terminating == counts.unknown == 0:
                return JobTrigger.QUIET
    return None


def _running_fact(spec: JobSpec, counts: PodCounts) -> JobTrigger | None:
    """Return the fact about a running job, in Volcano's order.

    First minSuccess, then the end of all pods, then the fall below the minimum.
    """
    if spec.replicas == 0:
        return None
    if spec.min_success is not None and counts.succeeded >= spec.min_success:
        return JobTrigger.ENOUGH_SUCCEEDED
    if counts.finished == spec.replicas:
        return JobTrigger.TOO_FEW_SUCCEEDED if _falls_short(spec, counts) else JobTrigger.ENOUGH_SUCCEEDED
    if counts.pending > spec.replicas - spec.min_available:
        return JobTrigger.STALLED
    return None


def _falls_short(spec: JobSpec, counts: PodCounts) -> bool:
    if spec.min_available >= spec.task_minimum:
        for task in spec.tasks:
            phases = counts.by_task.get(task.name)
            if phases is not None and phases.get("Succeeded", 0) < task.min_available:
                return True
    needed = spec.min_available if spec.min_success is None else spec.min_success
    return counts.succeeded < needed


def _shortfall(spec: JobSpec, counts: PodCounts) -> str:
    for task in spec.tasks:
        done = counts.by_task.get(task.name, {}).get("Succeeded", 0)
        if spec.min_available >= spec.task_minimum and done < task.min_available:
            return (
                f"task {task.name}: {done} of {task.replicas} pods succeeded, {task.min_available} are needed"
            )
    needed = spec.min_available if spec.min_success is None else spec.min_success
    return f"{counts.succeeded} of {spec.replicas} pods succeeded, {needed} are needed"


def _spent(spec: JobSpec, state: JobState) -> tuple[str, str]:
    cause = f"; the last cause: {state.message}" if state.message else ""
    return "MaxRetryReached", f"retryCount {state.retries} has reached maxRetry {spec.max_retry}{cause}"


def _apply(spec: JobSpec, state: JobState, cause: TransitionCause, pods: Members, now: float) -> JobState:
    assert state.phase is not None
    transition = follow(state.phase, cause.trigger)
    assert transition is not None
    before = state.phase
    moved = enter(state, transition.phase, now, cause.reason, cause.message)
    if transition.phase is before:
        moved = replace(moved, since=state.since)
    if transition.retry:
        moved = replace(moved, retries=moved.retries + 1)
    if cause.command:
        moved = replace(moved, command=cause.command)
    moved = _aim(moved, transition, cause.targets, pods, spec)
    if moved.phase is Phase.RESTARTING and before is not Phase.RESTARTING and moved.retries >= spec.max_retry:
        # The last retry keeps finished pods for their logs, and the job fails directly.
        reason, message = _spent(spec, moved)
        moved = replace(enter(moved, Phase.FAILED, now, reason, message), targets=frozenset())
    return moved


def _aim(
    state: JobState, transition: Transition, targets: frozenset[str], pods: Members, spec: JobSpec
) -> JobState:
    """Set the targets of a restart; outside a restart there are none."""
    if transition.phase is not Phase.RESTARTING:
        timers = state.timers if transition.phase in RESTARTABLE else {}
        return replace(state, targets=frozenset(), timers=timers)
    if transition.scope is RestartScope.ALL:
        return replace(state, targets=frozenset({EVERYTHING}), version=state.version + 1, known={}, timers={})
    if transition.scope is RestartScope.UNSUCCEEDED:
        return replace(state, targets=frozenset({UNSUCCEEDED}), timers={})
    merged = state.targets | targets
    hit = {name for name, member in pods.items() if targeted(member, merged)}
    hit |= {target.removeprefix("pod/") for target in merged if target.startswith("pod/")}
    timers = {name: since for name, since in state.timers.items() if name not in hit}
    known = {
        task.name: frozenset(
            i for i in state.known.get(task.name, ()) if spec.pod_name(task.name, i) not in hit
        )
        for task in spec.tasks
        if f"task/{task.name}" not in merged
    }
    return replace(state, targets=merged, known=known, timers=timers)
