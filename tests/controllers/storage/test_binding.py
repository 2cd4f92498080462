"""Claims and volumes: binding, phases, protection, crashes between any two writes."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import Any

from example_counts import examples
from fakeapi import Crash, FakeApi
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.local_storage import local_class
from windlass.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.storage.controller import ClaimController, VolumeController
from windlass.kits.clock import FakeClock

Json = dict[str, Any]
PROTECTED = ["kubernetes.io/pvc-protection"]


class World:
    """Claims, volumes, and both controllers."""

    def __init__(self) -> None:
        self.api = FakeApi(FakeClock())
        self.said: list[tuple[str, str]] = []
        self.restart()
        self.api.put(STORAGE_CLASSES, local_class())

    def restart(self) -> None:
        self.api.crash_after = None
        self.controllers = {
            PERSISTENT_VOLUME_CLAIMS: ClaimController(self.api),  # type: ignore[arg-type]
            PERSISTENT_VOLUMES: VolumeController(self.api),  # type: ignore[arg-type]
        }
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def claim(self, name: str = "data", size: str = "1Gi", **spec: Any) -> None:
        fields = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        body = {"metadata": {"name": name, "finalizers": list(PROTECTED)}, "spec": {**fields, **spec}}
        self.api.put(PERSISTENT_VOLUME_CLAIMS, {**body, "status": {"phase": "Pending"}})

    def volume(self, name: str, size: str = "1Gi", **spec: Any) -> None:
        fields = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "hostPath": {"path": f"/{name}"},
            "persistentVolumeReclaimPolicy": "Retain",
        }
        body = {"metadata": {"name": name}, "spec": {**fields, **spec}}
        self.api.put(PERSISTENT_VOLUMES, {**body, "status": {"phase": "Pending"}})

    def storage_class(self, name: str, **fields: Any) -> None:
        body = {"metadata": {"name": name}, "provisioner": "windlass.dev/local-path"}
        self.api.put(STORAGE_CLASSES, {**body, **fields})

    def reconcile(self) -> bool:
        """Reconcile everything once. Return whether something was written."""

        async def once() -> bool:
            wrote = False
            for resource, controller in self.controllers.items():
                for key in list(self.api.stored.get(resource, {})):
                    effects = await controller.reconcile(key)
                    self.said += [(event.reason, event.message) for event in effects.events]
                    try:
                        outcome = await self.executor.perform(effects)
                    except* Crash:
                        raise Crash from None
                    assert not outcome.failures
                    wrote = wrote or bool(effects.stages)
            return wrote

        return asyncio.run(once())

    def settle(self) -> None:
        for _ in range(12):
            if not self.reconcile():
                return
        raise AssertionError("does not settle")

    def phases(self, resource: Any) -> dict[str, str]:
        return {one["metadata"]["name"]: one["status"]["phase"] for one in self.api.objects(resource)}

    def get(self, name: str = "data") -> Json:
        found = self.api.object(PERSISTENT_VOLUME_CLAIMS, f"default/{name}")
        assert found is not None
        return found


def test_the_smallest_suitable_volume_is_bound() -> None:
    world = World()
    world.volume("large", "10Gi")
    world.volume("small", "2Gi")
    world.volume("tiny", "1Mi")
    world.volume("shared", "2Gi", accessModes=["ReadWriteMany"])
    world.volume("other", "1Gi", storageClassName="other")
    world.volume("kept", "1Gi", claimRef={"namespace": "default", "name": "else"})
    world.claim(storageClassName="")
    world.settle()
    claim = world.get()
    assert claim["spec"]["volumeName"] == "small"
    assert claim["status"] == {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "2Gi"},
    }
    found = world.phases(PERSISTENT_VOLUMES)
    assert found == {
        **dict.fromkeys(["large", "tiny", "shared", "other", "kept"], "Available"),
        "small": "Bound",
    }


def test_a_volume_kept_for_the_claim_or_named_by_it_is_bound() -> None:
    world = World()
    world.volume("any")
    world.volume("kept", "9Gi", claimRef={"namespace": "default", "name": "data"})
    world.volume("named", "9Gi")
    world.claim(storageClassName="")
    world.claim("second", storageClassName="", volumeName="named")
    world.claim("third", storageClassName="", volumeName="kept")
    world.settle()
    assert world.get()["spec"]["volumeName"] == "kept"
    assert world.get("second")["status"]["phase"] == "Bound"
    assert world.get("third")["status"]["phase"] == "Pending"
    assert ("FailedBinding", 'volume "kept" already bound to a different claim.') in world.said


def test_what_a_claim_waits_for_is_told() -> None:
    world = World()
    world.storage_class("late", volumeBindingMode="WaitForFirstConsumer")
    world.storage_class("manual", provisioner="kubernetes.io/no-provisioner")
    for name, storage_class, reason in (
        ("a", "", "FailedBinding"),
        ("b", "late", "WaitForFirstConsumer"),
        ("c", "manual", "FailedBinding"),
        ("d", "gp3", "ProvisioningStandIn"),
        ("e", None, "ExternalProvisioning"),
    ):
        world.said.clear()
        world.claim(name, storageClassName=storage_class)
        world.settle()
        assert reason in dict(world.said), name
        assert world.get(name)["status"]["phase"] == "Pending"
    assert world.get("e")["spec"]["storageClassName"] == "local-path"
    asked = "volume.kubernetes.io/storage-provisioner"
    assert [n for n in "abcde" if asked in (world.get(n)["metadata"].get("annotations") or {})] == ["d", "e"]
    annotations = {"volume.kubernetes.io/selected-node": "box"}
    world.api.change(PERSISTENT_VOLUME_CLAIMS, "default/b", metadata={"annotations": annotations})
    world.settle()
    assert asked in world.get("b")["metadata"]["annotations"]


def test_a_deleted_claim_stays_while_a_pod_uses_it_and_releases_its_volume() -> None:
    world = World()
    world.volume("v", persistentVolumeReclaimPolicy="Delete")
    world.claim(storageClassName="")
    volumes = [{"name": "x", "persistentVolumeClaim": {"claimName": "data"}}]
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "box", "containers": [], "volumes": volumes}}
    world.api.put(PODS, {**pod, "status": {"phase": "Running"}})
    world.settle()
    world.api.change(
        PERSISTENT_VOLUME_CLAIMS, "default/data", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}
    )
    world.settle()
    assert world.get()["metadata"]["finalizers"] == PROTECTED
    world.api.change(PODS, "default/p", status={"phase": "Succeeded"})
    world.settle()
    assert world.api.objects(PERSISTENT_VOLUME_CLAIMS) == []
    assert world.phases(PERSISTENT_VOLUMES) == {"v": "Failed"}  # nothing here deletes it
    assert "VolumeFailedDelete" in dict(world.said)


def test_a_claim_grows_and_a_claim_without_its_volume_is_lost() -> None:
    world = World()
    world.volume("v")
    world.claim(storageClassName="")
    world.settle()
    world.api.change(
        PERSISTENT_VOLUME_CLAIMS, "default/data", spec={"resources": {"requests": {"storage": "3Gi"}}}
    )
    world.settle()
    assert world.get()["status"]["capacity"] == {"storage": "3Gi"}
    world.api.remove(PERSISTENT_VOLUMES, "v")
    world.settle()
    assert world.get()["status"]["phase"] == "Lost"


@settings(max_examples=examples(60), deadline=None)
@given(
    sizes=st.lists(st.sampled_from(["1Gi", "2Gi", "3Gi"]), min_size=1, max_size=3),
    wanted=st.lists(st.sampled_from(["1Gi", "2Gi"]), min_size=1, max_size=3),
    crashes=st.lists(st.integers(0, 4), max_size=6),
)
def test_crashes_bind_no_volume_twice(sizes: Any, wanted: Any, crashes: Any) -> None:
    calm, stormy = World(), World()
    for world in (calm, stormy):
        for number, size in enumerate(sizes):
            world.volume(f"v{number}", size)
        for number, size in enumerate(wanted):
            world.claim(f"c{number}", size, storageClassName="")
    calm.settle()
    for writes in crashes:
        stormy.api.crash_after = writes
        with contextlib.suppress(Crash):
            stormy.reconcile()
        stormy.restart()
    stormy.settle()
    assert picture(stormy) == picture(calm)


def picture(world: World) -> Any:
    def plain(obj: Json) -> Json:
        kept = copy.deepcopy(obj)
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            kept["metadata"].pop(field, None)
        return kept

    found = [*world.api.objects(PERSISTENT_VOLUME_CLAIMS), *world.api.objects(PERSISTENT_VOLUMES)]
    return sorted((plain(one) for one in found), key=str)
