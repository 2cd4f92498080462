"""``pdb``: no more pods are evicted than PodDisruptionBudgets allow, in the order of
candidates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from windlass.spi.inputs import Budgets
from windlass.spi.tiers import Purpose, TaskView


class Pdb:
    """Vote on victims; it abstains until it has budgets."""

    name = "pdb"
    ignores_preemptor = True

    def __init__(self) -> None:
        self._budgets: Budgets | None = None

    def take_budgets(self, budgets: Budgets) -> None:
        self._budgets = budgets

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        budgets = self._budgets
        if budgets is None:
            return None
        spent: Counter[str] = Counter()
        named = []
        for candidate in candidates:
            keys = candidate.task.budgets
            left = {key: budgets.left(key) for key in keys}
            if all(n is None or n > spent[key] for key, n in left.items()):
                spent.update(keys)
                named.append(candidate)
        return named
