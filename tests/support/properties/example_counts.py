"""Numbers of examples and of seeds: all in ``make fuzz``, a part of them in ``make test``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

FUZZ = bool(os.environ.get("WINDLASS_FUZZ"))
DIVISOR = 3
"""Ratio of the examples of ``make fuzz`` to those of ``make test``."""
MINIMUM = 10
"""Minimum number of examples in ``make test``."""


def examples(number: int) -> int:
    """Return ``max_examples`` of a property that takes seconds, of which ``make fuzz`` tries ``number``.

    ``make test`` tries a third of them: the same ones in every run, so that more of them find a new fault
    only where the code under test has changed.
    """
    return number if FUZZ else min(number, max(MINIMUM, number // DIVISOR))


T = TypeVar("T")


def seeds(numbers: Sequence[T], few: int) -> list[T]:
    """Return the seeds that a test plays: all of ``numbers`` in ``make fuzz``, the first ``few`` otherwise.

    They may be the names of scenes as well. The test needs the marker ``seeds``, by which ``make fuzz`` selects it.
    """
    return list(numbers if FUZZ else numbers[:few])
