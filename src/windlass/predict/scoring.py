"""How good a run-time model is: told of work in the order in which it comes and ends, as in life.

Every piece of work is predicted when it comes; the model learns of it when it has ended, not before. Figures:

* ``answered``: the part of which the model said anything. The other figures are of that alone.
* ``pinball``: mean over the quantiles 0.1, 0.5 and 0.9 of the pinball loss (Koenker and Bassett 1978) of the natural
  logarithm of seconds: ``max(q * e, (q - 1) * e)``, ``e`` the logarithm of what it was over what was predicted. Of
  logarithms, because a few runs of weeks would drown all others else.
* ``pinball_seconds``: the same of seconds.
* ``error``: median of the absolute logarithm of what it was over the predicted median; 0.69 is a factor of two.
* ``inside``: the part that ran from the 0.1- to the 0.9-quantile, 0.8 if the model knows what it does not know;
  ``kept``: the part that ran no longer than the 0.9-quantile, ideally 0.9.
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
"""What ran or is said to run shorter counts as this, where logarithms are taken."""


@dataclass(frozen=True, slots=True)
class Case:
    """``comes`` and ``ends`` in seconds of one clock; it ran for ``seconds``."""

    traits: Traits
    comes: float
    ends: float
    seconds: float


@dataclass(frozen=True, slots=True)
class PredictionScore:
    """See the top of this module. All 0 where nothing was answered."""

    count: int
    answered: float
    pinball: float
    pinball_seconds: float
    error: float
    inside: float
    kept: float


def online(model: RunTimeModel, cases: Iterable[Case]) -> Iterator[tuple[Prediction | None, float]]:
    """What is predicted of each case as it comes, in order of coming, and what it was; the model learns on the way.

    Who ends in the moment in which another one comes has ended before."""
    running: list[tuple[float, int, Case]] = []
    for number, case in enumerate(sorted(cases, key=lambda one: one.comes)):
        while running and running[0][0] <= case.comes:
            _, at, done = heapq.heappop(running)
            model.observe(CompletedRun(done.traits.work or str(at), done.traits, done.seconds))
        yield model.predict(case.traits), case.seconds
        heapq.heappush(running, (case.ends, number, case))


def score(told: Iterable[tuple[Prediction | None, float]]) -> PredictionScore:
    """Of predictions and what it was, in seconds."""
    pairs = list(told)
    known = [(said.quantiles, was) for said, was in pairs if said is not None]
    if not known:
        return PredictionScore(len(pairs), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return PredictionScore(
        count=len(pairs),
        answered=len(known) / len(pairs),
        pinball=fmean(fmean(_pinball(q, _log(was) - _log(said[q])) for q in SCORED) for said, was in known),
        pinball_seconds=fmean(fmean(_pinball(q, was - said[q]) for q in SCORED) for said, was in known),
        error=median(abs(_log(was) - _log(said[MIDDLE])) for said, was in known),
        inside=fmean(said[LOW] <= was <= said[HIGH] for said, was in known),
        kept=fmean(was <= said[HIGH] for said, was in known),
    )


def _pinball(part: float, missed: float) -> float:
    return max(part * missed, (part - 1.0) * missed)


def _log(seconds: float) -> float:
    return log(max(seconds, LEAST_SECONDS))
