"""Forecast of the demand for GPUs, learned from one trace and used on another.

Demand is a series of mean GPUs per step. A linear model (ridge regression) predicts how
far the demand :data:`AHEAD` steps later differs from the last known value, from recent
values, the value of the day before and the daily profile, all relative to the mean so far.
So a model carries over to traces of another size. The strength of the regression is the
best on the last third of the trace. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

STEP_SECONDS = 1800.0
AHEAD = 2
"""Steps from the last known value to the predicted one: capacity takes a step to start."""
DAY_STEPS = round(86_400 / STEP_SECONDS)
_RECENT = 6
_STRENGTHS = (0.01, 0.1, 1.0, 10.0)


@dataclass(frozen=True, slots=True)
class DemandModel:
    """Fitted model: weights of the features, and the daily profile (1 on average)."""

    weights: tuple[float, ...]
    profile: tuple[float, ...]

    def forecast(self, known: Sequence[float], step: int) -> float:
        """Return the demand at ``step`` (from the start of the series), from the values before."""
        level = max(float(np.mean(known)), 1e-9) if known else 0.0
        if not known:
            return 0.0
        change = level * float(np.dot(self.weights, _features(known, step, self.profile, level)))
        return max(0.0, known[-1] + change)


def _features(known: Sequence[float], step: int, profile: Sequence[float], level: float) -> list[float]:
    yesterday = step - DAY_STEPS
    last = known[-1] / level
    return [
        1.0,
        last,
        (known[-1] - known[-2]) / level if len(known) > 1 else 0.0,
        float(np.mean(known[-_RECENT:])) / level,
        known[yesterday] / level if 0 <= yesterday < len(known) else last,
        profile[step % DAY_STEPS],
        profile[step % DAY_STEPS] - profile[(len(known) - 1) % DAY_STEPS],
    ]


def _profile(series: Sequence[float]) -> tuple[float, ...]:
    """Return the mean demand by time of day, smoothed over an hour, relative to the mean."""
    sums, counts = np.zeros(DAY_STEPS), np.zeros(DAY_STEPS)
    for at, value in enumerate(series):
        sums[at % DAY_STEPS] += value
        counts[at % DAY_STEPS] += 1
    mean = max(float(np.mean(series)), 1e-9)
    by_time = np.where(counts > 0, sums / np.maximum(counts, 1), mean) / mean
    smooth = [float(np.mean(np.take(by_time, range(at - 3, at + 4), mode="wrap"))) for at in range(DAY_STEPS)]
    return tuple(smooth)


def fit(series: Sequence[float]) -> DemandModel:
    """Fit a model to a series. Raises ``ValueError`` for less than a day."""
    if len(series) < DAY_STEPS:
        raise ValueError(f"{len(series) * STEP_SECONDS / 3600:.1f} h of jobs are too few: a day is needed")
    held_out = max(2 * len(series) // 3, DAY_STEPS)
    errors = {}
    for strength in _STRENGTHS:
        model = _fitted(series[:held_out], strength)
        errors[strength] = mean_error(forecasts(model, series)[held_out:], series[held_out:])
    return _fitted(series, min(errors, key=lambda strength: (errors[strength], -strength)))


def _fitted(series: Sequence[float], strength: float) -> DemandModel:
    profile = _profile(series)
    rows, targets = [], []
    for end in range(2, len(series) - AHEAD + 1):
        known = series[:end]
        level = max(float(np.mean(known)), 1e-9)
        rows.append(_features(known, end - 1 + AHEAD, profile, level))
        targets.append((series[end - 1 + AHEAD] - known[-1]) / level)
    x, y = np.array(rows), np.array(targets)
    weights = np.linalg.solve(x.T @ x + strength * np.eye(x.shape[1]), x.T @ y)
    return DemandModel(tuple(float(weight) for weight in weights), profile)


def forecasts(model: DemandModel | None, series: Sequence[float]) -> list[float]:
    """Return the forecast of each step from what was known before; without a model the last known value."""
    found = []
    for step in range(len(series)):
        known = series[: max(0, step - AHEAD + 1)]
        if model is not None:
            found.append(model.forecast(known, step))
        else:
            found.append(known[-1] if known else 0.0)
    return found


def mean_error(forecast: Sequence[float], series: Sequence[float]) -> float:
    """Return the mean absolute error in GPUs; the first hour, with little to go by, is left out."""
    pairs = list(zip(forecast, series, strict=True))[_RECENT:]
    return sum(abs(said - was) for said, was in pairs) / max(len(pairs), 1)
