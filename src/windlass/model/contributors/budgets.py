"""PodDisruptionBudgets that protect pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import views
from windlass.engine import deltas
from windlass.model.cluster.disruption_budgets import BudgetIndex
from windlass.model.cluster.marks import DirtyMarks
from windlass.model.contributors.registry import Contributor, Contributors


class ProtectedPods(Contributor):
    """PodDisruptionBudgets. While any exist, each of them may protect any pod."""

    def __init__(self, contributors: Contributors, marks: DirtyMarks, pods: Mapping[str, views.Pod]) -> None:
        self._contributors = contributors
        self._marks = marks
        self._pods = pods
        self.index = BudgetIndex()

    def upsert(self, budget: views.PodDisruptionBudget) -> None:
        """Enter a budget."""
        self.index.upsert(budget)
        self._contributors.register_everywhere(self, active=True)

    def remove(self, budget: views.PodDisruptionBudget) -> None:
        """Remove a budget."""
        self.index.remove(budget)

    def of(self, pod: views.Pod) -> tuple[str, ...]:
        """Return the budgets that protect a pod, sorted."""
        return self.index.of(pod)

    def mark_reselected(self) -> None:
        """Mark the pods of namespaces in which budgets select other pods than before."""
        namespaces, self.index.reselected = self.index.reselected, set()
        if namespaces:
            self._marks.mark_pods(key for key, pod in self._pods.items() if pod.namespace in namespaces)

    def take(self) -> list[deltas.Delta]:
        """Return the deltas that the engine has not received."""
        return self.index.take()

    def allowed(self) -> list[tuple[str, int]]:
        """Return all budgets, each with the number of evictions that it allows."""
        return self.index.allowed()

    def resend(self) -> None:
        """Send all budgets again with the next :meth:`take`."""
        self.index.resend()

    def add_task_fields(self, pod: views.Pod, fields: dict[str, Any]) -> None:
        """Add the budgets that protect the pod."""
        if budgets := self.index.of(pod):
            fields["budgets"] = budgets
