"""Failure policy of a JobSet: the rule that matches a failed Job, and its action."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from windlass.api.fields import jobset
from windlass.jobs.jobset.children import ChildJob, Restarts
from windlass.jobs.jobset.spec import JobSetFailurePolicy, JobSetFailureRule

FAILED_JOBS = "FailedJobs"
REACHED_MAX_RESTARTS = "ReachedMaxRestarts"


@dataclass(frozen=True, slots=True)
class FailureOutcome:
    """Consequence of a failed Job.

    ``fails``: the JobSet fails with ``reason``; otherwise ``reason`` is that of the event.
    ``restarts``: the counters afterwards.
    ``condition``: reason of the condition ``RestartingJobSet``; empty if one Job restarts.
    """

    fails: bool
    reason: str
    message: str
    restarts: Restarts
    condition: str = ""


def act_on_failure(
    policy: JobSetFailurePolicy | None, failed: Sequence[ChildJob], restarts: Restarts
) -> FailureOutcome:
    """Return the action for the Jobs that failed in the present attempt."""
    if policy is None:
        return _fail(FAILED_JOBS, "jobset failed due to one or more job failures", _first(failed), restarts)
    rule, job = _matching(policy.rules, failed)
    action = rule.action if rule is not None else jobset.RESTART_JOB_SET
    if action == jobset.FAIL_JOB_SET:
        return _fail(
            "FailJobSetFailurePolicyAction", "applying FailJobSet failure policy action", job, restarts
        )
    counts = action in (jobset.RESTART_JOB_SET, jobset.RESTART_JOB)
    if counts and restarts.towards_max >= policy.max_restarts:
        message = "jobset failed due to reaching max number of restarts"
        return _fail(REACHED_MAX_RESTARTS, message, job, restarts)
    message = _with_job(f"applying {action} failure policy action", job)
    reason = f"{action}FailurePolicyAction"
    if action in (jobset.RESTART_JOB, jobset.RESTART_JOB_UNCOUNTED):
        return FailureOutcome(False, reason, message, _restart_one(restarts, job, counts))
    condition = f"FailurePolicy_{rule.name}" if rule is not None else "DefaultFailurePolicy"
    after = Restarts(restarts.total + 1, restarts.counted + int(counts), restarts.jobs, restarts.jobs_counted)
    return FailureOutcome(False, reason, message, after, condition)


def _fail(reason: str, message: str, job: ChildJob, restarts: Restarts) -> FailureOutcome:
    return FailureOutcome(True, reason, _with_job(message, job), restarts)


def _with_job(message: str, job: ChildJob) -> str:
    return f"{message} (first failed job: {job.name})"


def _first(failed: Sequence[ChildJob]) -> ChildJob:
    return min(failed, key=lambda job: (job.failed_at, job.name))


def _matching(
    rules: Sequence[JobSetFailureRule], failed: Sequence[ChildJob]
) -> tuple[JobSetFailureRule | None, ChildJob]:
    """Return the first rule that matches, and the Job that failed first among those it matches."""
    for rule in rules:
        found = [job for job in failed if _applies(rule, job)]
        if found:
            return rule, _first(found)
    return None, _first(failed)


def _applies(rule: JobSetFailureRule, job: ChildJob) -> bool:
    return (
        (not rule.reasons or job.reason in rule.reasons)
        and (not rule.patterns or any(re.search(pattern, job.message) for pattern in rule.patterns))
        and (not rule.targets or job.replicated_job in rule.targets)
    )


def _restart_one(restarts: Restarts, job: ChildJob, counted: bool) -> Restarts:
    jobs = {
        **restarts.jobs,
        job.replicated_job: _raised(restarts.jobs.get(job.replicated_job, ()), job.index),
    }
    towards = dict(restarts.jobs_counted)
    if counted:
        towards[job.replicated_job] = _raised(towards.get(job.replicated_job, ()), job.index)
    return Restarts(restarts.total, restarts.counted, jobs, towards)


def _raised(counts: Sequence[int], index: int) -> tuple[int, ...]:
    """Return counts per index, with one more at ``index``."""
    filled = [*counts, *[0] * (index + 1 - len(counts))]
    filled[index] += 1
    return tuple(filled)
