"""PriorityClasses: resolution of a pod's class, and checks of classes."""

from __future__ import annotations

from typing import Any

from windlass.api import errors
from windlass.api.annotations import PREEMPTABLE
from windlass.api.preemptibility import PREEMPTIBILITY_KAI
from windlass.api.resources import PODS, PRIORITY_CLASSES
from windlass.server.admission.plugin import Review

SYSTEM_CLASSES = ("system-node-critical", "system-cluster-critical")
DEFAULT_POLICY = "PreemptLowerPriority"


def resolve(review: Review) -> None:
    """Set ``spec.priority`` and ``preemptionPolicy`` of a new pod.

    The values come from its class or the global default class.
    """
    if review.resource is not PODS or not review.creating or not review.main:
        return
    spec = review.object["spec"]
    priority_class = _class_of(review, spec)
    value = priority_class.get("value", 0) if priority_class else 0
    policy = (priority_class or {}).get("preemptionPolicy", DEFAULT_POLICY)
    requested = spec.get("priority")
    if requested is not None and requested != value:
        raise errors.forbidden(
            PODS,
            review.name,
            f"the integer value of priority ({requested}) must not be provided in pod spec; priority admission "
            f"controller computed {value} from the given PriorityClass name",
        )
    spec["priority"] = value
    if priority_class is not None and not spec.get("priorityClassName"):
        spec["priorityClassName"] = priority_class["metadata"]["name"]
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
    priority_class = review.objects.get(PRIORITY_CLASSES, "", name)
    if priority_class is None:
        raise errors.forbidden(PODS, review.name, f"no PriorityClass with name {name} was found")
    return priority_class


def global_default(review: Review) -> dict[str, Any] | None:
    """Return the default class; with several defaults, the one with the lowest value."""
    defaults = [c for c in review.objects.list(PRIORITY_CLASSES) if c.get("globalDefault")]
    return min(defaults, key=lambda c: c.get("value", 0), default=None)


def check_classes(review: Review) -> None:
    """Allow one global default, and warn about fields that do not protect from preemption.

    ``preemptionPolicy: Never`` and KAI's label are often mistaken for that.
    """
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
    _warn_about_annotations(review)
    if obj.get("preemptionPolicy") == "Never" and (
        review.old is None or review.old.get("preemptionPolicy") != "Never"
    ):
        review.warn(
            "advice: preemptionPolicy Never means that pods of this class preempt nobody; to protect them "
            "from eviction set annotation volcano.sh/preemptable=false"
        )


def _warn_about_annotations(review: Review) -> None:
    """Warn about KAI's protection from eviction, which is read of pods and groups only."""
    before = (review.old or {}).get("metadata") or {}
    for field in ("annotations", "labels"):
        present = review.object["metadata"].get(field) or {}
        name = PREEMPTIBILITY_KAI
        if name in present and (before.get(field) or {}).get(name) != present[name]:
            review.warn(
                f"ignored: metadata.{field}[{name}] has no effect on a PriorityClass; to protect its pods from "
                f'eviction, set annotation {PREEMPTABLE}: "false" on the PriorityClass, the Job or the pod'
            )
