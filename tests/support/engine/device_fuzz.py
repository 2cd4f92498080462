"""Random histories over nodes with cards of several kinds, and pods that ask for parts of them.

The operations are those of ``engine_fuzz``; nodes come with cards, which fall ill, get well and change their
mode while nobody has anything of them.
"""

from __future__ import annotations

from dataclasses import replace

from cluster_dsl import GPU, Cluster, needs
from engine_fuzz import LEAVES, QUEUES, ZONES, Op, Player

from windlass.spi.devices import DeviceMode, DeviceNeed
from windlass.spi.objects import Device, Needs, Node

NPU = "huawei.com/Ascend910"
SLICE = "nvidia.com/mig-1g.10gb"


def part(words: str = "cpu=1", *wanted: DeviceNeed, **rest: object) -> Needs:
    """A pod that asks for parts of cards; its queue is charged for the compute of each."""
    milli = sum(need.count * (need.milli or 100) for need in wanted if need.resource == GPU)
    plain = needs(words, **rest)
    amounts = dict(plain.request)
    if milli:
        amounts[GPU] = milli
    return replace(plain, request=tuple(sorted(amounts.items())), devices=wanted)


def gpu(**amounts: object) -> DeviceNeed:
    return DeviceNeed(GPU, **amounts)  # type: ignore[arg-type]


PARTS: tuple[Needs, ...] = (
    part("cpu=1", gpu(milli=500, memory_milli=500)),
    part("cpu=1", gpu(milli=300, memory_milli=300)),
    part("cpu=1", gpu(memory_mib=9_000)),
    part("cpu=1", gpu(profile="1g.10gb")),
    part("cpu=1", gpu(profile="3g.40gb")),
    part("cpu=1", gpu(milli=1000, models=("H100",))),
    part("cpu=1", gpu(milli=500, count=2)),
    part("cpu=1", gpu(memory_mib=5_000, slices=False)),
    part("cpu=1", gpu(milli=200, memory_mib=4_000, carries=("a",), avoids=("b",))),
    part("cpu=1", gpu(milli=100, carries=("b",), pack=False)),
    part("cpu=1", gpu(milli=250, carries=("c",), avoids=("c",))),
    part("cpu=1", gpu(milli=400, memory_milli=400), gpu(profile="2g.20gb")),
    part("cpu=1", gpu(milli=700, shares=True, models_not=("H100",)), gpu(milli=600)),
    part("cpu=1", DeviceNeed("", milli=1000, count=2)),
    part("cpu=1", gpu(profile="1g.10gb", listed=SLICE)),
    part("cpu=1", gpu(profile="1g.10gb+me")),
    needs("gpu=1"),
    needs("gpu=2 cpu=2"),
    part("cpu=1", DeviceNeed(NPU, milli=500, memory_milli=500)),
    part("cpu=1", gpu(memory_milli=600, pack=False)),
)


def carded(i: int, y: int) -> Node:
    """Node ``n0`` … ``n6`` with one of several sets of cards."""
    name = f"n{i % 7}"
    kind = y % 6
    h100 = [Device(at, GPU, "NVIDIA-H100-80GB-HBM3", 81_559, mode=DeviceMode.EITHER) for at in range(2)]
    sliced = [Device(at, GPU, "NVIDIA-A100-SXM4-80GB", 81_920, mode=DeviceMode.SLICED) for at in range(2, 4)]
    t4 = [
        Device(at, GPU, "Tesla-T4", 15_360, numa=at // 2, link_group=at % 2, slots=2 * at) for at in range(4)
    ]
    npu = [Device(at, NPU, "Ascend910", 32_768) for at in range(2)]
    devices: list[Device] = ([], h100, t4, h100 + sliced, t4 + npu, sliced)[kind]
    amounts = {
        "cpu": 1000 * (16, 32)[y % 2],
        "memory": 1 << 36,
        "pods": (110, 6)[y % 4 == 3],
        GPU: 1000 * (4 if not devices else sum(d.resource == GPU for d in devices)),
    }
    if kind == 4:
        amounts[NPU] = 2000
    if not devices and i % 2:
        amounts[SLICE] = 3000
    return Node(
        name,
        amounts,
        {"kubernetes.io/hostname": name, "zone": ZONES[y % 3]},
        devices=tuple(devices),
    )


class CardPlayer(Player):
    """Nodes have cards."""

    def _node(self, op: Op) -> None:
        spec = carded(op.x, op.y)
        if spec.name in self.cluster.node_specs and spec != self.cluster.node_specs[spec.name]:
            self.cluster.overcommitted = True
        self.cluster.nodes(spec)

    def _sick(self, op: Op) -> None:
        names = sorted(self.cluster.node_specs)
        if not names:
            return
        spec = self.cluster.node_specs[names[op.x % len(names)]]
        if spec.devices:
            at = op.y % len(spec.devices)
            changed = list(spec.devices)
            changed[at] = replace(changed[at], healthy=not changed[at].healthy)
            self.cluster.nodes(replace(spec, devices=tuple(changed)))


def start_with_cards(cluster: Cluster) -> Cluster:
    """Five queues, five nodes with cards."""
    cluster.queues(*(text for _, text in QUEUES))
    for i in range(5):
        cluster.nodes(carded(i, i + 1))
    return cluster


__all__ = ["LEAVES", "PARTS", "CardPlayer", "carded", "gpu", "part", "start_with_cards"]
