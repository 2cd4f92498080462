"""Retry rules: whether a request is sent again, and after which pause. Pure.

Both clients follow these rules (those of client-go, and connection errors):

- 429 and 503 with ``Retry-After``: any method, after the requested time.
- 503 without it: idempotent methods, with back-off. A 429 without it is final.
- A rejection by a disruption budget is final, also with ``Retry-After`` (the controller
  has not counted the budget yet). The evicting component has other pods to evict
  meanwhile, and its own time limit.
- No process listened, or the connection broke before the request was sent: any method,
  with back-off.
- The connection broke later: idempotent methods only.
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.api.errors import StatusError
from windlass.client.errors import NOT_RUNNING, PROXY_UNREACHABLE, UNREACHABLE, Unreachable
from windlass.client.responses import refusal_by_budget, retry_after
from windlass.client.transport import Request
from windlass.kits.backoff import Backoff

_IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_TRANSIENT = frozenset({UNREACHABLE, NOT_RUNNING, PROXY_UNREACHABLE})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits of retries. ``attempts`` includes the first one; 1: no retry.

    ``longest_seconds``: maximum of one pause.
    """

    attempts: int = 6
    initial_seconds: float = 0.1
    cap_seconds: float = 5.0
    longest_seconds: float = 30.0
    retry_refused: bool = True


NEVER = RetryPolicy(attempts=1)


def idempotent(request: Request) -> bool:
    """Return whether sending the request twice has the effect of sending it once."""
    if request.method == "PATCH":
        return "json-patch" not in request.headers.get("content-type", "")
    return request.method in _IDEMPOTENT


def wait_after(
    problem: StatusError | Unreachable, request: Request, policy: RetryPolicy, backoff: Backoff
) -> float | None:
    """Return the seconds to wait before the next attempt; ``None`` if the problem is final."""
    if isinstance(problem, Unreachable):
        if problem.code not in _TRANSIENT or (problem.refused and not policy.retry_refused):
            return None
        return backoff.next() if not problem.processed or idempotent(request) else None
    if problem.code not in (429, 503) or refusal_by_budget(problem):
        return None
    requested = retry_after(problem) if "retry-after" in problem.headers else None
    if requested is not None:
        return requested + backoff.next() * 0.1 if requested <= policy.longest_seconds else None
    return backoff.next() if problem.code == 503 and idempotent(request) else None
