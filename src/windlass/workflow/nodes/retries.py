"""Retry strategy of a template: when another attempt follows, and after which delay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.kits import durations
from windlass.workflow import words
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.expressions import boolean
from windlass.workflow.language.scope import Scope

POLICIES = ("Always", "OnFailure", "OnError", "OnTransientError")
TRANSIENT = (
    "Evicted", "Preempt", "node lost", "NodeLost", "pod deleted", "connection refused", "connection reset",
    "timed out", "timeout", "Too Many Requests", "ServiceUnavailable", "UnexpectedAdmissionError", "NodeShutdown",
)  # fmt: skip
"""Parts of messages that tell of a failure of the infrastructure."""
_LONGEST_SECONDS = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class FinishedAttempt:
    """Finished attempt."""

    phase: str
    message: str
    exit_code: str
    started: float
    finished: float


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """``again``: another attempt is due. ``wait_until``: earliest time of it. Neither: it ends with ``message``."""

    again: bool = False
    wait_until: float | None = None
    message: str = ""


def seconds_of(text: Any) -> float:
    """Return a duration as Argo reads it: whole seconds without a unit, or ``1m30s``."""
    value = str(text).strip()
    if value.replace(".", "", 1).isdigit():
        return float(value)
    try:
        return durations.parse(value)
    except ValueError as problem:
        raise EvaluationError(str(problem)) from None


def policy_of(strategy: Mapping[str, Any]) -> str:
    return strategy.get("retryPolicy") or ("Always" if strategy.get("expression") else "OnFailure")


def decide(
    strategy: Mapping[str, Any],
    attempts: list[FinishedAttempt],
    scope: Scope,
    now: float,
    deadline: float | None,
) -> RetryDecision:
    """Decide about another attempt after the last one failed."""
    last = attempts[-1]
    if deadline is not None and now >= deadline:
        return RetryDecision(message="retry exceeded the workflow's deadline")
    limit = _limit(strategy)
    if not _retries(policy_of(strategy), last):
        return RetryDecision(message=last.message)
    if limit is not None and len(attempts) > limit:
        return RetryDecision(message="No more retries left")
    if (expression := strategy.get("expression")) and not boolean(scope.evaluate(expression)):
        return RetryDecision(message="retryStrategy.expression evaluated to false")
    backoff = strategy.get("backoff")
    return _backoff(backoff, attempts, now) if backoff else RetryDecision(again=True)


def _limit(strategy: Mapping[str, Any]) -> int | None:
    limit = strategy.get("limit")
    if limit is None:
        return None
    try:
        return int(limit)
    except (TypeError, ValueError):
        raise EvaluationError(f"retryStrategy.limit is {limit!r}, which is not a whole number") from None


def _retries(policy: str, last: FinishedAttempt) -> bool:
    if policy == "Always":
        return True
    if policy == "OnError":
        return last.phase == words.ERROR
    if policy == "OnTransientError":
        return any(part in last.message for part in TRANSIENT)
    return last.phase == words.FAILED


def _backoff(backoff: Mapping[str, Any], attempts: list[FinishedAttempt], now: float) -> RetryDecision:
    if not backoff.get("duration"):
        raise EvaluationError("no base duration specified for retryStrategy")
    wait = seconds_of(backoff["duration"])
    factor = float(backoff.get("factor") or 1)
    if factor > 1:
        wait = min(_LONGEST_SECONDS, wait * factor ** min(len(attempts) - 1, 64))
    if backoff.get("cap"):
        wait = min(wait, seconds_of(backoff["cap"]))
    due = attempts[-1].finished + wait
    if backoff.get("maxDuration"):
        end = attempts[0].started + seconds_of(backoff["maxDuration"])
        if now > end:
            return RetryDecision(message="Max duration limit exceeded")
        if due > end:
            return RetryDecision(message="Backoff would exceed max duration limit")
    if now < due:
        return RetryDecision(wait_until=due, message=f"Backoff for {durations.write(wait)}")
    return RetryDecision(again=True)
