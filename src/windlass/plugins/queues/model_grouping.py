"""Group order that runs work on the same AI model in succession.

A device then loads each model once, not at every change. Groups name their model by the
annotation ``windlass.dev/model``. Groups created within one time window (multiples of
it since the epoch) are served model by model, by model name; this order is the same
after a restart. Groups of a later window wait. So a stream of requests for one model
delays another one only by the work of one window. Groups without a model come first in
their window.
"""

from __future__ import annotations

from collections.abc import Collection
from math import floor

from windlass.spi.objects import Dialect
from windlass.spi.plugins import GroupView

MODEL = "windlass.dev/model"
WINDOW_SECONDS = 3600.0


class ModelGrouping:
    """Group order by time window, then by model name.

    Groups of other queue APIs keep their order. Raises ``ValueError`` if the window is
    not above 0 seconds.
    """

    name = "model-grouping"

    def __init__(
        self, window_seconds: float = WINDOW_SECONDS, dialects: Collection[Dialect] = tuple(Dialect)
    ) -> None:
        if not window_seconds > 0:
            raise ValueError(f"model-grouping: window {window_seconds!r} is not above 0 seconds")
        self._window_seconds = window_seconds
        self._dialects = frozenset(dialects)

    def group_key(self, group: GroupView) -> tuple[int, str]:
        """Return the window and the model."""
        spec = group.spec
        if spec.dialect not in self._dialects:
            return (0, "")
        return (floor(spec.created / self._window_seconds), spec.annotations.get(MODEL, ""))
