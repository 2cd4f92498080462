"""The policies that run when nothing is configured."""

from __future__ import annotations

from windlass.plugins.availability import NodeAvailable
from windlass.plugins.binpack import Binpack
from windlass.plugins.guarantees import Guarantees
from windlass.plugins.host_ports import HostPorts
from windlass.plugins.kai_admission import NonPreemptibleQuota
from windlass.plugins.kai_order import KaiQueueOrder
from windlass.plugins.kai_shares import KaiDivision, WindlassDivision
from windlass.plugins.kai_victims import KaiClaims, KaiVictims
from windlass.plugins.limits import QueueLimits
from windlass.plugins.node_affinity import NodeAffinity
from windlass.plugins.orders import Gang, Priority, QueuePriority
from windlass.plugins.pod_affinity import PodAffinity
from windlass.plugins.protection import MinRuntime, Patience
from windlass.plugins.resources import ResourcesFit
from windlass.plugins.shares import DominantShare
from windlass.plugins.spread import Spread
from windlass.plugins.taints import TaintToleration
from windlass.spi.objects import Dialect


def default_plugins(*, placement: str = "binpack") -> list[object]:
    """Fresh instances, in order of precedence, for one engine. ``placement``: ``binpack`` or ``spread``.

    Raises ``ValueError`` for another placement.
    """
    if placement not in ("binpack", "spread"):
        raise ValueError(f"placement is binpack or spread, not {placement!r}")
    return [
        NodeAvailable(),
        NodeAffinity(),
        TaintToleration(),
        ResourcesFit(),
        HostPorts(),
        PodAffinity(),
        Binpack() if placement == "binpack" else Spread(),
        WindlassDivision(),
        KaiDivision(),
        QueueLimits(),
        NonPreemptibleQuota(),
        Guarantees(Dialect.VOLCANO),
        Guarantees(Dialect.KAI),
        KaiQueueOrder(),
        QueuePriority(),
        DominantShare(),
        Priority(),
        Gang(),
        Patience(),
        MinRuntime(),
        KaiClaims(),
        KaiVictims(),
    ]
