"""A cluster that grows and shrinks: Windlass beside the cluster autoscaler itself, on a real API server.

It makes nodes from templates (its provider ``kwok``). Skipped by name where its program is not there; that what
Windlass says on pods is true and prompt is held without it in
``tests/scheduler/autoscaling/test_cluster_autoscalers.py``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from cluster_autoscaler import Autoscaler, GrowingScene, configure, looked, need_autoscaler
from clusters import Cluster
from provisioning_request_crd import ATOMIC, install_requests
from realkube import RealKube, serving
from scheduling_over_http import eventually

from windlass.api.annotations import PROVISIONING_CLASS
from windlass.api.resources import POD_TEMPLATES, PODS, QUEUES

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
GPUS = "nvidia.com/gpu"
GOING = "ToBeDeletedByClusterAutoscaler"


@pytest.fixture(scope="module")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKube]:
    need_autoscaler()
    with serving(tmp_path_factory.mktemp("growing"), crds=True) as made:
        api = Cluster.of_real(made)
        configure(api, most=8)
        install_requests(made)
        api.close()
        yield made


@pytest.fixture(scope="module")
def autoscaler(kube: RealKube) -> Iterator[Autoscaler]:
    made = Autoscaler(kube)
    yield made
    made.stop()


@pytest.fixture
async def scene(kube: RealKube, autoscaler: Autoscaler) -> AsyncIterator[GrowingScene]:
    cluster = Cluster.of_real(kube)
    made = GrowingScene(cluster, cluster.new_namespace("growing"))
    await made.make_queue(capability={GPUS: "44"})
    await made.start()
    yield made
    await made.close()


async def whole(scene: GrowingScene, name: str, members: int) -> set[str]:
    """The nodes of a gang, once all of it is bound."""

    async def bound() -> set[str] | None:
        found = {pod: node for pod, node in (await scene.bound()).items() if pod.startswith(f"{name}-")}
        return set(found.values()) if len(found) == members else None

    return await eventually(bound, f"{name} bound")


async def test_a_gang_gets_the_nodes_that_it_lacks_and_who_lacks_more_than_nodes_gets_none(
    scene: GrowingScene, autoscaler: Autoscaler
) -> None:
    before = set(await scene.nodes())
    await scene.wide_gang("train", 4)
    assert len(await whole(scene, "train", 4)) == 4
    grown = set(await scene.nodes())
    assert len(grown) == max(4, len(before))  # as many at once as the whole gang needs
    await scene.wide_gang(
        "limit", 5
    )  # its queue has 12 GPUs left; four nodes would not do even if they were empty
    await scene.group_of("few", 5, minResources={GPUS: "40"})
    await scene.group_of("gated", 1)
    for name in ("few-0", "few-1"):
        await scene.pod(name, group="few", gpus=8)
    await scene.pod("gated-0", group="gated", gpus=8, schedulingGates=[{"name": "example.com/wait"}])
    await scene.group_of("never", 1)
    await scene.pod("never-0", group="never", gpus=9)  # more than any template has

    async def told() -> bool:
        return len(await scene.reasons()) == 9

    await eventually(told, "all told why they wait")
    found = await scene.reasons()
    assert found.pop("never-0") == "Unschedulable"
    assert set(found.values()) == {"SchedulingGated"}
    await looked(autoscaler)
    assert set(await scene.nodes()) == grown


async def test_a_gang_that_asks_for_all_its_nodes_or_none_gets_just_that(
    scene: GrowingScene, autoscaler: Autoscaler
) -> None:
    async def empty() -> bool:
        return not await scene.nodes()

    await eventually(empty, "nodes of others gone")  # one that is on its way out would count as room
    roomy = f"{scene.queue}-roomy"
    spec = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": roomy}, "spec": {}}
    await scene.client.create(QUEUES, spec)
    await scene.asked_whole("huge", 9, roomy)  # of eight that there may be

    async def refused() -> bool:
        calls = list((await scene.reasons()).values())
        return scene.provisioned("huge") == "False" and calls == ["SchedulingGated"] * 9

    await eventually(refused, "no room for nine nodes")
    await looked(autoscaler)
    assert await empty()
    for name in await scene.pods():
        await scene.client.delete(PODS, name, scene.namespace, grace_seconds=0)
    await scene.asked_whole("large", 8, roomy)
    assert len(await whole(scene, "large", 8)) == 8
    assert scene.provisioned("large") == "True"


async def test_windlass_asks_for_a_gangs_nodes_itself_and_gets_all_or_none(
    scene: GrowingScene, autoscaler: Autoscaler
) -> None:
    async def empty() -> bool:
        return not await scene.nodes()

    await eventually(empty, "nodes of others gone")
    asking = f"{scene.queue}-asks"
    notes = {PROVISIONING_CLASS: ATOMIC}
    metadata = {"name": asking, "annotations": notes}
    spec = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": metadata, "spec": {}}
    await scene.client.create(QUEUES, spec)
    await scene.wide_gang("huge", 9, queue=asking)  # of eight that there may be

    async def refused() -> bool:
        told = await scene.asked("huge")
        return told is not None and told.detail.startswith("Capacity is not found")

    await eventually(refused, "no room for nine nodes")
    assert set((await scene.reasons()).values()) == {"SchedulingGated"}
    await looked(autoscaler)
    assert await empty()
    for name in await scene.pods():
        await scene.client.delete(PODS, name, scene.namespace, grace_seconds=0)
    await scene.wide_gang("large", 6, queue=asking)
    assert len(await whole(scene, "large", 6)) == 6

    async def nothing_left() -> bool:
        return not scene.requests() and not (await scene.client.list(POD_TEMPLATES, scene.namespace)).items

    await eventually(nothing_left, "what was asked with withdrawn")
    assert len(await scene.nodes()) == 6  # no more than it asked for
    await looked(autoscaler)
    assert len(await scene.nodes()) == 6


async def test_nobody_is_placed_on_a_node_that_goes(scene: GrowingScene, autoscaler: Autoscaler) -> None:
    await scene.wide_gang("old", 3)
    await whole(scene, "old", 3)
    for name in await scene.pods():
        await scene.client.delete(PODS, name, scene.namespace, grace_seconds=0)

    async def going() -> bool:
        return any(GOING in str(node["spec"].get("taints")) for node in (await scene.nodes()).values())

    await eventually(going, "a node that is to be deleted")
    await scene.wide_gang("new", 3)
    nodes = await whole(scene, "new", 3)
    await looked(autoscaler)
    there = await scene.nodes()
    assert nodes <= set(there)
    assert not any(GOING in str(there[node]["spec"].get("taints")) for node in nodes)
    assert len(await scene.bound()) == 3
