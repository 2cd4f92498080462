"""Health, usage and MPS of devices over a scripted NVML, and evictions from unhealthy devices."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_nvml import H100_80, Script, binding, card

from windlass.api import annotations
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.kits.clock import FakeClock
from windlass.node.device_reporter import parse_clear_request
from windlass.node.devices import mps, usage_audit
from windlass.node.devices.allocations import DeviceAllocations, DeviceHold, Held
from windlass.node.devices.discovery import DiscoveryOptions, inventory
from windlass.node.devices.health import FaultRecords, Xid, XidListener, find_faults
from windlass.node.devices.index_store import DeviceIndexStore, assign_indices
from windlass.node.devices.manager import DeviceManager
from windlass.node.devices.monitor import DeviceMonitor, PublishedDevices, grace_of
from windlass.node.devices.nvml import Nvml
from windlass.node.devices.usage_audit import DeviceProcess, audit
from windlass.node.runtime.threads import in_thread


class Scene:
    """Monitor of two devices, with everything that it published, recorded and evicted."""

    def __init__(self, folder: Path) -> None:
        self.script = Script.write(folder / "nvml.json", [card(H100_80, 0), card(H100_80, 1)])
        self.nvml = Nvml(binding(self.script))
        self.nvml.open()
        self.clock = FakeClock()
        self.folder = folder
        self.pods: dict[str, Any] = {}
        self.boot = "boot"
        self.start()

    def start(self) -> None:
        """An agent on this folder, perhaps after another."""
        memory = DeviceIndexStore(self.folder / "cards.json", self.boot)
        found = inventory(self.nvml, DiscoveryOptions(indices=memory.indices))
        self.device_manager = DeviceManager(found, DeviceAllocations(self.folder / "devices.json"))
        self.watch = DeviceMonitor(
            self.device_manager,
            self.clock,
            nvml=self.nvml,
            faults=FaultRecords(self.folder / "health.json", self.boot),
            options=lambda: DiscoveryOptions(indices=memory.indices),
            index_store=memory,
            environment={"CUDA_MPS_PIPE_DIRECTORY": str(self.folder / "mps")},
            period_seconds=15.0,
        )
        self.told: list[PublishedDevices] = []
        self.said: list[tuple[str, str]] = []
        self.found: list[usage_audit.UsageFinding] = []
        self.evicted: list[tuple[str, str]] = []
        self.watch.publish = self.told.append
        self.watch.record_event = lambda _, reason, message: self.said.append((reason, message))
        self.watch.report = self.found.append
        self.watch.evict = lambda uid, why: self.evicted.append((uid, why))
        self.watch.pods = lambda: self.pods

    def pod(self, uid: str, claim: DeviceHold, seconds: str = "") -> None:
        notes = {"windlass.dev/unhealthy-device-seconds": seconds} if seconds else {}
        self.pods[uid] = {"metadata": {"name": uid, "annotations": notes}}
        self.device_manager.allocations.allocate(uid, f"ns/{uid}", [claim])

    def card(self, index: int) -> DeviceRecord:
        return self.device_manager.inventory.devices[index]

    def uuid(self, index: int) -> str:
        return self.script.cards[index]["uuid"]

    @property
    def conditions(self) -> dict[str, tuple[str, str]]:
        return {c["type"]: (c["status"], c["reason"]) for c in self.told[-1].conditions}

    @property
    def utilization(self) -> dict[str, Any]:
        text = self.told[-1].annotations[annotations.DEVICE_UTILIZATION]
        return json.loads(text) if text else {}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ecc": 2}, "2 uncorrectable ECC errors since the driver was loaded"),
        ({"remapFailed": True}, "a failing memory row could not be remapped"),
        ({"lost": True}, "it has fallen off the bus"),
    ],
)
async def test_unhealthy_device_is_published_until_it_recovers(
    scene: Scene, change: dict[str, Any], words: str
) -> None:
    await scene.watch.check()
    assert scene.conditions["GPUsHealthy"] == ("True", "CardsHealthy")
    uuid = scene.card(1).uuid
    scene.script.change(1, **change)
    await scene.watch.check()
    assert (scene.card(1).healthy, scene.card(1).reason) == (False, words)
    assert scene.card(1).uuid == uuid  # what is known of it stays known
    assert scene.card(0).healthy
    assert scene.conditions["GPUsHealthy"] == ("False", "CardUnhealthy")
    assert scene.told[-1].capacity == {"nvidia.com/gpu": 2}
    assert scene.told[-1].allocatable == {"nvidia.com/gpu": 1}
    assert scene.said == [("GPUUnhealthy", f"GPU 1 (NVIDIA-H100-80GB-HBM3): {words}")]
    scene.script.change(1, ecc=0, remapFailed=False, lost=False)
    await scene.watch.check()
    assert scene.card(1).healthy
    assert scene.told[-1].allocatable == {"nvidia.com/gpu": 2}
    assert scene.said[-1][0] == "GPUHealthy"


async def test_indices_stay_when_a_device_is_lost(scene: Scene) -> None:
    await scene.watch.prime()
    first, second = scene.card(0).uuid, scene.card(1).uuid
    lost, left = scene.script.cards
    with scene.script.open() as state:
        state["cards"] = [left]  # NVML counts those that answer only: it is number 0 now
    for restart in (False, True, True):
        if restart:
            scene.start()
            await scene.watch.prime()
        else:
            await scene.watch.check()
        assert [(c.index, c.uuid, c.healthy) for c in scene.device_manager.inventory.devices] == [
            (0, first, False),
            (1, second, True),
        ]
        assert scene.card(0).reason == "it has fallen off the bus"
    with scene.script.open() as state:
        state["cards"] = [lost, left]
    await scene.watch.check()
    assert scene.card(0).healthy


async def test_after_a_reboot_only_present_devices_are_listed(scene: Scene) -> None:
    await scene.watch.prime()
    second = scene.card(1).uuid
    with scene.script.open() as state:
        state["cards"] = state["cards"][1:]
    scene.boot = "another"
    scene.start()
    await scene.watch.prime()
    assert [(c.index, c.uuid) for c in scene.device_manager.inventory.devices] == [(1, second)]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=6))
def test_numbers_stay_as_they_are(seen: list[set[str]]) -> None:
    known: dict[str, int] = {}
    for uuids in seen:
        found = assign_indices(sorted(uuids), known)
        assert set(found) == uuids
        assert all(found[uuid] == known[uuid] for uuid in uuids if uuid in known)
        known = {**known, **found}
        assert len(set(known.values())) == len(known)
        assert max(known.values()) < 6


async def test_nothing_is_listed_while_an_instance_is_being_made(scene: Scene) -> None:
    async with scene.device_manager.mig_lock:
        looking = asyncio.ensure_future(scene.watch.check())
        await asyncio.sleep(0.05)
        assert not scene.told
    await looking
    assert scene.told


async def test_a_driver_that_is_loaded_anew_is_opened_anew(scene: Scene) -> None:
    with scene.script.open() as state:
        state["driver"] = False
    await scene.watch.check()
    assert scene.card(0).reason == "it does not respond: Driver Not Loaded"
    assert len(scene.device_manager.inventory.devices) == 2
    with scene.script.open() as state:
        state["driver"] = True
    await scene.watch.check()
    assert scene.card(0).healthy


async def test_a_call_in_a_thread_is_never_left_running() -> None:
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def call() -> None:
        entered.set()
        leave.wait(60)
        left.set()

    task = asyncio.ensure_future(in_thread(call))
    await asyncio.to_thread(entered.wait, 60)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    leave.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left.is_set()
    assert await in_thread(lambda: 7) == 7


async def test_an_xid_stays_until_it_is_cleared_or_the_machine_rebooted(scene: Scene) -> None:
    scene.watch.on_xid(scene.uuid(0), 79)
    scene.watch.on_xid(scene.uuid(0), 48)
    await scene.watch.check()
    assert scene.card(0).reason == "XID 48, XID 79"
    scene.start()
    await scene.watch.prime()
    assert not scene.card(0).healthy
    scene.watch.clear(0, scene.clock.now() - 1)
    assert [reason for reason, _ in scene.said][-1] == "GPUNotCleared"
    await scene.watch.check()
    assert not scene.card(0).healthy  # it was said later than that
    scene.watch.clear(0, scene.clock.now())
    await scene.watch.check()
    assert scene.card(0).healthy
    faults = FaultRecords(scene.folder / "health.json", "boot")
    faults.add(Xid("c", 79, 1.0))
    assert not FaultRecords(scene.folder / "health.json", "another boot").xids


def test_the_driver_is_listened_to(scene: Scene) -> None:
    listener = XidListener(scene.nvml)
    assert listener.open([scene.uuid(0), scene.uuid(1), "GPU-none"]) == ["GPU-none"]
    assert listener.wait() is None
    scene.script.xid(1, 13)  # the program's fault
    scene.script.xid(1, 79)
    assert listener.wait() is None
    assert listener.wait() == (scene.uuid(1), 79)
    listener.close()


def test_questions_about_cards_that_are_well_have_no_answer(scene: Scene) -> None:
    assert find_faults(scene.nvml, [scene.uuid(0), scene.uuid(1)]) == {}
    assert find_faults(scene.nvml, ["GPU-none"]) == {"GPU-none": "it has fallen off the bus"}


def test_what_only_root_may_ask_is_no_fault(scene: Scene) -> None:
    scene.script.change(0, migMode=True)
    with scene.script.open() as state:
        state["root"] = False
    assert find_faults(scene.nvml, [scene.uuid(0)]) == {}


class TestMovingAway:
    async def test_after_its_grace(self, scene: Scene) -> None:
        scene.pod("patient", DeviceHold("0", 300), "100")
        scene.pod("plain", DeviceHold("0", 300))
        scene.pod("stays", DeviceHold("0", 300), "forever")
        scene.pod("elsewhere", DeviceHold("1"))
        scene.watch.on_xid(scene.uuid(0), 79)
        await scene.watch.check()
        assert scene.evicted == []
        scene.clock.jump(31)
        await scene.watch.check()
        assert scene.evicted == [("plain", "GPU 0 of this node is not healthy: XID 79")]
        scene.clock.jump(70)
        await scene.watch.check()
        await scene.watch.check()
        assert [uid for uid, _ in scene.evicted] == ["plain", "patient"]

    async def test_not_when_the_card_is_well_again_in_time(self, scene: Scene) -> None:
        scene.pod("plain", DeviceHold("0"))
        scene.script.change(0, ecc=1)
        await scene.watch.check()
        scene.clock.jump(20)
        scene.script.change(0, ecc=0)
        await scene.watch.check()
        scene.clock.jump(20)
        await scene.watch.check()
        assert scene.evicted == []

    @pytest.mark.parametrize(
        ("text", "seconds"), [("", 30.0), ("5", 5.0), ("0", 0.0), ("forever", None), ("soon", 30.0)]
    )
    def test_words_of_the_pod(self, text: str, seconds: float | None) -> None:
        notes = {"windlass.dev/unhealthy-device-seconds": text}
        assert grace_of({"metadata": {"annotations": notes}}) == seconds

    def test_what_people_declare(self) -> None:
        assert parse_clear_request("0,3@1970-01-01T00:00:10Z") == [(0, 10.0), (3, 10.0)]
        assert parse_clear_request("0@1970-01-01T00:00:10Z; 3@1970-01-01T00:00:11.5Z") == [
            (0, 10.0),
            (3, 11.5),
        ]
        assert parse_clear_request("nonsense;3@1970-01-01T00:00:11Z") == [(3, 11.0)]
        assert parse_clear_request("0,3") == []
        assert parse_clear_request("x@1970-01-01T00:00:10Z") == []


class TestUse:
    async def test_a_process_of_a_pod_is_known_by_its_mark(self, scene: Scene) -> None:
        mark = {"WINDLASS_ATTEMPT": "u1/main/0"}
        process = await asyncio.create_subprocess_exec("sleep", "60", env={**os.environ, **mark})
        try:
            assert usage_audit.pod_of(process.pid) == "u1"
            assert usage_audit.pod_of(os.getpid()) == ""
            scene.pod("u1", DeviceHold("0"))
            scene.script.run(0, process.pid, 100)
            await scene.watch.check()
            assert scene.found == []
            assert scene.conditions["GPUsUsedAsGiven"] == ("True", "NothingElse")
            scene.script.change(0, processes=[])
            scene.script.run(1, process.pid, 100)
            await scene.watch.check()
            await scene.watch.check()
            (finding,) = scene.found  # said once
            assert (finding.reason, finding.pod, finding.device) == ("DeviceNotGiven", "u1", "1")
            assert scene.conditions["GPUsUsedAsGiven"] == ("False", "DeviceNotGiven")
        finally:
            process.kill()
            await process.wait()

    def test_shares_are_measured_where_nothing_enforces_them(self) -> None:
        held = [Held(DeviceHold("0", 0, 1000), "u1", "ns/a"), Held(DeviceHold("0", 0, 1000), "u2", "ns/b")]
        uses = [
            DeviceProcess("0", 1, "u1", "x", 600),
            DeviceProcess("0", 2, "u1", "x", 600),
            DeviceProcess("0", 3, "u2", "x", 1000),
        ]
        (finding,) = audit(uses, held)
        assert (finding.pod, finding.reason) == ("u1", "DeviceShareExceeded")
        assert "uses 1200 MiB of GPU 0, but its share is 1000 MiB" in finding.message

    def test_strangers(self) -> None:
        held = [Held(DeviceHold("0"), "u1", "ns/a")]
        assert audit([DeviceProcess("1", 1, "", "python", 10)], held) == []  # no pod has that device
        assert audit([DeviceProcess("0", 1, "", "nvidia-cuda-mps", 10)], held) == []
        (finding,) = audit(
            [DeviceProcess("0", 7, "", "python", 10), DeviceProcess("0", 8, "", "python", 10)], held
        )
        assert (finding.reason, finding.pod) == ("ForeignProcess", "")
        assert "process 7 (python)" in finding.message


class TestMps:
    def test_no_daemon(self, tmp_path: Path) -> None:
        daemon = mps.find_daemon({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)})
        assert not daemon.runs
        assert "does not exist" in daemon.problem

    def test_a_daemon_that_died_left_its_files(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as left:
            left.bind(str(tmp_path / "control"))
        (tmp_path / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")  # a pid that was used again
        daemon = mps.find_daemon({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)})
        assert "is no longer running" in daemon.problem

    @pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM])
    def test_a_daemon_that_listens(self, tmp_path: Path, kind: socket.SocketKind) -> None:
        with socket.socket(socket.AF_UNIX, kind) as listening:
            listening.bind(str(tmp_path / "control"))
            listening.listen()
            daemon = mps.find_daemon({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)})
            assert daemon.runs
            assert mps.may_connect(daemon)

    async def test_the_cards_say_so(self, scene: Scene) -> None:
        await scene.watch.check()
        assert not scene.card(0).mps
        (scene.folder / "mps").mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(str(scene.folder / "mps" / "control"))
            listening.listen()
            await scene.watch.check()
        assert scene.card(0).mps
        assert "enforced by MPS" in scene.told[-1].annotations["windlass.dev/devices-note"]
        assert scene.told[-1].labels["nvidia.com/mps.capable"] == "true"


async def test_utilisation_of_the_gpus_of_each_pod_is_published(scene: Scene) -> None:
    scene.script.change(0, utilization=80)
    await scene.watch.check()
    assert scene.utilization == {}  # no pod has a GPU: nothing, not zero
    held = [DeviceHold(str(index)) for index in (0, 1)]
    scene.device_manager.allocations.allocate("u1", "ns/u1", held)
    scene.pods["u1"] = {"metadata": {"name": "u1", "annotations": {}}}
    scene.script.change(1, utilization=40)
    await scene.watch.check()
    first = scene.utilization
    assert first["pods"] == {"ns/u1": 60}
    scene.clock.jump(15)
    scene.script.change(1, utilization=44)
    await scene.watch.check()
    assert scene.utilization == first  # a small change does not write the node
    scene.script.change(1, utilization=60)
    await scene.watch.check()
    assert scene.utilization["pods"] == {"ns/u1": 70}
    assert scene.utilization["at"] > first["at"]
    second = scene.utilization
    scene.clock.jump(60)
    await scene.watch.check()
    assert scene.utilization["at"] > second["at"]  # a value that holds is told again before it is too old
