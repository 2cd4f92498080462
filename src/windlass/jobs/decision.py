"""Decision about a job: its next phase, and the pods to create and to delete. Pure.

Restarts that Windlass carries out are counted by cause. Only those that the program
caused count against ``backoffLimit``: a job that is preempted often does not fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from windlass.jobs.definition import CleanPodPolicy, JobDefinition, Quorum, RestartRule, Role, SuccessRule
from windlass.jobs.lifecycle import FINAL, JobPhase, LifecycleTrigger, next_phase
from windlass.jobs.members import LossCause, RolePod
from windlass.jobs.replicas import WholeReplicas, has_replicas

DEADLINE_EXCEEDED = "DeadlineExceeded"
BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
_DELETE_ALL = frozenset({DEADLINE_EXCEEDED, BACKOFF_LIMIT_EXCEEDED})
"""Failures after which all pods are deleted, whatever the clean-pod policy is."""
_FIRST_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 10.0, 600.0
"""Delay in seconds before the first replacement by ``RestartRule.REPLACE``; it doubles up to the maximum."""
SIGNAL_CODES = 128
"""The lowest exit code that ``ExitCode`` takes for a restart."""


@dataclass(frozen=True, slots=True)
class RestartCounts:
    """Replacements of pods by cause. ``counted``: uids of present pods that are included."""

    by_cause: Mapping[LossCause, int] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()

    def of(self, cause: LossCause) -> int:
        return self.by_cause.get(cause, 0)


@dataclass(frozen=True, slots=True)
class LifecycleState:
    """State of a job between reconciliations. Times are Unix seconds; 0.0: not yet.

    ``cause``: short word for the reason of a failure.
    """

    phase: JobPhase = JobPhase.CREATED
    started: float = 0.0
    completed: float = 0.0
    cause: str = ""
    message: str = ""
    restarts: RestartCounts = field(default_factory=RestartCounts)


@dataclass(frozen=True, slots=True)
class NextActions:
    """Next state and actions of a job.

    ``create``: empty while the old pod of a place is terminating.
    ``expired``: the time to live after the end is over: delete the job.
    ``due_seconds``: decide again after this time at the latest.
    """

    state: LifecycleState
    trigger: LifecycleTrigger | None = None
    create: tuple[tuple[Role, int], ...] = ()
    delete: tuple[RolePod, ...] = ()
    expired: bool = False
    due_seconds: float | None = None


def decide_job(job: JobDefinition, state: LifecycleState, pods: Sequence[RolePod], now: float) -> NextActions:
    """Return the next state and actions. It is safe to repeat after a stop at any point."""
    if state.phase in FINAL:
        return _finished(job, state, pods, now)
    if has_replicas(job):
        pods = WholeReplicas(job, pods).with_causes()
    trigger, changed = _observe(job, state, pods, now)
    phase = next_phase(state.phase, trigger) if trigger is not None else state.phase
    after = replace(changed, phase=phase)
    if phase in FINAL:
        after = replace(after, completed=now)
        return replace(_finished(job, after, pods, now), trigger=trigger)
    if phase is JobPhase.SUSPENDED:
        stopped = tuple(pod for pod in pods if not pod.deleting)
        return NextActions(after, _if_changed(trigger, state, after), delete=stopped)
    if not after.started or state.phase is JobPhase.SUSPENDED:
        after = replace(after, started=now)
    lost = _lost(job, pods)
    surplus = (*_surplus(job, pods), *_with_lost(job, pods, lost))
    waits = {pod.uid: _until_replaced(job, after, pod, now) for pod in lost}
    due = [seconds for seconds in waits.values() if seconds > 0]
    deadline = _until_deadline(job, after, now)
    actions = NextActions(
        after,
        _if_changed(trigger, state, after),
        create=_missing(job, pods),
        delete=tuple(pod for pod in (*lost, *surplus) if not pod.deleting and waits.get(pod.uid, 0.0) <= 0),
        due_seconds=min((*due, *(() if deadline is None else (deadline,))), default=None),
    )
    return actions


def _until_replaced(job: JobDefinition, state: LifecycleState, pod: RolePod, now: float) -> float:
    """Return the seconds until a lost pod is replaced: the back-off of a ``batch/v1`` Job for such roles."""
    role = job.role(pod.role)
    if role is None or role.restart is not RestartRule.REPLACE or pod.disrupted or not pod.ended:
        return 0.0
    failures = max(1, state.restarts.of(LossCause.PROGRAM))
    return pod.ended + min(_FIRST_BACKOFF_SECONDS * 2.0 ** (failures - 1), _MAX_BACKOFF_SECONDS) - now


def _if_changed(
    trigger: LifecycleTrigger | None, before: LifecycleState, after: LifecycleState
) -> LifecycleTrigger | None:
    return trigger if after.phase is not before.phase else None


def _observe(
    job: JobDefinition, state: LifecycleState, pods: Sequence[RolePod], now: float
) -> tuple[LifecycleTrigger | None, LifecycleState]:
    """Return the most important fact, and the state with the counts and words that belong to it."""
    if job.run.suspend:
        return LifecycleTrigger.SUSPENDED, replace(state, started=0.0)
    if state.phase is JobPhase.SUSPENDED:
        stopped = frozenset(
            pod.uid for pod in _lost(job, pods)
        )  # lost by the suspension, which is no restart
        return LifecycleTrigger.RESUMED, replace(state, restarts=replace(state.restarts, counted=stopped))
    if has_succeeded(job, pods):
        return LifecycleTrigger.SUCCEEDED, state
    if _deadline_passed(job, state, now):
        message = f"it was active longer than activeDeadlineSeconds ({job.run.deadline_seconds} s)"
        return LifecycleTrigger.FAILED, replace(state, cause=DEADLINE_EXCEEDED, message=message)
    fatal = next((pod for pod in pods if _is_fatal(job, pod)), None)
    if fatal is not None:
        code = "" if fatal.exit_code is None else f" with exit code {fatal.exit_code}"
        message = f"pod {fatal.name} failed{code}, and its restart policy does not replace it"
        return LifecycleTrigger.FAILED, replace(state, cause="PodFailed", message=message)
    lost = _lost(job, pods)
    counted = replace(state, restarts=_count(job, state.restarts, lost, pods))
    if _restarts_spent(job, counted, pods):
        message = f"its pods were restarted {job.run.backoff_limit} times (backoffLimit)"
        return LifecycleTrigger.FAILED, replace(counted, cause=BACKOFF_LIMIT_EXCEEDED, message=message)
    if lost and not _goes_on(job, pods):
        return LifecycleTrigger.POD_LOST, counted
    if _has_started(job, pods):
        return LifecycleTrigger.STARTED, counted
    return None, counted


def has_succeeded(job: JobDefinition, pods: Sequence[RolePod]) -> bool:
    """Return whether a success rule holds."""
    return any(_rule_holds(job, rule, pods) for rule in job.success)


def _rule_holds(job: JobDefinition, rule: SuccessRule, pods: Sequence[RolePod]) -> bool:
    done = {(pod.role, pod.index) for pod in pods if pod.succeeded}
    places = [
        (name, index)
        for name in rule.roles
        if (role := job.role(name)) is not None
        for index in range(1 if rule.quorum is Quorum.FIRST else role.replicas)
    ]
    if rule.quorum is Quorum.ANY:
        return any(place in done for place in places)
    return bool(places) and all(place in done for place in places)


def _has_started(job: JobDefinition, pods: Sequence[RolePod]) -> bool:
    deciding = {name for rule in job.success for name in rule.roles}
    return any(pod.running for pod in pods if pod.role in deciding)


def _goes_on(job: JobDefinition, pods: Sequence[RolePod]) -> bool:
    """Return whether an elastic job has its minimum in each role without the pods that it lost."""
    elastic = any(role.minimum < role.replicas for role in job.roles)
    return elastic and all(_running(job, role, pods) >= role.minimum for role in job.roles)


def _running(job: JobDefinition, role: Role, pods: Sequence[RolePod]) -> int:
    if role.size == 1:
        return sum(pod.running for pod in pods if pod.role == role.name)
    return role.size * WholeReplicas(job, pods).running(role)


def _is_fatal(job: JobDefinition, pod: RolePod) -> bool:
    """Return whether the failure of this pod fails the job."""
    role = job.role(pod.role)
    if role is None or not pod.failed or pod.disrupted or not role.counts or pod.index >= role.replicas:
        return False
    if role.restart is RestartRule.EXIT_CODE:
        return pod.exit_code is not None and 0 < pod.exit_code < SIGNAL_CODES
    return role.restart is RestartRule.NEVER


def _lost(job: JobDefinition, pods: Sequence[RolePod]) -> tuple[RolePod, ...]:
    """Return the pods that have to be replaced: failed without failing the job, or evicted."""
    found = []
    for pod in pods:
        role = job.role(pod.role)
        if role is None or not 0 <= pod.index < role.replicas or pod.succeeded:
            continue
        if (pod.failed and not _is_fatal(job, pod) and _is_replaced(role, pod)) or (
            pod.deleting and pod.disrupted
        ):
            found.append(pod)
    return tuple(WholeReplicas(job, pods).unfinished(found)) if has_replicas(job) else tuple(found)


def _with_lost(job: JobDefinition, pods: Sequence[RolePod], lost: Sequence[RolePod]) -> tuple[RolePod, ...]:
    """Return the other pods of replicas that lost one: a replica starts again as a whole."""
    return WholeReplicas(job, pods).others(lost) if has_replicas(job) else ()


def _is_replaced(role: Role, pod: RolePod) -> bool:
    """Return whether a failed pod is replaced; one that does not count for the job stays as it is."""
    return pod.disrupted or role.restart is not RestartRule.NEVER


def _surplus(job: JobDefinition, pods: Sequence[RolePod]) -> tuple[RolePod, ...]:
    """Return the pods beyond the replicas of their role, or of a role that does not exist any more."""
    found = []
    for pod in pods:
        role = job.role(pod.role)
        if role is None or not 0 <= pod.index < role.replicas:
            found.append(pod)
    return tuple(found)


def _missing(job: JobDefinition, pods: Sequence[RolePod]) -> tuple[tuple[Role, int], ...]:
    present = {pod.name for pod in pods}
    missing = tuple((role, index) for role, index in job.pods() if job.pod_name(role, index) not in present)
    return WholeReplicas(job, pods).to_create(missing) if has_replicas(job) else missing


def _count(
    job: JobDefinition, before: RestartCounts, lost: Sequence[RolePod], pods: Sequence[RolePod]
) -> RestartCounts:
    """Return the counts with the newly lost pods. A pod is counted once, whatever stops in between.

    So is a replica: its other pods end because of the first one.
    """
    new = [pod for pod in lost if pod.uid not in before.counted]
    present = {pod.uid for pod in pods}
    counted = (before.counted & present) | {pod.uid for pod in new}
    if has_replicas(job):
        replicas = WholeReplicas(job, pods)
        new = replicas.first_of_each(new, before.counted)
        counted |= {pod.uid for pod in replicas.others(lost)}
    if not new and counted == before.counted:
        return before
    totals = dict(before.by_cause)
    for pod in new:
        totals[pod.loss_cause] = totals.get(pod.loss_cause, 0) + 1
    return RestartCounts(totals, frozenset(counted))


def _restarts_spent(job: JobDefinition, state: LifecycleState, pods: Sequence[RolePod]) -> bool:
    """Return whether ``backoffLimit`` is exceeded.

    Restarts by the node count as in the training operator: a limit of *n* is reached by
    the *n*-th restart, a limit of 0 by the first. A replacement by Windlass is one
    failure more than the limit allows.
    """
    limit = job.run.backoff_limit
    if limit is None:
        return False
    by_node = sum(pod.restarts for pod in pods if pod.running and _restarts_in_place(job, pod))
    if by_node and by_node >= limit:
        return True
    return state.restarts.of(LossCause.PROGRAM) > limit


def _restarts_in_place(job: JobDefinition, pod: RolePod) -> bool:
    role = job.role(pod.role)
    return role is not None and role.restart is not RestartRule.NEVER


def _deadline_passed(job: JobDefinition, state: LifecycleState, now: float) -> bool:
    left = _until_deadline(job, state, now)
    return left is not None and left <= 0


def _until_deadline(job: JobDefinition, state: LifecycleState, now: float) -> float | None:
    if job.run.deadline_seconds is None or not state.started:
        return None
    return state.started + job.run.deadline_seconds - now


def _never_joined(job: JobDefinition, pod: RolePod) -> bool:
    """Return whether a pod of an elastic role still waits for a node, although the job has finished."""
    role = job.role(pod.role)
    return role is not None and role.minimum < role.replicas and not pod.node and not pod.finished


def _finished(job: JobDefinition, state: LifecycleState, pods: Sequence[RolePod], now: float) -> NextActions:
    policy = CleanPodPolicy.ALL if state.cause in _DELETE_ALL else job.run.clean_pods
    delete = tuple(
        pod
        for pod in pods
        if not pod.deleting
        and (
            policy is CleanPodPolicy.ALL
            or (policy is CleanPodPolicy.RUNNING and not pod.finished)
            or _never_joined(job, pod)
        )
    )
    if job.run.ttl_seconds is None:
        return NextActions(state, delete=delete)
    left = state.completed + job.run.ttl_seconds - now
    if left <= 0:
        return NextActions(state, delete=delete, expired=True)
    return NextActions(state, delete=delete, due_seconds=left)
