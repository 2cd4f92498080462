"""PodDisruptionBudgets that alone blocked a preemption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from windlass.api.reasons import Blocker, Reason
from windlass.engine.groups.entries import TaskEntry
from windlass.engine.groups.pending_class import BudgetBlocker
from windlass.engine.victims.disruption_budgets import EvictionBudgets


def blockers_of(budgets: EvictionBudgets, victims: Iterable[TaskEntry]) -> tuple[BudgetBlocker, ...]:
    """Return the budgets that do not allow these evictions together, by name."""
    requested = Counter(key for entry in victims for key in entry.task.budgets)
    allowed_by_budget = {key: budgets.left(key) for key in requested}
    return tuple(
        BudgetBlocker(key, requested[key], max(allowed, 0))
        for key, allowed in sorted(allowed_by_budget.items())
        if allowed is not None and allowed < requested[key]
    )


def grants(blockers_found: Iterable[BudgetBlocker]) -> dict[str, int]:
    """Return the evictions that have to be allowed beyond what is left, by budget."""
    return {blocker.budget: blocker.needed - blocker.allowed for blocker in blockers_found}


def merge_blockers(by_action: Mapping[str, Sequence[BudgetBlocker]]) -> list[BudgetBlocker]:
    """Return the blockers of all actions, each budget once with the fewest necessary evictions."""
    result: dict[str, BudgetBlocker] = {}
    for blockers_found in by_action.values():
        for blocker in blockers_found:
            known = result.get(blocker.budget)
            if known is None or (not known.needed or 0 < blocker.needed < known.needed):
                result[blocker.budget] = blocker
    return [result[key] for key in sorted(result)]


def sentence(blockers_found: Sequence[BudgetBlocker]) -> str:
    clauses = ", and ".join(_clause(blocker) for blocker in blockers_found)
    return f"Evictions could free its capacity, but {clauses}."


def _clause(blocker: BudgetBlocker) -> str:
    budget = f"PodDisruptionBudget {blocker.budget}"
    if blocker.needed:
        return f"{budget} allows {blocker.allowed} of the {blocker.needed} evictions that are needed"
    return f"{budget} allows no more than {blocker.allowed} evictions"


def blockers(blockers_found: Sequence[BudgetBlocker]) -> tuple[Blocker, ...]:
    return tuple(
        Blocker(
            Reason.DISRUPTION_BUDGETS,
            0,
            "pods",
            str(blocker.needed or ""),
            str(blocker.allowed),
            blocker.budget,
        )
        for blocker in blockers_found
    )


def remedies(blockers_found: Sequence[BudgetBlocker]) -> tuple[str, ...]:
    result = []
    for blocker in blockers_found:
        namespace, _, name = blocker.budget.partition("/")
        result.append(
            f"Let PodDisruptionBudget {blocker.budget} allow {blocker.needed or 'more'} disruptions: lower its "
            f"minAvailable or raise its maxUnavailable (kubectl edit poddisruptionbudget {name} -n {namespace}), or "
            "run more of what it protects."
        )
    return tuple(result)
