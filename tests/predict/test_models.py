"""Other run-time models than history, and the measures of a model's quality."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.predict import history
from windlass.predict.history import History
from windlass.predict.known import Oracle, Stated
from windlass.predict.model import QUANTILES, CompletedRun, Prediction, RunTimeModel, Traits
from windlass.predict.scoring import Case, online, score

TRAITS = Traits("ann", "research", "train", 4, work="a")
SECONDS = st.floats(0.5, 1e6)


def learned(*seconds: float, model: RunTimeModel | None = None) -> RunTimeModel:
    found = model or History()
    for number, one in enumerate(seconds):
        found.observe(CompletedRun(f"w{number}", TRAITS, one))
    return found


def test_an_oracle_knows_each_piece_of_work_and_learns_nothing() -> None:
    model = learned(5, 5, 5, model=Oracle({"a": 70.0}))
    found = model.predict(TRAITS)
    assert found is not None
    assert (found.seconds, found.at_most, found.stated) == (70.0, 70.0, True)
    assert set(found.quantiles) == set(QUANTILES)
    assert model.predict(replace(TRAITS, work="b")) is None


def test_the_owner_is_believed_and_history_speaks_for_those_who_say_nothing() -> None:
    model = learned(10, 20, 30, model=Stated(History()))
    said = model.predict(replace(TRAITS, stated=500.0))
    assert said is not None
    assert (said.seconds, said.stated) == (500.0, True)
    unsaid = model.predict(TRAITS)
    assert unsaid is not None
    assert (unsaid.quantiles[0.5], unsaid.stated) == (20, False)
    assert learned(10, 20, 30, model=Stated()).predict(TRAITS) is None


def test_equal_requests_are_nearer_than_equal_names() -> None:
    small, large = replace(TRAITS, shape="1 cpu"), replace(TRAITS, shape="64 cpu")
    model = History()
    for number in range(3):
        model.observe(CompletedRun(f"s{number}", small, 10.0))
        model.observe(CompletedRun(f"l{number}", large, 1000.0))
    said = [model.predict(one) for one in (small, large, replace(TRAITS, shape="8 cpu"), TRAITS)]
    assert [one.quantiles[0.5] for one in said if one is not None] == [10.0, 1000.0, 10.0, 10.0]
    assert [one.seconds for one in said if one is not None] == [10.0, 1000.0, 1000.0, 1000.0]


@settings(max_examples=50, deadline=None)
@given(st.lists(SECONDS, min_size=3, max_size=60))
def test_quantiles_never_fall(seconds: list[float]) -> None:
    found = learned(*seconds).predict(TRAITS)
    assert found is not None
    ordered = [found.quantiles[part] for part in QUANTILES]
    assert ordered == sorted(ordered)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(SECONDS, st.floats(0, 1e5)), min_size=3, max_size=60))
def test_longer_runs_never_make_a_prediction_shorter(pairs: list[tuple[float, float]]) -> None:
    before = learned(*[seconds for seconds, _ in pairs]).predict(TRAITS)
    after = learned(*[seconds + more for seconds, more in pairs]).predict(TRAITS)
    assert before is not None
    assert after is not None
    assert all(before.quantiles[part] <= after.quantiles[part] for part in QUANTILES)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.text("abc", max_size=6), st.integers(1, 64), SECONDS), max_size=300))
def test_memory_is_bounded(runs: list[tuple[str, int, float]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "KEYS", 20)
        patch.setattr(history, "WORKS", 10)
        model = History()
        for number, (name, size, seconds) in enumerate(runs):
            model.observe(CompletedRun(str(number), Traits(name, name[:2], name, size), seconds))
            assert model.knows(str(number))
        kept = model.as_record().keys
        assert len(kept) <= 20
        assert all(len(key.seconds) <= history.WINDOW for key in kept)
        assert sum(model.knows(str(number)) for number in range(len(runs))) <= 10


class Fixed:
    """Says always the same, and notes what it is told."""

    def __init__(self, *quantiles: float) -> None:
        low, middle, high = quantiles
        self.said = Prediction(high, {0.1: low, 0.5: middle, 0.9: high, 1.0: high})
        self.told: list[str] = []

    def observe(self, run: CompletedRun) -> None:
        self.told.append(run.work)

    def predict(self, traits: Traits) -> Prediction | None:
        return self.said if traits.name else None


def case(comes: float, seconds: float, work: str = "w", name: str = "train") -> Case:
    return Case(Traits("ann", "q", name, 1, work=work), comes, comes + seconds, seconds)


def test_a_model_learns_of_work_when_it_has_ended_and_not_before() -> None:
    model = Fixed(1, 2, 3)
    seen = [list(model.told) for _ in online(model, [case(30, 1, "c"), case(0, 30, "a"), case(10, 100, "b")])]
    assert seen == [[], [], ["a"]]


def test_figures_are_as_defined() -> None:
    found = score(online(Fixed(10, 20, 40), [case(0, 20), case(1, 80), case(2, 5), case(3, 7, name="")]))
    assert (found.count, found.answered) == (4, 0.75)
    assert (found.inside, found.kept) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert found.error == pytest.approx(log(4))
    within = 0.1 * 10 + 0.0 + 0.1 * 20
    longer = 0.1 * 70 + 0.5 * 60 + 0.9 * 40
    shorter = 0.9 * 5 + 0.5 * 15 + 0.1 * 35
    assert found.pinball_seconds == pytest.approx((within + longer + shorter) / 9)
    logs = (
        0.1 * log(2) + 0.1 * log(2) + 0.1 * log(8) + 0.5 * log(4) + 0.9 * log(2)
        + 0.9 * log(2) + 0.5 * log(4) + 0.1 * log(8)
    )  # fmt: skip
    assert found.pinball == pytest.approx(logs / 9)
    assert score([]).answered == 0.0


@settings(max_examples=30, deadline=None)
@given(st.lists(SECONDS, min_size=1, max_size=40))
def test_nothing_beats_the_truth(seconds: list[float]) -> None:
    cases = [case(number, one, str(number)) for number, one in enumerate(seconds)]
    exact = score(online(Oracle({str(number): one for number, one in enumerate(seconds)}), cases))
    assert (exact.answered, exact.inside, exact.pinball, exact.error) == (1.0, 1.0, 0.0, 0.0)
