"""Metrics of HAMi's scheduler, under the names of version 2.9 and the older ones.

There is one series per device, and one per pod's share of a device. They are exported
only on request.

Devices are those that the nodes report. Shares are those recorded on the pods
(:mod:`windlass.model.devices.usage`), whichever scheduler placed them. Devices that a
device plugin assigned by itself count as free here.

A large cluster has tens of thousands of devices. So a scrape only collects references
(:class:`_NodeState`) to what does not change any more. They are read when the response
is written, while decisions go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import ceil

from prometheus_client.metrics_core import Metric

from windlass.api import views
from windlass.api.devices.request import WHOLE
from windlass.model.devices import node_devices
from windlass.model.devices.dra_claims import DraAllocation
from windlass.model.devices.usage import DeviceUse, shares_held, slot_resource
from windlass.scheduler.compat_metrics.families import (
    DEVICES,
    LEGACY_DEVICES,
    LeftOut,
    MetricsExporter,
    Row,
    families,
)
from windlass.scheduler.compat_metrics.scrape import Scrape
from windlass.spi.objects import Device

MIB = 1 << 20
_DEVICE_LABELS = "node device_uuid device_index device_type"
_LEGACY_LABELS = "nodeid deviceuuid deviceidx devicetype"
_POD_LABELS = "namespace node pod container_index device_uuid"
_LEGACY_POD_LABELS = "podnamespace nodename podname containeridx deviceuuid"
FAMILIES = (
    *families(
        "gauge",
        _DEVICE_LABELS,
        {
            "hami_gpu_memory_limit_bytes": "Memory of a GPU",
            "hami_gpu_core_limit_ratio": "100",
            "hami_gpu_shared_count": "Containers that share the GPU",
            "hami_gpu_core_allocated_ratio": "Allocated percentage of its compute",
        },
        DEVICES,
    ),
    *families(
        "gauge",
        "node device_uuid device_index device_cores device_type",
        {
            "hami_gpu_memory_allocated_bytes": "Allocated memory of the GPU",
        },
        DEVICES,
    ),
    *families(
        "gauge",
        "node device_uuid device_index device_cores device_memory_limit device_type",
        {
            "hami_node_gpu_overview": "The same; its memory in MiB is a label",
        },
        DEVICES,
    ),
    *families(
        "gauge",
        "node device_uuid device_index",
        {
            "hami_node_gpu_memory_allocated_ratio": "Allocated fraction of its memory, 0 to 1",
        },
        DEVICES,
    ),
    *families(
        "gauge",
        _POD_LABELS,
        {
            "hami_vgpu_memory_allocated_bytes": "Memory of a GPU allocated to a pod; the container is the number of"
            " the pod's share",
            "hami_vgpu_core_allocated_ratio": "Percentage of a GPU's compute allocated to a pod",
        },
        DEVICES,
    ),
    *families(
        "gauge",
        _LEGACY_LABELS,
        {
            "GPUDeviceMemoryLimit": "hami_gpu_memory_limit_bytes under its older name",
            "GPUDeviceCoreLimit": "hami_gpu_core_limit_ratio under its older name",
            "GPUDeviceSharedNum": "hami_gpu_shared_count under its older name",
            "GPUDeviceCoreAllocated": "hami_gpu_core_allocated_ratio under its older name",
        },
        LEGACY_DEVICES,
    ),
    *families(
        "gauge",
        "nodeid deviceuuid deviceidx devicecores devicetype",
        {
            "GPUDeviceMemoryAllocated": "hami_gpu_memory_allocated_bytes under its older name",
        },
        LEGACY_DEVICES,
    ),
    *families(
        "gauge",
        "nodeid deviceuuid deviceidx devicecores devicememorylimit devicetype",
        {
            "nodeGPUOverview": "hami_node_gpu_overview under its older name",
        },
        LEGACY_DEVICES,
    ),
    *families(
        "gauge",
        "nodeid deviceuuid deviceidx",
        {
            "nodeGPUMemoryPercentage": "hami_node_gpu_memory_allocated_ratio under its older name",
        },
        LEGACY_DEVICES,
    ),
    *families(
        "gauge",
        _LEGACY_POD_LABELS,
        {
            "vGPUMemoryAllocated": "hami_vgpu_memory_allocated_bytes under its older name",
            "vGPUCoreAllocated": "hami_vgpu_core_allocated_ratio under its older name",
        },
        LEGACY_DEVICES,
    ),
)
LEFT_OUT = (
    LeftOut(
        "hami_node_gpu_mig_instance_info (nodeGPUMigInstance)",
        "its label is HAMi's own number of an instance",
    ),
    LeftOut(
        "hami_resource_quota_used, hami_resource_quota_limit (QuotaUsed)",
        "HAMi's quotas of `gpumem` and `gpucores`"
        " are not enforced; other quotas are in kube-state-metrics' `kube_resourcequota`",
    ),
    LeftOut(
        "vGPUPodsDeviceAllocated, vGPUMemoryPercentage, vGPUCorePercentage", "HAMi itself has removed them"
    ),
    LeftOut(
        "hami_host_gpu_*, hami_vgpu_memory_used_bytes, hami_vgpu_memory_limit_bytes, hami_container_*,"
        " hami_mig_device_info (HostGPUMemoryUsage, HostCoreUtilization, vGPU_device_memory_usage_in_bytes)",
        "measured on the nodes, by HAMi's monitor and by DCGM",
    ),
)
_EXPORTER = MetricsExporter(FAMILIES)


@dataclass(frozen=True, slots=True)
class _NodeState:
    """State of a node at the time of a scrape.

    It implements :class:`windlass.model.devices.usage.ClaimLookup`.
    """

    node: views.NodeObject
    pods: Sequence[views.Pod]
    """Pods that may have recorded devices."""
    listed: tuple[Device, ...]
    claimed: Mapping[str, Sequence[DraAllocation]]
    """Uid of a pod → devices allocated to its claims."""

    def listed_devices(self, node: str) -> tuple[Device, ...]:
        return self.listed

    def allocations_of(self, pod: views.Pod) -> Sequence[DraAllocation]:
        return self.claimed.get(pod.uid, ())


@dataclass(slots=True)
class _DeviceState:
    """A device, and its shares. Each share has a number within its pod."""

    node: str
    device: Device
    uses: list[tuple[views.Pod, int, DeviceUse]] = field(default_factory=list)

    def allocated(self) -> tuple[int, int]:
        """Return the allocated thousandths of its compute, and MiB.

        A claim that several pods share counts once.
        """
        claimed = {use.claim: use for *_, use in self.uses if use.claim}
        uses = [*claimed.values(), *(use for *_, use in self.uses if not use.claim)]
        return min(WHOLE, sum(use.part.milli for use in uses)), sum(map(self.mib_of, uses))

    def mib_of(self, use: DeviceUse) -> int:
        return self.device.memory_mib if use.part.whole else use.part.memory_mib


def export(scrape: Scrape) -> Iterator[Metric]:
    wanted = [name in scrape.sources.details for name in (DEVICES, LEGACY_DEVICES)]
    if not any(wanted):
        return
    nodes = list(_node_states(scrape))

    @cache
    def rows() -> dict[Names, list[Row]]:
        devices = list(_device_states(nodes))
        return _device_rows(devices) | _pod_rows(devices)

    for names in (*_DEVICE_FAMILIES, *_POD_FAMILIES):
        for name, enabled in zip(names, wanted, strict=True):
            if enabled:
                yield _EXPORTER.deferred(name, lambda names=names: rows()[names])


def _node_states(scrape: Scrape) -> Iterator[_NodeState]:
    claims, node_usage = scrape.model.features.claims.index, scrape.sources.node_usage
    for node in scrape.model.objects.nodes.values():
        pods = tuple(node_usage.with_devices(node.name))
        claimed = {pod.uid: tuple(claims.allocations_of(pod)) for pod in pods if pod.shape.claims}
        yield _NodeState(node, pods, claims.listed_devices(node.name), claimed)


def _device_states(nodes: Iterable[_NodeState]) -> Iterator[_DeviceState]:
    """Return the devices of all nodes with their shares.

    MIG instances that a device plugin assigns are not included.
    """
    for state in nodes:
        node, table = state.node, {}
        for device in (*node_devices.devices_of(node), *state.listed):
            table[slot_resource(device), device.index] = _DeviceState(node.name, device)
        if not table:
            continue
        for pod in state.pods:
            for number, (slot, use) in enumerate(shares_held(pod, node, state)):
                if slot in table and (use.part.milli or use.part.memory_mib):
                    table[slot].uses.append((pod, number, use))
        yield from table.values()


Names = tuple[str, str]
"""Current name, older name."""


def _device_rows(devices: Sequence[_DeviceState]) -> dict[Names, list[Row]]:
    rows: dict[Names, list[Row]] = {names: [] for names in _DEVICE_FAMILIES}
    limit, cores, shared, used_cores, used, overview, fraction = rows.values()
    for state in devices:
        device, (milli, mib) = state.device, state.allocated()
        labels = (state.node, device.uuid, str(device.index))
        kind, memory = device.model or device.resource, device.memory_mib
        limit.append(((*labels, kind), memory * MIB))
        cores.append(((*labels, kind), 100))
        shared.append(((*labels, kind), sum(use.slots for *_, use in state.uses)))
        used_cores.append(((*labels, kind), ceil(milli / 10)))
        used.append(((*labels, "100", kind), mib * MIB))
        overview.append(((*labels, "100", str(memory), kind), mib * MIB))
        if memory:
            fraction.append((labels, mib / memory))
    return rows


_DEVICE_FAMILIES: tuple[Names, ...] = (
    ("hami_gpu_memory_limit_bytes", "GPUDeviceMemoryLimit"),
    ("hami_gpu_core_limit_ratio", "GPUDeviceCoreLimit"),
    ("hami_gpu_shared_count", "GPUDeviceSharedNum"),
    ("hami_gpu_core_allocated_ratio", "GPUDeviceCoreAllocated"),
    ("hami_gpu_memory_allocated_bytes", "GPUDeviceMemoryAllocated"),
    ("hami_node_gpu_overview", "nodeGPUOverview"),
    ("hami_node_gpu_memory_allocated_ratio", "nodeGPUMemoryPercentage"),
)
_POD_FAMILIES: tuple[Names, ...] = (
    ("hami_vgpu_memory_allocated_bytes", "vGPUMemoryAllocated"),
    ("hami_vgpu_core_allocated_ratio", "vGPUCoreAllocated"),
)


def _pod_rows(devices: Sequence[_DeviceState]) -> dict[Names, list[Row]]:
    rows: dict[Names, list[Row]] = {names: [] for names in _POD_FAMILIES}
    memory, cores = rows.values()
    for state in devices:
        device = state.device.uuid or str(state.device.index)
        for pod, number, use in state.uses:
            labels = (pod.namespace, state.node, pod.name, str(number), device)
            memory.append((labels, state.mib_of(use) * MIB))
            cores.append((labels, ceil(use.part.milli / 10)))
    return rows
