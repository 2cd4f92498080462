"""A node that dies under a gang (W8): the lost members are deleted and created again within a minute."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubeflow_cluster import KubeflowWorld, kubeflow_job, replica
from vcjob_cluster import World, job, task

from windlass.api.annotations import JOB_RECORD
from windlass.api.resources import NODES, PODS, PYTORCH_JOBS
from windlass.controllers.nodehealth.controller import NodeHealthController
from windlass.controllers.nodehealth.taints import UNREACHABLE


class DeadNode:
    """Reconciler of node health next to a job's own controller. ``node-1`` is unreachable from now on."""

    def __init__(self, world: World) -> None:
        self.world, self.api = world, world.api
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T12:00:00Z"}
        for name in ("node-1", "node-2"):
            self.api.put(NODES, {"metadata": {"name": name}, "status": {"conditions": [ready]}})
        self.health = NodeHealthController(self.api, self.api, self.api.clock)  # type: ignore[arg-type]
        taint = {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "2026-01-01T12:00:00Z"}
        self.api.change(NODES, "node-1", spec={"taints": [taint]})

    def reconcile(self) -> float | None:
        """Reconcile every pod once. Return the time until the next one is due."""

        async def once(name: str) -> float | None:
            effects = await self.health.reconcile(f"pod:default/{name}")
            assert not (await self.world.executor.perform(effects)).failures
            return effects.requeue_after

        due = [asyncio.run(once(name)) for name in self.world.pods()]
        return min((seconds for seconds in due if seconds is not None), default=None)


def kubeflow() -> World:
    return KubeflowWorld(kubeflow_job(PYTORCH_JOBS, None, Worker=replica(3)))


def volcano() -> World:
    return World(job(task(replicas=3), policies=[{"event": "PodEvicted", "action": "RestartJob"}]))


@pytest.mark.parametrize("kind", [kubeflow, volcano])
def test_a_gang_is_whole_again_within_a_minute_of_the_death_of_its_node(kind: Any) -> None:
    world = kind()
    for _ in range(5):
        world.reconcile()
        if world.group is not None:
            world.admit()
    world.run()
    world.settle()
    before = {name: world.pod(name)["metadata"]["uid"] for name in world.pods()}
    last = sorted(before)[-1]
    world.api.change(PODS, f"default/{last}", spec={"nodeName": "node-2"})
    site, begun = DeadNode(world), world.api.clock.now()
    while world.api.clock.now() < begun + 60:
        due = site.reconcile()
        world.reconcile()
        world.reconcile()
        if world.group is not None and not (world.group.get("status") or {}).get("phase"):
            world.admit()
        new = [name for name in world.pods() if world.pod(name)["metadata"]["uid"] != before.get(name)]
        if len(world.pods()) == 3 and len(new) >= 2:
            break
        world.api.clock.jump(due if due is not None and due > 0 else 1.0)
        present = world.api.object(PODS, f"default/{last}")
        if kind is volcano and present is not None and present["metadata"].get("deletionTimestamp"):
            world.take_away(last)  # node-2 lives, and its agent ends a deleted pod
    assert world.api.clock.now() - begun <= 40
    assert not any(world.pod(name)["metadata"].get("deletionTimestamp") for name in world.pods())
    if kind is kubeflow:
        assert world.pod(last)["metadata"]["uid"] == before[last]
        assert '"node":2' in world.job["metadata"]["annotations"][JOB_RECORD]
