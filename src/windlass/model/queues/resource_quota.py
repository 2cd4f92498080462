"""Translation of a ResourceQuota to the limits by which the engine admits groups.

Requests of pods count; quotas with scopes do not.
"""

from __future__ import annotations

from windlass.api import views
from windlass.api.quantities import QuantityError, bounded, to_units
from windlass.spi.objects import NamespaceQuota

_PLAIN = ("cpu", "memory", "ephemeral-storage", "pods")
_REQUESTS = "requests."


def quota_of(view: views.ResourceQuota) -> NamespaceQuota | None:
    """Return the limits; ``None`` if the quota does not apply to all pods of its namespace."""
    if view.scopes or view.scope_selector:
        return None
    hard: dict[str, int] = {}
    for name, text in view.hard.items():
        resource = _resource(name)
        if resource is None:
            continue
        try:
            units = to_units(resource, text)
        except QuantityError:
            continue  # the API server rejects such quotas, a dump may contain them
        hard[resource] = min(units, hard.get(resource, units))
    hard = bounded(hard)
    return NamespaceQuota(view.key, hard) if hard else None


def _resource(name: str) -> str | None:
    if name in _PLAIN or name.startswith("hugepages-"):
        return name
    if name == "count/pods":
        return "pods"
    if not name.startswith(_REQUESTS) or name == "requests.storage":
        return None
    return name.removeprefix(_REQUESTS)
