"""PodDisruptionBudgets and the pods that they select, by the rules of ``policy/v1``.

An empty selector selects all pods of the namespace, an absent one none. Budgets protect
running pods. They do not protect a pod that is pending, finished or terminating.
"""

from __future__ import annotations

from windlass.api import selectors, views
from windlass.api.selectors import from_label_selector
from windlass.engine import deltas

_UNGUARDED = ("Pending", "Succeeded", "Failed", "")


_Label = tuple[str, str] | None


class BudgetIndex:
    """Budgets by namespace.

    ``dirty``: budgets that changed since :meth:`take`.
    ``reselected``: namespaces in which budgets select other pods.
    """

    def __init__(self) -> None:
        self._views: dict[str, views.PodDisruptionBudget] = {}
        self._selectors: dict[str, dict[_Label, dict[str, selectors.Selector]]] = {}
        """Namespace → a label that all selected pods have, if one is known → budget → its selector."""
        self.dirty: dict[str, None] = {}
        self.reselected: set[str] = set()

    def upsert(self, budget: views.PodDisruptionBudget) -> None:
        known = self._views.get(budget.key)
        if known is None or known.selector != budget.selector:
            self._drop(budget.key)
            self.reselected.add(budget.namespace)
            if budget.selector is not None:
                selector = from_label_selector(budget.selector)
                inside = self._selectors.setdefault(budget.namespace, {})
                inside.setdefault(_label(selector), {})[budget.key] = selector
        self._views[budget.key] = budget
        self.dirty[budget.key] = None

    def remove(self, budget: views.PodDisruptionBudget) -> None:
        if budget.key in self._views:
            self._drop(budget.key)
            del self._views[budget.key]
            self.dirty[budget.key] = None
            self.reselected.add(budget.namespace)

    def _drop(self, key: str) -> None:
        known = self._views.get(key)
        if known is None or known.selector is None:
            return
        inside, label = self._selectors[known.namespace], _label(from_label_selector(known.selector))
        del inside[label][key]
        if not inside[label]:
            del inside[label]
        if not inside:
            del self._selectors[known.namespace]

    def of(self, pod: views.Pod) -> tuple[str, ...]:
        """Return the budgets that protect a pod, sorted."""
        inside = self._selectors.get(pod.namespace)
        if not inside or pod.phase in _UNGUARDED:
            return ()
        keys = [
            key
            for label in (None, *pod.labels.items())
            for key, selector in inside.get(label, {}).items()
            if selector.matches(pod.labels)
        ]
        return tuple(sorted(keys))

    def take(self) -> list[deltas.Delta]:
        """Return the deltas that the engine has not received."""
        changed, self.dirty = self.dirty, {}
        return [
            deltas.BudgetUpserted(key, budget.allowed) if budget else deltas.BudgetRemoved(key)
            for key in changed
            for budget in [self._views.get(key)]
        ]

    def allowed(self) -> list[tuple[str, int]]:
        """Return all budgets, each with the number of evictions that it allows."""
        return [(key, budget.allowed) for key, budget in self._views.items()]

    def resend(self) -> None:
        """Send all budgets again with the next :meth:`take`."""
        self.dirty = dict.fromkeys(self._views)


def _label(selector: selectors.Selector) -> _Label:
    """Return a label that all selected pods have, if the selector requires one."""
    for requirement in selector.requirements:
        if requirement.operator == "In" and len(requirement.values) == 1:
            return requirement.key, requirement.values[0]
    return None
