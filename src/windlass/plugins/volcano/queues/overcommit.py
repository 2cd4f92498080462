"""``overcommit``: admission up to ``overcommit-factor`` times the cluster's capacity."""

from __future__ import annotations

from fractions import Fraction

from windlass.api.reasons import Reason
from windlass.plugins.argument_values import Arguments, number
from windlass.spi.plugins import Rejection
from windlass.spi.quantities import from_units
from windlass.spi.tiers import EnqueueRequest, Vote

FACTOR = 1.2


class Overcommit:
    """Vote on admission: reserved, used and requested amounts are at most the factor
    times the total.

    A factor below 1 counts as 1.2. The bound follows from the cluster's capacity and
    grows with it, so it is a share. A group that requests more than the whole bound is
    never admitted.
    """

    name = "overcommit"

    def __init__(self, arguments: Arguments | None = None) -> None:
        factor = number(arguments or {}, "overcommit-factor", FACTOR)
        self._factor = Fraction(str(factor if factor >= 1 else FACTOR))

    def admit(self, admission: EnqueueRequest) -> Vote | Rejection:
        total = admission.gang.path[-1].cluster
        waiting: Rejection | None = None
        for name, units in admission.gang.spec.min_resources.items():
            if units <= 0:
                continue
            most = total.get(name, 0) * self._factor
            left = most - admission.cluster_reserved.get(name, 0) - admission.cluster_used.get(name, 0)
            detail = (
                f"overcommit {float(self._factor):g} of the cluster's {from_units(name, total.get(name, 0))}"
            )
            if units > most:
                return Rejection(
                    Reason.EXCEEDS_CLUSTER, resource=name, needed=units, available=int(most), detail=detail
                )
            if units > left and waiting is None:
                waiting = Rejection(
                    Reason.WAITING_FOR_SHARE,
                    resource=name,
                    needed=units,
                    available=max(int(left), 0),
                    detail=detail,
                )
        return waiting or Vote.PERMIT
