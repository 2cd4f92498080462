"""Attempts of a job in ``windlass show``: when each waited and ran, what was lost, and why it ended."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.resources import AIGC_JOBS
from windlass.cli.jobs.jobs import Job
from windlass.cli.text import plural
from windlass.jobs.attempt_records import read_ledger
from windlass.jobs.attempts import Attempt, AttemptLedger, best_interval
from windlass.jobs.members import LossCause
from windlass.kits.timestamps import age, rfc3339

HEADER = ["ATTEMPT", "QUEUED", "STARTED", "RAN", "USEFUL", "LOST", "END"]
OPTIONAL = ("USEFUL", "STARTED")


def ledger_of(job: Job) -> AttemptLedger:
    """Return the recorded attempts of a job."""
    annotations = job.obj["metadata"].get("annotations") or {}
    return read_ledger(annotations.get(names.JOB_ATTEMPTS))


def table(ledger: AttemptLedger, now: float) -> list[list[str]]:
    """Return one row for each attempt."""
    return [
        [
            str(one.number),
            age(one.queue_seconds(now)),
            rfc3339(one.started) if one.started else "-",
            age(one.running_seconds(now)) if one.started else "-",
            _seconds_text(one.useful_seconds(now), one),
            _seconds_text(one.lost_seconds(), one),
            end_text(one),
        ]
        for one in ledger.attempts
    ]


def _seconds_text(seconds: float | None, attempt: Attempt) -> str:
    if not attempt.started or not attempt.ended:
        return "-"
    return "unknown" if seconds is None else age(seconds)


def end_text(attempt: Attempt) -> str:
    """Return how an attempt ended, or that it has not."""
    if not attempt.ended:
        return _size_text(attempt) if attempt.started else "in the queue"
    words = [attempt.cause + (f": {attempt.detail}" if attempt.detail else "")]
    if attempt.checkpoint_missed:
        words.append("SIGTERM arrived, no checkpoint landed")
    elif attempt.signalled and attempt.saved:
        words.append(f"a checkpoint landed {attempt.saved - attempt.signalled:.1f} s after SIGTERM")
    if attempt.restarts:
        words.append(f"{plural(attempt.restarts, 'restart')} in place")
    return ", ".join([*words, *filter(None, [_sizes(attempt)])])


def _size_text(attempt: Attempt) -> str:
    return ", ".join(["running", *filter(None, [_sizes(attempt)])])


def _sizes(attempt: Attempt) -> str:
    """Return the numbers of pods of an attempt if it changed; else an empty text."""
    if len(attempt.sizes) < 2:
        return ""
    return f"pods {' → '.join(str(size) for _, size in attempt.sizes)}"


def facts(job: Job, ledger: AttemptLedger, now: float) -> list[tuple[str, str]]:
    """Return lines about all attempts together."""
    found: list[tuple[str, str]] = []
    if ledger.dropped:
        older = (
            f"{plural(ledger.dropped, 'older attempt')}: {age(ledger.dropped_queue_seconds)} in the queue, "
            f"{age(ledger.dropped_running_seconds)} running"
        )
        found.append(("Before", older))
    counts = restarts_by_cause(job)
    if counts:
        limit = ((job.obj.get("spec") or {}).get("runPolicy") or {}).get("backoffLimit")
        bounded = f" (backoffLimit {limit})" if limit is not None else ""
        words = [
            f"{count} by {cause}{bounded if cause == LossCause.PROGRAM else ''}"
            for cause, count in sorted(counts.items())
        ]
        found.append(("Restarts", ", ".join(words)))
    if job.resource is AIGC_JOBS:
        if ledger.count > 1:
            found.append(("Checkpoint", "its ledger: rows that are done are not done again"))
        return found
    advised = best_interval(ledger, now)
    if advised is not None:
        found.append(
            ("Checkpoint", f"best interval {age(advised)} (Young and Daly, from the measured attempts)")
        )
    elif any(one.lost_seconds() is None for one in ledger.attempts if one.ended):
        hint = f"no checkpoint is known: annotate the pods with {names.CHECKPOINT_PATH}=DIRECTORY"
        found.append(("Checkpoint", hint))
    return found


def restarts_by_cause(job: Job) -> dict[str, int]:
    """Return the counted restarts of a job by their cause; each cause has a limit of its own."""
    annotations = job.obj["metadata"].get("annotations") or {}
    try:
        record = msgspec.json.decode(annotations.get(names.JOB_RECORD) or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, msgspec.ValidationError):
        return {}
    counts = record.get("restarts")
    return {str(key): int(value) for key, value in counts.items()} if isinstance(counts, dict) else {}


def as_record(job: Job, now: float) -> dict[str, Any]:
    """Return the attempts for ``-o json``; empty if none is recorded."""
    ledger = ledger_of(job)
    counts = restarts_by_cause(job)
    record: dict[str, Any] = {}
    if ledger.count:
        record["attempts"] = [_record(one, now) for one in ledger.attempts]
        record["attemptCount"] = ledger.count
        advised = best_interval(ledger, now)
        if advised is not None:
            record["bestCheckpointSeconds"] = round(advised, 1)
    if counts:
        record["restartsByCause"] = counts
    return record


def _record(attempt: Attempt, now: float) -> dict[str, Any]:
    useful, lost = attempt.useful_seconds(now), attempt.lost_seconds()
    return {
        "number": attempt.number,
        "queued": rfc3339(attempt.queued),
        "started": rfc3339(attempt.started) if attempt.started else None,
        "ended": rfc3339(attempt.ended) if attempt.ended else None,
        "queueSeconds": round(attempt.queue_seconds(now), 1),
        "runningSeconds": round(attempt.running_seconds(now), 1),
        "usefulSeconds": None if useful is None else round(useful, 1),
        "checkpointSeconds": attempt.checkpoint_seconds,
        "lostSeconds": None if lost is None else round(lost, 1),
        "cause": attempt.cause or None,
        "detail": attempt.detail or None,
        "signalled": rfc3339(attempt.signalled) if attempt.signalled else None,
        "checkpoint": rfc3339(attempt.saved) if attempt.saved else None,
        "checkpointMissed": attempt.checkpoint_missed,
        "restarts": attempt.restarts,
        "pods": [{"at": rfc3339(at), "count": size} for at, size in attempt.sizes],
    }
