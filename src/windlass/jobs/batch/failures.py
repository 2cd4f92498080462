"""Failures of the pods of a ``batch/v1`` Job: policy, failed indexes, back-off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from windlass.jobs.batch.spec import BatchFailureAction, BatchFailureRule, BatchJobSpec

FIRST_DELAY_SECONDS = 10.0
"""Delay (seconds) of a new pod after one failure."""
MAX_DELAY_SECONDS = 600.0
"""Maximum delay (seconds) of a new pod."""


@dataclass(frozen=True, slots=True)
class BatchPod:
    """Pod of a Job. ``index``: -1 without one. ``ended``: Unix seconds, 0 while it runs.

    ``tracked``: it has the finalizer of Jobs, so it may not be counted yet.
    ``exits``: container and exit code of those that terminated, init containers last.
    ``conditions``: type and status.
    ``index_failures`` and ``index_ignored``: failures of its index before it, which
        count and which a rule ignores.
    ``restarts``: restarts of its containers by the node.
    """

    name: str
    uid: str
    index: int
    phase: str
    tracked: bool
    deleting: bool = False
    ready: bool = False
    scheduled: bool = False
    created: float = 0.0
    ended: float = 0.0
    exits: tuple[tuple[str, int], ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    index_failures: int = 0
    index_ignored: int = 0
    restarts: int = 0

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def succeeded(self) -> bool:
        return self.phase == "Succeeded"

    @property
    def active(self) -> bool:
        return not self.finished and not self.deleting

    @property
    def terminating(self) -> bool:
        return self.deleting and not self.finished


@dataclass(frozen=True, slots=True)
class FailureVerdict:
    """Result of ``podFailurePolicy`` for a failed pod. ``message``: of a job that fails by it."""

    action: BatchFailureAction
    message: str = ""

    @property
    def counted(self) -> bool:
        return self.action is not BatchFailureAction.IGNORE


_COUNTED = FailureVerdict(BatchFailureAction.COUNT)


def has_failed(spec: BatchJobSpec, pod: BatchPod) -> bool:
    """Return whether the pod counts as failed.

    A terminating pod does, unless a pod is only replaced when it has finished.
    """
    if pod.phase == "Failed":
        return True
    return pod.deleting and not pod.succeeded and not spec.only_failed


def failure_times(spec: BatchJobSpec, pods: Iterable[BatchPod]) -> dict[str, float]:
    """Return uid → when the pod failed (Unix seconds).

    A pod that is deleted without the finalizer was surplus, so its end is not a failure.
    """
    return {pod.uid: pod.ended for pod in pods if has_failed(spec, pod) and (pod.tracked or not pod.deleting)}


def verdict_of(spec: BatchJobSpec, pod: BatchPod) -> FailureVerdict:
    """Return the verdict of the first rule that matches a failed pod; without one it counts."""
    for position, rule in enumerate(spec.failure_rules):
        evidence = _exit_evidence(rule, pod) if rule.codes is not None else _condition_evidence(rule, pod)
        if evidence is None:
            continue
        what, is_exit = evidence
        where = f"{spec.namespace}/{pod.name}"
        message = (
            f"Container {what[0]} for pod {where} failed with exit code {what[1]} matching {rule.action} "
            f"rule at index {position}"
            if is_exit
            else f"Pod {where} has condition {what[0]} matching {rule.action} rule at index {position}"
        )
        return FailureVerdict(rule.action, message if rule.action is BatchFailureAction.FAIL_JOB else "")
    return _COUNTED


def _exit_evidence(rule: BatchFailureRule, pod: BatchPod) -> tuple[tuple[str, object], bool] | None:
    assert rule.codes is not None
    for container, code in pod.exits:
        if code and rule.container in ("", container) and (code in rule.codes) != rule.inverted:
            return (container, code), True
    return None


def _condition_evidence(rule: BatchFailureRule, pod: BatchPod) -> tuple[tuple[str, object], bool] | None:
    for condition in pod.conditions:
        if condition in rule.conditions:
            return condition, False
    return None


def index_has_failed(spec: BatchJobSpec, pod: BatchPod) -> bool:
    """Return whether the index of a pod has failed for good, with ``backoffLimitPerIndex``."""
    if spec.per_index is None or not has_failed(spec, pod):
        return False
    verdict = verdict_of(spec, pod)
    if verdict.action is BatchFailureAction.FAIL_INDEX:
        return True
    return verdict.counted and pod.index_failures >= spec.per_index


def restarts_exceed_limit(spec: BatchJobSpec, pods: Iterable[BatchPod]) -> bool:
    """Return whether the restarts by nodes reach ``backoffLimit``."""
    if not spec.restarts_in_place:
        return False
    restarts = sum(pod.restarts for pod in pods if not pod.finished)
    return restarts >= max(1, spec.backoff_limit)


def delay_seconds(failures: int) -> float:
    """Return the back-off after consecutive failures: 10 s, doubled each time, at most 10 min."""
    if failures <= 0:
        return 0.0
    return min(FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 16), MAX_DELAY_SECONDS)


def backoff_until(failures: Sequence[float], last_success: float) -> float:
    """Return when the next pod may be created (Unix seconds).

    ``failures``: times at which pods failed. Those up to the last success do not count.
    """
    since = [moment for moment in failures if moment > last_success]
    return max(since) + delay_seconds(len(since)) if since else 0.0


def index_backoff_until(pod: BatchPod) -> float:
    """Return when the index of its last failed pod may have the next one (Unix seconds)."""
    return pod.ended + delay_seconds(pod.index_failures + pod.index_ignored + 1)


def failures_after(spec: BatchJobSpec, replaced: BatchPod | None) -> tuple[int, int]:
    """Return the counted and the ignored failures of an index. ``replaced``: its last pod."""
    if replaced is None:
        return 0, 0
    if verdict_of(spec, replaced).counted:
        return replaced.index_failures + 1, replaced.index_ignored
    return replaced.index_failures, replaced.index_ignored + 1


def last_failed_of_index(pods: Iterable[BatchPod]) -> Mapping[int, BatchPod]:
    """Return index → the failed pod that knows of the most failures; of equals the last to end."""
    found: dict[int, BatchPod] = {}
    for pod in pods:
        other = found.get(pod.index)
        if other is None or _seniority(pod) >= _seniority(other):
            found[pod.index] = pod
    return found


def _seniority(pod: BatchPod) -> tuple[int, float]:
    return pod.index_failures + pod.index_ignored, pod.ended
