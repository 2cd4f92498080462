"""CPU sets of containers: lists as of the kernel, and their place in a pod's status.

The kubelet reports devices in ``allocatedResourcesStatus`` of a container. Windlass' node
agent also reports there the CPUs that a container may use, if those are not all of the
node: resource ``cpu``, id ``0-3,8``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def cpu_list(cpus: Iterable[int]) -> str:
    """Return CPUs as a list with ranges: ``0-3,8``."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def cpu_status(cpus: Iterable[int]) -> dict[str, Any]:
    """Return the entry of ``allocatedResourcesStatus`` for a container's CPUs."""
    return {"name": "cpu", "resources": [{"resourceID": cpu_list(cpus)}]}


def cpus_of_pod(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return container → its CPUs as a list, for containers of a running pod with CPUs assigned."""
    found: dict[str, str] = {}
    status = pod.get("status") or {}
    if status.get("phase") != "Running":
        return found
    for container in status.get("containerStatuses") or ():
        for entry in container.get("allocatedResourcesStatus") or ():
            if entry.get("name") == "cpu":
                found[container.get("name", "")] = ",".join(
                    str(unit.get("resourceID")) for unit in entry.get("resources") or ()
                )
    return found


def cpus_text(pod: Mapping[str, Any]) -> str:
    """Return the CPUs of a pod for people: ``0-3``, or ``main 0-3, side 4``; empty if none are assigned."""
    found = cpus_of_pod(pod)
    if len(found) <= 1:
        return next(iter(found.values()), "")
    return ", ".join(f"{container} {cpus}" for container, cpus in found.items())
