"""Status of a ResourceQuota: ``status.hard`` and ``status.used``.

Admission rejects requests by its own count. This status is for users. Names that count
nothing (limits of extended resources) appear in ``hard`` only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from windlass.api.quantities import QuantityError
from windlass.api.quota_usage import Usage, counted, counted_kinds, in_scope, shown, usage
from windlass.api.resources import RESOURCE_QUOTAS, Resource
from windlass.controllers.effects import NOTHING, Effects, Patch, reference

Json = dict[str, Any]


def charge(total: Usage, quota: Mapping[str, Any], resource: Resource, objects: Iterable[Json]) -> None:
    """Add the objects' usage of the quota to ``total``. Unreadable quantities count as 0."""
    spec = quota.get("spec") or {}
    for obj in objects:
        if not in_scope(spec, resource, obj):
            continue
        try:
            amounts = usage(resource, obj)
        except QuantityError:
            continue
        for name, amount in amounts.items():
            total[name] = total.get(name, Fraction(0)) + amount


def reconcile(quota: Json, total: Mapping[str, Fraction]) -> Effects:
    """Compute the status of a quota. Pure. ``total``: usage of all objects by quota name."""
    if quota["metadata"].get("deletionTimestamp"):
        return NOTHING
    hard = {name: str(amount) for name, amount in ((quota.get("spec") or {}).get("hard") or {}).items()}
    used = {
        name: shown(name, total.get(name, Fraction(0)))
        for name in hard
        if counted(name) and counted_kinds([name])
    }
    present = quota.get("status") or {}
    change = {
        field: _difference(present.get(field) or {}, wanted)
        for field, wanted in (("hard", hard), ("used", used))
        if (present.get(field) or {}) != wanted
    }
    if not change:
        return NOTHING
    metadata = quota["metadata"]
    patch = Patch(
        RESOURCE_QUOTAS, metadata["name"], {"status": change}, metadata["namespace"], subresource="status"
    )
    return Effects(stages=((patch,),), about=reference(RESOURCE_QUOTAS, quota))


def _difference(present: Mapping[str, str], wanted: Mapping[str, str]) -> Json:
    """Return a merge patch from one mapping to the other."""
    return {**dict.fromkeys(present.keys() - wanted.keys()), **wanted}
