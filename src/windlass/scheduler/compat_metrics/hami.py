"""HAMi's scheduler, under the names of 2.9 and the older ones. One series for each card and for each pod's part of one:
only where that is asked for.

A card is what its node says of it; what pods have is what stands on them (:mod:`windlass.model.devices.usage`), whoever
scheduled them. Cards that a device plug-in handed out by itself are held by nobody here.

A large cluster has tens of thousands of them. So a scrape notes only what there is (:class:`_Place`), which nothing
changes any more; it is read by who writes the answer, while decisions go on.
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
    CARDS,
    OLD_CARDS,
    LeftOut,
    MetricsExporter,
    Row,
    families,
)
from windlass.scheduler.compat_metrics.scrape import Scrape
from windlass.spi.objects import Device

MIB = 1 << 20
_CARD = "node device_uuid device_index device_type"
_OLD = "nodeid deviceuuid deviceidx devicetype"
_POD = "namespace node pod container_index device_uuid"
_OLD_POD = "podnamespace nodename podname containeridx deviceuuid"
FAMILIES = (
    *families(
        "gauge",
        _CARD,
        {
            "hami_gpu_memory_limit_bytes": "A card's memory",
            "hami_gpu_core_limit_ratio": "100",
            "hami_gpu_shared_count": "Containers that have a part of it",
            "hami_gpu_core_allocated_ratio": "Percent of its compute given out",
        },
        CARDS,
    ),
    *families(
        "gauge",
        "node device_uuid device_index device_cores device_type",
        {
            "hami_gpu_memory_allocated_bytes": "Of its memory given out",
        },
        CARDS,
    ),
    *families(
        "gauge",
        "node device_uuid device_index device_cores device_memory_limit device_type",
        {
            "hami_node_gpu_overview": "The same; its memory in MiB is a label",
        },
        CARDS,
    ),
    *families(
        "gauge",
        "node device_uuid device_index",
        {
            "hami_node_gpu_memory_allocated_ratio": "The part of its memory given out, 0 to 1",
        },
        CARDS,
    ),
    *families(
        "gauge",
        _POD,
        {
            "hami_vgpu_memory_allocated_bytes": "What a pod has of a card's memory; the container is the number of"
            " its part",
            "hami_vgpu_core_allocated_ratio": "Percent that it has of the card's compute",
        },
        CARDS,
    ),
    *families(
        "gauge",
        _OLD,
        {
            "GPUDeviceMemoryLimit": "hami_gpu_memory_limit_bytes of old",
            "GPUDeviceCoreLimit": "hami_gpu_core_limit_ratio of old",
            "GPUDeviceSharedNum": "hami_gpu_shared_count of old",
            "GPUDeviceCoreAllocated": "hami_gpu_core_allocated_ratio of old",
        },
        OLD_CARDS,
    ),
    *families(
        "gauge",
        "nodeid deviceuuid deviceidx devicecores devicetype",
        {
            "GPUDeviceMemoryAllocated": "hami_gpu_memory_allocated_bytes of old",
        },
        OLD_CARDS,
    ),
    *families(
        "gauge",
        "nodeid deviceuuid deviceidx devicecores devicememorylimit devicetype",
        {
            "nodeGPUOverview": "hami_node_gpu_overview of old",
        },
        OLD_CARDS,
    ),
    *families(
        "gauge",
        "nodeid deviceuuid deviceidx",
        {
            "nodeGPUMemoryPercentage": "hami_node_gpu_memory_allocated_ratio of old",
        },
        OLD_CARDS,
    ),
    *families(
        "gauge",
        _OLD_POD,
        {
            "vGPUMemoryAllocated": "hami_vgpu_memory_allocated_bytes of old",
            "vGPUCoreAllocated": "hami_vgpu_core_allocated_ratio of old",
        },
        OLD_CARDS,
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
        " are not kept; quotas of amounts are kube-state-metrics' `kube_resourcequota`",
    ),
    LeftOut(
        "vGPUPodsDeviceAllocated, vGPUMemoryPercentage, vGPUCorePercentage", "HAMi itself has given them up"
    ),
    LeftOut(
        "hami_host_gpu_*, hami_vgpu_memory_used_bytes, hami_vgpu_memory_limit_bytes, hami_container_*,"
        " hami_mig_device_info (HostGPUMemoryUsage, HostCoreUtilization, vGPU_device_memory_usage_in_bytes)",
        "measured on the nodes: HAMi's monitor and DCGM tell them",
    ),
)
_TELL = MetricsExporter(FAMILIES)


@dataclass(frozen=True, slots=True)
class _Place:
    """A node at the moment of a scrape: as :class:`windlass.model.devices.usage.ClaimLookup` asks of it."""

    node: views.NodeObject
    pods: Sequence[views.Pod]
    """Of which somebody may have said which cards they have."""
    listed: tuple[Device, ...]
    claimed: Mapping[str, Sequence[DraAllocation]]
    """Pod's uid → what its claims hold there."""

    def cards_of(self, node: str) -> tuple[Device, ...]:
        return self.listed

    def allotted(self, pod: views.Pod) -> Sequence[DraAllocation]:
        return self.claimed.get(pod.uid, ())


@dataclass(slots=True)
class _Card:
    node: str
    device: Device
    uses: list[tuple[views.Pod, int, DeviceUse]] = field(default_factory=list)
    """Who has which of its parts, each with its number among the pod's."""

    def held(self) -> tuple[int, int]:
        """Thousandths of its compute, and MiB. What pods have together through one claim counts once."""
        claimed = {use.claim: use for *_, use in self.uses if use.claim}
        uses = [*claimed.values(), *(use for *_, use in self.uses if not use.claim)]
        return min(WHOLE, sum(use.part.milli for use in uses)), sum(map(self.mib_of, uses))

    def mib_of(self, use: DeviceUse) -> int:
        return self.device.memory_mib if use.part.whole else use.part.memory_mib


def export(scrape: Scrape) -> Iterator[Metric]:
    told = [name in scrape.sources.details for name in (CARDS, OLD_CARDS)]
    if not any(told):
        return
    places = list(_places(scrape))

    @cache
    def rows() -> dict[Names, list[Row]]:
        found = list(_cards(places))
        return _of_cards(found) | _of_pods(found)

    for names in (*_OF_CARDS, *_OF_PODS):
        for name, wanted in zip(names, told, strict=True):
            if wanted:
                yield _TELL.later(name, lambda names=names: rows()[names])


def _places(scrape: Scrape) -> Iterator[_Place]:
    claims, ledger = scrape.model.claims, scrape.sources.ledger
    for node in scrape.model.nodes.values():
        pods = tuple(ledger.with_cards(node.name))
        claimed = {pod.uid: tuple(claims.allotted(pod)) for pod in pods if pod.shape.claims}
        yield _Place(node, pods, claims.cards_of(node.name), claimed)


def _cards(places: Iterable[_Place]) -> Iterator[_Card]:
    """Those of all nodes, with who has what of them. MIG instances that a device plug-in hands out are no cards."""
    for place in places:
        node, table = place.node, {}
        for device in (*node_devices.devices_of(node), *place.listed):
            table[slot_resource(device), device.index] = _Card(node.name, device)
        if not table:
            continue
        for pod in place.pods:
            for number, (slot, use) in enumerate(shares_held(pod, node, place)):
                if slot in table and (use.part.milli or use.part.memory_mib):
                    table[slot].uses.append((pod, number, use))
        yield from table.values()


Names = tuple[str, str]
"""Of today, of old."""


def _of_cards(found: Sequence[_Card]) -> dict[Names, list[Row]]:
    rows: dict[Names, list[Row]] = {names: [] for names in _OF_CARDS}
    limit, cores, shared, used_cores, used, overview, part = rows.values()
    for card in found:
        device, (milli, mib) = card.device, card.held()
        place = (card.node, device.uuid, str(device.index))
        kind, full = device.model or device.resource, device.memory_mib
        limit.append(((*place, kind), full * MIB))
        cores.append(((*place, kind), 100))
        shared.append(((*place, kind), sum(use.slots for *_, use in card.uses)))
        used_cores.append(((*place, kind), ceil(milli / 10)))
        used.append(((*place, "100", kind), mib * MIB))
        overview.append(((*place, "100", str(full), kind), mib * MIB))
        if full:
            part.append((place, mib / full))
    return rows


_OF_CARDS: tuple[Names, ...] = (
    ("hami_gpu_memory_limit_bytes", "GPUDeviceMemoryLimit"),
    ("hami_gpu_core_limit_ratio", "GPUDeviceCoreLimit"),
    ("hami_gpu_shared_count", "GPUDeviceSharedNum"),
    ("hami_gpu_core_allocated_ratio", "GPUDeviceCoreAllocated"),
    ("hami_gpu_memory_allocated_bytes", "GPUDeviceMemoryAllocated"),
    ("hami_node_gpu_overview", "nodeGPUOverview"),
    ("hami_node_gpu_memory_allocated_ratio", "nodeGPUMemoryPercentage"),
)
_OF_PODS: tuple[Names, ...] = (
    ("hami_vgpu_memory_allocated_bytes", "vGPUMemoryAllocated"),
    ("hami_vgpu_core_allocated_ratio", "vGPUCoreAllocated"),
)


def _of_pods(found: Sequence[_Card]) -> dict[Names, list[Row]]:
    rows: dict[Names, list[Row]] = {names: [] for names in _OF_PODS}
    memory, cores = rows.values()
    for card in found:
        device = card.device.uuid or str(card.device.index)
        for pod, number, use in card.uses:
            labels = (pod.namespace, card.node, pod.name, str(number), device)
            memory.append((labels, card.mib_of(use) * MIB))
            cores.append((labels, ceil(use.part.milli / 10)))
    return rows
