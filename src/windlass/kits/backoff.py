"""Exponential back-off with jitter, reset after a time of health."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


@dataclass(slots=True)
class Backoff:
    """Exponential back-off. ``next()`` returns a delay in seconds.

    Defaults are those of client-go's reflector.
    """

    rng: Random
    initial_seconds: float = 0.8
    factor: float = 2.0
    cap_seconds: float = 30.0
    jitter: float = 1.0
    _failures: int = field(default=0, init=False)

    def next(self) -> float:
        base = min(self.cap_seconds, self.initial_seconds * self.factor**self._failures)
        self._failures = min(self._failures + 1, 64)
        return base * (1.0 + self.jitter * self.rng.random())

    def reset(self) -> None:
        self._failures = 0

    @property
    def failures(self) -> int:
        return self._failures
