"""HAMi's scheduler, under the names of 2.9 and the older ones. One series for each card and for each pod's part of one:
only where that is asked for.

A card is what its node says of it; what pods have is what stands on them (:mod:`windlass.model.holdings`), whoever
scheduled them. Cards that a device plug-in handed out by itself are held by nobody here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil

from prometheus_client.metrics_core import Metric

from windlass.api import views
from windlass.api.deviceasks import WHOLE
from windlass.model import cards
from windlass.model.holdings import Use, parts_held, slot_resource
from windlass.scheduler.fieldnames.families import CARDS, OLD_CARDS, LeftOut, Row, Teller, families
from windlass.scheduler.fieldnames.scene import Scene
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
_TELL = Teller(FAMILIES)


@dataclass(slots=True)
class _Card:
    node: str
    device: Device
    uses: list[tuple[views.Pod, int, Use]] = field(default_factory=list)
    """Who has which of its parts, each with its number among the pod's."""

    def held(self) -> tuple[int, int]:
        """Thousandths of its compute, and MiB. What pods have together through one claim counts once."""
        claimed = {use.claim: use for *_, use in self.uses if use.claim}
        uses = [*claimed.values(), *(use for *_, use in self.uses if not use.claim)]
        return min(WHOLE, sum(use.part.milli for use in uses)), sum(map(self.mib_of, uses))

    def mib_of(self, use: Use) -> int:
        return self.device.memory_mib if use.part.whole else use.part.memory_mib


def tell(scene: Scene) -> Iterator[Metric]:
    told = [name in scene.sources.details for name in (CARDS, OLD_CARDS)]
    if any(told):
        found = list(_cards(scene))
        for names, rows in (*_of_cards(found), *_of_pods(found)):
            yield from (_TELL.rows(name, rows) for name, wanted in zip(names, told, strict=True) if wanted)


def _cards(scene: Scene) -> Iterator[_Card]:
    """Those of all nodes, with who has what of them. MIG instances that a device plug-in hands out are no cards."""
    claims = scene.model.claims
    for node in scene.model.nodes.values():
        table = {}
        for device in (*cards.cards_of(node), *claims.cards_of(node.name)):
            table[slot_resource(device), device.index] = _Card(node.name, device)
        if not table:
            continue
        for pod in scene.sources.ledger.with_cards(node.name):
            for number, (slot, use) in enumerate(parts_held(pod, node, claims)):
                if slot in table and (use.part.milli or use.part.memory_mib):
                    table[slot].uses.append((pod, number, use))
        yield from table.values()


Names = tuple[str, str]
"""Of today, of old."""


def _of_cards(found: Sequence[_Card]) -> Iterator[tuple[Names, list[Row]]]:
    rows: dict[Names, list[Row]] = {names: [] for names in _NAMES}
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
    yield from rows.items()


_NAMES: tuple[Names, ...] = (
    ("hami_gpu_memory_limit_bytes", "GPUDeviceMemoryLimit"),
    ("hami_gpu_core_limit_ratio", "GPUDeviceCoreLimit"),
    ("hami_gpu_shared_count", "GPUDeviceSharedNum"),
    ("hami_gpu_core_allocated_ratio", "GPUDeviceCoreAllocated"),
    ("hami_gpu_memory_allocated_bytes", "GPUDeviceMemoryAllocated"),
    ("hami_node_gpu_overview", "nodeGPUOverview"),
    ("hami_node_gpu_memory_allocated_ratio", "nodeGPUMemoryPercentage"),
)


def _of_pods(found: Sequence[_Card]) -> Iterator[tuple[Names, list[Row]]]:
    memory: list[Row] = []
    cores: list[Row] = []
    for card in found:
        device = card.device.uuid or str(card.device.index)
        for pod, number, use in card.uses:
            labels = (pod.namespace, card.node, pod.name, str(number), device)
            memory.append((labels, card.mib_of(use) * MIB))
            cores.append((labels, ceil(use.part.milli / 10)))
    yield ("hami_vgpu_memory_allocated_bytes", "vGPUMemoryAllocated"), memory
    yield ("hami_vgpu_core_allocated_ratio", "vGPUCoreAllocated"), cores
