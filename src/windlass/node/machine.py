"""Facts about this machine, and the Node object with them."""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.api import annotations as names
from windlass.api import quantities
from windlass.api.nodes.simulated import KUBELET_VERSION, node_conditions
from windlass.kits.timestamps import rfc3339
from windlass.node.devices.discovery import Inventory
from windlass.node.options import MIB
from windlass.node.runtime import syscalls

_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "ppc64le": "ppc64le",
    "s390x": "s390x",
}


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about a machine. ``cores``: usable by this process. Memory and disk in bytes."""

    hostname: str
    address: str
    cores: tuple[int, ...]
    memory_bytes: int
    disk_bytes: int
    architecture: str
    kernel: str
    os_image: str
    boot_id: str
    machine_id: str


def find_machine(directory: Path) -> Machine:
    """Return the facts of this machine. ``directory`` is on the disk that pods write to."""
    disk = os.statvfs(directory)
    return Machine(
        hostname=node_name_of(socket.gethostname()),
        address=own_address(),
        cores=tuple(sorted(os.sched_getaffinity(0))),
        memory_bytes=usable_memory(),
        disk_bytes=disk.f_frsize * disk.f_blocks,
        architecture=_ARCHITECTURES.get(platform.machine(), platform.machine()),
        kernel=platform.release(),
        os_image=_os_image(),
        boot_id=syscalls.boot_id(),
        machine_id=_first_line("/etc/machine-id"),
    )


def node_name_of(hostname: str) -> str:
    """Return the name of a node for a hostname (RFC 1123, lower case)."""
    name = re.sub(r"[^a-z0-9.-]+", "-", hostname.lower()).strip("-.")
    return name[:63].rstrip("-.") or "box"


def own_address() -> str:
    """Return the address this machine uses towards others, or loopback. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def usable_memory() -> int:
    """Return the memory in bytes: the machine's, or the smaller limit of the own control group."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    total = int(match[1]) * 1024 if match else 0
    bound = _first_line("/sys/fs/cgroup/memory.max")
    return min(total, int(bound)) if bound.isdecimal() else total


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().split("\n", 1)[0].strip()
    except OSError:
        return ""


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return "Linux"


def memory_reserve(total: int, wanted: int) -> int:
    """Return the memory reserved for the system: ``wanted``, or 5 % and at least 256 MiB."""
    return min(total, wanted if wanted >= 0 else max(256 * MIB, total // 20))


def resources(
    machine: Machine,
    inventory: Inventory,
    *,
    max_pods: int,
    reserve: int,
    reserved: Mapping[str, int] | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return capacity and allocatable as quantities.

    ``reserve``: memory for the system in bytes, unless ``reserved`` has memory.
    ``reserved``: resources that pods do not get, in engine units.
    """
    capacity = {
        "cpu": str(len(machine.cores)),
        "memory": f"{machine.memory_bytes // 1024}Ki",
        "ephemeral-storage": f"{machine.disk_bytes // 1024}Ki",
        "pods": str(max_pods),
    }
    capacity |= {name: str(amount) for name, amount in inventory.resources.items()}
    kept = {"memory": memory_reserve(machine.memory_bytes, reserve), **(reserved or {})}
    cpu_milli = 1000 * len(machine.cores) - kept.get("cpu", 0)
    disk = machine.disk_bytes - kept.get("ephemeral-storage", 0)
    healthy = {name: str(amount) for name, amount in inventory.allocatable.items()}
    return capacity, {
        **capacity,
        **healthy,
        "cpu": quantities.from_units("cpu", max(0, cpu_milli)),
        "memory": f"{max(0, machine.memory_bytes - kept['memory']) // 1024}Ki",
        "ephemeral-storage": f"{max(0, disk) // 1024}Ki",
    }


def labels(name: str, machine: Machine, inventory: Inventory) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": machine.architecture,
        "kubernetes.io/os": "linux",
        names.BOX: "true",
        **inventory.labels,
    }


def node_status(
    name: str,
    machine: Machine,
    capacity: Mapping[str, str],
    allocatable: Mapping[str, str],
    *,
    now: float,
    before: Sequence[Mapping[str, Any]] = (),
    more: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return the status of the Node.

    Unchanged conditions have the transition times of ``before``. ``more``: additional conditions.
    """
    time = rfc3339(now)
    known = {condition.get("type"): condition for condition in before}
    conditions = node_conditions(time)
    conditions += [{**condition, "lastHeartbeatTime": time, "lastTransitionTime": time} for condition in more]
    for condition in conditions:
        earlier = known.get(condition["type"])
        if earlier is not None and earlier.get("status") == condition["status"]:
            condition["lastTransitionTime"] = earlier.get("lastTransitionTime") or time
    return {
        "capacity": dict(capacity),
        "allocatable": dict(allocatable),
        "conditions": conditions,
        "addresses": [
            {"type": "InternalIP", "address": machine.address},
            {"type": "Hostname", "address": name},
        ],
        "nodeInfo": {
            "architecture": machine.architecture,
            "bootID": machine.boot_id,
            "containerRuntimeVersion": "windlass-process://1",
            "kernelVersion": machine.kernel,
            "kubeProxyVersion": "",
            "kubeletVersion": KUBELET_VERSION,
            "machineID": machine.machine_id,
            "operatingSystem": "linux",
            "osImage": machine.os_image,
            "systemUUID": "",
        },
    }
