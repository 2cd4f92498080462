"""Scorers of outputs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from windlass.items.quality import scorers
from windlass.items.quality.arguments import LANGUAGES
from windlass.items.quality.scorers import create, text_of
from windlass.items.runtimes.base import LeasedRow, RuntimeContext
from windlass.items.spec import check, parse_batch


def score(scorer: object, output: dict[str, Any]) -> float | None:
    batch = parse_batch({"metadata": {}, "spec": {"outputs": {"quality": {"scorer": scorer}}}})
    assert batch.outputs.quality is not None
    context = RuntimeContext(batch, {}, time.monotonic, time.sleep)
    return create(batch.outputs.quality, context)(LeasedRow(0, {"id": 1}, 1, "prompt"), output)


def test_scores_of_built_in_scorers() -> None:
    german = "Das ist ein Satz, der nicht mit einer anderen Sprache verwechselt wird."
    cases: list[tuple[object, str, float]] = [
        ("length:10-20", "x" * 15, 100),
        ("length:10-20", "x" * 5, 50),
        ("length:10-20", "x" * 40, 50),
        ({"name": "length", "min": 4, "unit": "words"}, "one two", 50),
        ("language:de", german, 100),
        ("language:zh", "这是一个句子", 100),
        ("language:zh", german, 0),
        ("language:de", "", 0),
        (r"regex:^\d+ points$", "85 points", 100),
        (r"regex:^\d+ points$", "none", 0),
        ({"name": "regex", "pattern": "a", "forbid": "as an AI"}, "as an AI", 0),
        ("len_of:score", "", 0),
    ]
    for scorer, text, expected in cases[:-1]:
        assert score(scorer, {"id": 1, "text": text}) == expected, scorer
    english = score("language:en", {"text": german})
    assert english is not None
    assert english < 50


def test_the_score_of_the_row_itself_and_of_a_function(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    assert score("", {"id": 1, "score": 77}) == 77
    assert score("", {"id": 1, "score": "high"}) is None
    (tmp_path / "scoring_functions.py").write_text(
        "def by_id(row, output):\n    return row['id'] + output['n']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert score("scoring_functions:by_id", {"n": 40}) == 41


def test_the_judged_text_is_text_or_the_longest_field() -> None:
    assert text_of({"id": "a long identifier", "title": "x", "body": "longer"}) == "longer"
    assert text_of({"text": "t", "body": "longer"}) == "t"
    assert text_of({"text": "t", "body": "longer"}, "body") == "longer"


def test_arguments_that_are_not_valid_are_told() -> None:
    with pytest.raises(ValueError, match="does not know 'klingon'"):
        score("language:klingon", {})
    with pytest.raises(ValueError, match="write, for example, length:50-400"):
        score("length:many", {})


def test_known_languages_are_those_that_can_be_scored() -> None:
    assert sorted((*scorers._COMMON, *scorers._SCRIPTS)) == list(LANGUAGES)


@pytest.mark.parametrize(
    ("scorer", "words"),
    [
        ("judge", "needs url, the base URL of an OpenAI-compatible server"),
        ({"name": "judge", "url": "llm:8000"}, "must begin with http:// or https://"),
        ("language", "names no language: write, for example, language:de"),
        ("language:xx", "does not know 'xx': it knows ar, de, el"),
        ("length:50-4", "the lower bound 50 above the upper bound 4: write length:4-50"),
        ({"name": "length", "min": -1}, "a length is at least 0"),
        ({"name": "length", "unit": "pages"}, "it counts characters or words"),
        ("regex", "has no pattern"),
        ("regex:(", "has the pattern '('"),
        ({"name": "regex", "pattern": "a", "forbid": "["}, "has the pattern '['"),
    ],
)
def test_scorer_that_cannot_work_is_refused_at_admission(scorer: object, words: str) -> None:
    spec = {"outputs": {"quality": {"scorer": scorer}}}
    ((path, message),) = check({"metadata": {}, "spec": spec})
    assert path == "spec.outputs.quality.scorer"
    assert words in message


@pytest.mark.parametrize("scorer", ["judge", "length", "length:-9", "length:5", "regex:x", "language:DE-ch"])
def test_scorer_with_what_it_needs_is_admitted(scorer: str) -> None:
    runtime = {"name": "openai", "url": "http://llm:8000/v1"}
    spec = {"runtimeRef": runtime, "outputs": {"quality": {"scorer": scorer}}}
    assert check({"metadata": {}, "spec": spec}) == []
