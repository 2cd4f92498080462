"""Decision about a ``batch/v1`` Job: status, pods to create, to delete and to release. Pure.

Pods have a finalizer until they are counted. A pod that has finished is first noted in
``uncountedTerminatedPods`` (an index that succeeded: in ``completedIndexes``). Then its
finalizer is removed, and then it is counted. A stop between any two of these writes
neither loses a pod nor counts one twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from windlass.jobs.batch.failures import (
    BatchPod,
    backoff_until,
    failure_times,
    failures_after,
    has_failed,
    index_backoff_until,
    index_has_failed,
    last_failed_of_index,
    restarts_exceed_limit,
    verdict_of,
)
from windlass.jobs.batch.spec import BatchFailureAction, BatchJobSpec, SuccessCriterion
from windlass.jobs.batch.state import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    SUCCESS_CRITERIA_MET,
    SUSPENDED,
    BatchCondition,
    BatchState,
    with_condition,
)

NO_FAILURES: Mapping[str, float] = {}
MAX_UNCOUNTED_PODS = 500
"""Maximum number of finished pods that one reconciliation notes and releases."""
MAX_CREATED_PODS = 500
"""Maximum number of pods that one reconciliation creates or deletes."""


@dataclass(frozen=True, slots=True)
class NewPod:
    """Pod to create. ``index``: -1 without one; failures of the index before it."""

    index: int = -1
    index_failures: int = 0
    index_ignored: int = 0


@dataclass(frozen=True, slots=True)
class BatchActions:
    """Next status and actions of a Job, in their order.

    ``create``: pods to create.
    ``drop``: pods that lose their finalizer and are deleted, so that they never count.
    ``delete``: pods that are deleted, and count when they have finished.
    ``release``: pods that lose their finalizer after the status was written.
    ``news``: condition that changed and of which users are told.
    ``expired``: ``ttlSecondsAfterFinished`` has passed.
    ``due_seconds``: decide again after this time at the latest.
    """

    state: BatchState
    create: tuple[NewPod, ...] = ()
    drop: tuple[BatchPod, ...] = ()
    delete: tuple[BatchPod, ...] = ()
    release: tuple[BatchPod, ...] = ()
    news: BatchCondition | None = None
    expired: bool = False
    due_seconds: float | None = None


def decide_batch_job(
    spec: BatchJobSpec,
    state: BatchState,
    pods: Sequence[BatchPod],
    now: float,
    *,
    earlier_failures: Mapping[str, float] = NO_FAILURES,
    deleting: bool = False,
) -> BatchActions:
    """Return the next status and actions of a Job.

    ``earlier_failures``: uid of a pod → when it failed, also of pods that are gone.
    ``deleting``: the Job is being deleted.
    """
    if state.finished:
        return _finished(spec, state, pods, now, deleting)
    return _Reconciliation(spec, state, pods, now, earlier_failures, deleting).decide()


def _finished(
    spec: BatchJobSpec, state: BatchState, pods: Sequence[BatchPod], now: float, deleting: bool
) -> BatchActions:
    release = tuple(pod for pod in pods if pod.tracked)[:MAX_UNCOUNTED_PODS]
    if spec.ttl_seconds is None or deleting:
        return BatchActions(state, release=release)
    left = state.finished_at + spec.ttl_seconds - now
    return BatchActions(state, release=release, expired=left <= 0, due_seconds=left if left > 0 else None)


@dataclass(slots=True)
class _Plan:
    create: list[NewPod] = field(default_factory=list)
    drop: list[BatchPod] = field(default_factory=list)
    delete: list[BatchPod] = field(default_factory=list)
    news: BatchCondition | None = None
    due: float | None = None

    def by(self, seconds: float | None) -> None:
        if seconds is not None:
            self.due = seconds if self.due is None else min(self.due, seconds)


class _Reconciliation:
    """One decision. Used once."""

    def __init__(
        self,
        spec: BatchJobSpec,
        state: BatchState,
        pods: Sequence[BatchPod],
        now: float,
        earlier_failures: Mapping[str, float],
        deleting: bool,
    ) -> None:
        self.spec, self.pods, self.now, self.deleting = spec, pods, now, deleting
        self.plan = _Plan()
        self.state = self._counted(state)
        self.active = [pod for pod in pods if pod.active]
        self.terminating = sum(pod.terminating for pod in pods)
        self.fresh = [pod for pod in pods if self._is_fresh(pod)]
        new_successes = [pod for pod in self.fresh if pod.succeeded]
        self.new_failures = [pod for pod in self.fresh if has_failed(spec, pod)]
        self.completed_indexes = self.state.completed_indexes | {pod.index for pod in new_successes}
        self.failed_indexes = self._failed_indexes()
        if spec.indexed:
            self.succeeded = len(self.completed_indexes)
        else:
            noted = len(self.state.uncounted_succeeded)
            self.succeeded = self.state.succeeded + noted + len(new_successes)
        self.failed = (
            self.state.failed
            + len(self.state.uncounted_failed)
            + sum(verdict_of(spec, pod).counted for pod in self.new_failures)
        )
        self.delayed = self._delayed()
        self.retry_at = self._retry_at(earlier_failures)

    def _counted(self, state: BatchState) -> BatchState:
        """Count the noted pods that have lost their finalizer, and set the start."""
        tracked = {pod.uid for pod in self.pods if pod.tracked}
        succeeded = tuple(uid for uid in state.uncounted_succeeded if uid in tracked)
        failed = tuple(uid for uid in state.uncounted_failed if uid in tracked)
        return replace(
            state,
            started=state.started or (0.0 if self.spec.suspend else self.now),
            succeeded=state.succeeded + len(state.uncounted_succeeded) - len(succeeded),
            failed=state.failed + len(state.uncounted_failed) - len(failed),
            uncounted_succeeded=succeeded,
            uncounted_failed=failed,
        )

    def _has_index(self, pod: BatchPod) -> bool:
        return 0 <= pod.index < (self.spec.completions or 0)

    def _is_fresh(self, pod: BatchPod) -> bool:
        """Return whether a pod was neither counted nor noted, and has an index if it needs one."""
        if not pod.tracked or (self.spec.indexed and not self._has_index(pod)):
            return False
        return pod.uid not in self.state.uncounted_succeeded and pod.uid not in self.state.uncounted_failed

    def _failed_indexes(self) -> frozenset[int] | None:
        if not self.spec.indexed or self.spec.per_index is None:
            return None
        decided = self.state.holds(FAILURE_TARGET) or self.state.holds(SUCCESS_CRITERIA_MET)
        tracked = (
            pod
            for pod in self.pods
            if pod.tracked and self._has_index(pod) and not (decided and pod.deleting)
        )
        found = {pod.index for pod in tracked if index_has_failed(self.spec, pod)}
        return (self.state.failed_indexes or frozenset()) | found

    def _delayed(self) -> Mapping[int, BatchPod]:
        """Return index → the failed pod that stays until it is replaced, as it knows the failures before."""
        if self.failed_indexes is None:
            return {}
        settled = self.completed_indexes | self.failed_indexes | {pod.index for pod in self.active}
        tracked = (pod for pod in self.pods if pod.tracked and self._has_index(pod))
        return last_failed_of_index(
            pod for pod in tracked if pod.index not in settled and has_failed(self.spec, pod)
        )

    def _retry_at(self, earlier_failures: Mapping[str, float]) -> float:
        ends = {**earlier_failures, **failure_times(self.spec, self.pods)}
        successes = [pod.ended for pod in self.pods if pod.succeeded]
        return backoff_until(list(ends.values()), max(successes, default=0.0))

    # Outcome.

    def decide(self) -> BatchActions:
        target = self._target()
        state, plan = self.state, self.plan
        if target is not None:
            plan.delete = list(self.active)
            active = ready = 0
            terminating = self.terminating + len(self.active)
        else:
            if not self.deleting:
                self._manage()
            removed = len(plan.drop)
            active = len(self.active) - removed + len(plan.create)
            dropped = {pod.uid for pod in plan.drop}
            ready = sum(pod.ready for pod in self.active if pod.uid not in dropped)
            terminating = self.terminating + removed
            if self._is_complete(active):
                target = self._condition(
                    SUCCESS_CRITERIA_MET, "CompletionsReached", "Reached expected number of succeeded pods"
                )
            elif not self.deleting:
                state = self._suspended(state)
        state = replace(state, active=active, ready=ready, terminating=terminating)
        state, release = self._note(state, target)
        if target is not None:
            state = self._with_target(state, target, release)
        return BatchActions(
            state,
            tuple(plan.create),
            tuple(plan.drop),
            tuple(plan.delete),
            tuple(release),
            plan.news,
            due_seconds=plan.due,
        )

    def _condition(self, kind: str, reason: str, message: str, status: str = "True") -> BatchCondition:
        return BatchCondition(kind, status, reason, message, self.now)

    def _target(self) -> BatchCondition | None:
        """Return the condition towards which the Job goes, if its outcome is decided."""
        for kind in (SUCCESS_CRITERIA_MET, FAILURE_TARGET):
            if self.state.holds(kind):
                return self.state.condition(kind)
        for pod in self.pods:
            if self.spec.failure_rules and has_failed(self.spec, pod):
                verdict = verdict_of(self.spec, pod)
                if verdict.action is BatchFailureAction.FAIL_JOB:
                    return self._condition(FAILURE_TARGET, "PodFailurePolicy", verdict.message)
        if self.failed > self.spec.backoff_limit or restarts_exceed_limit(self.spec, self.pods):
            message = "Job has reached the specified backoff limit"
            return self._condition(FAILURE_TARGET, "BackoffLimitExceeded", message)
        deadline = self._deadline_left()
        if deadline is not None and deadline <= 0:
            message = "Job was active longer than specified deadline"
            return self._condition(FAILURE_TARGET, "DeadlineExceeded", message)
        self.plan.by(deadline)
        return self._target_of_indexes()

    def _target_of_indexes(self) -> BatchCondition | None:
        failed, limit = self.failed_indexes, self.spec.max_failed_indexes
        if failed:
            if limit is not None and len(failed) > limit:
                message = "Job has exceeded the specified maximal number of failed indexes"
                return self._condition(FAILURE_TARGET, "MaxFailedIndexesExceeded", message)
            if len(failed) + len(self.completed_indexes) >= (self.spec.completions or 0):
                return self._condition(FAILURE_TARGET, "FailedIndexes", "Job has failed indexes")
        for position, criterion in enumerate(self.spec.success):
            if self.completed_indexes and _is_met(criterion, self.completed_indexes):
                message = f"Matched rules at index {position}"
                return self._condition(SUCCESS_CRITERIA_MET, "SuccessPolicy", message)
        return None

    def _deadline_left(self) -> float | None:
        if self.spec.deadline_seconds is None or not self.state.started or self.spec.suspend:
            return None
        return self.state.started + self.spec.deadline_seconds - self.now

    def _is_complete(self, active: int) -> bool:
        if active:
            return False
        if self.spec.completions is None:
            return self.succeeded > 0
        return self.succeeded >= self.spec.completions

    def _suspended(self, state: BatchState) -> BatchState:
        if self.spec.suspend:
            wanted = self._condition(SUSPENDED, "JobSuspended", "Job suspended")
        else:
            wanted = self._condition(SUSPENDED, "JobResumed", "Job resumed", "False")
        changed = with_condition(state.conditions, wanted)
        if changed is None:
            return state
        self.plan.news = wanted
        return replace(state, conditions=changed, started=0.0 if self.spec.suspend else self.now)

    # Pods.

    def _manage(self) -> None:
        """Create missing pods or delete surplus ones, never both at once."""
        if self.spec.suspend:
            self.plan.drop = list(self.active)
            return
        wanted = self._wanted()
        surplus = self._surplus(max(0, len(self.active) - wanted))
        if surplus:
            self.plan.drop = surplus[:MAX_CREATED_PODS]
            return
        terminating = self.terminating if self.spec.only_failed else 0
        room = min(wanted - len(self.active) - terminating, MAX_CREATED_PODS)
        if room <= 0:
            return
        if self.spec.per_index is None and self.retry_at > self.now:
            self.plan.by(self.retry_at - self.now)
        elif self.spec.indexed:
            self._create_indexes(room)
        else:
            self.plan.create = [NewPod()] * room

    def _wanted(self) -> int:
        if self.spec.completions is None:
            return len(self.active) if self.succeeded else self.spec.parallelism
        return max(0, min(self.spec.parallelism, self.spec.completions - self.succeeded))

    def _surplus(self, least: int) -> list[BatchPod]:
        """Return pods to remove: those of a taken or an invalid index, then the least advanced ones."""
        order = sorted(self.active, key=_deletion_order)
        removed: list[BatchPod] = []
        left: list[BatchPod] = []
        if self.spec.indexed:
            best = {pod.index: pod.uid for pod in order if self._has_index(pod)}
            for pod in order:
                (left if best.get(pod.index) == pod.uid else removed).append(pod)
        else:
            left = order
        return removed + left[: max(0, least - len(removed))]

    def _create_indexes(self, room: int) -> None:
        busy = {pod.index for pod in self.active} | self.completed_indexes | (self.failed_indexes or set())
        if self.spec.only_failed:
            busy |= {pod.index for pod in self.pods if pod.terminating}
        waits: list[float] = []
        taken = 0
        for index in range(self.spec.completions or 0):
            if taken == room:
                break
            if index in busy:
                continue
            taken += 1
            last = self.delayed.get(index)
            wait = index_backoff_until(last) - self.now if last is not None else 0.0
            if wait > 0:
                waits.append(wait)
            else:
                self.plan.create.append(NewPod(index, *failures_after(self.spec, last)))
        self.plan.by(min(waits, default=None))

    # Counting.

    def _note(self, state: BatchState, target: BatchCondition | None) -> tuple[BatchState, list[BatchPod]]:
        """Note pods that have finished, and return those to release."""
        succeeded, failed = list(state.uncounted_succeeded), list(state.uncounted_failed)
        completed = set(state.completed_indexes)
        dropped = {pod.uid for pod in self.plan.drop}
        release: list[BatchPod] = []
        pods = sorted(self.pods, key=lambda pod: pod.index) if self.spec.indexed else self.pods
        for pod in pods:
            if not pod.tracked or pod.uid in dropped or not self._may_release(pod, target):
                continue
            if len(release) == MAX_UNCOUNTED_PODS:
                self.plan.by(0.0)
                break
            release.append(pod)
            if pod.succeeded and pod.uid not in failed:
                if not self.spec.indexed:
                    if pod.uid not in succeeded:
                        succeeded.append(pod.uid)
                elif self._has_index(pod):
                    completed.add(pod.index)
            elif self._counts_as_failed(pod, target) and pod.uid not in failed:
                failed.append(pod.uid)
        state = replace(
            state,
            uncounted_succeeded=tuple(succeeded),
            uncounted_failed=tuple(failed),
            failed_indexes=self.failed_indexes,
        )
        if self.spec.indexed:
            state = replace(state, completed_indexes=frozenset(completed), succeeded=len(completed))
        return state, release

    def _may_release(self, pod: BatchPod, target: BatchCondition | None) -> bool:
        if self.deleting or target is not None or pod.succeeded:
            return True
        if not has_failed(self.spec, pod):
            return False
        delayed = self.delayed.get(pod.index)
        return delayed is None or delayed.uid != pod.uid

    def _counts_as_failed(self, pod: BatchPod, target: BatchCondition | None) -> bool:
        lost = target is not None and target.type == FAILURE_TARGET
        if not (has_failed(self.spec, pod) or lost):
            return False
        return (not self.spec.indexed or self._has_index(pod)) and verdict_of(self.spec, pod).counted

    def _with_target(self, state: BatchState, target: BatchCondition, release: list[BatchPod]) -> BatchState:
        """Return the state with the interim condition, or the final one when nothing is left to count."""
        if not self.state.holds(target.type):
            return replace(state, conditions=(*state.conditions, target))
        if release or state.uncounted or state.terminating:
            return state
        final = COMPLETE if target.type == SUCCESS_CRITERIA_MET else FAILED
        end = self._condition(final, target.reason, target.message)
        self.plan.news = end
        conditions = with_condition(state.conditions, end)
        assert conditions is not None
        return replace(state, conditions=conditions, completed=self.now if final == COMPLETE else 0.0)


def _is_met(criterion: SuccessCriterion, completed: frozenset[int]) -> bool:
    if criterion.indexes is None:
        return criterion.count is not None and len(completed) >= criterion.count
    done = completed & criterion.indexes
    if criterion.indexes and done == criterion.indexes:
        return True
    return criterion.count is not None and len(done) >= criterion.count


def _deletion_order(pod: BatchPod) -> tuple[bool, bool, bool, float]:
    """Return the key by which surplus pods are deleted: the least advanced first, then the youngest."""
    return (pod.scheduled, pod.phase == "Running", pod.ready, -pod.created)
