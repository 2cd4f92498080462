"""``cdp``: protection of pods that have run for less than their
``volcano.sh/cooldown-time``."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.plugins.argument_values import duration
from windlass.spi.tiers import Purpose, TaskView

COOLDOWN = "volcano.sh/cooldown-time"


class VolcanoCooldown:
    name = "cdp"
    ignores_preemptor = True
    timed = True

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        return [candidate for candidate in candidates if not _cools(candidate)]


def _cools(candidate: TaskView) -> bool:
    text = dict(candidate.task.annotations).get(COOLDOWN)
    limit = duration(text) if text is not None else None
    running = candidate.running_seconds
    return limit is not None and running is not None and running < limit
