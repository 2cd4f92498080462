"""``resourcequota``: admission only within the ResourceQuotas of the group's namespace.

The requests of all unfinished pods of the namespace count, and of the groups admitted
in this cycle. Quotas with scopes are left to the API server.
"""

from __future__ import annotations

from windlass.api.reasons import Reason
from windlass.spi.plugins import Rejection
from windlass.spi.quantities import from_units
from windlass.spi.tiers import EnqueueRequest, Vote


class QuotaEnqueueable:
    name = "resourcequota"

    def admit(self, admission: EnqueueRequest) -> Vote | Rejection:
        wanted = admission.gang.spec.min_resources
        for quota in admission.quotas:
            for name, hard in quota.hard.items():
                units = wanted.get(name, 0)
                left = (
                    hard - admission.namespace_used.get(name, 0) - admission.namespace_reserved.get(name, 0)
                )
                if units > 0 and units > left:
                    return Rejection(
                        Reason.NAMESPACE_QUOTA,
                        resource=name,
                        needed=units,
                        available=max(left, 0),
                        detail=f"ResourceQuota {quota.key} of {from_units(name, hard)}",
                    )
        return Vote.PERMIT
