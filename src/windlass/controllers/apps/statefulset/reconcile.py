"""Reconciliation of a StatefulSet.

Pods are created in the order of their ordinals and deleted in the reverse order. With
``OrderedReady`` each step waits until the pods before are available. The status is
written after the pods, and revisions that no pod has are deleted last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api import selectors
from windlass.api.resources import CONTROLLER_REVISIONS, PODS, STATEFUL_SETS
from windlass.api.views import Pod
from windlass.controllers.apps.amounts import scaled
from windlass.controllers.apps.conditions import without_zeros
from windlass.controllers.apps.pods import (
    BURST,
    adopt,
    is_available,
    next_available,
    pod_of_template,
    release,
    slow_start,
)
from windlass.controllers.apps.revisions import (
    REVISION_HASH,
    expired_revisions,
    in_order,
    plan_revision,
    template_of,
)
from windlass.controllers.apps.statefulset.claims import (
    adopt_claims,
    build_claims,
    is_stale,
    with_claims,
)
from windlass.controllers.apps.workloads import Workload
from windlass.controllers.effects import (
    NOTHING,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Patch,
    Update,
    reference,
)

Json = dict[str, Any]
POD_NAME = "statefulset.kubernetes.io/pod-name"
POD_INDEX = "apps.kubernetes.io/pod-index"
_NAME = re.compile(r"(.*)-([0-9]+)")
_HASH = "controller.kubernetes.io/hash"


@dataclass(frozen=True, slots=True)
class StatefulSetSnapshot:
    """Observed surroundings of a StatefulSet.

    ``owned``: pods that it controls. ``orphans``: pods of the namespace without a
    controller. ``revisions``: its ControllerRevisions; ``loose_revisions``: those of
    the namespace without a controller. ``names``: all of the namespace by name.
    ``claims``: claims of the namespace by name.
    """

    owned: tuple[Pod, ...]
    orphans: tuple[Pod, ...]
    revisions: tuple[Workload, ...]
    loose_revisions: tuple[Workload, ...]
    names: Mapping[str, Workload]
    claims: Mapping[str, Json]
    now: float


def reconcile_stateful_set(obj: Json, observed: StatefulSetSnapshot) -> Effects:
    """Reconcile one StatefulSet. Pure."""
    selector = selectors.from_object((obj.get("spec") or {}).get("selector"))
    if not selector:
        return NOTHING
    plan = EffectPlan(about=reference(STATEFUL_SETS, obj))
    return _StatefulSetReconciliation(obj, observed, plan).effects(selector)


def ordinal_of(name: str, owner: str) -> int | None:
    """Return the ordinal in a pod's name; ``None`` if the name is not of the owner's pods."""
    match = _NAME.fullmatch(name)
    return int(match[2]) if match is not None and match[1] == owner else None


class _StatefulSetReconciliation:
    """State of one reconciliation. Used once."""

    def __init__(self, obj: Json, observed: StatefulSetSnapshot, plan: EffectPlan) -> None:
        self.obj, self.observed, self.plan = obj, observed, plan
        self.spec: Json = obj["spec"]
        self.name: str = obj["metadata"]["name"]
        replicas = self.spec.get("replicas")
        self.replicas = 1 if replicas is None else int(replicas)
        self.start = (self.spec.get("ordinals") or {}).get("start") or 0
        self.settled = self.spec.get("minReadySeconds") or 0
        self.ordered = self.spec.get("podManagementPolicy") != "Parallel"
        self.pods: dict[int, Pod] = {}
        self.creates: list[Create] = []
        self.claims: list[Create] = []
        self.patches: list[Patch] = []
        self.deletes: list[Delete] = []
        self.replaced = 0

    def effects(self, selector: selectors.Selector) -> Effects:
        deleting = bool(self.obj["metadata"].get("deletionTimestamp"))
        if self._claim(selector, deleting):
            return self.plan.done()  # What is adopted counts once it is its own.
        revisions = in_order(one.object for one in self.observed.revisions)
        planned = plan_revision(STATEFUL_SETS, self.obj, revisions, self._labels, self._taken)
        self.update = planned.newest
        current = (self.obj.get("status") or {}).get("currentRevision")
        found = next((one for one in revisions if one["metadata"]["name"] == current), None)
        self.current = found or self.update
        if planned.action is not None and not deleting:
            self.plan.stage(planned.action)
        if not deleting:
            self._work()
        self._write_pods()
        self._write_status(planned.collisions)
        self._truncate(revisions, deleting)
        self._requeue()
        return self.plan.done()

    # What is its own.

    def _claim(self, selector: selectors.Selector, deleting: bool) -> bool:
        """Adopt and release pods and revisions. Returns whether any is adopted."""
        released = []
        for pod in self.observed.owned:
            ordinal = ordinal_of(pod.name, self.name)
            if ordinal is not None and selector.matches(pod.labels):
                self.pods[ordinal] = pod
            elif not deleting:
                released.append(release(self.obj, PODS, pod))
        adopted = [
            adopt(STATEFUL_SETS, self.obj, PODS, pod)
            for pod in self.observed.orphans
            if not deleting
            and not pod.deleting
            and selector.matches(pod.labels)
            and ordinal_of(pod.name, self.name) is not None
        ]
        adopted += [
            adopt(STATEFUL_SETS, self.obj, CONTROLLER_REVISIONS, one)
            for one in self.observed.loose_revisions
            if not deleting and not one.deleted and selector.matches(one.labels)
        ]
        self.plan.stage(*released, *adopted)
        return bool(adopted)

    def _labels(self, hashed: str) -> dict[str, str]:
        labels = ((self.spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        return {**labels, _HASH: hashed}

    def _taken(self, name: str) -> Json | None:
        found = self.observed.names.get(name)
        return found.object if found is not None else None

    # Steps.

    def _work(self) -> None:
        """Decide what to do about pods: the first step that must wait ends the pass."""
        wanted = range(self.start, self.start + self.replicas)
        condemned = sorted((one for one in self.pods if one not in wanted), reverse=True)
        first = next(
            (one for one in (*wanted, *reversed(condemned)) if not self._is_available(self.pods.get(one))),
            None,
        )
        for ordinal in wanted:
            if self._serve(ordinal) and self.ordered:
                return
        for ordinal in condemned:
            self._own_claims(ordinal, scaled_down=True)
        for ordinal in condemned:
            if self._condemn(ordinal, first) and self.ordered:
                return
        self._roll(list(wanted))

    def _is_available(self, pod: Pod | None) -> bool:
        if pod is None or pod.deleting:
            return False
        return is_available(pod, self.settled, self.observed.now)

    def _serve(self, ordinal: int) -> bool:
        """Create, replace or correct the pod of an ordinal. Returns whether the next ones must wait."""
        pod = self.pods.get(ordinal)
        if pod is None:
            if len(self.creates) < BURST and not is_stale(self.obj, ordinal, self.observed.claims):
                self._create_claims(ordinal)
                self.creates.append(self._create(ordinal))
            return True
        if pod.finished:
            if not pod.deleting:
                self._delete(pod)
            return True
        if pod.phase == "Pending":
            self._create_claims(ordinal)
        if not self._is_available(pod) and self.ordered:
            return True
        self._own_claims(ordinal, scaled_down=False)
        if pod.labels.get(POD_NAME) != pod.name:
            labels = {POD_NAME: pod.name, POD_INDEX: str(ordinal)}
            self.patches.append(
                Patch(PODS, pod.name, {"metadata": {"labels": labels}}, pod.namespace, uid=pod.uid)
            )
        return False

    def _create_claims(self, ordinal: int) -> None:
        assert self.plan.about is not None
        self.claims += [
            create
            for create in build_claims(self.obj, ordinal, self.plan.about)
            if create.object["metadata"]["name"] not in self.observed.claims
        ]

    def _own_claims(self, ordinal: int, *, scaled_down: bool) -> None:
        pod = self.pods[ordinal]
        self.patches += adopt_claims(self.obj, pod, ordinal, self.observed.claims, scaled_down=scaled_down)

    def _create(self, ordinal: int) -> Create:
        revision = self.current if self._keeps_current(ordinal) else self.update
        pod = pod_of_template(template_of(revision), STATEFUL_SETS, self.obj)
        name = f"{self.name}-{ordinal}"
        pod["metadata"]["name"] = name
        pod["metadata"]["labels"] = {
            **(pod["metadata"].get("labels") or {}),
            POD_NAME: name,
            POD_INDEX: str(ordinal),
            REVISION_HASH: revision["metadata"]["name"],
        }
        pod["spec"] = {**pod["spec"], "hostname": name}
        if self.spec.get("serviceName"):
            pod["spec"]["subdomain"] = self.spec["serviceName"]
        with_claims(self.obj, pod, ordinal)
        return Create(PODS, pod, self._event("create", name))

    def _keeps_current(self, ordinal: int) -> bool:
        """Return whether a new pod of this ordinal gets the revision before the update."""
        strategy = self.spec.get("updateStrategy") or {}
        if strategy.get("type") != "RollingUpdate":
            return False
        rolling = strategy.get("rollingUpdate")
        if rolling is None:
            count = (self.obj.get("status") or {}).get("currentReplicas") or 0
        else:
            count = rolling.get("partition") or 0
        return ordinal < self.start + count

    def _event(self, verb: str, pod: str) -> EmitEvent:
        assert self.plan.about is not None
        message = f"{verb} Pod {pod} in StatefulSet {self.name} successful"
        return EmitEvent(self.plan.about, "Normal", f"Successful{verb.capitalize()}", message)

    def _delete(self, pod: Pod) -> None:
        event = self._event("delete", pod.name)
        self.deletes.append(Delete(PODS, pod.name, pod.namespace, pod.uid, event=event))

    def _condemn(self, ordinal: int, first: int | None) -> bool:
        """Delete a pod beyond the replicas. Returns whether the next ones must wait.

        ``first``: first ordinal that is not available; only its pod may go while it is
        not.
        """
        pod = self.pods[ordinal]
        if pod.deleting:
            return True
        if self.ordered and not self._is_available(pod) and ordinal != first:
            return True
        self._delete(pod)
        return True

    # Updates.

    def _roll(self, wanted: list[int]) -> None:
        strategy = self.spec.get("updateStrategy") or {}
        if strategy.get("type") != "RollingUpdate":
            return
        rolling = strategy.get("rollingUpdate") or {}
        least, limit = rolling.get("partition") or 0, rolling.get("maxUnavailable")
        if limit is None:
            self._replace_next(wanted[least:])
            return
        most = max(1, scaled(limit, self.replicas, up=False))
        unavailable = sum(not self._is_available(self.pods.get(one)) for one in wanted)
        outdated = [pod for pod in self._outdated(wanted[least:]) if not pod.deleting]
        for pod in outdated[: max(0, most - unavailable)]:
            self._replace(pod)

    def _outdated(self, ordinals: list[int]) -> list[Pod]:
        """Return the pods of another revision, the highest ordinal first."""
        found = (self.pods.get(one) for one in reversed(ordinals))
        newest = self.update["metadata"]["name"]
        return [pod for pod in found if pod is not None and pod.labels.get(REVISION_HASH) != newest]

    def _replace_next(self, ordinals: list[int]) -> None:
        """Replace the highest pod of another revision, once all above it are available."""
        newest = self.update["metadata"]["name"]
        for ordinal in reversed(ordinals):
            pod = self.pods.get(ordinal)
            if pod is not None and not pod.deleting and pod.labels.get(REVISION_HASH) != newest:
                self._replace(pod)
                return
            if not self._is_available(pod):
                return

    def _replace(self, pod: Pod) -> None:
        self._delete(pod)
        self.replaced += pod.labels.get(REVISION_HASH) == self.current["metadata"]["name"]

    # Writes.

    def _write_pods(self) -> None:
        self.plan.stage(*self.claims)
        for stage in slow_start(self.creates):
            self.plan.stage(*stage)
        self.plan.stage(*self.patches)
        self.plan.stage(*self.deletes)

    def _write_status(self, collisions: int) -> None:
        pods = list(self.pods.values())
        current, update = self.current["metadata"]["name"], self.update["metadata"]["name"]
        running = [pod for pod in pods if pod.phase == "Running" and pod.ready]
        live = [pod.labels.get(REVISION_HASH) for pod in pods if not pod.deleting]
        updated, ready = live.count(update), len(running)
        present = live.count(current) - self.replaced
        rolls = (self.spec.get("updateStrategy") or {}).get("type") == "RollingUpdate"
        if rolls and updated == ready == len(pods) == self.replicas:
            present, current = updated, update
        status: Json = {
            "replicas": len(pods),
            "availableReplicas": sum(is_available(pod, self.settled, self.observed.now) for pod in running),
            **without_zeros(
                {
                    "readyReplicas": ready,
                    "currentReplicas": max(0, present),
                    "updatedReplicas": updated,
                    "observedGeneration": self.obj["metadata"].get("generation") or 0,
                }
            ),
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": collisions,
        }
        before = self.obj.get("status") or {}
        if before.get("conditions"):
            status["conditions"] = before["conditions"]
        if status != before:
            self.plan.stage(Update(STATEFUL_SETS, {**self.obj, "status": status}, "status"))

    def _truncate(self, revisions: list[Json], deleting: bool) -> None:
        limit = self.spec.get("revisionHistoryLimit")
        if deleting or limit is None:
            return
        live = {self.current["metadata"]["name"], self.update["metadata"]["name"]}
        live |= {pod.labels.get(REVISION_HASH, "") for pod in self.pods.values()}
        self.plan.stage(*expired_revisions(revisions, live, int(limit)))

    def _requeue(self) -> None:
        if self.settled:
            due = next_available(self.pods.values(), self.settled, self.observed.now)
            if due is not None:
                self.plan.requeue(due)
