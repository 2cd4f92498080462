"""Scoring strategy, revocable zone and NUMA policy from a pod's annotations."""

from __future__ import annotations

from typing import Any

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.devices.numa_annotations import POLICY_VOLCANO
from windlass.model.contributors.registry import Contributor, Place
from windlass.model.groups.podgroups import revocable_zone
from windlass.model.pods.task_needs import scoring_of

_READ = frozenset((names.SCORING_STRATEGY, names.REVOCABLE_ZONE, names.PREEMPTABLE, POLICY_VOLCANO))


class PodAnnotations(Contributor):
    """Annotations of a pod that become part of its needs unchanged."""

    def reads_pod(self, annotation: str) -> bool:
        """Return whether the annotation is one of them."""
        return annotation in _READ

    def add_extras(self, pod: views.Pod, place: Place, extras: dict[str, Any]) -> None:
        """Add the needs in the annotations."""
        if zone := revocable_zone(pod.annotations):
            extras["revocable_zone"] = zone
        if (scoring := scoring_of(pod.annotations)) is not None:
            extras["scoring"] = scoring
        if policy := pod.annotations.get(POLICY_VOLCANO, ""):
            extras["zone_policy"] = policy
