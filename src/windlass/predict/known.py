"""Models of known run times: the actual ones, for comparison, and those stated by owners.

Both are :class:`~windlass.predict.model.RunTimeModel` that return the stated time as
every quantile. Neither learns.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.predict.model import QUANTILES, CompletedRun, Prediction, RunTimeModel, Traits


class Oracle:
    """Model that knows all actual run times (``seconds`` by ``Traits.work``); for
    simulations only."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds

    def observe(self, run: CompletedRun) -> None:
        """Do nothing: all run times are known."""

    def predict(self, traits: Traits) -> Prediction | None:
        seconds = self._seconds.get(traits.work)
        return None if seconds is None else _certain(seconds, "exact")


class Stated:
    """Model of the owner's stated time (``Traits.stated``); without one the model
    ``otherwise`` is used."""

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
