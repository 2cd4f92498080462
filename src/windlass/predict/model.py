"""Interface of run-time models.

A model is given completed runs and predicts those of new work. Callers use
:class:`Prediction` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

QUANTILES = (0.1, 0.5, 0.9, 1.0)
"""Probabilities that every prediction has; 1.0: the longest known run."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Known properties of a piece of work before it runs.

    ``owner``: user, or the namespace in its place. ``name``: without the namespace.
    Empty values are unknown. ``size``: minimum number of pods. ``stated``: run time in
    seconds stated by the owner. ``work``: see :class:`CompletedRun`. ``shape``: request
    besides the size, as any text that is equal for equal requests; empty: not known.
    """

    owner: str
    queue: str
    name: str
    size: int = 1
    stated: float | None = None
    work: str = ""
    shape: str = ""


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """Piece of work that succeeded.

    ``work``: one name for all its pods (a UID): the longest of them counts, once.
    ``seconds``: from its start to its end.
    """

    work: str
    traits: Traits
    seconds: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted run time.

    ``seconds``: time to plan with, too long rather than too short. ``quantiles``:
    probability → seconds for :data:`QUANTILES`, monotonic. ``basis``: explanation for
    users. ``stated``: stated by the owner, otherwise learned from ``runs`` (seconds in
    ascending order).
    """

    seconds: float
    quantiles: Mapping[float, float] = field(default_factory=dict)
    basis: str = ""
    stated: bool = False
    runs: tuple[float, ...] = ()

    @property
    def at_most(self) -> float:
        """Longest known run of such work, in seconds."""
        return max(self.quantiles.values(), default=self.seconds)


class RunTimeModel(Protocol):
    """Model of run times.

    Implementations: :class:`~windlass.predict.history.History` (learned),
    :class:`~windlass.predict.known.Stated` (by owners),
    :class:`~windlass.predict.known.Oracle` (actual times).
    """

    def observe(self, run: CompletedRun) -> None:
        """Record a completed run. If the same work is reported again, the longest run counts."""
        ...

    def predict(self, traits: Traits) -> Prediction | None:
        """Return the prediction; ``None`` if too little is known."""
        ...
