"""Device ids of extended resources on simulated nodes, as a device plugin would assign them."""

from __future__ import annotations

from typing import Any

from windlass.node.pods.record import ContainerDevices, PodRecord

_MAX_UNITS = 64
"""Maximum number of units of one container that are named. More are amounts, not devices."""


class SimulatedUnits:
    """Devices in use on each node, by resource."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str], set[str]] = {}
        self._by_uid: dict[str, tuple[str, ContainerDevices]] = {}
        """uid → node and devices of a pod that runs."""

    def restore(self, pod: PodRecord) -> None:
        """Record the devices that the status of a running pod names."""
        if pod.held and pod.uid not in self._by_uid:
            self._hold(pod, pod.held)

    def allocate(self, pod: PodRecord) -> ContainerDevices:
        """Return the devices of the pod's containers. They are the same at every call."""
        if pod.uid in self._by_uid:
            return self._by_uid[pod.uid][1]
        found = []
        for container, resource, count in pod.units:
            if 0 < count <= _MAX_UNITS:
                used = self._used.setdefault((pod.node, resource), set())
                names = (device_name(resource, number) for number in range(len(used) + count))
                ids = tuple([name for name in names if name not in used][:count])
                used.update(ids)
                found.append((container, resource, ids))
        self._hold(pod, tuple(found))
        return tuple(found)

    def _hold(self, pod: PodRecord, devices: ContainerDevices) -> None:
        if devices:
            self._by_uid[pod.uid] = pod.node, devices
        for _, resource, ids in devices:
            self._used.setdefault((pod.node, resource), set()).update(ids)

    def release(self, uid: str) -> None:
        node, devices = self._by_uid.pop(uid, ("", ()))
        for _, resource, ids in devices:
            self._used.get((node, resource), set()).difference_update(ids)


def device_name(resource: str, number: int) -> str:
    """Return the id of a simulated device: ``mlx5_0`` for RDMA, else ``<resource>-0``."""
    return f"mlx5_{number}" if "rdma" in resource else f"{resource.rpartition('/')[2]}-{number}"


def allocated_status(devices: ContainerDevices, container: str) -> list[dict[str, Any]]:
    """Return ``allocatedResourcesStatus`` of a container."""
    return [
        {"name": resource, "resources": [{"resourceID": unit, "health": "Healthy"} for unit in ids]}
        for name, resource, ids in devices
        if name == container
    ]
