"""Quality of run-time models, fed with work in the order of submission and completion.

Every piece of work is predicted when it is submitted; the model observes it after its
end. The measures are:

* ``answered``: part of the work with a prediction. The other measures cover only that
  part.
* ``pinball``: mean, over the quantiles 0.1, 0.5 and 0.9, of the pinball loss (Koenker
  and Bassett 1978) of the natural logarithm of seconds: ``max(q * e, (q - 1) * e)``
  with ``e`` the logarithm of actual over predicted time. Logarithms keep a few runs of
  weeks from dominating.
* ``pinball_seconds``: the same of seconds.
* ``error``: median of the absolute logarithm of actual time over predicted median; 0.69
  is a factor of two.
* ``inside``: part of the runs between the 0.1- and the 0.9-quantile, ideally 0.8.
* ``kept``: part of the runs of at most the 0.9-quantile, ideally 0.9.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import log
from statistics import fmean, median

from windlass.predict.model import CompletedRun, Prediction, RunTimeModel, Traits

LOW, MIDDLE, HIGH = SCORED = (0.1, 0.5, 0.9)
LEAST_SECONDS = 1.0
"""Minimum of run times and predictions (seconds) before logarithms are taken."""


@dataclass(frozen=True, slots=True)
class Case:
    """Piece of work; ``comes`` and ``ends`` in seconds of one clock, ``seconds`` its run time."""

    traits: Traits
    comes: float
    ends: float
    seconds: float


@dataclass(frozen=True, slots=True)
class PredictionScore:
    """Measures as defined in the module's docstring; all 0 without any prediction."""

    count: int
    answered: float
    pinball: float
    pinball_seconds: float
    error: float
    inside: float
    kept: float


def online(model: RunTimeModel, cases: Iterable[Case]) -> Iterator[tuple[Prediction | None, float]]:
    """Yield the prediction and the actual time of each case in order of submission,
    while learning.

    Work that ends at the time of a submission is observed before it.
    """
    running: list[tuple[float, int, Case]] = []
    for number, case in enumerate(sorted(cases, key=lambda item: item.comes)):
        while running and running[0][0] <= case.comes:
            _, index, done = heapq.heappop(running)
            model.observe(CompletedRun(done.traits.work or str(index), done.traits, done.seconds))
        yield model.predict(case.traits), case.seconds
        heapq.heappush(running, (case.ends, number, case))


def score(predictions: Iterable[tuple[Prediction | None, float]]) -> PredictionScore:
    """Return the measures of predictions and actual times in seconds."""
    pairs = list(predictions)
    known = [(quantiles.quantiles, actual) for quantiles, actual in pairs if quantiles is not None]
    if not known:
        return PredictionScore(len(pairs), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return PredictionScore(
        count=len(pairs),
        answered=len(known) / len(pairs),
        pinball=fmean(
            fmean(_pinball(q, _log(actual) - _log(quantiles[q])) for q in SCORED)
            for quantiles, actual in known
        ),
        pinball_seconds=fmean(
            fmean(_pinball(q, actual - quantiles[q]) for q in SCORED) for quantiles, actual in known
        ),
        error=median(abs(_log(actual) - _log(quantiles[MIDDLE])) for quantiles, actual in known),
        inside=fmean(quantiles[LOW] <= actual <= quantiles[HIGH] for quantiles, actual in known),
        kept=fmean(actual <= quantiles[HIGH] for quantiles, actual in known),
    )


def _pinball(part: float, missed: float) -> float:
    return max(part * missed, (part - 1.0) * missed)


def _log(seconds: float) -> float:
    return log(max(seconds, LEAST_SECONDS))
