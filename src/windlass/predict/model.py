"""What a run-time model is told and what it says.

A model is fed with runs that have ended and asked about work that has not. How it answers is its own
affair; whoever uses a prediction reads :class:`Prediction` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

QUANTILES = (0.1, 0.5, 0.9, 1.0)
"""The probabilities that every prediction has; 1.0: the longest that is known."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of a piece of work before it runs. ``owner``: its user, or the namespace that stands for
    one; ``size``: how many pods it needs at the least; ``name`` without the namespace. An empty owner or name says
    nothing. ``stated``: for how many seconds its owner says that it runs. ``work``: see :class:`CompletedRun`.
    ``shape``: what it asks for beside its size, in any words that are equal for equal requests; empty: not known."""

    owner: str
    queue: str
    name: str
    size: int = 1
    stated: float | None = None
    work: str = ""
    shape: str = ""


@dataclass(frozen=True, slots=True)
class CompletedRun:
    """A piece of work that ended well. ``work``: one name for all its pods (a uid): the longest of them
    counts, once. ``seconds`` from its start to its end."""

    work: str
    traits: Traits
    seconds: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """``seconds``: what to reckon with, rather too long than too short. ``quantiles``: probability → seconds, of
    :data:`QUANTILES`, none less than one of a smaller probability. ``basis``: on what it rests, for people.
    ``stated``: somebody answers for it; else it was learned, of ``runs``: seconds in ascending order."""

    seconds: float
    quantiles: Mapping[float, float] = field(default_factory=dict)
    basis: str = ""
    stated: bool = False
    runs: tuple[float, ...] = ()

    @property
    def at_most(self) -> float:
        """The longest that is known of such work."""
        return max(self.quantiles.values(), default=self.seconds)


class RunTimeModel(Protocol):
    """:class:`~windlass.predict.history.History` (learned), :class:`~windlass.predict.known.Stated` (the owner's word),
    :class:`~windlass.predict.known.Oracle` (the truth)."""

    def observe(self, run: CompletedRun) -> None:
        """A run has ended. Told again of the same work, the longest counts."""
        ...

    def predict(self, traits: Traits) -> Prediction | None:
        """``None`` where too little is known."""
        ...
