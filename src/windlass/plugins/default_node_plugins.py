"""Default policies that filter and score nodes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from windlass.plugins.devices.fgd import Fgd
from windlass.plugins.devices.scarcity import Scarcity
from windlass.plugins.dialects import KAI, NOT_KAI, OWN
from windlass.plugins.kai import node_scores
from windlass.plugins.kai.device_scores import build as kai_device_scores
from windlass.plugins.nodes.availability import NodeAvailable
from windlass.plugins.nodes.binpack import Binpack
from windlass.plugins.nodes.host_ports import HostPorts
from windlass.plugins.nodes.node_affinity import NodeAffinity
from windlass.plugins.nodes.pod_affinity import PodAffinity, PreferredPodAffinity
from windlass.plugins.nodes.preferred_nodes import PreferredNodes
from windlass.plugins.nodes.resources import ResourcesFit
from windlass.plugins.nodes.spread import Spread
from windlass.plugins.nodes.spread_label_filter import SpreadLabels
from windlass.plugins.nodes.taints import TaintToleration
from windlass.plugins.nodes.topology_spread import SoftTopologySpread, TopologySpread
from windlass.plugins.nodes.volumes import Volumes
from windlass.plugins.numa.plugin import NumaZones
from windlass.spi.objects import Dialect

PLACEMENTS = ("binpack", "spread")


@dataclass(frozen=True, slots=True)
class CountingPluginSet:
    """Policies that count pods, one instance of each per engine; several scores share
    their counts."""

    affinity: PodAffinity = field(default_factory=PodAffinity)
    spread: TopologySpread = field(default_factory=TopologySpread)
    zones: NumaZones = field(default_factory=NumaZones)


def node_policies(
    *,
    placement: str = "binpack",
    kai_gpu: str = "binpack",
    kai_cpu: str = "binpack",
    kai_cards: str = "binpack",
    kai_sharing_first: bool = True,
    own_for_volcano: bool = True,
    counting: CountingPluginSet | None = None,
) -> list[object]:
    """Return new policies for one engine.

    :param placement: of Windlass' own pods: ``binpack`` or ``spread``; anything else
        raises ``ValueError``
    :param kai_gpu: the same for pods with GPUs in KAI's queues
    :param kai_cpu: the same for pods without GPUs in KAI's queues
    :param kai_cards: the same for device shares inside a node
    :param kai_sharing_first: prefer nodes with capacity on shared devices
    :param own_for_volcano: score pods in Volcano's queues as Windlass' own; otherwise
        they only have configured scores
    """
    if placement not in PLACEMENTS:
        raise ValueError(f"placement is binpack or spread, not {placement!r}")
    counting = counting or CountingPluginSet()
    dialects = NOT_KAI if own_for_volcano else OWN
    return [
        NodeAvailable(),
        NodeAffinity(dialects=dialects),
        TaintToleration(dialects=dialects),
        SpreadLabels(),
        ResourcesFit(),
        HostPorts(),
        counting.affinity,
        counting.spread,
        counting.zones,
        Volumes(),
        *packing(dialects, spread=placement == "spread"),
        *preferences(counting, dialects),
        *node_scores.build(gpu=kai_gpu, cpu=kai_cpu),
        *kai_device_scores(kai_cards, sharing_first=kai_sharing_first),
        *_kai_affinity(counting),
    ]


def packing(dialects: Collection[Dialect], *, spread: bool = False) -> list[object]:
    """Return the scores that choose nodes by their free capacity.

    Packing follows the capacity in use as long as pods request whole devices of one
    model. With several models the least scarce one comes first. With device shares the
    stranded capacity decides (ADR 0012).
    """
    if spread:
        return [Spread(dialects=dialects)]
    fgd = Fgd(dialects=dialects)
    return [Binpack(dialects=dialects, yields_to=fgd), fgd, Scarcity(dialects=dialects)]


def preferences(counting: CountingPluginSet, dialects: Collection[Dialect]) -> list[object]:
    """Return the scores for preferred pod affinity and soft spread, weighted as in
    kube-scheduler."""
    return [
        PreferredPodAffinity(counting.affinity, 2.0, dialects),
        SoftTopologySpread(counting.spread, 2.0, dialects),
    ]


def _kai_affinity(counting: CountingPluginSet) -> list[object]:
    scores = [
        PreferredNodes(node_scores.AFFINITY, KAI),
        PreferredPodAffinity(counting.affinity, node_scores.AFFINITY, KAI),
    ]
    for part in scores:
        part.name = f"kai-{part.name}"
        part.outranks_vacancy = True
    return list(scores)
