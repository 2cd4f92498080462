"""The bind path, live: reservations and crashes, budgets, nominations, volumes, gates; on both servers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from clusters import Cluster
from fault_transport import DiesAfterBinds, FaultTransport
from machine_speed import Pace
from realkube import RealKube
from scheduling_over_http import Json, Scene, eventually

from windlass.api.errors import StatusError
from windlass.api.resources import (
    CONFIG_MAPS,
    CSI_DRIVERS,
    DEVICE_CLASSES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    Resource,
)
from windlass.model import scheduler_config
from windlass.model.records import gang_reservation
from windlass.scheduler.leader.election import Election, LeaseOptions

NOTE = "windlass.dev/reservation"


@pytest.fixture
async def scene(cluster: Cluster) -> AsyncIterator[Scene]:
    made = Scene(cluster, cluster.new_namespace("bind"))
    await made.make_queue()
    yield made
    await made.close()


async def meant(scene: Scene, group: str) -> dict[str, str]:
    """Pod → node, as the gang's reservation says."""
    notes = (await scene.group(group))["metadata"].get("annotations") or {}
    found = gang_reservation.decode(notes.get(NOTE, ""))
    assert found is not None, notes
    return {seat.pod: seat.node for seat in found.seats}


def conditions(pod: Json) -> dict[str, Json]:
    return {c["type"]: c for c in pod["status"].get("conditions") or ()}


@pytest.mark.parametrize("last", ["before", "after"])
@pytest.mark.parametrize("binds", [0, 2, 5])
async def test_a_gang_is_finished_as_it_was_meant_after_a_crash(scene: Scene, binds: int, last: str) -> None:
    """The scheduler dies with some of a gang bound, one of them perhaps without knowing it."""
    for i in range(8):
        await scene.node(f"n{i}", 1)
    death = DiesAfterBinds(binds, last)
    await scene.gang("g", 6)
    await scene.start(death.cut, bind_concurrency=2, bind_concurrency_max=2)

    async def died() -> bool:
        return death.settled

    await eventually(died, "the crash")
    await scene.kill()
    done = set(await scene.bound())
    assert len(done) == binds + (last == "after")
    wanted = await meant(scene, "g")
    assert len(wanted) == 6
    await scene.start()

    async def whole() -> bool:
        return len(await scene.bound()) == 6

    await eventually(whole, "the whole gang")
    assert await scene.bound() == wanted
    await scene.check()


class Waits:
    """How long writes have had to wait for the server, as where its disk is slow: ``long`` is the sum of those that
    took longer than a tenth of a second, in seconds."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.long = 0.0

    async def measure(self) -> None:
        """Write again and again, until cancelled."""
        meta = {"name": "waits", "namespace": self._scene.namespace}
        await self._scene.client.create(CONFIG_MAPS, {"metadata": meta})
        for number in itertools.count():
            begun = self._scene.clock.monotonic()
            data = {"data": {"n": str(number)}}
            await self._scene.client.patch(CONFIG_MAPS, "waits", data, self._scene.namespace)
            took = self._scene.clock.monotonic() - begun
            self.long += took if took > 0.1 else 0.0
            await asyncio.sleep(0.1)


async def test_a_standby_takes_over_in_time_and_finishes_the_gang(scene: Scene) -> None:
    """A leader that dies in the middle of a gang is replaced within 20 seconds (on a machine that has the time for it),
    with the lease as it is by default; on the embedded server a shorter one will do to show the same."""
    for i in range(4):
        await scene.node(f"n{i}", 2)
    death = DiesAfterBinds(3)
    lease = LeaseOptions(name=f"windlass-{scene.namespace}", namespace=scene.namespace)
    if scene.embedded:
        lease = replace(lease, duration_seconds=4, renew_seconds=3.0, retry_seconds=0.5)
    client = scene.connect("election", death.cut)
    rng = random.Random(5)
    leader = Election(client, "first", clock=scene.clock, rng=rng, options=lease)
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    await scene.start(death.cut)
    standby_client = scene.connect("election")
    standby = Election(standby_client, "second", clock=scene.clock, rng=rng, options=lease)
    acquiring = asyncio.create_task(standby.acquire())
    await scene.gang("g", 8)

    async def died() -> bool:
        return death.settled

    await eventually(died, "the crash")
    begun, pace, waits = scene.clock.monotonic(), Pace(), Waits(scene)
    pace.start()
    writing = asyncio.create_task(waits.measure())
    try:
        await scene.kill()
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        assert 0 < len(await scene.bound()) < 8
        wanted = await meant(scene, "g")
        await asyncio.wait_for(acquiring, 120.0)
        await scene.start()

        async def whole() -> bool:
            return len(await scene.bound()) == 8

        await eventually(whole, "the whole gang")
        took = scene.clock.monotonic() - begun
    finally:
        pace.stop()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    assert took <= lease.duration_seconds + 5.0 * pace.slowness + waits.long
    assert await scene.bound() == wanted
    await standby.release()
    await client.close()
    await standby_client.close()


@pytest.mark.parametrize("running", [False, True])
async def test_a_gang_that_cannot_be_finished_leaves_nothing(scene: Scene, running: bool) -> None:
    """Also where those that are bound run at once, as they do on a kubelet: ``Unknown`` is then the gang's phase."""
    for i in range(4):
        await scene.node(f"n{i}", 1)
    await scene.gang("g", 4)

    looked = False

    def refuses(request: Any) -> str | None:
        taken_back = request.path.endswith("/eviction") or request.method == "DELETE"
        never = request.path.endswith(("/g-2/binding", "/g-3/binding"))
        return "before" if never or (taken_back and not looked) else None

    await scene.start(lambda inner: FaultTransport(inner, refuses), gang_seconds=6.0, assume_seconds=1.0)

    async def half() -> bool:
        return len(await scene.bound()) == 2

    await eventually(half, "half of it bound")
    before = await scene.pods()
    for name in await scene.bound() if running else ():
        await scene.phase(name, "Running")
    looked = True

    async def nothing() -> bool:
        return not await scene.bound()

    await eventually(nothing, "nothing bound")
    assert sorted(await scene.pods()) == ["g-2", "g-3"]
    assert set(before) == {"g-0", "g-1", "g-2", "g-3"}

    async def told() -> bool:
        found = {c["type"]: c for c in ((await scene.group("g")).get("status") or {}).get("conditions") or ()}
        return found.get("GangBindFailed", {}).get("status") == "True"

    await eventually(told, "the condition on the PodGroup")


# ------------------------------------------------------------------ room that is made


async def budget(scene: Scene, name: str, least: int) -> None:
    obj = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": scene.namespace},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"guarded": "yes"}}},
    }
    await scene.client.create(POD_DISRUPTION_BUDGETS, obj)

    async def counted() -> bool:
        found = await scene.client.get(POD_DISRUPTION_BUDGETS, name, scene.namespace)
        return (found.get("status") or {}).get("currentHealthy") == 2

    await eventually(counted, "the budget's status")


async def running_pods(scene: Scene, count: int, **more: Any) -> None:
    """Pods of low priority that run, ready, behind a budget."""
    for i in range(count):
        await scene.pod(f"low-{i}", terminationGracePeriodSeconds=30, **more)
        change = {"metadata": {"labels": {"guarded": "yes"}}}
        await scene.client.patch(PODS, f"low-{i}", change, scene.namespace)

    async def bound() -> bool:
        return len(await scene.bound()) == count

    await eventually(bound, "the pods of low priority bound")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for i in range(count):
        await scene.client.patch(
            PODS, f"low-{i}", {"status": ready}, scene.namespace, kind="strategic", subresource="status"
        )


async def test_room_is_made_by_the_eviction_api_and_nominated(scene: Scene) -> None:
    node = await scene.node("a", 2)
    await scene.start()
    await running_pods(scene, 2)
    await scene.pod("high", priorityClassName="system-node-critical", gpus=2)

    async def going() -> bool:
        found = await scene.pods()
        return all(o["metadata"].get("deletionTimestamp") for n, o in found.items() if n.startswith("low"))

    await eventually(going, "both evicted")

    async def told() -> bool:
        found = [
            conditions(o).get("DisruptionTarget", {}) for n, o in (await scene.pods()).items() if n != "high"
        ]
        return all(c.get("reason") == "PreemptionByScheduler" for c in found)

    await eventually(told, "why they go")

    async def nominated() -> bool:
        return (await scene.pods())["high"]["status"].get("nominatedNodeName") == node

    await eventually(nominated, "the node that it waits for")
    for i in range(2):
        await scene.client.delete(PODS, f"low-{i}", scene.namespace, grace_seconds=0)

    async def bound() -> bool:
        return (await scene.bound()) == {"high": node}

    await eventually(bound, "it bound")
    assert "nominatedNodeName" not in (await scene.pods())["high"]["status"]


async def test_a_budget_is_kept_and_said_to_be_the_reason(scene: Scene) -> None:
    await scene.node("a", 2)
    service = await scene.start()
    await running_pods(scene, 2)
    await budget(scene, "b", 2)
    await scene.pod("high", priorityClassName="system-node-critical", gpus=1)

    async def waits() -> bool:
        found = conditions((await scene.pods())["high"])
        return found.get("PodScheduled", {}).get("status") == "False"

    await eventually(waits, "it waits")
    await asyncio.sleep(1.0)
    assert not any(o["metadata"].get("deletionTimestamp") for o in (await scene.pods()).values())
    told = service.explain(f"{scene.namespace}/pod:high")
    assert told is not None
    await scene.client.patch(POD_DISRUPTION_BUDGETS, "b", {"spec": {"minAvailable": 1}}, scene.namespace)

    async def one_goes() -> bool:
        found = [n for n, o in (await scene.pods()).items() if o["metadata"].get("deletionTimestamp")]
        return len(found) == 1

    await eventually(one_goes, "one evicted")


# ------------------------------------------------------------------ what keeps a pod back


async def test_gates_hold_a_pod_and_are_no_call_for_nodes(scene: Scene) -> None:
    await scene.node("a", 2)
    await scene.start()
    await scene.pod("gated", schedulingGates=[{"name": "example.com/wait"}])
    await scene.pod("free")
    await eventually(scene.bound, "the free one bound")
    await asyncio.sleep(1.0)
    found = await scene.pods()
    assert list(await scene.bound()) == ["free"]
    if "PodScheduled" in conditions(found["gated"]):
        assert conditions(found["gated"])["PodScheduled"]["reason"] == "SchedulingGated"
    await scene.client.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, scene.namespace)

    async def both() -> bool:
        return len(await scene.bound()) == 2

    await eventually(both, "the gated one bound")


async def test_unschedulable_is_said_only_where_nodes_would_help(cluster: Cluster) -> None:
    scene = Scene(cluster, cluster.new_namespace("bind"))
    await scene.make_queue(capability={"nvidia.com/gpu": "2"})
    try:
        await scene.node("a", 1)
        await scene.start()
        await scene.pod("big", gpus=2)  # no node is large enough
        await scene.gang("waits", 2)
        await scene.client.delete(PODS, "waits-1", scene.namespace, grace_seconds=0)

        async def reason(name: str) -> str:
            found = conditions((await scene.pods())[name])
            return found.get("PodScheduled", {}).get("reason", "")

        async def both() -> bool:
            return (await reason("big"), await reason("waits-0")) == ("Unschedulable", "SchedulingGated")

        await eventually(both, "each with its reason")
    finally:
        await scene.close()


async def test_nodes_that_go_take_nothing(scene: Scene) -> None:
    """Not ready, out of service, cordoned: as their taints say."""
    unready = await scene.node("unready", 4)
    ill = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]}}
    await scene.client.patch(NODES, unready, ill, kind="strategic", subresource="status")
    leaves = await scene.node("leaves", 4)
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    await scene.client.patch(NODES, leaves, {"spec": {"taints": [taint]}})
    cordoned = await scene.node("cordoned", 4)
    await scene.client.patch(NODES, cordoned, {"spec": {"unschedulable": True}})
    good = await scene.node("good", 1)
    await scene.start()
    await scene.pod("one", tolerations=[])
    await scene.pod("two", tolerations=[])

    async def bound() -> bool:
        return set((await scene.bound()).values()) == {good}

    await eventually(bound, "one on the good node")
    await asyncio.sleep(0.5)
    assert len(await scene.bound()) == 1
    await scene.client.patch(NODES, cordoned, {"spec": {"unschedulable": None}})

    async def both() -> bool:
        return sorted((await scene.bound()).values()) == sorted([good, cordoned])

    await eventually(both, "the other on the node that was cordoned")


async def test_a_pod_that_was_resized_counts_with_what_it_holds(scene: Scene) -> None:
    node = await scene.node("a", 0)
    await scene.client.patch(
        NODES, node, {"status": {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "4"}}}, subresource="status"
    )
    await scene.start()
    await scene.pod("grows", gpus=0)
    await eventually(scene.bound, "it bound")
    held = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "main",
                "image": "x",
                "imageID": "x",
                "ready": True,
                "restartCount": 0,
                "resources": {"requests": {"cpu": "3"}},
                "allocatedResources": {"cpu": "3"},
            }
        ],
    }
    await scene.client.patch(
        PODS, "grows", {"status": held}, scene.namespace, kind="strategic", subresource="status"
    )
    ask = {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "2"}}}]}
    await scene.pod("late", gpus=0, **ask)

    async def waits() -> bool:
        return (
            conditions((await scene.pods())["late"]).get("PodScheduled", {}).get("reason") == "Unschedulable"
        )

    await eventually(waits, "no room beside it")
    assert list(await scene.bound()) == ["grows"]
    await scene.phase("grows", "Succeeded")

    async def bound() -> bool:
        return "late" in await scene.bound()

    await eventually(bound, "room again")


QUOTAS = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: predicates}, {name: proportion}, {name: resourcequota}]
"""


async def test_a_gang_that_the_namespaces_quota_would_refuse_is_not_let_in(scene: Scene) -> None:
    await scene.node("a", 8)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": scene.namespace},
        "spec": {"hard": {"requests.nvidia.com/gpu": "2"}},
    }
    await scene.client.create(RESOURCE_QUOTAS, quota)

    async def counted() -> bool:
        found = await scene.client.get(RESOURCE_QUOTAS, "q", scene.namespace)
        return (found.get("status") or {}).get("used", {}).get("requests.nvidia.com/gpu") == "0"

    await eventually(counted, "the quota's status")
    service = await scene.start(policy=scheduler_config.parse(QUOTAS).config)
    for name, gpus in (("fits", "2"), ("large", "4")):
        obj = {
            "apiVersion": POD_GROUPS.api_version,
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": scene.namespace},
            "spec": {"minMember": 1, "queue": scene.queue, "minResources": {"nvidia.com/gpu": gpus}},
        }
        await scene.client.create(POD_GROUPS, obj)

    async def judged() -> bool:
        return (await scene.group_phase("fits"), await scene.group_phase("large")) in (
            ("Inqueue", "Pending"),
            ("Inqueue", ""),
        )

    await eventually(judged, "one let in")
    await asyncio.sleep(1.0)
    assert await judged()
    told = service.explain(f"{scene.namespace}/large")
    assert told is not None
    assert told.code == "NamespaceQuota"
    await scene.client.patch(
        RESOURCE_QUOTAS, "q", {"spec": {"hard": {"requests.nvidia.com/gpu": "8"}}}, scene.namespace
    )

    async def let_in() -> bool:
        return await scene.group_phase("large") == "Inqueue"

    await eventually(let_in, "the other let in")


# ------------------------------------------------------------------ volumes


async def storage_class(scene: Scene) -> str:
    name = f"fast-{scene.namespace}"
    obj = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    await scene.client.create(STORAGE_CLASSES, obj)
    return name


async def claim(scene: Scene, name: str, storage: str) -> None:
    obj = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": scene.namespace},
        "spec": {
            "storageClassName": storage,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    await scene.client.create(PERSISTENT_VOLUME_CLAIMS, obj)


async def provision(scene: Scene, name: str, storage: str, node: str) -> None:
    """What a provisioner and the volume controller do; on a real cluster the latter is at work itself."""
    found = await scene.client.get(PERSISTENT_VOLUME_CLAIMS, name, scene.namespace)
    volume = f"pv-{scene.namespace}-{name}"
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    obj = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": volume, "annotations": {"pv.kubernetes.io/provisioned-by": "disk.example.com"}},
        "spec": {
            "storageClassName": storage,
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "disk.example.com", "volumeHandle": volume},
            "persistentVolumeReclaimPolicy": "Retain",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": scene.namespace,
                "name": name,
                "uid": found["metadata"]["uid"],
            },
        },
    }
    await scene.client.create(PERSISTENT_VOLUMES, obj)
    change = {
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume},
    }
    with contextlib.suppress(StatusError):  # the real controller may have been first
        await scene.client.patch(PERSISTENT_VOLUME_CLAIMS, name, change, scene.namespace)


@pytest.fixture
async def real_scene(real_kube: RealKube) -> AsyncIterator[Scene]:
    """What the embedded server does not serve, or does not do."""
    cluster = Cluster.of_real(real_kube)
    made = Scene(cluster, cluster.new_namespace("bind"))
    await made.make_queue()
    yield made
    await made.close()


@pytest.mark.real
async def test_a_pod_waits_for_the_volume_that_is_made_for_it(real_scene: Scene) -> None:
    """The embedded server has no classes of storage: its node makes a folder of each claim."""
    scene = real_scene
    node = await scene.node("a", 1)
    storage = await storage_class(scene)
    await claim(scene, "data", storage)
    await scene.start()
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    await scene.pod("reader", volumes=volumes, tolerations=[])

    async def selected(wanted: str = node) -> bool:
        found = await scene.client.get(PERSISTENT_VOLUME_CLAIMS, "data", scene.namespace)
        return (found["metadata"].get("annotations") or {}).get(
            "volume.kubernetes.io/selected-node"
        ) == wanted

    await eventually(selected, "the node said on the claim")
    await asyncio.sleep(1.0)
    assert not await scene.bound()

    # It cannot be made there: the provisioner takes the node back, and the pod is placed anew.
    other = await scene.node("b", 1)
    await scene.client.patch(NODES, node, {"spec": {"unschedulable": True}})
    nothing = {"metadata": {"annotations": {"volume.kubernetes.io/selected-node": None}}}
    await scene.client.patch(PERSISTENT_VOLUME_CLAIMS, "data", nothing, scene.namespace)

    async def elsewhere() -> bool:
        return await selected(other)

    await eventually(elsewhere, "the other node said on the claim")
    assert not await scene.bound()
    await provision(scene, "data", storage, other)

    async def bound() -> bool:
        return await scene.bound() == {"reader": other}

    await eventually(bound, "it bound")
    await scene.client.delete(STORAGE_CLASSES, storage)


@pytest.mark.real
async def test_volumes_are_made_where_a_driver_has_room(real_scene: Scene) -> None:
    scene, zone = real_scene, "topology.kubernetes.io/zone"
    full, roomy = await scene.node("full", 1), await scene.node("roomy", 1)
    driver = f"disk.{scene.namespace}.example.com"
    storage = f"zoned-{scene.namespace}"
    version = {"apiVersion": "storage.k8s.io/v1"}
    rows = [
        (
            CSI_DRIVERS,
            None,
            {"metadata": {"name": driver}, "spec": {"storageCapacity": True, "attachRequired": False}},
        ),
        (
            STORAGE_CLASSES,
            None,
            {
                "metadata": {"name": storage},
                "provisioner": driver,
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        ),
    ]
    for node, amount in ((full, "512Mi"), (roomy, "64Gi")):
        await scene.client.patch(NODES, node, {"metadata": {"labels": {zone: node}}})
        pool = {
            "metadata": {"name": node, "namespace": scene.namespace},
            "storageClassName": storage,
            "nodeTopology": {"matchLabels": {zone: node}},
            "capacity": amount,
        }
        rows.append((STORAGE_CAPACITIES, scene.namespace, pool))
    for resource, space, obj in rows:
        await scene.client.create(resource, {**version, "kind": resource.kind, **obj}, space)
    await claim(scene, "data", storage)
    await scene.start()
    await scene.pod("reader", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])

    async def selected() -> bool:
        found = await scene.client.get(PERSISTENT_VOLUME_CLAIMS, "data", scene.namespace)
        notes = found["metadata"].get("annotations") or {}
        return notes.get("volume.kubernetes.io/selected-node") == roomy

    await eventually(selected, "the node whose pool has room")
    await provision(scene, "data", storage, roomy)

    async def bound() -> bool:
        return await scene.bound() == {"reader": roomy}

    await eventually(bound, "it bound")
    await scene.client.delete(STORAGE_CLASSES, storage)
    await scene.client.delete(CSI_DRIVERS, driver)


@pytest.mark.real
async def test_the_overhead_of_a_runtime_class_counts(real_scene: Scene) -> None:
    scene = real_scene
    node = await scene.node("a", 0)
    await scene.client.patch(
        NODES, node, {"status": {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "4"}}}, subresource="status"
    )
    name = f"kata-{scene.namespace}"
    runtime = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
    obj = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "1"}},
    }
    await scene.client.create(runtime, obj)
    ask = {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1500m"}}}]}
    await scene.start()

    async def admitted() -> bool:
        """The server's admission knows the class a moment after it was made."""
        try:
            await scene.pod("first", gpus=0, runtimeClassName=name, **ask)
        except StatusError as error:
            return error.code not in (403, 422)
        return True

    await eventually(admitted, "the class known")
    await eventually(scene.bound, "the first bound")
    await scene.pod("second", gpus=0, runtimeClassName=name, **ask)

    async def waits() -> bool:
        found = conditions((await scene.pods())["second"])
        return found.get("PodScheduled", {}).get("reason") == "Unschedulable"

    await eventually(waits, "no room for two times two and a half")
    await scene.client.delete(runtime, name)


# ------------------------------------------------------------------ devices by claims


async def test_a_claim_is_allocated_protected_and_given_back(scene: Scene) -> None:
    node = await scene.node("a", 0)
    driver = f"gpu.{scene.namespace}.example.com"
    rows = [
        (
            DEVICE_CLASSES,
            {
                "metadata": {"name": driver},
                "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]},
            },
        ),
        (
            RESOURCE_SLICES,
            {
                "metadata": {"name": f"{node}-gpus"},
                "spec": {
                    "driver": driver,
                    "nodeName": node,
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "gpu-0", "attributes": {"index": {"int": 0}}}],
                },
            },
        ),
        (
            RESOURCE_CLAIMS,
            {
                "metadata": {"name": "c", "namespace": scene.namespace},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": driver}}]}},
            },
        ),
    ]
    for resource, obj in rows:
        await scene.client.create(
            resource, {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        )
    await scene.start()
    await scene.pod("user", gpus=0, resourceClaims=[{"name": "g", "resourceClaimName": "c"}])

    async def bound() -> bool:
        return await scene.bound() == {"user": node}

    await eventually(bound, "it bound")
    found = await scene.client.get(RESOURCE_CLAIMS, "c", scene.namespace)
    (result,) = found["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"], result["device"]) == (driver, node, "gpu-0")
    assert [one["name"] for one in found["status"]["reservedFor"]] == ["user"]
    assert found["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    await scene.client.delete(RESOURCE_CLAIMS, "c", scene.namespace)
    await scene.client.get(RESOURCE_CLAIMS, "c", scene.namespace)  # its devices are in use
    await scene.client.delete(PODS, "user", scene.namespace, grace_seconds=0)

    async def gone() -> bool:
        return await scene.client.find(RESOURCE_CLAIMS, "c", scene.namespace) is None

    await eventually(gone, "the claim gone after its pod")
    await scene.client.delete(RESOURCE_SLICES, f"{node}-gpus")
    await scene.client.delete(DEVICE_CLASSES, driver)
