"""Reconciliation of a ReplicaSet.

Pods are adopted and released first, then created or deleted, then counted. A creation
that fails is retried later, and the status tells why until it succeeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from windlass.api import selectors
from windlass.api.resources import PODS, REPLICA_SETS
from windlass.api.views import Pod
from windlass.controllers.apps.conditions import (
    new_condition,
    remove_condition,
    set_condition,
    without_zeros,
)
from windlass.controllers.apps.pods import (
    BURST,
    adopt,
    claim_pods,
    create_pod,
    delete_pod,
    deletion_order,
    is_available,
    is_terminating,
    next_available,
    pod_of_template,
    release,
    slow_start,
    with_random_name,
)
from windlass.controllers.effects import NOTHING, EffectPlan, Effects, Update, reference

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReplicaSetSnapshot:
    """Observed surroundings of a ReplicaSet.

    ``owned``: pods that it controls. ``orphans``: pods of the namespace without a
    controller. ``related``: pods of all ReplicaSets of its owner.
    ``failure``: error of the last creation or deletion; empty if it succeeded.
    ``suffix``: returns a random end of a pod's name.
    """

    owned: tuple[Pod, ...]
    orphans: tuple[Pod, ...]
    related: tuple[Pod, ...]
    now: float
    suffix: Callable[[], str]
    failure: str = ""


def reconcile_replica_set(obj: Json, observed: ReplicaSetSnapshot) -> Effects:
    """Reconcile one ReplicaSet. Pure apart from the suffixes of new names."""
    spec = obj.get("spec") or {}
    selector = selectors.from_object(spec.get("selector"))
    if not selector:
        return NOTHING
    about = reference(REPLICA_SETS, obj)
    plan = EffectPlan(about=about)
    deleting = bool(obj["metadata"].get("deletionTimestamp"))
    pods = claim_pods(observed.owned, observed.orphans, selector, adopting=not deleting)
    status = _status(obj, pods.all, observed)
    written = status != (obj.get("status") or {})
    if written and observed.failure:
        plan.stage(Update(REPLICA_SETS, {**obj, "status": status}, "status"))
    plan.stage(
        *(adopt(REPLICA_SETS, obj, PODS, pod) for pod in pods.adopted),
        *(release(obj, PODS, pod) for pod in pods.released),
    )
    if not deleting:
        _manage(obj, pods.all, observed, plan)
    if written and not observed.failure:
        plan.stage(Update(REPLICA_SETS, {**obj, "status": status}, "status"))
    settled = spec.get("minReadySeconds") or 0
    due = next_available(pods.all, settled, observed.now) if settled else None
    if due is not None:
        plan.requeue(due)
    return plan.done()


def _replicas(obj: Json) -> int:
    replicas = (obj.get("spec") or {}).get("replicas")
    return 1 if replicas is None else int(replicas)


def _manage(obj: Json, pods: tuple[Pod, ...], observed: ReplicaSetSnapshot, plan: EffectPlan) -> None:
    assert plan.about is not None
    surplus = len(pods) - _replicas(obj)
    if surplus < 0:
        template, name = obj["spec"].get("template") or {}, obj["metadata"]["name"]
        created = [
            create_pod(
                with_random_name(pod_of_template(template, REPLICA_SETS, obj), name, observed.suffix),
                plan.about,
            )
            for _ in range(min(-surplus, BURST))
        ]
        for stage in slow_start(created):
            plan.stage(*stage)
    elif surplus > 0:
        ordered = deletion_order(pods, observed.related, observed.now)
        plan.stage(*(delete_pod(pod, plan.about) for pod in ordered[: min(surplus, BURST)]))


def _status(obj: Json, pods: tuple[Pod, ...], observed: ReplicaSetSnapshot) -> Json:
    spec, metadata = obj["spec"], obj["metadata"]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    settled = spec.get("minReadySeconds") or 0
    status: Json = {
        "replicas": len(pods),
        **without_zeros(
            {
                "fullyLabeledReplicas": sum(labels.items() <= pod.labels.items() for pod in pods),
                "readyReplicas": sum(pod.ready for pod in pods),
                "availableReplicas": sum(is_available(pod, settled, observed.now) for pod in pods),
                "observedGeneration": metadata.get("generation") or 0,
            }
        ),
        "terminatingReplicas": sum(is_terminating(pod) for pod in observed.owned),
    }
    conditions = (obj.get("status") or {}).get("conditions")
    if conditions:
        status["conditions"] = list(conditions)
    if observed.failure:
        reason = "FailedCreate" if len(pods) < _replicas(obj) else "FailedDelete"
        set_condition(
            status,
            new_condition("ReplicaFailure", "True", reason, observed.failure, observed.now, updated=False),
        )
    else:
        remove_condition(status, "ReplicaFailure")
    return status
