"""Run times that somebody states: the truth, for comparison, and the word of the owner.

Both are :class:`~windlass.predict.model.RunTimeModel`: what is stated is every quantile at once. Neither learns.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.predict.model import QUANTILES, CompletedRun, Prediction, RunTimeModel, Traits


class Oracle:
    """Knows how long every piece of work runs (``seconds`` by its ``Traits.work``): only a simulation has that."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds

    def observe(self, run: CompletedRun) -> None:
        """Nothing is news."""

    def predict(self, traits: Traits) -> Prediction | None:
        found = self._seconds.get(traits.work)
        return None if found is None else _certain(found, "exact")


class Stated:
    """What the owner says (``Traits.stated``); where he says nothing, what ``otherwise`` knows of such work."""

    def __init__(self, otherwise: RunTimeModel | None = None) -> None:
        self._otherwise = otherwise

    def observe(self, run: CompletedRun) -> None:
        if self._otherwise is not None:
            self._otherwise.observe(run)

    def predict(self, traits: Traits) -> Prediction | None:
        if traits.stated is not None:
            return _certain(traits.stated, "as its owner says")
        return None if self._otherwise is None else self._otherwise.predict(traits)


def _certain(seconds: float, basis: str) -> Prediction:
    return Prediction(seconds, dict.fromkeys(QUANTILES, seconds), basis, stated=True)
