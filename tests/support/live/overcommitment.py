"""Books that know of other schedulers, which take room in the same moment: spells of over-commitment, not problems."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pod_log import Books

from windlass.scheduler.commit.reservation_pod import SCHEDULER

OURS = ("windlass", SCHEDULER)
"""Its own, and that of pods that hold cards."""


@dataclass
class Excess:
    """A node that holds too much: since when, until when, and whose pod came last. ``shared``: whether somebody
    else's pod was on it."""

    node: str
    what: str
    by: str
    begin: float
    end: float = 0.0
    shared: bool = False


@dataclass
class FullBooks(Books):
    """Keeps spells of over-commitment instead of problems."""

    excesses: list[Excess] = field(default_factory=list)
    now_over: dict[str, Excess] = field(default_factory=dict)
    bound_by: dict[str, int] = field(default_factory=dict)

    def put(self, key: str, pod: dict[str, Any], now: float) -> None:
        before, known = len(self.binds), len(self.problems)
        super().put(key, pod, now)
        over = [problem for problem in self.problems[known:] if problem.endswith(" are taken")]
        self.problems[known:] = [problem for problem in self.problems[known:] if problem not in over]
        by, node = pod["spec"]["schedulerName"], pod["spec"].get("nodeName", "")
        if len(self.binds) > before:
            self.bound_by[by] = self.bound_by.get(by, 0) + 1
        if over and node not in self.now_over:
            self.now_over[node] = Excess(node, over[0], by, now, shared=self._shared(node))
        self._ease(node, now)

    def remove(self, key: str, now: float) -> None:
        entry = self.pods.get(key)
        super().remove(key, now)
        if entry is not None:
            self._ease(entry.node, now)

    def is_ours(self, key: str) -> bool:
        """Whether a pod that is there is Windlass'."""
        return key in self.pods and self.pods[key].pod["spec"]["schedulerName"] in OURS

    def _shared(self, node: str) -> bool:
        return any(entry.node == node and not self.is_ours(key) for key, entry in self.pods.items())

    def _ease(self, node: str, now: float) -> None:
        """Whether a node that held too much does so no longer."""
        over, has = self.now_over.get(node), self.nodes.get(node, {})
        if over and all(units <= has.get(name, 0) for name, units in self.held[node].items()):
            over.end = now
            self.excesses.append(self.now_over.pop(node))
