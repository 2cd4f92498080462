"""Forecast of the demand for GPUs (F78)."""

from __future__ import annotations

from math import pi, sin

import pytest

from windlass.predict.demand import AHEAD, DAY_STEPS, fit, forecasts, mean_error


def daily(days: int, level: float, noise: int = 0) -> list[float]:
    steps = range(days * DAY_STEPS)
    return [level * (1.5 + sin(2 * pi * at / DAY_STEPS)) + (at * 7919 % 13) * noise * 0.01 for at in steps]


def test_f78_a_learned_rhythm_beats_the_last_value_on_another_trace() -> None:
    model, series = fit(daily(7, 100.0)), daily(4, 40.0, noise=5)
    learned = mean_error(forecasts(model, series), series)
    last = mean_error(forecasts(None, series), series)
    assert learned < 0.5 * last


def test_a_forecast_uses_nothing_that_is_not_known_yet() -> None:
    model, series = fit(daily(3, 10.0)), daily(2, 10.0)
    changed = [*series[:50], *(1000.0 for _ in series[50:])]
    assert forecasts(model, series)[: 50 + AHEAD - 1] == forecasts(model, changed)[: 50 + AHEAD - 1]


def test_the_last_value_is_the_last_known_one() -> None:
    series = [1.0, 2.0, 3.0, 4.0]
    assert AHEAD == 2
    assert forecasts(None, series) == [0.0, 0.0, 1.0, 2.0]  # two steps after the last known one


def test_less_than_a_day_is_refused() -> None:
    with pytest.raises(ValueError, match="a day is needed"):
        fit([1.0] * (DAY_STEPS - 1))
