"""Gangs of the coscheduling plug-in, as Kubeflow Trainer writes them, on the embedded server and a real one.

On the real one the kind comes and goes while the scheduler runs, and somebody else may keep the status.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from clusters import Cluster
from coschedulingobjects import LABEL, coscheduling_group
from realkube import CRDS, RealKube
from scheduling_over_http import Json, Scene, eventually

from windlass.api.errors import StatusError
from windlass.api.resources import COSCHEDULING_POD_GROUPS
from windlass.client.transport import Request
from windlass.scheduler.cache import event_handlers

NAME = "podgroups.scheduling.x-k8s.io"
CRD = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}"


@pytest.fixture
async def scene(cluster: Cluster) -> AsyncIterator[Scene]:
    made = Scene(cluster, cluster.new_namespace("cosched"))
    await made.make_queue()
    yield made
    await made.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds that come later are looked for at once."""
    monkeypatch.setattr(event_handlers, "PROBE_SECONDS", 0.5)


async def make(scene: Scene, name: str, members: int) -> None:
    group = coscheduling_group(name, members, needs={"nvidia.com/gpu": members})
    group["metadata"] = {"name": name, "namespace": scene.namespace}
    await scene.client.create(COSCHEDULING_POD_GROUPS, group)


async def join(scene: Scene, group: str, *numbers: int) -> None:
    for number in numbers:
        await scene.pod(f"{group}-node-0-{number}", labels={LABEL: group})


async def group_of(scene: Scene, name: str) -> Json:
    return await scene.client.get(COSCHEDULING_POD_GROUPS, name, scene.namespace)


async def reach(scene: Scene, name: str, **wanted: object) -> None:
    async def there() -> bool:
        status = (await group_of(scene, name)).get("status") or {}
        return wanted.items() <= status.items()

    await eventually(there, f"{name}: {wanted}")


async def bind_all(scene: Scene, count: int) -> None:
    async def bound() -> bool:
        return len(await scene.bound()) == count

    await eventually(bound, f"{count} pods bound")


async def told(scene: Scene, pod: str, words: str) -> None:
    async def said() -> bool:
        conditions = (await scene.pods())[pod]["status"].get("conditions") or ()
        return any(words in c.get("message", "") for c in conditions if c["type"] == "PodScheduled")

    await eventually(said, f"{pod}: {words}")


async def served(scene: Scene) -> None:
    async def listed() -> bool:
        try:
            await scene.client.list(COSCHEDULING_POD_GROUPS, scene.namespace)
        except StatusError:
            return False
        return True

    await eventually(listed, f"{NAME} is served")


async def gone(scene: Scene) -> bool:
    try:
        await scene.client.call(Request("GET", CRD))
    except StatusError as error:
        return error.code == 404
    return False


@pytest.mark.real
async def test_the_kind_comes_and_goes_while_the_scheduler_runs(real_kube: RealKube, quick: None) -> None:
    cluster = Cluster.of_real(real_kube)
    scene = Scene(cluster, cluster.new_namespace("cosched"))
    await scene.make_queue()
    await scene.node("a", 4)
    await scene.start()
    try:
        await join(scene, "train", 0, 1)
        await told(scene, "train-node-0-0", f"{scene.namespace}/train does not exist")
        real_kube.install_crds(CRDS / "coscheduling")
        await make(scene, "train", 2)
        await bind_all(scene, 2)
        await reach(scene, "train", phase="Scheduling")

        # the plug-in's controller begins to work: from now on the status is its own
        keeper = scene.connect("controller")
        patch = {"status": {"phase": "Running", "running": 2}}
        await keeper.patch(COSCHEDULING_POD_GROUPS, "train", patch, scene.namespace, subresource="status")
        await keeper.close()
        await scene.phase("train-node-0-0", "Running")
        await make(scene, "other", 1)
        await join(scene, "other", 0)
        await scene.phase("train-node-0-1", "Failed")
        await bind_all(scene, 3)
        await reach(scene, "other", phase="Scheduling")
        assert (await group_of(scene, "train"))["status"]["running"] == 2

        await scene.client.call(Request("DELETE", CRD))
        await join(scene, "late", 0)
        await told(scene, "late-node-0-0", f"{scene.namespace}/late does not exist")
        await bind_all(scene, 3)
    finally:
        await scene.close()


async def test_a_gang_starts_whole_and_its_status_follows(
    scene: Scene, request: pytest.FixtureRequest
) -> None:
    if not scene.embedded:
        await eventually(lambda: gone(scene), f"{NAME} of the test before is gone")
        request.getfixturevalue("real_kube").install_crds(CRDS / "coscheduling")
    await scene.node("a", 3)
    await scene.start()
    await make(scene, "train", 3)
    await join(scene, "train", 0, 1)
    await told(scene, "train-node-0-0", "2 of the 3")
    await reach(scene, "train", phase="Pending")
    assert await scene.bound() == {}
    await join(scene, "train", 2)
    await bind_all(scene, 3)
    await reach(scene, "train", phase="Scheduling")
    for number in range(3):
        await scene.phase(f"train-node-0-{number}", "Running")
    await reach(scene, "train", phase="Running", running=3)
    await make(scene, "next", 2)
    await join(scene, "next", 0, 1)

    async def explained() -> bool:
        notes = (await group_of(scene, "next"))["metadata"].get("annotations") or {}
        return json.loads(notes.get("windlass.dev/explanation", "{}")).get("code") == "InsufficientResources"

    await eventually(explained, "why it waits")
    for number in range(3):
        await scene.phase(f"train-node-0-{number}", "Succeeded")
    await bind_all(scene, 5)
    await reach(scene, "train", phase="Finished", succeeded=3)
    if not scene.embedded:
        await scene.client.call(Request("DELETE", CRD))
