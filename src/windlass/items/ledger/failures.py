"""Failures of a batch of which too many items were given up."""

from __future__ import annotations

TOO_MANY_FAILED = "TooManyFailedItems"
TOO_MANY_INVALID = "TooManyInvalidRows"
"""Failure of a batch that has too many rows that are not valid."""
SCORER_FAILED = "ScorerFailed"
"""Reason of items, and of a batch that would be within its limit without such items.

Their outputs are there, so another attempt of the job would only ask the model again.
"""


def failure_of(dead: int, unscored: int, invalid: int, total: int, percent: float) -> tuple[str, str] | None:
    """Return reason and message if more items were given up than a batch may lose.

    dead: number of items that were given up, ``unscored`` and ``invalid`` among them
    unscored: number of items on which the scorer failed
    invalid: number of rows that are not valid
    percent: share of all items that may fail
    """
    if dead * 100 <= percent * total:
        return None
    of_scorer = (dead - unscored) * 100 <= percent * total
    reason, what, kept = TOO_MANY_FAILED, "items failed", ""
    if invalid * 100 > percent * total:
        reason, what = TOO_MANY_INVALID, "rows are not valid"
    elif of_scorer:
        reason, what = SCORER_FAILED, "items failed because their scorer did"
        kept = "; their error rows keep the outputs"
    share = 100 * dead / total
    limit = f"items.maxFailedPercent allows {percent:g} % (windlass generate --max-failed)"
    return reason, f"{dead} of {total} {what} ({share:.3g} %): {limit}{kept}"
