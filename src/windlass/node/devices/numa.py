"""NUMA zones of this machine: what the kernel shows of them, what is published, and where a pod's processes run.

The scheduler says with the binding from which zones a pod is served (``windlass.dev/numa-placement``). Where
the node's policy aligns pods, or the pod names such a policy itself, its processes are kept to the processors of
those zones, and the kernel then gives them memory of there first. Processors are not kept from others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from windlass.api.devices import numa_annotations
from windlass.api.devices.numa_annotations import NumaNodeRecord, NumaZoneRecord
from windlass.node.options import AgentOptions

SYSTEM = Path("/sys/devices/system/node")
_ALIGNED = frozenset(numa_annotations.POLICIES) - {"none"}
_FOLDER = re.compile(r"node(\d+)")
_TOTAL = re.compile(r"MemTotal:\s+(\d+) kB")


def find_numa_nodes(cores: Sequence[int], root: Path = SYSTEM) -> tuple[NumaZoneRecord, ...]:
    """The zones that have any of ``cores`` or any memory, by number; none where the kernel shows none."""
    folders = {}
    try:
        for entry in root.iterdir():
            match = _FOLDER.fullmatch(entry.name)
            if match:
                folders[int(match[1])] = entry
    except OSError:
        return ()
    numbers = sorted(folders)
    usable = set(cores)
    found = []
    for number in numbers:
        folder = folders[number]
        cpus = [cpu for cpu in numa_annotations.cpus_of(_read(folder / "cpulist")) if cpu in usable]
        memory = _TOTAL.search(_read(folder / "meminfo"))
        distances = tuple(int(word) for word in _read(folder / "distance").split() if word.isdecimal())
        record = NumaZoneRecord(
            number=number,
            cpus=numa_annotations.cpu_text(cpus),
            memory=int(memory[1]) * 1024 if memory else 0,
            distances=distances if len(distances) == len(numbers) else (),
        )
        if record.cpus or record.memory:
            found.append(record)
    if len(found) < len(numbers):  # distances are to all zones of the machine, in their order
        kept = [numbers.index(record.number) for record in found]
        found = [_with_distances(record, kept) for record in found]
    return tuple(found)


def _with_distances(record: NumaZoneRecord, kept: Sequence[int]) -> NumaZoneRecord:
    distances = tuple(record.distances[place] for place in kept) if record.distances else ()
    return NumaZoneRecord(record.number, record.cpus, record.memory, distances)


def record_of(cores: Sequence[int], options: AgentOptions) -> NumaNodeRecord:
    """The zones of this machine, and the policy by which its pods are served from them."""
    return NumaNodeRecord(
        find_numa_nodes(cores), options.topology_manager_policy, options.topology_manager_scope
    )


def words(record: NumaNodeRecord) -> dict[str, str]:
    """The annotation of the Node; an empty text takes back what an earlier start has written."""
    return {numa_annotations.NUMA: numa_annotations.write(record) if record.zones else ""}


def cores_for(pod: Mapping[str, str], record: NumaNodeRecord) -> tuple[int, ...]:
    """The processors to which a pod with these annotations is kept; none: to no particular ones."""
    if record.policy not in _ALIGNED and pod.get(numa_annotations.POLICY_VOLCANO) not in _ALIGNED:
        return ()
    placement = numa_annotations.placement_of(pod)
    if not placement:
        return ()
    numbers = {number for number, _ in placement}
    return tuple(
        cpu for zone in record.zones if zone.number in numbers for cpu in numa_annotations.cpus_of(zone.cpus)
    )


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
