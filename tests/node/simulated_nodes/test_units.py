"""F28: devices of extended resources on simulated nodes."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from windlass.node.pods.record import PodDecoder, PodRecord
from windlass.node.simulated_nodes.units import SimulatedUnits, allocated_status


def record(uid: str, count: int, held: tuple[str, ...] = ()) -> PodRecord:
    status = [{"name": "rdma/roce_v2", "resources": [{"resourceID": unit} for unit in held]}]
    pod = {
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {
            "nodeName": "sim-0",
            "containers": [
                {
                    "name": "main",
                    "resources": {"limits": {"rdma/roce_v2": str(count), "nvidia.com/gpu": 8, "cpu": "2"}},
                }
            ],
        },
        "status": {
            "containerStatuses": [{"name": "main", "allocatedResourcesStatus": status if held else None}]
        },
    }
    return PodDecoder("box")(msgspec.Raw(msgspec.json.encode(pod)))


def test_f28_pod_gets_a_device_and_its_status_names_it() -> None:
    units = SimulatedUnits()
    devices = units.allocate(record("a", 1))
    assert devices == (("main", "rdma/roce_v2", ("mlx5_0",)),)
    assert allocated_status(devices, "main") == [
        {"name": "rdma/roce_v2", "resources": [{"resourceID": "mlx5_0", "health": "Healthy"}]}
    ]
    assert allocated_status(devices, "sidecar") == []


def test_devices_of_running_pods_survive_a_restart_of_the_agent() -> None:
    units = SimulatedUnits()
    units.restore(record("a", 1, ("mlx5_0",)))
    assert units.allocate(record("b", 1)) == (("main", "rdma/roce_v2", ("mlx5_1",)),)
    units.release("a")
    assert units.allocate(record("c", 1)) == (("main", "rdma/roce_v2", ("mlx5_0",)),)


def test_large_amounts_are_not_named() -> None:
    assert SimulatedUnits().allocate(record("a", 1000)) == ()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.booleans()), max_size=30))
def test_no_device_is_assigned_twice(steps: list[tuple[int, int, bool]]) -> None:
    units = SimulatedUnits()
    held: dict[str, set[str]] = {}
    for number, count, stop in steps:
        uid = str(number)
        if stop:
            units.release(uid)
            held.pop(uid, None)
        else:
            held[uid] = {unit for _, _, ids in units.allocate(record(uid, count)) for unit in ids}
        everything = [unit for ids in held.values() for unit in ids]
        assert len(everything) == len(set(everything))
