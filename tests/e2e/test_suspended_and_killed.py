"""A scheduler dies while it suspends a gang: the next one finishes that at once, and knows what the gang attained."""

from __future__ import annotations

import asyncio

import pytest
from clusters import Cluster
from fault_transport import DiesAfterBinds
from scheduling_over_http import Scene, eventually
from timeshare_workloads import QUICK_SHARE

from windlass.api.annotations import ATTAINED, CHECKPOINT_EVERY, EVICTION, SUSPENSIONS, TIME_SHARE
from windlass.api.resources import POD_GROUPS, PODS
from windlass.kits import durations
from windlass.spi.configuration import PluginOption, SchedulerConfig

SIZE = 3
GANG_SECONDS = 300.0
"""Who waited for that would be seen."""


async def test_what_a_leader_began_to_suspend_goes_and_ranks_as_before(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(QUICK_SHARE))
    policy = SchedulerConfig(plugins=(PluginOption("quickshare"),))
    scene = Scene(cluster, cluster.new_namespace("suspend"))
    try:
        await scene.make_queue()
        await scene.node("n0", SIZE)
        await shared(scene, "old")
        death = DiesAfterBinds(1, "before", to="/eviction")
        await scene.start(wrap=death.cut, policy=policy, gang_seconds=GANG_SECONDS)
        await eventually(lambda: all_bound(scene, "old"), "the first gang bound")
        for rank in range(SIZE):
            await scene.phase(f"old-{rank}", "Running")
        await asyncio.sleep(1.5)  # a division is at one second
        await shared(scene, "new")
        await eventually(lambda: _true(death.settled), "the scheduler dies at its second eviction")
        await scene.kill()
        notes = (await scene.group("old"))["metadata"]["annotations"]
        assert notes[SUSPENSIONS] == "1"
        assert durations.parse(notes[ATTAINED]) >= 1
        assert EVICTION in notes
        assert len([name for name in await alive(scene) if name.startswith("old")]) == SIZE - 1
        service = await scene.start(policy=policy, gang_seconds=GANG_SECONDS)
        await eventually(lambda: all_bound(scene, "new"), "the rest goes, and the other gang has its room")
        assert not [name for name in await alive(scene) if name.startswith("old")]
        for rank in range(SIZE):
            await scene.pod(f"old-{rank}", group="old")

        async def remembered() -> bool:
            time_account = service.engine.state.time_sharing.accounts.get(f"{scene.namespace}/old")
            return (
                time_account is not None
                and time_account.segment.suspensions >= 1
                and time_account.segment.attained >= 1
            )

        await eventually(remembered, "what it attained before counts")
        await scene.check()
    finally:
        await scene.close()


async def shared(scene: Scene, name: str) -> None:
    await scene.group_of(name, SIZE)
    notes = {"metadata": {"annotations": {TIME_SHARE: "true", CHECKPOINT_EVERY: "0s"}}}
    await scene.client.patch(POD_GROUPS, name, notes, scene.namespace)
    for rank in range(SIZE):
        await scene.pod(f"{name}-{rank}", group=name)


async def alive(scene: Scene) -> list[str]:
    found = (await scene.client.list(PODS, scene.namespace)).items
    return [obj["metadata"]["name"] for obj in found if not obj["metadata"].get("deletionTimestamp")]


async def all_bound(scene: Scene, gang: str) -> bool:
    return sum(name.startswith(gang) for name in await scene.bound()) == SIZE


async def _true(said: bool) -> bool:
    return said
