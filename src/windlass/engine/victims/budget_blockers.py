"""PodDisruptionBudgets that alone blocked a preemption."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from windlass.api.reasons import Blocker, Reason
from windlass.engine.groups.entries import TaskEntry
from windlass.engine.victims.disruption_budgets import EvictionBudgets


class BudgetBlocker(msgspec.Struct, frozen=True):
    """Budget that blocks a preemption.

    ``needed``: number of evictions that are necessary, 0 if unknown.
    ``left``: number of evictions that the budget allows.
    """

    budget: str
    needed: int
    left: int


def stops_of(budgets: EvictionBudgets, going: Iterable[TaskEntry]) -> tuple[BudgetBlocker, ...]:
    """Return the budgets that do not allow these evictions together, by name."""
    asked = Counter(key for entry in going for key in entry.task.budgets)
    lefts = {key: budgets.left(key) for key in asked}
    return tuple(
        BudgetBlocker(key, asked[key], max(left, 0))
        for key, left in sorted(lefts.items())
        if left is not None and left < asked[key]
    )


def grants(stops: Iterable[BudgetBlocker]) -> dict[str, int]:
    """Return the evictions that have to be allowed beyond what is left, by budget."""
    return {stop.budget: stop.needed - stop.left for stop in stops}


def all_stops(by_action: Mapping[str, Sequence[BudgetBlocker]]) -> list[BudgetBlocker]:
    """Return the blockers of all actions, each budget once with the fewest necessary evictions."""
    found: dict[str, BudgetBlocker] = {}
    for stops in by_action.values():
        for stop in stops:
            known = found.get(stop.budget)
            if known is None or (not known.needed or 0 < stop.needed < known.needed):
                found[stop.budget] = stop
    return [found[key] for key in sorted(found)]


def sentence(stops: Sequence[BudgetBlocker]) -> str:
    return f"Others could make room for it, but {', and '.join(_told(stop) for stop in stops)}."


def _told(stop: BudgetBlocker) -> str:
    budget = f"PodDisruptionBudget {stop.budget}"
    if stop.needed:
        return f"{budget} lets {stop.left} of the {stop.needed} pods go that would have to"
    return f"{budget} lets no more than {stop.left} of its pods go"


def blockers(stops: Sequence[BudgetBlocker]) -> tuple[Blocker, ...]:
    return tuple(
        Blocker(Reason.DISRUPTION_BUDGETS, 0, "pods", str(stop.needed or ""), str(stop.left), stop.budget)
        for stop in stops
    )


def remedies(stops: Sequence[BudgetBlocker]) -> tuple[str, ...]:
    found = []
    for stop in stops:
        namespace, _, name = stop.budget.partition("/")
        found.append(
            f"Let PodDisruptionBudget {stop.budget} allow {stop.needed or 'more'} disruptions: lower its "
            f"minAvailable or raise its maxUnavailable (kubectl edit poddisruptionbudget {name} -n {namespace}), or "
            "run more of what it protects."
        )
    return tuple(found)
