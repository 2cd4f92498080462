"""Nodes are labelled with what their accelerators are good for, where nobody has said so."""

from __future__ import annotations

import asyncio

import pytest
from fakeapi import FakeApi

from windlass.api.resources import NODES
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import NOTHING
from windlass.controllers.gputier.controller import GpuTierController, reconcile


@pytest.mark.parametrize(
    ("labels", "tier"),
    [
        ({"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}, "high-performance"),
        ({"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}, "standard"),
        ({"nvidia.com/gpu.product": "Tesla-T4", "other": "x"}, "inference"),
        ({"amd.com/gpu.product": "AMD-Instinct-MI300X"}, "high-performance"),
    ],
)
def test_a_known_product_has_a_tier(labels, tier):
    (patch,) = reconcile("n", labels).patches
    assert (patch.resource, patch.name) == (NODES, "n")
    assert patch.patch == {"metadata": {"labels": {"gpu-tier": tier}}}


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"nvidia.com/gpu.product": "Somebodys-Card"},
        {"nvidia.com/gpu.product": "Tesla-T4", "gpu-tier": "mine"},
        {"gpu.family": "T4"},
    ],
)
def test_what_somebody_said_stays_and_nothing_is_guessed(labels):
    assert reconcile("n", labels) is NOTHING


def test_every_node_is_looked_at() -> None:
    api = FakeApi()
    api.put(NODES, {"metadata": {"name": "a", "labels": {"nvidia.com/gpu.product": "NVIDIA-A40"}}})
    api.put(NODES, {"metadata": {"name": "b"}})
    controller = GpuTierController(api)  # type: ignore[arg-type]
    executor = EffectExecutor(api)  # type: ignore[arg-type]

    async def run() -> None:
        (watch,) = controller.watches()
        for node in list(watch.informer.items.values()):
            for key in watch.keys(node):
                await executor.perform(await controller.reconcile(key))
        await executor.perform(await controller.reconcile("gone"))

    asyncio.run(run())
    found = {
        n["metadata"]["name"]: (n["metadata"].get("labels") or {}).get("gpu-tier") for n in api.objects(NODES)
    }
    assert found == {"a": "standard", "b": None}
