"""Value of a metric with its origin: a metric without a value is never zero."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MAX_AGE_SECONDS = 120.0
"""Maximum age of a value in seconds. An older one counts as no value."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Value of one metric.

    ``value``: ``None`` without one; ``problem`` then says why. ``source``: where it comes from.
    ``at``: time of the value in Unix seconds.
    """

    name: str
    value: float | None
    source: str
    at: float = 0.0
    problem: str = ""

    def usable(self, now: float, max_age: float = MAX_AGE_SECONDS) -> Measurement:
        """Return the measurement, without its value if that is not a number or too old."""
        if self.value is None:
            return self
        if not math.isfinite(self.value):
            return Measurement(self.name, None, self.source, self.at, f"the value is {self.value}")
        age = now - self.at
        if age > max_age:
            words = f"the last value ({self.value:g}) is {age:.0f} s old, and {max_age:.0f} s are allowed"
            return Measurement(self.name, None, self.source, self.at, words)
        return self


def values_of(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Return the metrics that have a value."""
    return {one.name: one.value for one in measurements if one.value is not None}
