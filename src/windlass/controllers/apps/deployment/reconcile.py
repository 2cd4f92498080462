"""Reconciliation of a Deployment.

The steps are those of the Deployment controller of Kubernetes. Every reconciliation
makes one step of the rollout: first the new ReplicaSet grows, otherwise old ones
shrink. The status is written last, so that a controller that stops in between decides
the same again.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api import selectors
from windlass.api.resources import DEPLOYMENTS, REPLICA_SETS
from windlass.api.views import Pod
from windlass.controllers.apps.deployment import status as statuses
from windlass.controllers.apps.deployment.replica_sets import (
    DESIRED,
    REVISION,
    ManagedSet,
    build_new,
    find_new,
    new_replicas,
    read_limits,
)
from windlass.controllers.apps.deployment.scaling import active, scale_sets, shrink_old, total
from windlass.controllers.apps.pods import adopt, release
from windlass.controllers.apps.workloads import Workload
from windlass.controllers.effects import Delete, EffectPlan, Effects, EmitEvent, Update, reference

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DeploymentSnapshot:
    """Observed surroundings of a Deployment.

    ``owned``: ReplicaSets that it controls. ``orphans``: ReplicaSets of the namespace
    without a controller. ``taken``: names of all ReplicaSets of the namespace.
    ``pods``: uid of an owned ReplicaSet → its pods.
    ``failure``: error of the last creation of a ReplicaSet; empty if it succeeded.
    """

    owned: tuple[Workload, ...]
    orphans: tuple[Workload, ...]
    taken: Mapping[str, Workload]
    pods: Mapping[str, tuple[Pod, ...]]
    now: float
    failure: str = ""


def reconcile_deployment(obj: Json, observed: DeploymentSnapshot) -> Effects:
    """Reconcile one Deployment. Pure."""
    about = reference(DEPLOYMENTS, obj)
    selector = selectors.from_object((obj.get("spec") or {}).get("selector"))
    if not selector:
        message = "This deployment is selecting all pods. A non-empty selector is required."
        return Effects(events=(EmitEvent(about, "Warning", "SelectingAll", message, lasting=True),))
    return _DeploymentReconciliation(obj, observed, EffectPlan(about=about)).effects(selector)


class _DeploymentReconciliation:
    """State of one reconciliation. Used once."""

    def __init__(self, obj: Json, observed: DeploymentSnapshot, plan: EffectPlan) -> None:
        self.obj, self.observed, self.plan = obj, observed, plan
        self.spec: Json = obj["spec"]
        self.limits = read_limits(self.spec)
        self.before: Json = copy.deepcopy(obj.get("status") or {})
        self.annotations: dict[str, str] = dict(obj["metadata"].get("annotations") or {})
        self.sets: list[ManagedSet] = []
        self.collides = False

    def effects(self, selector: selectors.Selector) -> Effects:
        deleting = bool(self.obj["metadata"].get("deletionTimestamp"))
        if self._claim(selector, deleting):
            return self.plan.done()  # The adopted ReplicaSets count once they are its own.
        if not deleting:
            statuses.note_pause(self.obj, self.before, self.observed.now)
        new = self._new_set()
        old = [one for one in self.sets if one is not new]
        if deleting:
            return self._finish(new, rolling=False)
        if self.spec.get("paused") or self._is_scaled():
            for one in scale_sets(new, old, self.limits, self.before.get("replicas") or 0):
                one.set_sizes(self.limits)
            expired = self._expired(old) if self.spec.get("paused") else []
            return self._finish(new, expired, rolling=False)
        if self.limits.rolling:
            new = self._roll(new, old)
        else:
            new = self._recreate(new, old)
        if self.collides:
            return self._finish(None, rolling=False)
        expired = self._expired(old) if statuses.is_complete(self.obj, self.before, self.limits) else []
        return self._finish(new, expired, rolling=True)

    def _claim(self, selector: selectors.Selector, deleting: bool) -> bool:
        """Adopt and release ReplicaSets by their labels. Returns whether one is adopted."""
        actions = []
        for stored in self.observed.owned:
            if selector.matches(stored.labels):
                self.sets.append(ManagedSet(stored.object))
            elif not stored.deleted:
                actions.append(release(self.obj, REPLICA_SETS, stored))
        adopted = [
            adopt(DEPLOYMENTS, self.obj, REPLICA_SETS, stored)
            for stored in self.observed.orphans
            if not deleting and not stored.deleted and selector.matches(stored.labels)
        ]
        self.plan.stage(*actions, *adopted)
        self.sets.sort(key=lambda one: one.age_order)
        return bool(adopted)

    def _new_set(self) -> ManagedSet | None:
        """Return the set with the current template, with its revision brought up to date."""
        new = find_new(self.obj, self.sets)
        if new is None:
            return None
        new.copy_annotations(self.annotations)
        new.note_revision(self._next_revision(new))
        new.settled = self.spec.get("minReadySeconds") or 0
        self.annotations[REVISION] = new.annotations.get(REVISION, "")
        if statuses.deadline_of(self.spec) is not None and not _has_progress(self.before):
            message = f'Found new replica set "{new.name}"'
            statuses.note_progress(self.before, "True", "FoundNewReplicaSet", message, self.observed.now)
        return new

    def _next_revision(self, new: ManagedSet | None) -> int:
        return max((one.revision for one in self.sets if one is not new), default=0) + 1

    def _is_scaled(self) -> bool:
        """Return whether the size changed since the sets were given theirs."""
        return any(
            one.annotations.get(DESIRED, "").isdecimal()
            and int(one.annotations[DESIRED]) != self.limits.desired
            for one in active(self.sets)
        )

    # Rollouts.

    def _roll(self, new: ManagedSet | None, old: list[ManagedSet]) -> ManagedSet | None:
        new = new or self._create(old)
        if new is None:
            return None
        if new.replicas > self.limits.desired:
            size = self.limits.desired
        else:
            size = new_replicas(self.spec, self.limits, new.replicas, total(self.sets))
        if new.replicas != size:
            self._resize(new, size)
            return new
        if new.created:
            return new
        sizes = [one.replicas for one in old]
        shrink_old(new, old, self.limits)
        for one, size in zip(old, sizes, strict=True):
            if one.replicas != size:
                one.set_sizes(self.limits)
        return new

    def _recreate(self, new: ManagedSet | None, old: list[ManagedSet]) -> ManagedSet | None:
        shrunk = active(old)
        for one in shrunk:
            self._resize(one, 0)
        if shrunk or self._old_pods_run(new, old):
            return new
        new = new or self._create(old)
        if new is not None and new.replicas != self.limits.desired:
            self._resize(new, self.limits.desired)
        return new

    def _old_pods_run(self, new: ManagedSet | None, old: list[ManagedSet]) -> bool:
        if any(one.count("replicas") for one in old):
            return True
        return any(
            not pod.finished for one in old if one is not new for pod in self.observed.pods.get(one.uid, ())
        )

    def _resize(self, one: ManagedSet, size: int) -> None:
        one.replicas = size
        one.set_sizes(self.limits)

    def _create(self, old: list[ManagedSet]) -> ManagedSet | None:
        """Return a new set to be created; ``None`` if its name belongs to another."""
        found = build_new(DEPLOYMENTS, self.obj, self.limits, total(old))
        if found.name in self.observed.taken:
            self.before["collisionCount"] = (self.before.get("collisionCount") or 0) + 1
            self.collides = True
            return None
        found.copy_annotations(self.annotations)
        found.note_revision(self._next_revision(None))
        found.set_sizes(self.limits)
        self.sets.append(found)
        self.annotations[REVISION] = found.annotations[REVISION]
        if statuses.deadline_of(self.spec) is not None:
            if self.observed.failure:
                message = f'Failed to create new replica set "{found.name}": {self.observed.failure}'
                statuses.note_progress(
                    self.before, "False", "ReplicaSetCreateError", message, self.observed.now
                )
            else:
                message = f'Created new replica set "{found.name}"'
                statuses.note_progress(
                    self.before, "True", "NewReplicaSetCreated", message, self.observed.now
                )
        return found

    def _expired(self, old: list[ManagedSet]) -> list[ManagedSet]:
        """Return the old sets beyond the history limit, the oldest revision first."""
        limit = statuses.history_limit(self.spec)
        kept = [one for one in old if not one.deleting]
        if limit is None or len(kept) <= limit:
            return []
        by_revision = sorted(kept, key=lambda one: (one.revision, one.age_order))
        return [
            one
            for one in by_revision[: len(kept) - limit]
            if one.replicas == 0
            and one.count("replicas") == 0
            and (one.obj["metadata"].get("generation") or 0) <= one.count("observedGeneration")
        ]

    # Writes.

    def _finish(self, new: ManagedSet | None, expired: Any = (), *, rolling: bool) -> Effects:
        now, sets = self.observed.now, self.sets
        status = statuses.calculate(self.obj, self.before, sets, new, self.limits, now)
        if rolling:
            statuses.judge_rollout(self.obj, self.before, status, new, self.limits, now)
            statuses.note_replica_failure(status, sets, new)
        changed = status != (self.obj.get("status") or {})
        if self.annotations != (self.obj["metadata"].get("annotations") or {}):
            changed = True
        if changed and self.observed.failure:
            self._write(status)
        self._write_sets(expired)
        if changed and not self.observed.failure:
            self._write(status)
        due = statuses.seconds_to_deadline(self.obj, status, self.limits, now)
        if due is not None and not self.obj["metadata"].get("deletionTimestamp"):
            self.plan.requeue(due)
        return self.plan.done()

    def _write(self, status: Json) -> None:
        metadata = {**self.obj["metadata"], "annotations": self.annotations}
        if not self.annotations:
            metadata.pop("annotations")
        self.plan.stage(Update(DEPLOYMENTS, {**self.obj, "metadata": metadata, "status": status}, "status"))

    def _write_sets(self, expired: Any) -> None:
        namespace = self.obj["metadata"].get("namespace")
        actions = [one.action(self._scaled_event(one)) for one in self.sets if one not in expired]
        self.plan.stage(*(action for action in actions if action is not None))
        self.plan.stage(*(Delete(REPLICA_SETS, one.name, namespace, one.uid) for one in expired))

    def _scaled_event(self, one: ManagedSet) -> EmitEvent | None:
        present = 0 if one.created else ((one.obj.get("spec") or {}).get("replicas") or 0)
        if one.replicas == present:
            return None
        assert self.plan.about is not None
        way = "up" if one.replicas > present else "down"
        message = f"Scaled {way} replica set {one.name} from {present} to {one.replicas}"
        return EmitEvent(self.plan.about, "Normal", "ScalingReplicaSet", message)


def _has_progress(status: Json) -> bool:
    return any(one.get("type") == statuses.PROGRESSING for one in status.get("conditions") or ())
