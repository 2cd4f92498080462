"""Fields of Ray's kinds that are accepted and have no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.api.resources import RAY_CLUSTERS, RAY_CRON_JOBS, RAY_JOBS, RAY_SERVICES, Resource
from windlass.server.admission.plugin import Review

Json = Mapping[str, Any]
_CLUSTER: Mapping[Resource, tuple[str, ...]] = {
    RAY_CLUSTERS: (),
    RAY_JOBS: ("rayClusterSpec",),
    RAY_SERVICES: ("rayClusterConfig",),
    RAY_CRON_JOBS: ("jobTemplate", "rayClusterSpec"),
}
"""Kind → the spec of its cluster, as a path within its own spec."""
_WITHOUT_EFFECT = {
    "gcsFaultToleranceOptions": "a head that is lost begins without the state of the old one",
    "authOptions": "Ray's nodes and dashboard ask for no token",
    "upgradeStrategy": "pods that run keep their template. Delete them to get the new one",
}


def advise(review: Review) -> None:
    """Warn about fields that have no effect, when they are set or changed."""
    path = _CLUSTER.get(review.resource)
    if path is None or not review.main:
        return
    before = set(_findings((review.old or {}).get("spec"), path))
    for text in _findings(review.object.get("spec"), path):
        if text not in before:
            review.warn(text)


def _findings(spec: Any, path: tuple[str, ...]) -> Iterator[str]:
    for step in path:
        spec = spec.get(step) if isinstance(spec, dict) else None
    if not isinstance(spec, dict):
        return
    where = ".".join(("spec", *path))
    for name, why in _WITHOUT_EFFECT.items():
        if spec.get(name) and not _is_none(spec[name]):
            yield f"advice: {where}.{name} has no effect: {why}"
    head = spec.get("headGroupSpec")
    if isinstance(head, dict) and head.get("enableIngress"):
        yield f"advice: {where}.headGroupSpec.enableIngress has no effect: no Ingress is created"


def _is_none(strategy: Any) -> bool:
    return isinstance(strategy, dict) and strategy.get("type") == "None"
