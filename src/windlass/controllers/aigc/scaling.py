"""Number of workers of an AIGCJob by the rows that wait (``spec.autoscale``). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import aigc_fields as fields
from windlass.kits.timestamps import parse_rfc3339
from windlass.scaling.decision import Limits, ScalingDecision, decide
from windlass.scaling.recommendation import Replicas
from windlass.scaling.rules import by_backlog

COOLDOWN_SECONDS = 300.0
"""Default of ``spec.autoscale.cooldownSeconds``."""
BATCH_ITEMS = 64
"""Default of ``spec.batching.size``."""
_SETTLED = ("done", "deadLetter")


def workers_of(obj: Mapping[str, Any], batch: Mapping[str, Any] | None, now: float) -> ScalingDecision | None:
    """Return the decision about the number of workers; ``None`` for a job without ``spec.autoscale``.

    ``batch``: status of the driver; without rows the number stays.
    """
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    scale = fields.part(spec, "autoscale")
    if not scale:
        return None
    least, most = fields.worker_bounds(spec)
    current = int((status.get("workers") or {}).get("desired") or 0) or fields.worker_count(spec)
    replicas = Replicas(min(most, max(least, current)), least, most)
    items = (batch or {}).get("items") or {}
    if not items.get("total") or (batch or {}).get("finished"):
        return ScalingDecision(replicas.current, replicas.current, replicas.current, "")
    pending = int(items["total"]) - sum(int(items.get(name) or 0) for name in _SETTLED)
    size = int(fields.part(spec, "batching").get("size") or BATCH_ITEMS)
    cooldown = scale.get("cooldownSeconds")
    limits = Limits(cooldown_seconds=COOLDOWN_SECONDS if cooldown is None else float(cooldown))
    last = status.get("lastScaleTime")
    since = now - parse_rfc3339(last) if isinstance(last, str) and last else None
    return decide([by_backlog(pending, size, replicas)], replicas, limits, since)
