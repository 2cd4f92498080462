"""Failures of a batch of which too many items were given up."""

from __future__ import annotations

import pytest

from windlass.items.ledger.failures import failure_of


@pytest.mark.parametrize(
    ("dead", "unscored", "invalid", "reason"),
    [
        (1, 1, 0, None),
        (2, 0, 0, "TooManyFailedItems"),
        (2, 0, 2, "TooManyInvalidRows"),
        (2, 1, 0, "ScorerFailed"),
        (3, 1, 0, "TooManyFailedItems"),
        (100, 100, 0, "ScorerFailed"),
    ],
)
def test_reason_names_the_scorer_if_only_its_failures_are_beyond_the_limit(
    dead: int, unscored: int, invalid: int, reason: str | None
):
    found = failure_of(dead, unscored, invalid, 100, 1.0)
    assert (found[0] if found else None) == reason
    if found:
        assert found[1].startswith(f"{dead} of 100 ")
        assert "items.maxFailedPercent allows 1 %" in found[1]
