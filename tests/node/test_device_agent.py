"""Agent with devices in this process: MIG instances follow their pods, also after a restart."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from node_agent_server import NODE, NodeBox, pod, serving
from scripted_nvml import A100_40, Script, binding, card

from windlass.api.devices.assignment_annotations import DeviceAssignment, to_annotations
from windlass.api.resources import EVENTS, NODES, PODS
from windlass.node.cleanup import end_all
from windlass.node.options import AgentOptions

PLACES = [("1g.5gb", start) for start in range(4, 7)] + [("2g.10gb", 0), ("2g.10gb", 2), ("3g.20gb", 4)]
SIZES = {"1g.5gb": 1, "2g.10gb": 2, "3g.20gb": 4}


class Cards:
    """Node with an agent that uses the scripted NVML."""

    def __init__(self, box: NodeBox, script: Script) -> None:
        self.box = box
        self.script = script

    @property
    def present(self) -> set[tuple[str, int]]:
        return {(i["profile"], i["start"]) for i in self.script.cards[0]["instances"]}

    async def start(self, name: str, profile: str, start: int) -> None:
        notes = to_annotations([DeviceAssignment(0, 0, 0, profile, start)])
        limits = {"resources": {"limits": {f"nvidia.com/mig-{profile}": "1"}}}
        made = pod(name, "sleep", "600", metadata={"annotations": notes}, container=limits)
        made["spec"]["terminationGracePeriodSeconds"] = 0
        await self.box.create(made)

    async def end(self, name: str) -> None:
        await self.box.client.delete(PODS, name, "default", grace_seconds=0)


@pytest.fixture
async def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cards]:
    script = Script.write(tmp_path / "nvml.json", [card(A100_40, 0, migMode=True)])
    monkeypatch.setitem(sys.modules, "pynvml", binding(script))
    options = AgentOptions(node_name=NODE, gpus="auto:dynamic", device_period_seconds=0.3)
    async with serving(tmp_path, options) as box:
        yield Cards(box, script)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [1, 2])
async def test_slices_are_there_for_living_pods_and_for_no_others(cards: Cards, seed: int) -> None:
    rng = random.Random(seed)
    held: dict[str, tuple[str, int]] = {}
    for number in range(14):
        what = rng.choice(["start", "start", "start", "end", "kill"])
        if what == "start":
            profile, start = rng.choice(PLACES)
            taken = {place for p, s in held.values() for place in range(s, s + SIZES[p])}
            if taken & set(range(start, start + SIZES[profile])):
                continue
            name = f"pod-{number}"
            await cards.start(name, profile, start)
            held[name] = (profile, start)
            if rng.random() < 0.7:
                await cards.box.phase(name, "Running")
        elif what == "end" and held:
            name = rng.choice(sorted(held))
            del held[name]
            await cards.end(name)
        elif what == "kill":
            await cards.box.kill_agent()
            await cards.box.start_agent()
    for name in held:
        await cards.box.phase(name, "Running")
    await cards.box.until(lambda: cards.present == set(held.values()))
    for name in held:
        await cards.end(name)
    await cards.box.until(lambda: not cards.present)


async def test_a_slice_in_use_is_waited_for(cards: Cards) -> None:
    await cards.start("first", "2g.10gb", 0)
    await cards.box.phase("first", "Running")
    (made,) = cards.script.cards[0]["instances"]
    cards.script.run(0, 1, 100, made["id"])
    await cards.end("first")
    await cards.box.gone("first")
    await cards.start("second", "2g.10gb", 0)

    async def told() -> bool:
        events = (await cards.box.client.list(EVENTS, "default")).items
        return any(e["reason"] == "DeviceInUse" and "overlaps" in e["message"] for e in events)

    await cards.box.until(told)
    cards.script.change(0, processes=[])
    await cards.box.phase("second", "Running")
    assert cards.present == {("2g.10gb", 0)}


async def test_a_stop_in_order_leaves_no_slices(cards: Cards) -> None:
    await cards.start("one", "2g.10gb", 0)
    await cards.box.phase("one", "Running")
    assert cards.box.agent is not None
    await cards.box.agent.stop_pods(0.0)
    assert cards.present == set()


async def test_nor_does_a_clean_up_without_an_agent(cards: Cards) -> None:
    await cards.start("one", "2g.10gb", 0)
    await cards.box.phase("one", "Running")
    await cards.box.kill_agent()
    assert cards.present
    await asyncio.to_thread(end_all, cards.box.state, 0.0)
    assert cards.present == set()


async def test_the_node_tells_of_its_card(cards: Cards) -> None:
    node = await cards.box.client.get(NODES, NODE)
    assert node["metadata"]["labels"]["windlass.dev/mig"] == "dynamic"
    assert "nvidia.com/gpu" not in node["status"]["allocatable"]
    conditions: dict[str, Any] = {c["type"]: c["status"] for c in node["status"]["conditions"]}
    assert conditions["GPUsHealthy"] == "True"
    assert conditions["GPUsUsedAsGiven"] == "True"
