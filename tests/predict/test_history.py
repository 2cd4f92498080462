"""Run times by history: levels, quantiles, what is remembered."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.predict import history
from windlass.predict.history import History, HistoryRecord
from windlass.predict.model import QUANTILES, CompletedRun, Prediction, RunTimeModel, Traits
from windlass.predict.names import pattern

TRAITS = Traits("ann", "research", "train-llm-1", 4)


def observed(*seconds: float, traits: Traits = TRAITS) -> History:
    found = History()
    for number, one in enumerate(seconds):
        found.observe(CompletedRun(f"{traits.name}{number}", traits, one))
    return found


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("train-llm-20260101-7f3ab", "train-llm"),
        ("train-llm-12", "train-llm"),
        ("train12", "train"),
        ("train.llm_v2", "train-llm-v"),
        ("job-1f2e3d4c-aaaa-4bbb-8ccc-0123456789ab", "job-aaaa"),
        ("pod:web-x4z7q", "pod-web"),
        ("beef-cafe", "beef-cafe"),
        ("vllm-grpc", "vllm-grpc"),
        ("2026", "2026"),
        ("", ""),
    ],
)
def test_names_without_what_changes_from_run_to_run(name: str, kept: str) -> None:
    assert pattern(name) == kept


def test_nothing_is_said_before_three_runs_of_a_name() -> None:
    assert observed(10, 20).predict(TRAITS) is None
    found = observed(10, 20, 30).predict(TRAITS)
    assert found == Prediction(
        30,
        {0.1: 10, 0.5: 20, 0.9: 30, 1.0: 30},
        "by 3 earlier runs of this name and size: p50 20s, p90 30s",
        runs=(10, 20, 30),
    )
    assert found is not None
    assert found.at_most == 30
    assert Prediction(5).at_most == 5


def test_quantiles_are_those_of_the_window() -> None:
    found = observed(*range(1, 101)).predict(TRAITS)
    assert found is not None
    assert found.quantiles == {0.1: 71, 0.5: 84, 0.9: 98, 1.0: 100}
    assert found.seconds == 98
    assert found.basis.startswith("by 100 earlier runs")


@pytest.mark.parametrize(
    ("asked", "count", "basis"),
    [
        (Traits("ann", "research", "train-llm-9", 7), 3, "of this name and size"),
        (Traits("ann", "research", "train-llm-9", 64), 3, "of this name"),
        (Traits("ann", "research", "other", 4), 10, "of this size by ann"),
        (Traits("bob", "research", "train-llm-1", 4), 20, "of this size in queue research"),
    ],
)
def test_wider_levels_take_more_runs(asked: Traits, count: int, basis: str) -> None:
    enough = observed(*[60.0] * count)
    told = enough.predict(asked)
    assert told is not None
    assert told.basis == f"by {count} earlier runs {basis}: p50 1m0s, p90 1m0s"
    assert observed(*[60.0] * (count - 1)).predict(asked) is None


@pytest.mark.parametrize(
    "asked", [Traits("bob", "dev", "train-llm-1", 4), Traits("bob", "research", "other", 16)]
)
def test_what_nothing_is_known_of(asked: Traits) -> None:
    assert observed(*[60.0] * 30).predict(asked) is None


def test_work_counts_once_by_its_longest_pod() -> None:
    model = History()
    for work in ("a", "b", "c"):
        for seconds in (10.0, 30.0, 20.0):
            model.observe(CompletedRun(work, TRAITS, seconds))
    assert model.version == 6
    found = model.predict(TRAITS)
    assert found is not None
    assert found.quantiles == {0.1: 30, 0.5: 30, 0.9: 30, 1.0: 30}
    assert found.basis.startswith("by 3 earlier runs")
    model.observe(CompletedRun("d", TRAITS, 0.0))
    assert model.version == 6


def test_what_ended_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEYS", 8)
    monkeypatch.setattr(history, "WORKS", 2)
    model = observed(1, 2, 3)
    for number in range(3):
        model.observe(CompletedRun(f"x{number}", Traits("bob", "dev", "eval", 1), 5.0))
    assert model.predict(TRAITS) is not None
    model.observe(CompletedRun("y", Traits("eve", "prod", "serve", 1), 5.0))
    assert model.predict(TRAITS) is None
    assert model.predict(Traits("bob", "dev", "eval", 1)) is not None
    assert len(model.as_record().keys) == 8


def test_a_record_is_small_and_loses_nothing() -> None:
    model = History()
    for number in range(2000):
        traits = Traits(
            f"u{number % 50}", f"q{number % 7}", f"job{chr(97 + number % 26)}-{number}", number % 9
        )
        model.observe(CompletedRun(str(number), traits, float(number + 1)))
    data = msgspec.json.encode(model.as_record())
    assert len(data) < 400_000
    copy = History.of_record(msgspec.json.decode(data, type=HistoryRecord))
    for number in range(60):
        traits = Traits(f"u{number % 50}", f"q{number % 7}", f"job{chr(97 + number % 26)}", number % 9)
        assert copy.predict(traits) == model.predict(traits)
    assert copy.as_record() == model.as_record()
    assert History.of_record(HistoryRecord(99, model.as_record().keys)).as_record().keys == []


@settings(max_examples=50)
@given(st.lists(st.floats(0.5, 1e6), min_size=3, max_size=60))
def test_a_prediction_lies_within_what_was_seen(seconds: list[float]) -> None:
    model: RunTimeModel = observed(*seconds)
    found = model.predict(TRAITS)
    assert found is not None
    window = seconds[-history.WINDOW :]
    assert min(window) <= found.quantiles[0.5] <= found.seconds <= found.at_most == max(window)
    assert sum(one <= found.seconds for one in window) >= 0.9 * len(window)
    assert sum(one < found.seconds for one in window) < 0.9 * (len(window) + 1)
    ordered = [found.quantiles[part] for part in QUANTILES]
    assert ordered == sorted(ordered)
