"""Input and output of a recommender of replica counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Replicas:
    """Number of replicas now, and the bounds that the user set. ``minimum`` ≤ ``maximum``."""

    current: int
    minimum: int
    maximum: int

    def clamp(self, wanted: int) -> int:
        """Return ``wanted`` within the bounds."""
        return max(self.minimum, min(wanted, self.maximum))


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Number of replicas that one recommender asks for.

    ``source``: name of the recommender. ``arithmetic``: how the number comes about, in words.
    ``error``: why there is no number; ``replicas`` is then the present one.
    ``reads``: names of the metrics that it read.
    """

    source: str
    replicas: int
    arithmetic: str
    error: str = ""
    reads: tuple[str, ...] = ()
