"""Attempt ledger of a job: each run of its pods, from the queue to the end. Pure.

An attempt is queued until the job's minimum of pods has started. It ends when fewer pods
than the minimum are alive, or when the job ends. Its running time is split into useful,
checkpointing and lost time: work after the last checkpoint is lost unless the attempt
completed. Without a known checkpoint the split of an interrupted attempt is unknown.

The ledger is stored on the job as JSON. It holds the newest :data:`MAX_ATTEMPTS`
attempts and the sums of the older ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from windlass.jobs.decision import SIGNAL_CODES
from windlass.jobs.members import NODE_REASONS, OUT_OF_MEMORY

MAX_ATTEMPTS = 20
"""Maximum number of attempts that are stored one by one."""
MAX_SIZES = 12
"""Maximum number of size changes that are stored for one attempt."""
MAX_SPENT = 64
"""Maximum number of pods of ended attempts that are remembered by their uid."""
_TERMINATED = frozenset({137, 143})
"""Exit codes of a pod that was deleted: SIGKILL and SIGTERM."""


class EndCause(StrEnum):
    """Cause of the end of an attempt."""

    COMPLETED = "completed"
    PROGRAM = "program"
    NODE = "node"
    PREEMPTION = "preemption"
    SIGNAL = "signal"
    TIME_LIMIT = "time limit"
    USER = "user"
    UNKNOWN = "unknown"
    """The pods were gone before their end was seen, as after a crash of the control plane."""


INTERRUPTIONS = frozenset({EndCause.PROGRAM, EndCause.NODE, EndCause.PREEMPTION, EndCause.SIGNAL})
"""Causes that count as failures for the advised checkpoint interval."""


class JobOutcome(StrEnum):
    """State of a job, as far as its attempts depend on it."""

    ACTIVE = "active"
    STOPPED = "stopped"
    """Suspended or aborted by a user."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """Report of the node about a checkpoint of a pod. Times are Unix seconds; 0.0: none.

    ``signalled``: time of SIGTERM.
    ``saved``: time of the newest checkpoint.
    ``seconds``: time that the last checkpoint took; 0.0: not measured.
    ``watched``: whether a checkpoint path or a hook is declared.
    """

    signalled: float = 0.0
    saved: float = 0.0
    seconds: float = 0.0
    watched: bool = False


@dataclass(frozen=True, slots=True)
class AttemptPod:
    """Pod of a job. Times are Unix seconds; 0.0: not yet.

    ``job``: uid of the object that controls it.
    ``disrupted``: it was evicted, and ``node_lost`` with its node.
    """

    name: str
    uid: str
    phase: str
    node: str = ""
    created: float = 0.0
    started: float = 0.0
    ended: float = 0.0
    exit_code: int | None = None
    reason: str = ""
    deleted: float = 0.0
    disrupted: bool = False
    node_lost: bool = False
    restarts: int = 0
    job: str = ""
    report: CheckpointReport = field(default_factory=CheckpointReport)

    @property
    def alive(self) -> bool:
        """Return whether it runs or has done its work. An evicted pod that ends with 0 has only saved it."""
        if self.phase == "Succeeded":
            return not (self.deleted and self.disrupted)
        return self.phase == "Running" and not self.deleted

    @property
    def lost(self) -> bool:
        return self.phase == "Failed" or (bool(self.deleted) and not self.alive)


@dataclass(frozen=True, slots=True)
class JobObservation:
    """Observed state of a job.

    ``minimum``: number of pods without which it does not run.
    ``time_limit``: whether it failed because its time was over.
    ``signals_disrupt``: whether a pod that a signal ended has not failed by itself.
    """

    outcome: JobOutcome
    pods: Sequence[AttemptPod]
    minimum: int
    created: float
    now: float
    message: str = ""
    time_limit: bool = False
    signals_disrupt: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt. Times are Unix seconds; 0.0: not yet.

    ``sizes``: time and number of living pods, for each change.
    ``detail``: pod, exit code and node of the end.
    ``signalled``, ``saved``: see :class:`CheckpointReport`.
    ``checkpoint_seconds``: time that checkpoints before the end took.
    """

    number: int
    queued: float
    started: float = 0.0
    ended: float = 0.0
    cause: str = ""
    detail: str = ""
    signalled: float = 0.0
    saved: float = 0.0
    checkpoint_seconds: float = 0.0
    watched: bool = False
    restarts: int = 0
    sizes: tuple[tuple[float, int], ...] = ()

    def queue_seconds(self, now: float) -> float:
        return max(0.0, (self.started or self.ended or now) - self.queued)

    def running_seconds(self, now: float) -> float:
        return max(0.0, (self.ended or now) - self.started) if self.started else 0.0

    def lost_seconds(self) -> float | None:
        """Return the lost time; ``None`` while it runs or if no checkpoint is known."""
        if not self.started or not self.ended:
            return None if self.started else 0.0
        if self.cause == EndCause.COMPLETED:
            return 0.0
        if not self.saved:
            return self.running_seconds(self.ended) if self.watched else None
        return max(0.0, self.ended - max(self.saved, self.started))

    def useful_seconds(self, now: float) -> float | None:
        """Return the time of the work that is kept; ``None`` if no checkpoint is known."""
        if not self.ended:
            lost: float | None = 0.0
        else:
            lost = self.lost_seconds()
        if lost is None:
            return None
        return max(0.0, self.running_seconds(now) - lost - self.checkpoint_seconds)

    @property
    def checkpoint_missed(self) -> bool:
        """Return whether SIGTERM arrived and no checkpoint landed after it."""
        return bool(self.watched and self.ended and self.signalled and self.saved < self.signalled)


@dataclass(frozen=True, slots=True)
class AttemptLedger:
    """Attempts of a job, oldest first.

    ``spent``: uids of pods that ended with an attempt, or that a suspended job had.
    ``dropped``: number of older attempts, with their ``dropped_queue_seconds`` and
        ``dropped_running_seconds``.
    """

    attempts: tuple[Attempt, ...] = ()
    spent: tuple[str, ...] = ()
    dropped: int = 0
    dropped_queue_seconds: float = 0.0
    dropped_running_seconds: float = 0.0

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def count(self) -> int:
        return self.dropped + len(self.attempts)


def advance(ledger: AttemptLedger, observed: JobObservation) -> AttemptLedger:
    """Return the ledger after an observation. The same observation again changes nothing.

    An attempt that ends is followed by the next one at once, which then is in the queue.
    """
    for earlier in _before_replacements(ledger, observed):
        ledger = _settled(ledger, earlier)
    return _settled(ledger, observed)


def _before_replacements(ledger: AttemptLedger, observed: JobObservation) -> list[JobObservation]:
    """Return what was to be seen when pods ended that are replaced already.

    Observations may be late: a pod that failed at once may have a successor that has
    succeeded. Losses that left the minimum alive end no attempt and are left out.
    """
    by_name: dict[str, list[AttemptPod]] = {}
    for pod in sorted(observed.pods, key=lambda one: (one.created, not one.lost)):
        by_name.setdefault(pod.name, []).append(pod)
    last_end = max((one.ended for one in ledger.attempts[-2:]), default=0.0)
    begun = ledger.last.started if ledger.last is not None else 0.0
    found = []
    for old in observed.pods:
        end = old.ended or old.deleted
        replaced = old.lost and by_name[old.name][-1].uid != old.uid
        if not replaced or not old.started or _is_spent(old, ledger.spent, last_end):
            continue
        if old.created < begun and end <= begun:
            continue  # It was lost before the last attempt started.
        others = (_present(pods, end) for name, pods in by_name.items() if name != old.name)
        pods = [old, *(pod for pod in others if pod is not None)]
        if sum(pod.alive for pod in pods) < max(1, observed.minimum):
            now = min(end, observed.now)
            found.append(replace(observed, outcome=JobOutcome.ACTIVE, pods=pods, now=now))
    return sorted(found, key=lambda one: one.now)


def _present(pods: Sequence[AttemptPod], time: float) -> AttemptPod | None:
    """Return the pod of one name that existed at ``time``; ``pods`` are in the order of their creation.

    Times are whole seconds. A pod that was created in the second of the end of another
    one is more likely its successor.
    """
    before = [pod for pod in pods if pod.created < time]
    if before:
        return before[-1]
    return next((pod for pod in pods if pod.created == time), None)


def _settled(ledger: AttemptLedger, observed: JobObservation) -> AttemptLedger:
    for _ in range(_STEPS):
        before, ledger = ledger, _step(ledger, observed)
        if ledger == before:
            break
    return ledger


_STEPS = 4
"""Maximum number of changes by one observation: an end, the next attempt, its start, its end."""


def _step(ledger: AttemptLedger, observed: JobObservation) -> AttemptLedger:
    ledger = _completed(ledger, observed)
    current = ledger.last
    if observed.outcome is not JobOutcome.ACTIVE and len(ledger.attempts) > 1:
        assert current is not None
        if not _advanced(current, ledger, observed).started:  # The job ended with the attempt before.
            ledger = replace(ledger, attempts=ledger.attempts[:-1])
            current = ledger.last
    if current is None or current.ended:
        if observed.outcome is JobOutcome.STOPPED:
            return ledger
        if current is not None and observed.outcome is not JobOutcome.ACTIVE:
            return ledger
        queued = observed.created if current is None else _queued_again(current, observed)
        current = Attempt(ledger.count + 1, round(queued, 1))
        ledger = _bounded(ledger, (*ledger.attempts, current))
    changed = _advanced(current, ledger, observed)
    if changed.ended:
        ledger = replace(ledger, spent=_spent(ledger, observed))
    return _with_last(ledger, changed)


def _spent(ledger: AttemptLedger, observed: JobObservation) -> tuple[str, ...]:
    """Return the uids of pods that belong to no later attempt; those of the newest end come first."""
    stopped = observed.outcome is not JobOutcome.ACTIVE
    ended = [pod.uid for pod in observed.pods if pod.lost or stopped]
    present = {pod.uid for pod in observed.pods}
    before = [uid for uid in ledger.spent if uid in present and uid not in ended]
    return (*ended, *before)[:MAX_SPENT]


def _with_last(ledger: AttemptLedger, attempt: Attempt) -> AttemptLedger:
    if attempt == ledger.attempts[-1]:
        return ledger
    return replace(ledger, attempts=(*ledger.attempts[:-1], attempt))


def _completed(ledger: AttemptLedger, observed: JobObservation) -> AttemptLedger:
    """Return the ledger with what terminating pods of the last ended attempt reported since."""
    own = [pod for pod in observed.pods if pod.lost and pod.uid in ledger.spent]
    position = next((at for at in (-1, -2) if len(ledger.attempts) >= -at and ledger.attempts[at].ended), 0)
    if not own or not position or not ledger.attempts[position].started:
        return ledger
    before = ledger.attempts[position]
    measured = replace(_measured(before, own), restarts=before.restarts)
    latest = max(pod.ended for pod in own)
    ended = replace(measured, ended=round(max(measured.ended, measured.signalled, latest), 1))
    attempts = list(ledger.attempts)
    attempts[position] = ended
    if position == -2 and not attempts[-1].started:
        attempts[-1] = replace(attempts[-1], queued=max(attempts[-1].queued, ended.ended))
    return replace(ledger, attempts=tuple(attempts))


def _is_spent(pod: AttemptPod, spent: tuple[str, ...], ended: float) -> bool:
    """Return whether a pod belongs to an attempt that ended at ``ended``, or to an earlier one."""
    return pod.uid in spent or (pod.lost and len(spent) == MAX_SPENT and pod.created < ended - 1.0)


def _queued_again(before: Attempt, observed: JobObservation) -> float:
    """Return since when the next attempt waits: the end of the last one, or its resume.

    A job that was created again after its end waits from its creation.
    """
    if before.cause == EndCause.USER:
        return max([before.ended, observed.created, *(pod.created for pod in observed.pods if not pod.lost)])
    return max(before.ended, observed.created)


def _bounded(ledger: AttemptLedger, attempts: tuple[Attempt, ...]) -> AttemptLedger:
    surplus = attempts[: max(0, len(attempts) - MAX_ATTEMPTS)]
    return AttemptLedger(
        attempts[len(surplus) :],
        ledger.spent,
        ledger.dropped + len(surplus),
        ledger.dropped_queue_seconds + sum(one.queue_seconds(one.ended) for one in surplus),
        ledger.dropped_running_seconds + sum(one.running_seconds(one.ended) for one in surplus),
    )


def _advanced(attempt: Attempt, ledger: AttemptLedger, observed: JobObservation) -> Attempt:
    own = [pod for pod in observed.pods if not _is_spent(pod, ledger.spent, attempt.queued)]
    if not attempt.started:
        attempt = _start(attempt, own, observed)
    attempt = _measured(attempt, own)
    living = sum(pod.alive for pod in own)
    if attempt.started and living >= max(1, observed.minimum) and observed.outcome is JobOutcome.ACTIVE:
        attempt = _sized(attempt, living, observed.now)
    if observed.outcome is not JobOutcome.ACTIVE:
        return _end(attempt, own, observed)
    if attempt.started and living < max(1, observed.minimum):
        return _end(attempt, own, observed)
    return attempt


def _start(attempt: Attempt, pods: Sequence[AttemptPod], observed: JobObservation) -> Attempt:
    times = sorted(
        pod.started
        for pod in pods
        if pod.started and (pod.alive or (pod.lost and pod.created >= attempt.queued - 1.0))
    )
    needed = max(1, observed.minimum)
    if len(times) < needed:
        return attempt
    started = max(times[needed - 1], attempt.queued)
    return replace(attempt, started=round(started, 1))


def _measured(attempt: Attempt, pods: Sequence[AttemptPod]) -> Attempt:
    """Return the attempt with the newest reports of its pods."""
    reports = [pod.report for pod in pods]
    begun = attempt.started or attempt.queued
    saved = max((one.saved for one in reports if one.saved >= begun), default=0.0)
    signalled = max((one.signalled for one in reports if one.signalled >= begun), default=0.0)
    spent = max((one.seconds for one in reports if one.saved >= begun), default=0.0)
    return replace(
        attempt,
        saved=round(max(attempt.saved, saved), 1),
        signalled=round(max(attempt.signalled, signalled), 1),
        checkpoint_seconds=round(max(attempt.checkpoint_seconds, spent), 2),
        watched=attempt.watched or any(one.watched for one in reports),
        restarts=max(attempt.restarts, sum(pod.restarts for pod in pods)),
    )


def _sized(attempt: Attempt, living: int, now: float) -> Attempt:
    if attempt.sizes and attempt.sizes[-1][1] == living:
        return attempt
    when = now if attempt.sizes else attempt.started
    return replace(attempt, sizes=(*attempt.sizes, (round(when, 1), living))[-MAX_SIZES:])


def _end(attempt: Attempt, pods: Sequence[AttemptPod], observed: JobObservation) -> Attempt:
    pods = [pod for pod in pods if not pod.lost or (pod.ended or pod.deleted) >= attempt.started - 1.0]
    cause, detail = _cause(pods, observed)
    times = [pod.ended or pod.deleted for pod in pods if pod.ended or pod.deleted]
    if cause is EndCause.COMPLETED:
        ended = max(times, default=observed.now)
    else:
        ended = min((time for time in times if time >= attempt.started), default=observed.now)
        ended = max(ended, attempt.signalled)
    ended = max(min(ended, observed.now), attempt.started, attempt.queued)
    return replace(attempt, ended=round(ended, 1), cause=str(cause), detail=detail)


def _cause(pods: Sequence[AttemptPod], observed: JobObservation) -> tuple[EndCause, str]:
    if observed.outcome is JobOutcome.SUCCEEDED:
        return EndCause.COMPLETED, ""
    if observed.time_limit:
        return EndCause.TIME_LIMIT, observed.message
    lost = sorted((pod for pod in pods if pod.lost), key=_order)
    if observed.outcome is JobOutcome.STOPPED:
        return EndCause.USER, observed.message or "suspended"
    failed = observed.outcome is JobOutcome.FAILED
    if not lost:
        cause = EndCause.PROGRAM if failed and observed.message else EndCause.UNKNOWN
        return cause, observed.message or "its pods are gone"
    first = lost[0]
    where = f" on node {first.node}" if first.node else ""
    if first.node_lost or first.reason in NODE_REASONS:
        return EndCause.NODE, f"pod {first.name} was lost{where}"
    if first.reason == "DeadlineExceeded":
        return EndCause.TIME_LIMIT, f"pod {first.name} ran longer than its activeDeadlineSeconds"
    if first.disrupted:
        return EndCause.PREEMPTION, f"pod {first.name} was evicted{where}"
    if failed and observed.message and _was_ended(first):
        return EndCause.PROGRAM, observed.message  # The pod was deleted because the job had failed.
    if first.phase == "Failed":
        code = "" if first.exit_code is None else f" with exit code {first.exit_code}"
        killed = (first.exit_code or 0) >= SIGNAL_CODES and first.reason != OUT_OF_MEMORY
        cause = EndCause.SIGNAL if killed and observed.signals_disrupt else EndCause.PROGRAM
        return cause, f"pod {first.name} failed{code}{where}"
    return EndCause.USER, f"pod {first.name} was deleted"


def _order(pod: AttemptPod) -> tuple[bool, bool, float, str]:
    """Order lost pods: taken away, failed by themselves, deleted; then by time of their end."""
    taken = pod.disrupted or pod.node_lost
    return (not taken, _was_ended(pod), pod.ended or pod.deleted, pod.name)


def _was_ended(pod: AttemptPod) -> bool:
    """Return whether a lost pod ended because it was deleted, and not by itself."""
    return pod.phase != "Failed" or (bool(pod.deleted) and pod.exit_code in _TERMINATED)


def best_interval(ledger: AttemptLedger, now: float) -> float | None:
    """Return the checkpoint interval (seconds) of Young and Daly; ``None`` if not measured.

    It is √(2·C·M) with C the time of a checkpoint and M the mean time between
    interruptions.
    """
    costs = [one.checkpoint_seconds for one in ledger.attempts if one.checkpoint_seconds > 0]
    interruptions = sum(one.cause in INTERRUPTIONS for one in ledger.attempts)
    running = sum(one.running_seconds(now) for one in ledger.attempts)
    if not costs or not interruptions or running <= 0:
        return None
    return math.sqrt(2 * (sum(costs) / len(costs)) * (running / interruptions))
