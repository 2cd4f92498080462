"""F52: measured memory of each pod on a shared device."""

from __future__ import annotations

from windlass.node.devices.allocations import DeviceHold, Held
from windlass.node.devices.usage_audit import DeviceProcess, rounded_use

HELD = [
    Held(DeviceHold("GPU-a", 0, 10240), "u1", "team/one"),
    Held(DeviceHold("GPU-a", 0, 10240), "u2", "team/two"),
    Held(DeviceHold("GPU-b", 0, 0), "u3", "team/whole"),
]
INDICES = {"GPU-a": "0", "GPU-b": "1"}


def use(pod: str, mib: int, device: str = "GPU-a") -> DeviceProcess:
    return DeviceProcess(device, 1, pod, "python", mib)


def test_f52_processes_of_a_pod_are_added_up() -> None:
    found = rounded_use([use("u1", 3000), use("u1", 72), use("u3", 9, "GPU-b")], HELD, INDICES, {})
    assert found == {"0": {"team/one": 3072, "team/two": 0}}


def test_small_changes_do_not_write_the_node_again() -> None:
    before = {"0": {"team/one": 3072, "team/two": 0}}
    assert rounded_use([use("u1", 3100)], HELD, INDICES, before) == before
    assert rounded_use([use("u1", 3200)], HELD, INDICES, before)["0"]["team/one"] == 3200
    assert rounded_use([use("u1", 3072), use("u2", 20)], HELD, INDICES, before)["0"]["team/two"] == 20
