"""Status of a PodDisruptionBudget, as Kubernetes' disruption controller computes it.

The status holds how many pods are healthy, how many must be, and how many evictions
that allows. A healthy pod is ready, not terminating, and has no granted eviction. A
budget with an absolute number (``minAvailable: 2``) is compared with the existing pods.
A percentage or ``maxUnavailable`` refers to the replicas that the pods' controllers
declare by their scale subresource. If a controller has none, the budget allows no
eviction and reports reason ``SyncFailed``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.resources import POD_DISRUPTION_BUDGETS, by_kind
from windlass.api.views import Pod
from windlass.api.views.wire import OwnerReference
from windlass.api.wire.scale import scale_paths
from windlass.controllers.effects import EffectPlan, Effects, EmitEvent, Update, pod_reference, reference
from windlass.kits.timestamps import parse_rfc3339, rfc3339

Json = dict[str, Any]
DELETION_SECONDS = 120.0
"""Time (seconds) that a granted eviction counts as a disruption if its pod is not deleted."""
CONDITION = "DisruptionAllowed"


class CountError(Exception):
    """The number of expected pods is unknown. The message becomes the condition's message."""


@dataclass(frozen=True, slots=True)
class DeclaredScale:
    """Replicas that a controller declares. ``uid``: of the object that holds them."""

    uid: str
    replicas: int


def reconcile(
    budget: Json, pods: Sequence[Pod], now: float, scales: Mapping[str, DeclaredScale] | None = None
) -> Effects:
    """Compute the status of a budget. Pure.

    ``pods``: pods that the budget selects.
    ``now``: Unix seconds.
    ``scales``: uid of a controller of pods → its scale, or that of its own controller.
    """
    plan = EffectPlan(about=reference(POD_DISRUPTION_BUDGETS, budget))
    if budget["metadata"].get("deletionTimestamp"):
        return plan.done()
    about = reference(POD_DISRUPTION_BUDGETS, budget)
    if not pods:
        plan.event(EmitEvent(about, "Normal", "NoPods", "No matching pods found", lasting=True))
    before = budget.get("status") or {}
    try:
        expected, desired, unmanaged = _expected(budget.get("spec") or {}, pods, scales or {})
    except CountError as problem:
        status = {**_counts(before), "disruptionsAllowed": 0}
        _write(plan, budget, {**before, **status}, ("False", "SyncFailed", str(problem)), now)
        event = EmitEvent(
            about, "Warning", "CalculateExpectedPodCountFailed", _counting_failed(problem), lasting=True
        )
        plan.event(event)
        return plan.done()
    if unmanaged:
        plan.event(EmitEvent(about, "Warning", "UnmanagedPods", _unmanaged(budget), lasting=True))
    disrupted = _granted_evictions(plan, budget, pods, now)
    healthy = sum(pod.ready and not pod.deleting and pod.name not in disrupted for pod in pods)
    allowed = max(0, healthy - desired) if expected > 0 else 0
    status = {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
        "observedGeneration": budget["metadata"].get("generation", 0),
        **({"disruptedPods": disrupted} if disrupted else {}),
    }
    if "conditions" in before:
        status["conditions"] = before["conditions"]
    condition = ("True", "SufficientPods", "") if allowed else ("False", "InsufficientPods", "")
    _write(plan, budget, status, condition, now)
    return plan.done()


# ---------------------------------------------------------------------- counting


def needs_scale(spec: Mapping[str, Any]) -> bool:
    """Return whether a budget refers to the replicas that controllers declare."""
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


def _expected(
    spec: Mapping[str, Any], pods: Sequence[Pod], scales: Mapping[str, DeclaredScale]
) -> tuple[int, int, bool]:
    """Return (expected pods, pods that must be healthy, whether some pods have no controller)."""
    max_unavailable, min_available = spec.get("maxUnavailable"), spec.get("minAvailable")
    if max_unavailable is not None:
        expected, unmanaged = _scale(pods, scales)
        return expected, max(0, expected - _scaled(max_unavailable, expected)), unmanaged
    if isinstance(min_available, int):
        return len(pods), min_available, False
    if min_available is not None:
        expected, unmanaged = _scale(pods, scales)
        return expected, _scaled(min_available, expected), unmanaged
    return 0, 0, False


def _scaled(value: int | str, total: int) -> int:
    """A number of pods, or per cent of them, rounded up."""
    if isinstance(value, int):
        return value
    number = value.removesuffix("%")
    if number == value or not (number.isascii() and number.isdecimal()):
        raise CountError(
            f"invalid value for IntOrString: invalid type: string is not a percentage: {value!r}"
        )
    return -(-int(number) * total // 100)


def _scale(pods: Sequence[Pod], scales: Mapping[str, DeclaredScale]) -> tuple[int, bool]:
    """Return the replicas that the pods' controllers declare, and whether some pods have none."""
    found: dict[str, int] = {}
    unmanaged = False
    for pod in pods:
        controller = pod.controller
        if controller is None:
            unmanaged = True
            continue
        scale = scales.get(controller.uid)
        if scale is None:
            raise CountError(_no_scale(controller, pod))
        found[scale.uid] = scale.replicas
    return sum(found.values()), unmanaged


def _no_scale(controller: OwnerReference, pod: Pod) -> str:
    resource = by_kind(controller.api_version, controller.kind)
    if resource is None:
        return f'no matches for kind "{controller.kind}" in version "{controller.api_version}"'
    if scale_paths(resource) is None:
        return f"{resource.qualified} does not implement the scale subresource"
    return f'found no controllers for pod "{pod.name}"'


def _granted_evictions(plan: EffectPlan, budget: Json, pods: Sequence[Pod], now: float) -> dict[str, str]:
    """Return pods with a granted eviction that are not deleted yet → time of the grant.

    Grants older than :data:`DELETION_SECONDS` are dropped and reported with an event.
    """
    evictions = (budget.get("status") or {}).get("disruptedPods") or {}
    found = {}
    for pod in pods:
        granted_at = evictions.get(pod.name)
        if granted_at is None or pod.deleting:
            continue
        until = parse_rfc3339(granted_at) + DELETION_SECONDS
        if until < now:
            metadata = budget["metadata"]
            message = f"Pod was expected by PDB {metadata['namespace']}/{metadata['name']} to be deleted but it wasn't"
            plan.event(EmitEvent(pod_reference(pod), "Warning", "NotDeleted", message, lasting=True))
        else:
            found[pod.name] = granted_at
            plan.requeue(until - now + 1.0)
    return found


# ---------------------------------------------------------------------- telling


def _write(plan: EffectPlan, budget: Json, status: Json, condition: tuple[str, str, str], now: float) -> None:
    """The status with its condition, unless the budget has it already."""
    condition_status, reason, message = condition
    conditions = [dict(one) for one in status.get("conditions") or ()]
    present = next((one for one in conditions if one["type"] == CONDITION), None)
    wanted = {
        "type": CONDITION,
        "status": condition_status,
        "reason": reason,
        "message": message,
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": rfc3339(now),
    }
    if present is None:
        conditions.append(wanted)
    else:
        if present["status"] == condition_status:
            wanted["lastTransitionTime"] = present["lastTransitionTime"]
        present.clear()
        present.update(wanted)
    status = {**status, "conditions": conditions}
    if status != (budget.get("status") or {}):
        changed = {**budget, "status": status}
        plan.stage(Update(POD_DISRUPTION_BUDGETS, changed, subresource="status"))


def _counts(status: Mapping[str, Any]) -> Json:
    return {name: status.get(name, 0) for name in ("currentHealthy", "desiredHealthy", "expectedPods")}


def _counting_failed(problem: CountError) -> str:
    return f"Failed to calculate the number of expected pods: {problem}"


def _unmanaged(budget: Json) -> str:
    return (
        "Pods selected by this PodDisruptionBudget (selector: "
        f"{(budget.get('spec') or {}).get('selector')}) were found to be unmanaged. As a result, the status of the "
        "PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods "
        'please set ".spec.minAvailable" field of the PDB to an integer value.'
    )
