"""Catalogue of Volcano's plugins: what each adds to its tier, switch by switch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from windlass.plugins.argument_values import boolean, number
from windlass.plugins.arguments import LOW_NODE_UTILIZATION
from windlass.plugins.default_node_plugins import CountingPluginSet
from windlass.plugins.queue_api_filter import limited_to_api
from windlass.plugins.volcano import extender, extender_votes
from windlass.plugins.volcano.evictions import rescheduling, tdm
from windlass.plugins.volcano.evictions.cdp import VolcanoCooldown
from windlass.plugins.volcano.evictions.conformance import Conformance
from windlass.plugins.volcano.evictions.pdb import Pdb
from windlass.plugins.volcano.jobs import drf, gang, priority, sla, task_topology
from windlass.plugins.volcano.nodes import (
    binpack,
    deviceshare,
    network_topology,
    nodegroup,
    nodeorder,
    numa_aware,
    resource_strategy_fit,
    revocable,
    usage,
)
from windlass.plugins.volcano.queues import capacity, hdrf, overcommit, proportion, resourcequota
from windlass.plugins.volcano.queues.division import CapacityDivision, ProportionDivision
from windlass.plugins.volcano.queues.queue_orders import CapacityOrder, ProportionOrder
from windlass.plugins.volcano.tiers import VotingTier
from windlass.spi import tiers as votes
from windlass.spi.configuration import PluginOption, measure_interval
from windlass.spi.extender import ExtenderCall
from windlass.spi.objects import Dialect
from windlass.spi.plugins import GroupOrder, QueueOrder, RelativeScore, Score, TaskOrder
from windlass.spi.tiers import Purpose

Enter = Callable[[PluginOption, "Wiring"], None]


class Wiring:
    """Result of the plugins of a file so far.

    ``placement``: arguments of ``default_plugins``. ``counting``: policies that count
    pods, shared by scores. ``plugins``: orders, scores, divisions for Volcano queues.
    ``warn`` is called for settings without their usual effect.
    """

    def __init__(
        self,
        warn: Callable[[str], None],
        *,
        compatibility: str = "",
        metrics: Mapping[str, str] | None = None,
        actions: Sequence[str] = (),
    ) -> None:
        self.warn = warn
        self.actions = actions
        self.metrics: Mapping[str, str] = metrics or {}
        self.counting = CountingPluginSet()
        self.placement: dict[str, Any] = {}
        self.plugins: list[object] = []
        self.tiers: list[VotingTier] = []
        self.gang_must_fit = compatibility != "volcano"
        self.capacity: capacity.CapacityEvictable | None = None
        self.numa_aware = False

    def open_tier(self) -> None:
        self.tiers.append(VotingTier())

    @property
    def tier(self) -> VotingTier:
        return self.tiers[-1]

    def add(self, *plugins: object) -> None:
        """Add policies for Volcano queues only."""
        for plugin in plugins:
            self.plugins += limited_to_api(plugin, Dialect.VOLCANO, inside=True)

    def enter_any(self, plugin: object, option: PluginOption) -> None:
        """Add a third party's plugin to the tier: every facet that its switch leaves on."""
        if not _switched_off(plugin, option):
            self.add(plugin)
        for switch, protocol, voters in (
            ("enableJobStarving", votes.JobStarving, self.tier.starving),
            ("enableJobEnqueued", votes.JobEnqueueable, self.tier.enqueueable),
            ("enablePreemptable", votes.Evictable, self.tier.preemptable),
            ("enableReclaimable", votes.Evictable, self.tier.reclaimable),
            ("enablePreemptive", votes.PreemptionVote, self.tier.preemptive),
            ("enabledOverused", votes.Overused, self.tier.overused),
            ("enabledAllocatable", votes.Allocatable, self.tier.allocatable),
            ("enabledVictim", votes.VictimTasks, self.tier.victim_tasks),
            ("enabledVictim", votes.RelievesLoad, self.tier.victim_tasks),
        ):
            if isinstance(plugin, protocol) and option.enabled(switch):
                voters.append(plugin)  # type: ignore[arg-type]
        if isinstance(plugin, votes.VictimQueueOrder):
            self.tier.victim_queue_order.append(plugin)


def _switched_off(plugin: object, option: PluginOption) -> bool:
    return any(
        isinstance(plugin, protocol) and not option.enabled(switch)
        for switch, protocol in (
            ("enableJobOrder", GroupOrder),
            ("enableTaskOrder", TaskOrder),
            ("enableQueueOrder", QueueOrder),
            ("enableNodeOrder", Score),
            ("enableNodeOrder", RelativeScore),
        )
    )


def _gang(option: PluginOption, wiring: Wiring) -> None:
    if option.enabled("enableJobOrder"):
        wiring.add(gang.GangOrder())
    if option.enabled("enableJobStarving"):
        wiring.tier.starving.append(gang.GangStarving())
    if option.enabled("enablePreemptable"):
        wiring.tier.preemptable.append(gang.GangEvictable())
    if option.enabled("enableReclaimable"):
        wiring.tier.reclaimable.append(gang.GangEvictable())
    if option.enabled("enableJobPipelined"):
        wiring.gang_must_fit = True


def _priority(option: PluginOption, wiring: Wiring) -> None:
    if option.enabled("enableJobOrder"):
        wiring.add(priority.PriorityOrder())
    if option.enabled("enableTaskOrder"):
        wiring.add(priority.PriorityTaskOrder())
    if option.enabled("enableJobStarving"):
        wiring.tier.starving.append(priority.PriorityStarving())
    if option.enabled("enablePreemptable"):
        wiring.tier.preemptable.append(priority.PriorityEvictable())


def _conformance(option: PluginOption, wiring: Wiring) -> None:
    if option.enabled("enablePreemptable"):
        wiring.tier.preemptable.append(Conformance())
    if option.enabled("enableReclaimable"):
        wiring.tier.reclaimable.append(Conformance())


def _drf(option: PluginOption, wiring: Wiring) -> None:
    if option.enabled("enableJobOrder"):
        wiring.add(drf.DrfOrder())
    if option.enabled("enablePreemptable"):
        wiring.tier.preemptable.append(drf.DrfEvictable())
    if option.enabled("enableHierarchy"):
        if option.enabled("enableQueueOrder"):
            wiring.add(hdrf.HdrfOrder())
        if option.enabled("enableReclaimable"):
            wiring.tier.reclaimable.append(hdrf.HdrfEvictable())


def _proportion(option: PluginOption, wiring: Wiring) -> None:
    tier = wiring.tier
    wiring.plugins.append(ProportionDivision())
    if option.enabled("enableQueueOrder"):
        wiring.add(ProportionOrder())
    if option.enabled("enableReclaimable"):
        tier.reclaimable.append(proportion.ProportionEvictable())
    if option.enabled("enablePreemptive"):
        tier.preemptive.append(proportion.ProportionPreemptionVote())
    if option.enabled("enabledOverused"):
        tier.overused.append(proportion.ProportionOverused())
    if option.enabled("enabledAllocatable"):
        tier.allocatable.append(proportion.ProportionAllocatable())
    if option.enabled("enableJobEnqueued"):
        tier.enqueueable.append(proportion.ProportionEnqueueable())


def _capacity(option: PluginOption, wiring: Wiring) -> None:
    tier = wiring.tier
    hierarchy = option.enabled("enableHierarchy")
    wiring.plugins.append(CapacityDivision(hierarchy=hierarchy))
    if option.enabled("enableQueueOrder"):
        wiring.add(CapacityOrder())
    rules = {
        "hierarchy": hierarchy,
        "ancestor_reclaim_level": int(number(option.arguments, "ancestorReclaimLevel", 0)),
    }
    if option.enabled("enableReclaimable"):
        tier.reclaimable.append(capacity.CapacityEvictable(**rules))
    if option.enabled("enablePreemptive"):
        tier.preemptive.append(capacity.CapacityPreemptionVote(**rules))
    if option.enabled("enabledAllocatable"):
        tier.allocatable.append(capacity.CapacityAllocatable(**rules))
    if option.enabled("enableJobEnqueued"):
        tier.enqueueable.append(capacity.CapacityEnqueueable(**rules))
    tier.victim_queue_order.append(capacity.CapacityVictimQueueOrder(**rules))
    wiring.capacity = capacity.CapacityEvictable(**rules)


def _overcommit(option: PluginOption, wiring: Wiring) -> None:
    if option.enabled("enableJobEnqueued"):
        wiring.tier.enqueueable.append(overcommit.Overcommit(option.arguments))


def _resourcequota(option: PluginOption, wiring: Wiring) -> None:
    if option.enabled("enableJobEnqueued"):
        wiring.tier.enqueueable.append(resourcequota.QuotaEnqueueable())


def _sla(option: PluginOption, wiring: Wiring) -> None:
    if option.enabled("enableJobOrder"):
        wiring.add(sla.SlaOrder(option.arguments))
    if option.enabled("enableJobEnqueued"):
        wiring.tier.enqueueable.append(sla.SlaEnqueueable(option.arguments))


def _cdp(option: PluginOption, wiring: Wiring) -> None:
    if option.enabled("enablePreemptable"):
        wiring.tier.preemptable.append(VolcanoCooldown())
    if option.enabled("enableReclaimable"):
        wiring.tier.reclaimable.append(VolcanoCooldown())


def _predicates(option: PluginOption, wiring: Wiring) -> None:
    """Warn about disabled predicates: they run in any case, since a node would refuse the pod."""
    for argument in option.arguments:
        if argument.startswith("predicate.") and not boolean(option.arguments, argument, True):
            wiring.warn(f"{argument} cannot be disabled: a node would refuse the pod")


def _nodeorder(option: PluginOption, wiring: Wiring) -> None:
    if option.enabled("enableNodeOrder"):
        counting = wiring.counting
        wiring.plugins += nodeorder.build(option.arguments, counting.affinity, counting.spread)


def _binpack(option: PluginOption, wiring: Wiring) -> None:
    if option.enabled("enableNodeOrder"):
        wiring.plugins += binpack.build(option.arguments)


def _resource_strategy_fit(option: PluginOption, wiring: Wiring) -> None:
    for plugin in resource_strategy_fit.build(option.arguments):
        switch = "enableNodeOrder" if isinstance(plugin, Score) else "enablePredicate"
        if option.enabled(switch):
            wiring.plugins.append(plugin)


def _usage(option: PluginOption, wiring: Wiring) -> None:
    closes, every = option.enabled("enablePredicate"), measure_interval(wiring.metrics)
    _enter_for_nodes(usage.build(option.arguments, closes=closes, interval=every), option, wiring)


def _nodegroup(option: PluginOption, wiring: Wiring) -> None:
    plugins = nodegroup.build(
        option.arguments,
        hierarchy=option.enabled("enableHierarchy"),
        closes=option.enabled("enablePredicate"),
    )
    _enter_for_nodes(plugins, option, wiring)
    if option.enabled("enablePredicate"):
        wiring.plugins.append(nodegroup.NodeGroupLimits())


def _tdm(option: PluginOption, wiring: Wiring) -> None:
    """Add revocable nodes: their pods and times, evictions from them (``shuffle``), and
    preemption.

    Preemption makes room on other nodes for work that is not preemptible.
    """
    plugins = revocable.build(option.arguments, closes=option.enabled("enablePredicate"))
    _enter_for_nodes(plugins, option, wiring)
    if option.enabled("enableJobOrder"):
        wiring.add(tdm.RevocableOrder())
    if option.enabled("enableJobStarving"):
        wiring.tier.starving.append(tdm.RevocableStarving())
    if option.enabled("enablePreemptable"):
        wiring.tier.preemptable.append(tdm.RevocableEvictable())
    if option.enabled("enableJobPipelined"):
        wiring.gang_must_fit = True
    if option.enabled("enabledVictim"):
        wiring.tier.victim_tasks.append(tdm.build(option.arguments))


def _extender(option: PluginOption, wiring: Wiring) -> None:
    plugins = extender.build(option.arguments, closes=option.enabled("enablePredicate"))
    _enter_for_nodes(plugins, option, wiring)
    endpoints = extender.endpoints_of(option.arguments)
    if not extender_votes.asks_in_rounds(endpoints):
        return
    context, tier = extender_votes.ExtenderContext(endpoints), wiring.tier
    wiring.plugins.append(context)
    for switch, purpose, call, voters in (
        ("enablePreemptable", Purpose.PREEMPT, ExtenderCall.PREEMPTABLE, tier.preemptable),
        ("enableReclaimable", Purpose.RECLAIM, ExtenderCall.RECLAIMABLE, tier.reclaimable),
    ):
        if option.enabled(switch) and context.asks(call):
            voters.append(extender_votes.ExtenderEvictable(context, purpose))
    if option.enabled("enabledOverused") and context.asks(ExtenderCall.OVERUSED):
        tier.overused.append(extender_votes.ExtenderOverused(context))
    if option.enabled("enableJobEnqueued") and (
        context.asks(ExtenderCall.ENQUEUEABLE) or context.asks(ExtenderCall.ENQUEUED)
    ):
        tier.enqueueable.append(extender_votes.ExtenderEnqueueable(context))
    ready = option.enabled("enableJobReady") and context.asks(ExtenderCall.READY)
    if ready or context.asks(ExtenderCall.ALLOCATE) or context.asks(ExtenderCall.DEALLOCATE):
        wiring.plugins.append(extender_votes.ExtenderPermit(context, ready=ready))


def _enter_for_nodes(
    plugins: Sequence[
        extender.Extender
        | usage.Usage
        | nodegroup.NodeGroupAffinity
        | revocable.RevocableZones
        | rescheduling.Rescheduling
    ],
    option: PluginOption,
    wiring: Wiring,
) -> None:
    for plugin in plugins:
        if not option.enabled("enableNodeOrder"):
            plugin.weight = 0.0
        wiring.plugins.append(plugin)


def _numa_aware(option: PluginOption, wiring: Wiring) -> None:
    """Add the score of NUMA nodes. The filter runs in any case, since a node would
    refuse the pod."""
    wiring.numa_aware = True
    if option.enabled("enableNodeOrder"):
        wiring.plugins.append(numa_aware.build(option.arguments, wiring.counting.zones))


def _task_topology(option: PluginOption, wiring: Wiring) -> None:
    if option.enabled("enableTaskOrder"):
        wiring.add(task_topology.RoleOrder())
    weight = task_topology.weight_of(option.arguments)
    if option.enabled("enableNodeOrder") and weight > 0:
        wiring.plugins.append(task_topology.RoleAffinity(weight))


def _deviceshare(option: PluginOption, wiring: Wiring) -> None:
    """Add the choice of devices and the scores by devices.

    Device shares are placed whatever the switches say.
    """
    for argument in option.arguments:
        kind = argument.removeprefix("deviceshare.").removesuffix("Enable")
        if kind in ("GPUSharing", "GPUNumber", "VGPU") and not boolean(option.arguments, argument, True):
            wiring.warn(f"{argument} cannot be disabled: GPU shares of all device plugins are placed")
    wiring.plugins += deviceshare.build(option.arguments, scores=option.enabled("enableNodeOrder"))


def _pdb(option: PluginOption, wiring: Wiring) -> None:
    if option.enabled("enablePreemptable"):
        wiring.tier.preemptable.append(Pdb())
    if option.enabled("enableReclaimable"):
        wiring.tier.reclaimable.append(Pdb())


def _network_topology(option: PluginOption, wiring: Wiring) -> None:
    if network_topology.GRADIENT in option.arguments:
        wiring.warn(f"{network_topology.GRADIENT} has no effect: preemption considers all HyperNodes")
    wiring.plugins += network_topology.build(
        option.arguments,
        hypernodes=option.enabled("enabledHyperNodeOrder"),
        nodes=option.enabled("enableNodeOrder"),
    )


def _rescheduling(option: PluginOption, wiring: Wiring) -> None:
    """Add evictions from loaded nodes (``shuffle``) and the score that keeps new pods
    away from them."""
    plugins = rescheduling.build(option.arguments)
    if plugins is None:
        wiring.warn(f"rescheduling: no pods are moved: no strategy is {LOW_NODE_UTILIZATION}")
        return
    if "shuffle" not in wiring.actions:
        wiring.warn("rescheduling: no pods are moved: the action shuffle is not configured")
    if min(plugins.rules.targets) >= rescheduling.WHOLE:
        wiring.warn(
            "rescheduling: no pods are moved: targetThresholds of cpu and memory are at least 100, "
            "which no load exceeds"
        )
    _enter_for_nodes([plugins], option, wiring)
    if option.enabled("enabledVictim"):
        wiring.tier.victim_tasks.append(plugins)


CATALOGUE: dict[str, Enter] = {
    "gang": _gang,
    "priority": _priority,
    "conformance": _conformance,
    "drf": _drf,
    "proportion": _proportion,
    "capacity": _capacity,
    "overcommit": _overcommit,
    "resourcequota": _resourcequota,
    "sla": _sla,
    "cdp": _cdp,
    "predicates": _predicates,
    "nodeorder": _nodeorder,
    "binpack": _binpack,
    "resource-strategy-fit": _resource_strategy_fit,
    "usage": _usage,
    "nodegroup": _nodegroup,
    "tdm": _tdm,
    "extender": _extender,
    "network-topology-aware": _network_topology,
    "pdb": _pdb,
    "rescheduling": _rescheduling,
    "task-topology": _task_topology,
    "numa-aware": _numa_aware,
    "deviceshare": _deviceshare,
}
"""Plugin of a tier → function that adds it."""


def _node_placement(option: PluginOption, wiring: Wiring) -> None:
    wiring.placement.setdefault("kai_sharing_first", False)
    for kind in ("gpu", "cpu"):
        wanted = option.arguments.get(kind)
        if wanted in ("binpack", "spread"):
            wiring.placement[f"kai_{kind}"] = wanted
        elif wanted is not None:
            wiring.warn(f"nodeplacement {kind} is binpack or spread, not {wanted!r}")


def _gpu_pack(option: PluginOption, wiring: Wiring) -> None:
    wiring.placement.setdefault("kai_sharing_first", False)
    wiring.placement["kai_cards"] = "binpack" if option.name == "gpupack" else "spread"


def _gpu_sharing_order(option: PluginOption, wiring: Wiring) -> None:
    wiring.placement["kai_sharing_first"] = True


PLACEMENT: dict[str, Enter] = {
    "nodeplacement": _node_placement,
    "gpupack": _gpu_pack,
    "gpuspread": _gpu_pack,
    "gpusharingorder": _gpu_sharing_order,
}
"""Plugins that only configure the placement of the default policy: KAI's placement plugins.

As in KAI, a list of them is complete: plugins that are not listed are off.
"""
