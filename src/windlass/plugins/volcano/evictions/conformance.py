"""``conformance``: protection of pods of kube-system and of system-critical classes."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.spi.tiers import Purpose, TaskView


class Conformance:
    name = "conformance"
    ignores_preemptor = True

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        return [candidate for candidate in candidates if not candidate.task.critical]
