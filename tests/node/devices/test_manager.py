"""Admission of pods with devices: the binding is checked and stored, and instances are created."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as altered

from windlass.api.devices.assignment_annotations import DeviceAssignment, to_annotations
from windlass.api.devices.node_annotation import DeviceRecord, SliceInstance
from windlass.node.devices.allocations import DeviceAllocations, DeviceBusy
from windlass.node.devices.discovery import Inventory, discover
from windlass.node.devices.manager import DeviceManager, Rejected
from windlass.node.devices.mig_instances import MigInstanceFile, SimulatedSlicer, SliceRefused


def keeper(folder: Path, option: str = "simulated:2xA100-40GB,1xA100-40GB+mig") -> DeviceManager:
    slicer = SimulatedSlicer(MigInstanceFile(folder / "mig.json"))
    return DeviceManager(discover(option), DeviceAllocations(folder / "devices.json"), slicer)


def pod(
    limits: dict[str, str] | None, *parts: DeviceAssignment, raw: dict[str, str] | None = None
) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": limits or {}}}
    annotations = to_annotations(parts) if raw is None else raw
    return {
        "metadata": {"name": "p", "namespace": "ns", "annotations": annotations},
        "spec": {"containers": [container]},
    }


GPU = {"nvidia.com/gpu": "1"}
MEMORY = {"aliyun.com/gpu-mem": "10"}
SLICE = {"nvidia.com/mig-1g.5gb": "1"}


async def test_whole_devices_shares_and_slices(tmp_path: Path) -> None:
    cards = keeper(tmp_path)
    await cards.admit("u1", "ns/a", pod(GPU, DeviceAssignment(1)))
    await cards.admit("u2", "ns/b", pod(MEMORY, DeviceAssignment(0, 0, 10240)))
    await cards.admit("u3", "ns/c", pod(SLICE, DeviceAssignment(2, 0, 0, "1g.5gb", 6)))
    (whole,) = await cards.visible_devices("u1")
    (share,) = await cards.visible_devices("u2")
    (cut,) = await cards.visible_devices("u3")
    assert (whole.identifier, whole.assignment) == ("1", DeviceAssignment(1))
    assert (share.identifier, share.assignment.memory_mib) == ("0", 10240)
    assert cut.identifier.startswith("MIG-")
    assert [i.uuid for i in cards.inventory.find(2).instances] == [cut.identifier]
    with pytest.raises(DeviceBusy):
        await cards.admit("u4", "ns/d", pod(GPU, DeviceAssignment(0)))
    cards.release("u3")
    await cards.sweep()
    assert not cards.inventory.find(2).instances


async def test_pod_without_request_gets_no_device(tmp_path: Path) -> None:
    cards = keeper(tmp_path)
    await cards.admit("u1", "ns/a", pod(None))
    assert await cards.visible_devices("u1") == []
    assert not cards.allocations.held


async def test_it_is_the_same_after_a_restart(tmp_path: Path) -> None:
    first = keeper(tmp_path)
    bound = pod(SLICE, DeviceAssignment(2, 0, 0, "1g.5gb", 6))
    await first.admit("u1", "ns/a", bound)
    before = await first.visible_devices("u1")
    again = keeper(tmp_path)
    await again.admit("u1", "ns/a", bound)
    assert [each.identifier for each in await again.visible_devices("u1")] == [
        each.identifier for each in before
    ]
    again.allocations.retain([])
    await again.sweep()
    assert not MigInstanceFile(tmp_path / "mig.json").instances


@pytest.mark.parametrize(
    ("limits", "parts", "words"),
    [
        (GPU, [], "requests 1 devices but was bound with none"),
        (GPU, [DeviceAssignment(0), DeviceAssignment(1)], "bound with 0,1"),
        (GPU, [DeviceAssignment(7)], "no device 7"),
        (GPU, [DeviceAssignment(2)], "MIG mode: only its slices"),
        (GPU, [DeviceAssignment(0, 500, 0)], "bound with 0"),
        (None, [DeviceAssignment(0, 500, 0)], "requests no part"),
        (MEMORY, [], "part of a device but was bound with none"),
        (MEMORY, [DeviceAssignment(0)], "requests 0 devices"),
        (SLICE, [DeviceAssignment(2, 0, 0, "1g.5gb", 7)], "cannot start at 7"),
        (SLICE, [DeviceAssignment(0, 0, 0, "1g.5gb", 0)], "the agent does not create instances"),
        (SLICE, [], "has 0 MIG slices 1g.5gb"),
    ],
)
async def test_impossible_bindings_are_rejected(
    tmp_path: Path, limits: dict[str, str] | None, parts: list[DeviceAssignment], words: str
) -> None:
    cards = keeper(tmp_path)
    with pytest.raises(Rejected, match=words):
        await cards.admit("u1", "ns/a", pod(limits, *parts))
    assert not cards.allocations.held


async def test_unreadable_annotation_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="by number"):
        await keeper(tmp_path).admit("u", "ns/a", pod(GPU, raw={"windlass.dev/devices": "x"}))


async def test_unhealthy_device_rejects_new_pods(tmp_path: Path) -> None:
    cards = keeper(tmp_path)
    sick = altered(cards.inventory.find(0), healthy=False, reason="XID 79")
    cards.inventory = replace(cards.inventory, devices=(sick, *cards.inventory.devices[1:]))
    with pytest.raises(Rejected, match="not healthy: XID 79"):
        await cards.admit("u1", "ns/a", pod(GPU, DeviceAssignment(0)))


async def test_lasting_refusal_ends_instance_creation_on_the_device(tmp_path: Path) -> None:
    cards = keeper(tmp_path)

    class Refusing(SimulatedSlicer):
        def create(self, device: DeviceRecord, profile: str, start: int, owner: str) -> str:
            raise SliceRefused("no permission", lasting=True)

    cards.slicer = Refusing(MigInstanceFile(tmp_path / "mig.json"))
    told: list[bool] = []
    cards.on_change(lambda: told.append(cards.inventory.find(2).dynamic))
    with pytest.raises(Rejected, match="no permission"):
        await cards.admit("u1", "ns/a", pod(SLICE, DeviceAssignment(2, 0, 0, "1g.5gb", 6)))
    assert told == [False]
    assert not cards.allocations.held
    assert cards.refused == {cards.inventory.find(2).uuid}


class TestSlicesThatAreThere:
    def cards(self, folder: Path) -> DeviceManager:
        instances = tuple(SliceInstance("1g.5gb", start, 1, f"MIG-{start}") for start in (5, 6))
        cut = DeviceRecord(0, "GPU-0", mig=True, instances=instances)
        return DeviceManager(Inventory((cut,)), DeviceAllocations(folder / "devices.json"))

    async def test_the_number_among_those_of_the_profile_counts(self, tmp_path: Path) -> None:
        cards = self.cards(tmp_path)
        await cards.admit("u1", "ns/a", pod(SLICE, DeviceAssignment(1)))
        assert [each.identifier for each in await cards.visible_devices("u1")] == ["MIG-6"]
        with pytest.raises(DeviceBusy):
            await cards.admit("u2", "ns/b", pod(SLICE, DeviceAssignment(1)))
        with pytest.raises(Rejected, match="has 2 MIG slices"):
            await cards.admit("u2", "ns/b", pod(SLICE, DeviceAssignment(2)))

    async def test_without_a_decision_a_free_one_is_taken(self, tmp_path: Path) -> None:
        cards = self.cards(tmp_path)
        for uid in ("u1", "u2"):
            await cards.admit(uid, f"ns/{uid}", pod(SLICE))
        assert {each.identifier for uid in ("u1", "u2") for each in await cards.visible_devices(uid)} == {
            "MIG-5",
            "MIG-6",
        }
        with pytest.raises(DeviceBusy):
            await cards.admit("u3", "ns/c", pod(SLICE))
