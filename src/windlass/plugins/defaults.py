"""Policies that run without a configuration."""

from __future__ import annotations

from windlass.plugins.default_node_plugins import CountingPluginSet, node_policies
from windlass.plugins.kai.admission import NonPreemptibleQuota
from windlass.plugins.kai.fair_share import KaiDivision, WindlassDivision
from windlass.plugins.kai.queue_order import KaiQueueOrder
from windlass.plugins.kai.victims import KaiPreemptionPolicy, KaiVictims
from windlass.plugins.queues.dominant_share import DominantShare
from windlass.plugins.queues.flavor_limits import FlavorLimits
from windlass.plugins.queues.guarantees import Guarantees
from windlass.plugins.queues.limits import QueueLimits
from windlass.plugins.queues.orders import Gang, Priority, QueuePriority
from windlass.plugins.queues.protection import (
    Cooldown,
    JobDisruptionBudget,
    MinRuntime,
    OnlyMovable,
    PodBudgets,
    PreemptionDelay,
    Reserved,
)
from windlass.plugins.queues.victims import WindlassPreemptionPolicy, WindlassVictims
from windlass.plugins.timeshare.gittins import LearnedSharing
from windlass.spi.objects import Dialect


def default_plugins(
    *,
    placement: str = "binpack",
    kai_gpu: str = "binpack",
    kai_cpu: str = "binpack",
    kai_cards: str = "binpack",
    kai_sharing_first: bool = True,
    own_for_volcano: bool = True,
    counting: CountingPluginSet | None = None,
) -> list[object]:
    """Return new instances for one engine, in order of precedence.

    The arguments are those of
    :func:`~windlass.plugins.default_node_plugins.node_policies`.
    """
    return [
        *node_policies(
            placement=placement,
            kai_gpu=kai_gpu,
            kai_cpu=kai_cpu,
            kai_cards=kai_cards,
            kai_sharing_first=kai_sharing_first,
            own_for_volcano=own_for_volcano,
            counting=counting,
        ),
        WindlassDivision(),
        KaiDivision(),
        QueueLimits(),
        FlavorLimits(),
        NonPreemptibleQuota(),
        Guarantees(Dialect.VOLCANO),
        Guarantees(Dialect.KAI),
        KaiQueueOrder(),
        QueuePriority(),
        DominantShare(),
        Priority(),
        Gang(),
        PreemptionDelay(),
        MinRuntime(),
        Cooldown(),
        JobDisruptionBudget(),
        PodBudgets(),
        OnlyMovable(),
        Reserved(),
        KaiPreemptionPolicy(),
        KaiVictims(),
        WindlassPreemptionPolicy(),
        WindlassVictims(),
        LearnedSharing(),
    ]
