from __future__ import annotations

import asyncio

from fakeapi import FakeApi

from windlass.api.resources import PRIORITY_CLASSES
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.priorityclasses.controller import PriorityClassController

VALUES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
    "high-priority": 10_000,
    "aigc-urgent": 100_000,
    "aigc-high": 10_000,
    "aigc-medium": 1_000,
    "aigc-low": 100,
}


def test_the_shipped_classes() -> None:
    api = FakeApi()
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "aigc-low"}, "value": 7})
    controller = PriorityClassController(api)  # type: ignore[arg-type]
    executor = EffectExecutor(api)  # type: ignore[arg-type]

    async def run() -> None:
        for key in controller.initial_keys():
            await executor.perform(await controller.reconcile(key))

    asyncio.run(run())
    found = {c["metadata"]["name"]: c["value"] for c in api.objects(PRIORITY_CLASSES)}
    assert found == {**VALUES, "aigc-low": 7}  # one that is there is never changed
