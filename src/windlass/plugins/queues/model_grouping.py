"""Work on the same AI model goes in a row, so that a device loads it once and not at every change.

Groups name their model by the annotation ``windlass.dev/model``. Those that came within one window of time (multiples
of it since the epoch) are served model by model, in the order of the models' names, which is the same after a restart;
what came in a later window waits for that, so that a stream of requests for one model keeps another one out for no
longer than the window's own work takes. Groups that name no model come first in their window.
"""

from __future__ import annotations

from collections.abc import Collection
from math import floor

from windlass.spi.objects import Dialect
from windlass.spi.plugins import GroupView

MODEL = "windlass.dev/model"
WINDOW_SECONDS = 3600.0


class ModelGrouping:
    """Windows by age, in them models by name; groups of other dialects stand as they are.

    Raises ``ValueError`` for a window of no length.
    """

    name = "model-grouping"

    def __init__(
        self, window_seconds: float = WINDOW_SECONDS, dialects: Collection[Dialect] = tuple(Dialect)
    ) -> None:
        if not window_seconds > 0:
            raise ValueError(f"model-grouping: window {window_seconds!r} is no time above 0")
        self._window_seconds = window_seconds
        self._dialects = frozenset(dialects)

    def group_key(self, group: GroupView) -> tuple[int, str]:
        """The window and the model."""
        spec = group.spec
        if spec.dialect not in self._dialects:
            return (0, "")
        return (floor(spec.created / self._window_seconds), spec.annotations.get(MODEL, ""))
