"""One look at a PodDisruptionBudget, as Kubernetes' disruption controller takes it.

The status says how many pods are healthy (ready, and neither going nor about to), how many must be, and how many
evictions that leaves. A budget in numbers of pods (``minAvailable: 2``) counts the pods there are; one in per cent,
or with ``maxUnavailable``, counts what the pods' controllers want. A controller says that by its scale alone: of
pods whose controller has none the budget allows nothing, and says so (reason ``SyncFailed``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.resources import POD_DISRUPTION_BUDGETS, PODS, by_kind
from windlass.api.views import Pod
from windlass.api.views.wire import OwnerReference
from windlass.client.event_correlator import ObjectRef
from windlass.controllers.effects import EffectPlan, Effects, EmitEvent, Update, reference
from windlass.kits.timestamps import parse_rfc3339, rfc3339

Json = dict[str, Any]
DELETION_SECONDS = 120.0
"""A pod whose eviction was granted counts as going for so long, though nobody deletes it."""
CONDITION = "DisruptionAllowed"


class NotCountable(Exception):
    """What the controllers want cannot be known; the message is told as the condition's."""


def step(budget: Json, pods: Sequence[Pod], now: float) -> Effects:
    """Look at a budget once. Pure. ``pods``: those that it selects; ``now``: Unix seconds."""
    plan = EffectPlan(about=reference(POD_DISRUPTION_BUDGETS, budget))
    if budget["metadata"].get("deletionTimestamp"):
        return plan.done()
    about = reference(POD_DISRUPTION_BUDGETS, budget)
    if not pods:
        plan.event(EmitEvent(about, "Normal", "NoPods", "No matching pods found", lasting=True))
    before = budget.get("status") or {}
    try:
        expected, desired, unmanaged = _expected(budget.get("spec") or {}, pods)
    except NotCountable as problem:
        status = {**_counts(before), "disruptionsAllowed": 0}
        _write(plan, budget, {**before, **status}, ("False", "SyncFailed", str(problem)), now)
        event = EmitEvent(
            about, "Warning", "CalculateExpectedPodCountFailed", _counting_failed(problem), lasting=True
        )
        plan.event(event)
        return plan.done()
    if unmanaged:
        plan.event(EmitEvent(about, "Warning", "UnmanagedPods", _unmanaged(budget), lasting=True))
    disrupted = _disrupted(plan, budget, pods, now)
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
    verdict = ("True", "SufficientPods", "") if allowed else ("False", "InsufficientPods", "")
    _write(plan, budget, status, verdict, now)
    return plan.done()


# ---------------------------------------------------------------------- counting


def _expected(spec: Mapping[str, Any], pods: Sequence[Pod]) -> tuple[int, int, bool]:
    """(pods that there should be, pods that must be healthy, whether some belong to no controller)."""
    most, least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if most is not None:
        expected, unmanaged = _scale(pods)
        return expected, max(0, expected - _scaled(most, expected)), unmanaged
    if isinstance(least, int):
        return len(pods), least, False
    if least is not None:
        expected, unmanaged = _scale(pods)
        return expected, _scaled(least, expected), unmanaged
    return 0, 0, False


def _scaled(value: int | str, total: int) -> int:
    """A number of pods, or per cent of them, rounded up."""
    if isinstance(value, int):
        return value
    number = value.removesuffix("%")
    if number == value or not (number.isascii() and number.isdecimal()):
        raise NotCountable(
            f"invalid value for IntOrString: invalid type: string is not a percentage: {value!r}"
        )
    return -(-int(number) * total // 100)


def _scale(pods: Sequence[Pod]) -> tuple[int, bool]:
    """What the controllers of the pods want in sum, and whether some have none.

    No kind that is served here has a scale: the first controller is one too many."""
    for pod in pods:
        controller = pod.controller
        if controller is not None:
            raise NotCountable(_no_scale(controller))
    return 0, bool(pods)


def _no_scale(controller: OwnerReference) -> str:
    resource = by_kind(controller.api_version, controller.kind)
    if resource is None:
        return f'no matches for kind "{controller.kind}" in version "{controller.api_version}"'
    return f"{resource.qualified} does not implement the scale subresource"


def _disrupted(plan: EffectPlan, budget: Json, pods: Sequence[Pod], now: float) -> dict[str, str]:
    """Pods whose eviction was granted and that are not deleted yet, as long as that is to be believed."""
    granted = (budget.get("status") or {}).get("disruptedPods") or {}
    found = {}
    for pod in pods:
        moment = granted.get(pod.name)
        if moment is None or pod.deleting:
            continue
        until = parse_rfc3339(moment) + DELETION_SECONDS
        if until < now:
            metadata = budget["metadata"]
            words = f"Pod was expected by PDB {metadata['namespace']}/{metadata['name']} to be deleted but it wasn't"
            plan.event(EmitEvent(_pod_reference(pod), "Warning", "NotDeleted", words, lasting=True))
        else:
            found[pod.name] = moment
            plan.look_again(until - now + 1.0)
    return found


# ---------------------------------------------------------------------- telling


def _write(plan: EffectPlan, budget: Json, status: Json, verdict: tuple[str, str, str], now: float) -> None:
    """The status with its condition, unless the budget has it already."""
    truth, reason, message = verdict
    conditions = [dict(one) for one in status.get("conditions") or ()]
    present = next((one for one in conditions if one["type"] == CONDITION), None)
    wanted = {
        "type": CONDITION,
        "status": truth,
        "reason": reason,
        "message": message,
        "observedGeneration": status.get("observedGeneration", 0),
        "lastTransitionTime": rfc3339(now),
    }
    if present is None:
        conditions.append(wanted)
    else:
        if present["status"] == truth:
            wanted["lastTransitionTime"] = present["lastTransitionTime"]
        present.clear()
        present.update(wanted)
    status = {**status, "conditions": conditions}
    if status != (budget.get("status") or {}):
        changed = {**budget, "status": status}
        plan.stage(Update(POD_DISRUPTION_BUDGETS, changed, subresource="status"))


def _counts(status: Mapping[str, Any]) -> Json:
    return {name: status.get(name, 0) for name in ("currentHealthy", "desiredHealthy", "expectedPods")}


def _counting_failed(problem: NotCountable) -> str:
    return f"Failed to calculate the number of expected pods: {problem}"


def _unmanaged(budget: Json) -> str:
    return (
        "Pods selected by this PodDisruptionBudget (selector: "
        f"{(budget.get('spec') or {}).get('selector')}) were found to be unmanaged. As a result, the status of the "
        "PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods "
        'please set ".spec.minAvailable" field of the PDB to an integer value.'
    )


def _pod_reference(pod: Pod) -> ObjectRef:
    return ObjectRef(PODS.api_version, PODS.kind, pod.namespace, pod.name, pod.uid, pod.resource_version)
