"""PriorityClasses: a pod's class becomes its number; classes themselves are kept unambiguous."""

from __future__ import annotations

from typing import Any

from windlass.api import errors
from windlass.api.resources import PODS, PRIORITY_CLASSES
from windlass.server.admission.plugin import Review

SYSTEM_CLASSES = ("system-node-critical", "system-cluster-critical")
DEFAULT_POLICY = "PreemptLowerPriority"


def resolve(review: Review) -> None:
    """``spec.priority`` and ``preemptionPolicy`` of a new pod, by its class or the global default."""
    if review.resource is not PODS or not review.creating or not review.main:
        return
    spec = review.object["spec"]
    found = _class_of(review, spec)
    value = found.get("value", 0) if found else 0
    policy = (found or {}).get("preemptionPolicy", DEFAULT_POLICY)
    given = spec.get("priority")
    if given is not None and given != value:
        raise errors.forbidden(
            PODS,
            review.name,
            f"the integer value of priority ({given}) must not be provided in pod spec; priority admission "
            f"controller computed {value} from the given PriorityClass name",
        )
    spec["priority"] = value
    if found is not None and not spec.get("priorityClassName"):
        spec["priorityClassName"] = found["metadata"]["name"]
    if spec.get("preemptionPolicy") not in (None, policy):
        raise errors.forbidden(
            PODS,
            review.name,
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod "
            f"spec; priority admission controller computed {policy} from the given PriorityClass name",
        )
    spec["preemptionPolicy"] = policy


def _class_of(review: Review, spec: dict[str, Any]) -> dict[str, Any] | None:
    name = spec.get("priorityClassName")
    if not name:
        return global_default(review)
    found = review.objects.get(PRIORITY_CLASSES, "", name)
    if found is None:
        raise errors.forbidden(PODS, review.name, f"no PriorityClass with name {name} was found")
    return found


def global_default(review: Review) -> dict[str, Any] | None:
    """The class for pods that name none; the lowest where several claim to be it."""
    defaults = [c for c in review.objects.list(PRIORITY_CLASSES) if c.get("globalDefault")]
    return min(defaults, key=lambda c: c.get("value", 0), default=None)


def check_classes(review: Review) -> None:
    """One global default; ``preemptionPolicy: Never`` is explained, since it is read the other way round."""
    if review.resource is not PRIORITY_CLASSES:
        return
    obj = review.object
    if obj.get("globalDefault"):
        for other in review.objects.list(PRIORITY_CLASSES):
            name = other["metadata"]["name"]
            if other.get("globalDefault") and name != review.name:
                raise errors.forbidden(
                    PRIORITY_CLASSES,
                    review.name,
                    f"PriorityClass {name} is already marked as default. Only one default can exist: "
                    f"set globalDefault: false here or in {name}",
                )
    if obj.get("preemptionPolicy") == "Never" and (
        review.old is None or review.old.get("preemptionPolicy") != "Never"
    ):
        review.warn(
            "advice: preemptionPolicy Never means that pods of this class preempt nobody; to protect them "
            "from eviction set annotation volcano.sh/preemptable=false"
        )
