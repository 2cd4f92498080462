"""Scorers that fail: what they were given stays in the result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windlass.items.runtimes.base import LeasedRow, RowOutcome
from windlass.items.worker.loop import SCORER_TRIES, result_text, score_of

ITEM = LeasedRow(3, {"id": "r3"}, 1)


class Scorer:
    """Raises the errors that it is given, one a call, then returns 80."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.calls = list(errors), 0

    def __call__(self, item: LeasedRow, output: Any) -> float | None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return 80.0


def made() -> RowOutcome:
    return RowOutcome(3, {"id": "r3", "text": "a cup"}, 0.25)


def test_scorer_that_failed_is_called_again():
    scorer, outcome = Scorer(ValueError("no model yet"), KeyError("x")), made()
    assert score_of(scorer, outcome, ITEM) == 80.0
    assert scorer.calls == 3
    assert (outcome.kind, outcome.output) == ("", {"id": "r3", "text": "a cup", "score": 80.0})


def test_row_of_a_scorer_that_keeps_failing_is_an_error_that_keeps_its_output():
    scorer, outcome = Scorer(*[RuntimeError("boom")] * 9), made()
    score = score_of(scorer, outcome, ITEM)
    assert scorer.calls == SCORER_TRIES
    assert json.loads(result_text(outcome, score)) == {
        "n": 3,
        "seconds": 0.25,
        "error": {"kind": "permanent", "reason": "ScorerFailed", "message": "RuntimeError: boom"},
        "row": {"id": "r3", "text": "a cup"},
    }


def test_missing_file_is_an_error_of_the_scorer_and_a_lost_connection_is_none():
    outcome = made()
    score_of(Scorer(*[FileNotFoundError("words.txt")] * 9), outcome, ITEM)
    assert (outcome.kind, outcome.reason) == ("permanent", "ScorerFailed")
    unreachable, lost = Scorer(*[ConnectionRefusedError("refused")] * 9), made()
    score_of(unreachable, lost, ITEM)
    assert (lost.kind, lost.reason, unreachable.calls) == ("infrastructure", "ScorerUnreachable", 1)
    assert "row" not in json.loads(result_text(lost, None))


@pytest.mark.parametrize("value", [250.0, -0.5, 100.1])
def test_score_that_is_not_from_0_to_100_is_an_error_of_the_scorer(value: float):
    outcome = made()
    assert score_of(lambda item, output: value, outcome, ITEM) is None
    assert (outcome.kind, outcome.reason) == ("permanent", "ScorerFailed")
    assert outcome.message == f"ValueError: the score {value:g} is not from 0 to 100"
    assert outcome.output == {"id": "r3", "text": "a cup"}


@pytest.mark.parametrize("value", [0.0, 100.0, None])
def test_scores_from_0_to_100_and_no_score_are_taken(value: float | None):
    outcome = made()
    assert score_of(lambda item, output: value, outcome, ITEM) == value
    assert outcome.kind == ""
