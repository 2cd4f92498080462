"""NUMA nodes of this machine: discovery, publication, and the CPUs of pods.

The binding names the NUMA nodes of a pod (``windlass.dev/numa-placement``). If the node's policy
aligns pods, or the pod names such a policy itself, its processes are restricted to the CPUs of
these NUMA nodes. The kernel then prefers their memory. The CPUs are not exclusive.
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
_DIRECTORY = re.compile(r"node(\d+)")
_TOTAL = re.compile(r"MemTotal:\s+(\d+) kB")


def find_numa_nodes(cores: Sequence[int], root: Path = SYSTEM) -> tuple[NumaZoneRecord, ...]:
    """Return the NUMA nodes with any of ``cores`` or any memory, by number.

    The result is empty if the kernel shows none.
    """
    directories = {}
    try:
        for entry in root.iterdir():
            match = _DIRECTORY.fullmatch(entry.name)
            if match:
                directories[int(match[1])] = entry
    except OSError:
        return ()
    numbers = sorted(directories)
    usable = set(cores)
    records = []
    for number in numbers:
        directory = directories[number]
        cpus = [cpu for cpu in numa_annotations.cpus_of(_read(directory / "cpulist")) if cpu in usable]
        memory = _TOTAL.search(_read(directory / "meminfo"))
        distances = tuple(int(word) for word in _read(directory / "distance").split() if word.isdecimal())
        record = NumaZoneRecord(
            number=number,
            cpus=numa_annotations.cpu_text(cpus),
            memory=int(memory[1]) * 1024 if memory else 0,
            distances=distances if len(distances) == len(numbers) else (),
        )
        if record.cpus or record.memory:
            records.append(record)
    if len(records) < len(numbers):  # distances are to all NUMA nodes of the machine, in order
        kept = [numbers.index(record.number) for record in records]
        records = [_with_distances(record, kept) for record in records]
    return tuple(records)


def _with_distances(record: NumaZoneRecord, kept: Sequence[int]) -> NumaZoneRecord:
    distances = tuple(record.distances[place] for place in kept) if record.distances else ()
    return NumaZoneRecord(record.number, record.cpus, record.memory, distances)


def record_of(cores: Sequence[int], options: AgentOptions) -> NumaNodeRecord:
    """Return the NUMA nodes of this machine and the policy of its pods."""
    return NumaNodeRecord(
        find_numa_nodes(cores), options.topology_manager_policy, options.topology_manager_scope
    )


def node_annotations(record: NumaNodeRecord) -> dict[str, str]:
    """Return the annotation of the Node. An empty text removes the one of an earlier start."""
    return {numa_annotations.NUMA: numa_annotations.write(record) if record.zones else ""}


def cores_for(pod: Mapping[str, str], record: NumaNodeRecord) -> tuple[int, ...]:
    """Return the CPUs to which a pod with these annotations is restricted. Empty: no restriction."""
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
