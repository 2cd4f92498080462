"""The machine's NUMA zones, and to which processors a pod is kept."""

from __future__ import annotations

from pathlib import Path

from windlass.api.devices import numa_annotations
from windlass.api.devices.numa_annotations import NumaNodeRecord, NumaZoneRecord
from windlass.node.devices import numa
from windlass.node.limits import CgroupLimiter, ContainerLimits, WatchLimiter


def machine(root: Path, layout: dict[int, tuple[str, int]], distances: dict[int, str]) -> Path:
    """A folder as ``/sys/devices/system/node``: zone → processors and KiB of memory."""
    for number, (cpus, kib) in layout.items():
        folder = root / f"node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
        (folder / "meminfo").write_text(
            f"Node {number} MemTotal:       {kib} kB\nNode {number} MemFree: 1 kB\n"
        )
        (folder / "distance").write_text(distances[number] + "\n")
    (root / "possible").write_text("0-1\n")
    return root


def test_zones_are_found_as_the_kernel_shows_them(tmp_path: Path) -> None:
    root = machine(tmp_path, {0: ("0-3,8-11", 1024), 1: ("4-7,12-15", 2048)}, {0: "10 21", 1: "21 10"})
    assert numa.find_numa_nodes(range(16), root) == (
        NumaZoneRecord(0, "0-3,8-11", 1024 * 1024, (10, 21)),
        NumaZoneRecord(1, "4-7,12-15", 2048 * 1024, (21, 10)),
    )


def test_only_processors_that_may_be_used_count(tmp_path: Path) -> None:
    root = machine(
        tmp_path, {0: ("0-1", 1), 1: ("2-3", 0), 2: ("", 64)}, {0: "10 20 30", 1: "20 10 30", 2: "30 30 10"}
    )
    found = numa.find_numa_nodes([0], root)
    assert [(zone.number, zone.cpus, zone.distances) for zone in found] == [
        (0, "0", (10, 30)),
        (2, "", (30, 10)),
    ]


def test_a_machine_without_zones_says_nothing(tmp_path: Path) -> None:
    assert numa.find_numa_nodes([0, 1], tmp_path / "missing") == ()
    assert numa.node_annotations(NumaNodeRecord()) == {numa_annotations.NUMA: ""}


TWO = (NumaZoneRecord(0, "0-3"), NumaZoneRecord(1, "4-7"))
IN_ONE = {numa_annotations.PLACEMENT: '[{"zone": "node-1", "amount": {"cpu": "2"}}]'}


def test_a_pod_is_kept_to_its_zones_where_the_policy_says_so() -> None:
    aligned = NumaNodeRecord(TWO, "single-numa-node")
    assert numa.cores_for(IN_ONE, aligned) == (4, 5, 6, 7)
    assert numa.cores_for(IN_ONE, NumaNodeRecord(TWO)) == ()
    assert numa.cores_for({**IN_ONE, numa_annotations.POLICY_VOLCANO: "restricted"}, NumaNodeRecord(TWO)) == (
        4,
        5,
        6,
        7,
    )
    assert numa.cores_for({**IN_ONE, numa_annotations.POLICY_VOLCANO: "none"}, NumaNodeRecord(TWO)) == ()
    assert numa.cores_for({}, aligned) == ()
    both = {
        numa_annotations.PLACEMENT: '[{"zone":"node-0","amount":{"cpu":"4"}},{"zone":"node-1","amount":{"cpu":"4"}}]'
    }
    assert numa.cores_for(both, aligned) == (0, 1, 2, 3, 4, 5, 6, 7)


def test_processors_are_chosen_within_the_zone() -> None:
    limiter = WatchLimiter(range(8), "here")
    assert limiter.apply("a", "c", ContainerLimits(cpu_milli=2000), (4, 5, 6, 7)).affinity == (4, 5)
    assert limiter.apply("b", "c", ContainerLimits(), (4, 5, 6, 7)).affinity == (4, 5, 6, 7)
    assert limiter.apply("d", "c", ContainerLimits(cpu_milli=2000), (4, 5, 6, 7)).affinity == (6, 7)
    assert limiter.apply("e", "c", ContainerLimits()).affinity == ()
    limiter.release("a")
    limiter.release("b")
    assert limiter.apply("f", "c", ContainerLimits(cpu_milli=1000), (4, 5)).affinity == (4,)


def test_control_groups_do_not_take_the_place_of_affinity(tmp_path: Path) -> None:
    limiter = CgroupLimiter(tmp_path)
    assert limiter.apply("pod", "c", ContainerLimits(cpu_milli=1000), (4, 5)).affinity == (4, 5)
