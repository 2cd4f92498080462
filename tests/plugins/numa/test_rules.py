"""Predicted NUMA allocations equal a plain restatement of the kubelet's rules."""

from __future__ import annotations

from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from topology_manager_reference import AdmissionError, Kubelet, Machine

from windlass.plugins.numa.kubelet_allocation import serve
from windlass.plugins.numa.topology_hints import Distances, Hints, Merged, hints_of, merge
from windlass.plugins.numa.zone_usage import RowZones
from windlass.spi.numa import AlignmentPolicy, ContainerKind, ContainerNeed, NumaNeed, NumaTopology, NumaZone

GPU = "nvidia.com/gpu"
NIC = "vendor.example/nic"
POLICIES = [policy.value for policy in AlignmentPolicy]


@st.composite
def machines(draw: st.DrawFn, *, most: int = 4) -> Machine:
    zones = list(range(draw(st.integers(1, most))))
    cpus: dict[int, int] = {}
    for zone in zones:
        for _ in range(draw(st.integers(0 if zone else 1, 4))):
            cpus[len(cpus)] = zone
    reserved = set(range(draw(st.integers(0, min(2, len(cpus) - 1)))))
    devices: dict[str, dict[str, int]] = {}
    for name in draw(st.sampled_from([[GPU], [], [GPU, "amd.com/gpu"]])):
        devices[name] = {f"{name}-{i}": draw(st.sampled_from(zones)) for i in range(draw(st.integers(1, 6)))}
    memory = {"memory": {zone: draw(st.integers(0, 6)) for zone in zones}}
    if draw(st.booleans()):
        memory["hugepages-2Mi"] = {zone: draw(st.integers(0, 4)) for zone in zones}
    distances = None
    if draw(st.booleans()):
        distances = {a: {b: 10 if a == b else draw(st.integers(11, 14)) for b in zones} for a in zones}
    return Machine(
        zones,
        draw(st.sampled_from(POLICIES)),
        draw(st.sampled_from(["pod", "container"])),
        cpus,
        reserved,
        devices,
        memory,
        static_cpus=draw(st.booleans()),
        static_memory=draw(st.booleans()),
        distances=distances,
    )


@st.composite
def pods(draw: st.DrawFn, machine: Machine) -> dict[str, Any]:
    guaranteed = draw(st.booleans())
    kinds = draw(
        st.sampled_from([["main"], ["main"], ["main", "main"], ["init", "main"], ["sidecar", "main"]])
    )
    containers = []
    for kind in kinds:
        amounts = {
            "cpu": draw(st.sampled_from([500, 1000, 2000, 3000, 4000])),
            "memory": draw(st.integers(0, 6)),
        }
        if "hugepages-2Mi" in machine.memory and draw(st.booleans()):
            amounts["hugepages-2Mi"] = draw(st.integers(1, 3))
        for name in machine.devices:
            if draw(st.booleans()):
                amounts[name] = 1000 * draw(st.integers(1, 4))
        containers.append({"kind": kind, "amounts": amounts})
    return {"guaranteed": guaranteed, "containers": containers}


def zones_of(machine: Machine) -> NumaTopology:
    found = []
    for zone in machine.zones:
        mine = [cpu for cpu, at in machine.cpus.items() if at == zone]
        capacity = {"cpu": 1000 * len(mine)}
        allocatable = {"cpu": 1000 * len([cpu for cpu in mine if cpu not in machine.reserved])}
        for name, devices in machine.devices.items():
            capacity[name] = allocatable[name] = 1000 * sum(at == zone for at in devices.values())
        for name, amounts in machine.memory.items():
            capacity[name] = allocatable[name] = amounts[zone]
        far = tuple(machine.distances[zone][b] for b in machine.zones) if machine.distances else ()
        found.append(
            NumaZone(zone, tuple(sorted(capacity.items())), tuple(sorted(allocatable.items())), None, far)
        )
    return NumaTopology(
        tuple(found),
        AlignmentPolicy(machine.policy),
        pod_scope=machine.scope == "pod",
        exclusive_cpus=machine.static_cpus,
        pinned_memory=machine.static_memory,
        closest=machine.distances is not None,
    )


def need_of(pod: dict[str, Any]) -> NumaNeed:
    kinds = {"main": ContainerKind.MAIN, "init": ContainerKind.INIT, "sidecar": ContainerKind.SIDECAR}
    return NumaNeed(
        tuple(
            ContainerNeed(tuple(sorted(c["amounts"].items())), kinds[c["kind"]]) for c in pod["containers"]
        ),
        pod["guaranteed"],
    )


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_a_row_of_pods_is_served_as_the_kubelet_would_serve_them(data: st.DataObject) -> None:
    machine = data.draw(machines())
    kubelet, book = Kubelet(machine), RowZones(zones_of(machine))
    for _ in range(data.draw(st.integers(1, 6))):
        pod = data.draw(pods(machine))
        try:
            expected = kubelet.admit(pod)
        except AdmissionError:
            assert (
                serve(need_of(pod), book.layout, book.allocation(), AlignmentPolicy(machine.policy)) is None
            )
            return  # a kubelet that refused in the middle of a pod has given some of it away
        found = serve(need_of(pod), book.layout, book.allocation(), AlignmentPolicy(machine.policy))
        assert found is not None
        assert {zone: dict(amounts) for zone, amounts in found.zones} == expected
        book.change(found, 1)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_what_is_undone_leaves_no_trace(data: st.DataObject) -> None:
    machine = data.draw(machines())
    book = RowZones(zones_of(machine))
    states, held = [book.state()], []
    for _ in range(4):
        found = serve(
            need_of(data.draw(pods(machine))), book.layout, book.allocation(), AlignmentPolicy.BEST_EFFORT
        )
        if found is not None:
            book.change(found, 1)
            held.append(found)
            states.append(book.state())
    assert book.state() == states.pop()
    for one in reversed(held):
        book.change(one, -1)
        assert book.state() == states.pop()
    assert not any(any(amounts) for amounts in book.used.values())


def plain(hints: list[tuple[int, bool]]) -> Hints:
    return Hints(sum(1 << m for m, _ in hints), sum(1 << m for m, good in hints if good))


@pytest.mark.parametrize(
    ("lists", "zones", "expected"),
    [
        # Examples in the words of the kubelet's own tests: two providers, one hint each.
        ([[(0b01, True)], [(0b10, True)]], 2, Merged(0b11, False)),
        ([[(0b01, True)], [(0b11, True)]], 2, Merged(0b01, False)),
        ([[(0b01, True), (0b10, True), (0b11, False)], [(0b10, True), (0b11, False)]], 2, Merged(0b10, True)),
        ([[(0b1111, False), (0b0011, False)], [(0b0011, False)]], 4, Merged(0b0011, False)),
        ([], 2, Merged(0b11, True)),
        ([[]], 2, Merged(0b11, False)),
    ],
)
def test_hints_are_merged_as_in_the_kubelet(
    lists: list[list[tuple[int, bool]]], zones: int, expected: Merged
) -> None:
    assert merge(AlignmentPolicy.RESTRICTED, [plain(hints) for hints in lists], zones) == expected


def test_a_single_zone_is_looked_for_among_preferred_hints_alone() -> None:
    wide, narrow = plain([(0b11, True)]), plain([(0b01, True), (0b10, True), (0b11, False)])
    single = AlignmentPolicy.SINGLE_NUMA_NODE
    assert not merge(single, [wide, narrow], 2).preferred
    assert merge(single, [narrow, None], 2) == Merged(0b01, True)
    assert merge(single, [None], 2) == Merged(0, True)


def test_the_nearest_zones_go_first_where_the_kubelet_is_told_so() -> None:
    far = Distances(((10, 40, 11), (40, 10, 40), (11, 40, 10)))
    pairs = plain([(0b011, True), (0b101, True), (0b110, True)])
    assert merge(AlignmentPolicy.BEST_EFFORT, [pairs], 3, far).zones == 0b101
    assert merge(AlignmentPolicy.BEST_EFFORT, [pairs], 3).zones == 0b011


def test_the_least_number_of_zones_is_told_by_all_there_is_not_by_what_is_free() -> None:
    hints = hints_of(4, [4, 4], [2, 2], among=0b11)
    assert hints.sets == 1 << 0b11
    assert hints.preferred == 0


def test_eight_zones_and_three_resources_take_no_noticeable_time() -> None:
    amounts = tuple(sorted({"cpu": 8000, GPU: 1000, "memory": 8}.items()))
    zone = [NumaZone(i, amounts, amounts) for i in range(8)]
    book = RowZones(NumaTopology(tuple(zone), AlignmentPolicy.BEST_EFFORT))
    need = NumaNeed((ContainerNeed((("cpu", 24000), ("memory", 20), (GPU, 5000))),), guaranteed=True)
    found = serve(need, book.layout, book.allocation(), AlignmentPolicy.BEST_EFFORT)
    assert found is not None
    assert len(found.zones) == 5
