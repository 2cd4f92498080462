"""PodDisruptionBudgets in a running scheduler."""

from __future__ import annotations

from typing import Any

from kubeobjects import node
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import POD_DISRUPTION_BUDGETS

KEY = "default/calm"


def budget(allowed: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "calm", "namespace": "default", "uid": "calm", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": allowed},
    }


async def test_changes_of_budgets_are_followed() -> None:
    api = SchedulerApi()
    api.add(node("n0"))
    api.put(POD_DISRUPTION_BUDGETS, budget(2))
    async with Running(api) as running:
        left = running.service.engine.state.budgets.left
        await running.settle(2.0)
        assert left(KEY) == 2
        api.put(POD_DISRUPTION_BUDGETS, budget(1))
        await running.settle(2.0)
        assert left(KEY) == 1
