"""``windlass.plugins.timeshare.predicted``: earlier runs of the same work decide, where they are known."""

from __future__ import annotations

import pytest

from windlass.plugins.extra_scores import ON_TOP
from windlass.plugins.timeshare.gittins import FIRST, LearnedSharing
from windlass.plugins.timeshare.predicted import PredictedSharing
from windlass.spi.configuration import PluginOption
from windlass.spi.objects import Dialect, Group
from windlass.spi.timeshare import RunSegment

SHORT, LONG = (60.0,) * 32, (200_000.0,) * 32


def rank(policy: LearnedSharing, attained: float = 0.0, **known: object) -> float:
    return policy.rank(RunSegment(Group("ns/a", **known), 1.0, attained)).value  # type: ignore[arg-type]


def test_of_whom_nothing_is_known_ranks_as_without() -> None:
    for attained in (0.0, FIRST, 100 * FIRST):
        assert rank(PredictedSharing(), attained) == rank(LearnedSharing(), attained)


def test_whose_kind_ends_soon_goes_first_and_whose_kind_runs_long_last() -> None:
    p = PredictedSharing()
    short = rank(p, runs=SHORT, learned="by runs", run_estimate=60.0)
    long = rank(p, runs=LONG, learned="by runs", run_estimate=200_000.0)
    assert short < rank(p) < long


def test_few_runs_say_less_than_many() -> None:
    p = PredictedSharing()
    assert rank(p) < rank(p, runs=LONG[:2], learned="x") < rank(p, runs=LONG, learned="x")


def test_the_word_of_the_owner_counts_before_what_was_learned() -> None:
    p = PredictedSharing()
    assert rank(p, run_estimate=60.0) < rank(p) < rank(p, run_estimate=200_000.0)
    assert rank(p, run_estimate=60.0, runs=LONG) == rank(p, run_estimate=60.0)


def test_run_near_the_expected_end_is_completed() -> None:
    """Without knowledge a long run ranks worse and worse."""
    p = PredictedSharing()
    near = rank(p, 190_000.0, runs=LONG, learned="x")
    assert near < rank(p, 40_000.0, runs=LONG, learned="x")
    assert near < rank(p, 190_000.0)


def test_what_outlives_its_kind_ranks_by_its_size_again() -> None:
    p = PredictedSharing()
    assert rank(p, 1e6, runs=SHORT, learned="x") == pytest.approx(rank(p, 1e6))


def test_it_is_chosen_by_its_name() -> None:
    (found,) = ON_TOP["predicted"](PluginOption("predicted"), tuple(Dialect))
    assert isinstance(found, PredictedSharing)
