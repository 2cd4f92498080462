"""Simulated nodes: pods that only take time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_transport import FakeTransport, ok
from node_agent_server import NODE, NodeBox, pod, serving

from windlass.api import annotations
from windlass.api.errors import failure
from windlass.api.nodes.simulated import node_object
from windlass.api.resources import JOB_SETS, LEASES, NODES, PODS
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.client.retries import NEVER
from windlass.client.transport import Request, Response
from windlass.kits.clock import FakeClock
from windlass.kits.rng import seeded
from windlass.node.heartbeat import renew_lease
from windlass.node.options import AgentOptions
from windlass.node.pods.record import PodDecoder
from windlass.node.restart_barriers import RestartBarriers, decode_barrier
from windlass.node.simulated_nodes.nodes import SimulatedNodes, decode_simulated


@pytest.fixture
async def fleet(tmp_path: Path) -> Any:
    options = AgentOptions(node_name=NODE, gpus="none", simulated_start_seconds=0.05)
    async with serving(tmp_path, options) as box:
        for number in range(3):
            node = node_object(f"sim-{number}", cpu="8", memory="64Gi", gpus=4, labels={"rack": "r1"})
            await box.client.create(NODES, node)
        yield box


def sim_pod(name: str, node: str = "sim-0", **marks: str) -> dict[str, Any]:
    notes = {f"windlass.dev/{key.replace('_', '-')}": value for key, value in marks.items()}
    spec = pod(name, "no-such-program", metadata={"annotations": notes})
    spec["spec"]["nodeName"] = node
    return spec


async def test_the_node_object_is_whole() -> None:
    node = node_object(
        "n",
        cpu="8",
        memory="64Gi",
        gpus=4,
        product="NVIDIA H100",
        labels={"a": "b"},
        taints=[{"key": "k", "effect": "NoSchedule"}],
        resources={"example.com/x": "3"},
    )
    assert node["metadata"]["labels"][annotations.SIMULATED] == "true"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H100"
    assert node["metadata"]["labels"]["a"] == "b"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert node["status"]["allocatable"]["example.com/x"] == "3"
    assert node["spec"]["taints"] == [{"key": "k", "effect": "NoSchedule"}]


async def test_they_become_ready_and_keep_their_leases(fleet: NodeBox) -> None:
    async def ready() -> bool:
        nodes = [await fleet.client.get(NODES, f"sim-{n}") for n in range(3)]
        return all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"].get("conditions", []))
            for n in nodes
        )

    await fleet.until(ready)

    async def leased() -> bool:
        names = {
            lease["metadata"]["name"] for lease in (await fleet.client.list(LEASES, "kube-node-lease")).items
        }
        return names >= {"sim-0", "sim-1", "sim-2", NODE}

    await fleet.until(leased)


async def test_node_that_is_created_again_is_ready_and_owns_its_lease(fleet: NodeBox) -> None:
    """Also if it is created from a manifest that was saved while the node was not ready."""
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}

    async def settled() -> bool:
        node = await fleet.client.get(NODES, "sim-0")
        lease = await fleet.client.find(LEASES, "sim-0", "kube-node-lease")
        owners = (lease or {}).get("metadata", {}).get("ownerReferences") or [{}]
        conditions = node["status"].get("conditions", [])
        return owners[0].get("uid") == node["metadata"]["uid"] and any(
            c["type"] == "Ready" and c["status"] == "True" for c in conditions
        )

    await fleet.until(settled)
    for conditions in ([], [ready]):
        await fleet.client.delete(NODES, "sim-0")
        node = node_object("sim-0", gpus=4)
        node["status"]["conditions"] = conditions
        await fleet.client.create(NODES, node)
        await fleet.until(settled)
    await fleet.client.patch(NODES, "sim-0", {"status": {"conditions": [ready]}}, subresource="status")
    await fleet.until(settled)


async def test_no_lease_is_created_for_a_node_that_does_not_exist(fleet: NodeBox) -> None:
    await renew_lease(fleet.client, "gone", "u", 0.0)
    assert await fleet.client.find(LEASES, "gone", "kube-node-lease") is None
    other = await fleet.client.create(NODES, {**node_object("real"), "metadata": {"name": "real"}})
    await renew_lease(fleet.client, "real", "of an earlier node", 0.0)
    assert await fleet.client.find(LEASES, "real", "kube-node-lease") is None
    await renew_lease(fleet.client, "real", other["metadata"]["uid"], 0.0)
    lease = await fleet.client.get(LEASES, "real", "kube-node-lease")
    assert [owner["uid"] for owner in lease["metadata"]["ownerReferences"]] == [other["metadata"]["uid"]]


async def test_pods_run_for_their_time_and_end_as_declared(fleet: NodeBox) -> None:
    begin = time.monotonic()
    await fleet.create(sim_pod("good", run_seconds="1"))
    await fleet.create(sim_pod("bad", "sim-1", run_seconds="0", exit_code="3"))
    await fleet.create(sim_pod("endless"))
    running = await fleet.phase("endless", "Running")
    assert running["status"]["containerStatuses"][0]["ready"] is True
    assert running["status"]["podIP"]
    good = await fleet.phase("good", "Succeeded")
    assert time.monotonic() - begin >= 1
    assert good["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
    bad = await fleet.phase("bad", "Failed")
    assert bad["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert not (fleet.state.node / "pods" / good["metadata"]["uid"]).exists()


async def test_without_a_time_they_run_until_deleted_within_their_grace(fleet: NodeBox) -> None:
    await fleet.create(sim_pod("p"))
    await fleet.phase("p", "Running")
    await asyncio.sleep(0.3)
    assert (await fleet.get("p"))["status"]["phase"] == "Running"
    await fleet.client.delete(PODS, "p", "default", grace_seconds=5)
    await fleet.gone("p")


async def test_a_node_that_comes_after_its_pods_plays_them(fleet: NodeBox) -> None:
    await fleet.create(sim_pod("early", "sim-late", run_seconds="0.1"))
    await asyncio.sleep(0.2)
    assert (await fleet.get("early"))["status"].get("phase", "Pending") == "Pending"
    await fleet.client.create(NODES, node_object("sim-late"))
    await fleet.phase("early", "Succeeded")


async def test_another_agent_goes_on_where_the_first_one_stopped(fleet: NodeBox) -> None:
    await fleet.create(sim_pod("p", run_seconds="3"))
    await fleet.phase("p", "Running", "Succeeded")  # the latter where three seconds are short
    await fleet.kill_agent()
    await fleet.start_agent()
    await fleet.phase("p", "Succeeded")


@pytest.mark.slow
async def test_a_thousand_pods_on_three_hundred_nodes(fleet: NodeBox) -> None:
    for number in range(300):
        await fleet.client.create(NODES, node_object(f"many-{number}", gpus=8))
    for number in range(1000):
        await fleet.create(sim_pod(f"p{number}", f"many-{number % 300}", run_seconds="0.1"))

    async def done() -> bool:
        items = (await fleet.client.list(PODS, "default")).items
        return sum(p["status"].get("phase") == "Succeeded" for p in items) == 1000

    await fleet.until(done, 150)


def test_records_are_whole_for_the_box_and_slim_for_others() -> None:
    mine = msgspec.json.encode(sim_pod("a", NODE, run_seconds="inf", exit_code="x"))
    other = msgspec.json.encode(sim_pod("b", "sim-1", run_seconds="2.5", exit_code="7"))
    decode = PodDecoder(NODE)
    whole, slim = decode(msgspec.Raw(mine)), decode(msgspec.Raw(other))
    assert whole.raw is not None
    assert (whole.run_seconds, whole.exit_codes) == ((), (0,))  # what is no time counts as none
    assert slim.raw is None
    assert (slim.run_seconds, slim.exit_codes, slim.containers) == ((2.5,), (7,), ("main",))


async def test_a_new_agent_gives_no_address_twice(fleet: NodeBox) -> None:
    for number in range(3):
        await fleet.create(sim_pod(f"before-{number}"))
        await fleet.phase(f"before-{number}", "Running")
    await fleet.kill_agent()
    await fleet.start_agent()
    for number in range(3):
        await fleet.create(sim_pod(f"after-{number}", "sim-1"))
        await fleet.phase(f"after-{number}", "Running")
    pods = (await fleet.client.list(PODS, "default")).items
    assert len({pod["status"]["podIP"] for pod in pods}) == 6


class Scene:
    """Simulated nodes without a server: objects are shown by hand, requests end in ``answer``."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.refused = 0
        self.code = 503
        self.written: list[Any] = []
        client = Client(FakeTransport(self.answer), clock=self.clock, rng=seeded(1), retries=NEVER)
        self.nodes: Informer[Any] = Informer(NODES, decode_simulated)
        self.pods: Informer[Any] = Informer(PODS, PodDecoder(NODE))
        job_sets: Informer[Any] = Informer(JOB_SETS, decode_barrier)
        self.fleet = SimulatedNodes(
            client,
            self.clock,
            self.nodes,
            self.pods,
            start_seconds=0.1,
            barriers=RestartBarriers(job_sets),
        )

    def answer(self, request: Request) -> Response | Exception:
        self.written.append((request.path, msgspec.json.decode(request.body)))
        if self.refused:
            self.refused -= 1
            return failure(self.code, "", "not now", {})
        return ok({})

    def show(self, informer: Informer[Any], obj: dict[str, Any]) -> None:
        record = informer.decode(msgspec.Raw(msgspec.json.encode(obj)))
        key = f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}".strip("/")
        informer.tell(informer.put(key, record), record)

    def statuses(self, path: str) -> list[Any]:
        return [body["status"] for written, body in self.written if written == f"{path}/status"]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    task = asyncio.ensure_future(scene.fleet.run())
    yield scene
    task.cancel()
    await asyncio.wait((task,))


def bound(name: str, node: str = "n") -> dict[str, Any]:
    spec = sim_pod(name, node)
    spec["metadata"] |= {"uid": f"uid-{name}", "namespace": "default"}
    return spec


@pytest.mark.parametrize("code", [503, 409, 410])
async def test_a_pod_keeps_its_address_until_the_server_has_taken_it(scene: Scene, code: int) -> None:
    scene.show(scene.nodes, node_object("n"))
    await scene.clock.advance(2)
    scene.refused, scene.code = 3, code
    scene.show(scene.pods, bound("p"))
    await scene.clock.advance(10)
    told = scene.statuses("/api/v1/namespaces/default/pods/p")
    assert len(told) == 4
    assert len({status["podIP"] for status in told}) == 1


async def test_a_node_that_could_not_be_greeted_is_greeted_again(scene: Scene) -> None:
    scene.refused = 2
    node = node_object("n")
    del node["status"]["conditions"]
    scene.show(scene.nodes, node)
    await scene.clock.advance(3)
    told = scene.statuses("/api/v1/nodes/n")
    assert len(told) == 3
    assert any(one["type"] == "Ready" for one in told[-1]["conditions"])


async def test_pods_are_looked_through_once_for_nodes_that_come_together(scene: Scene) -> None:
    looks = []

    class Counted(dict[str, Any]):
        def values(self) -> Any:
            looks.append(len(self))
            return super().values()

    for number in range(50):
        scene.show(scene.pods, bound(f"p{number}", f"n{number}"))
    scene.pods.items = Counted(scene.pods.items)
    for number in range(50):
        scene.show(scene.nodes, node_object(f"n{number}"))
    await scene.clock.advance(20)
    assert looks == [50]
    for number in range(50):
        assert scene.statuses(f"/api/v1/namespaces/default/pods/p{number}")
