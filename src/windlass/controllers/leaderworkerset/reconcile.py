"""Reconciliation of a LeaderWorkerSet. Pure.

Order of the effects: revision, Services, PodGroups, leaders, restarts of groups,
workers, what is no longer needed, and last the status. All names follow from the spec,
so a controller that stops in between creates nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.fields import leaderworkerset
from windlass.api.resources import (
    CONTROLLER_REVISIONS,
    LEADER_WORKER_SETS,
    POD_GROUPS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
)
from windlass.controllers.effects import (
    NOTHING,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Patch,
    Update,
    controller_of,
    reference,
)
from windlass.controllers.leaderworkerset import members
from windlass.controllers.pod_groups import patch_group, spec_patch
from windlass.jobs.leaderworkerset import bodies, finishing
from windlass.jobs.leaderworkerset.rollout import GroupState, LeaderSet, next_rollout
from windlass.jobs.leaderworkerset.spec import GroupTemplate, LeaderWorkerSet, read_set, template_of
from windlass.jobs.leaderworkerset.status import next_status

Json = dict[str, Any]
GROUP_FIELDS = ("minMember", "minResources", "priorityClassName")


@dataclass(frozen=True, slots=True)
class LeaderWorkerSetSnapshot:
    """Observed surroundings of a LeaderWorkerSet.

    ``pods``: its pods. ``sets``: StatefulSets with its label, by name.
    ``groups``: PodGroups with its label, by name. ``revisions``: its ControllerRevisions.
    ``services``: names of the Services in the namespace.
    ``priorities``: PriorityClass → value. ``now``: Unix seconds.
    ``scheduler``: default scheduler of pods where this controller finishes the pods; empty where
    the admission of the server does.
    """

    pods: tuple[Json, ...]
    sets: Mapping[str, Json]
    groups: Mapping[str, Json]
    revisions: tuple[Json, ...]
    services: frozenset[str]
    priorities: Mapping[str, int]
    now: float
    scheduler: str = ""


def reconcile_leader_worker_set(obj: Json, observed: LeaderWorkerSetSnapshot) -> Effects:
    """Reconcile one LeaderWorkerSet."""
    if obj["metadata"].get("deletionTimestamp"):
        return NOTHING
    about = reference(LEADER_WORKER_SETS, obj)
    return _Reconciliation(obj, observed, EffectPlan(about=about)).effects()


class _Reconciliation:
    """State of one reconciliation. Used once."""

    def __init__(self, obj: Json, observed: LeaderWorkerSetSnapshot, plan: EffectPlan) -> None:
        self.obj, self.observed, self.plan = obj, observed, plan
        self.found: LeaderWorkerSet = read_set(_shared(obj) if observed.scheduler else obj)
        self.about = reference(LEADER_WORKER_SETS, obj)
        self.templates: dict[str, GroupTemplate] = {self.found.template.revision: self.found.template}
        for one in observed.revisions:
            record = (one.get("data") or {}).get("spec")
            if record:
                template = template_of(record)
                self.templates.setdefault(template.revision, template)
        self.members: dict[str, list[Json]] = {}
        self.leaders: dict[int, Json] = {}
        for pod in observed.pods:
            labels = pod["metadata"].get("labels") or {}
            index = labels.get(leaderworkerset.GROUP_INDEX, "")
            if not index.isdecimal():
                continue
            self.members.setdefault(index, []).append(pod)
            if labels.get(leaderworkerset.WORKER_INDEX) == "0":
                self.leaders[int(index)] = pod

    def effects(self) -> Effects:
        found, plan, observed = self.found, self.plan, self.observed
        if not any(_revision(one) == found.template.revision for one in observed.revisions):
            number = max((int(one.get("revision") or 0) for one in observed.revisions), default=0) + 1
            plan.stage(Create(CONTROLLER_REVISIONS, bodies.build_revision(found, number)))
        if found.name not in observed.services:
            plan.stage(Create(SERVICES, bodies.build_service(found)))
        states = self._states()
        present = observed.sets.get(found.name)
        step = next_rollout(found, _leader_set(present), states)
        wanted_groups = self._wanted_groups(step.replicas)
        self._keep_groups(wanted_groups)
        self._finish_pods()
        self._keep_leaders(present, self._held_back(bodies.build_leaders(found, step)))
        restarted = self._restart_groups()
        for index, leader in sorted(self.leaders.items()):
            if index not in restarted and not leader["metadata"].get("deletionTimestamp"):
                self._keep_workers(leader)
        self._drop(wanted_groups)
        self._write_status(states)
        return plan.done()

    # -- groups --------------------------------------------------------------------------------

    def _states(self) -> list[GroupState]:
        count = max(self.leaders, default=-1) + 1
        return [self._state(index) for index in range(count)]

    def _state(self, index: int) -> GroupState:
        leader = self.leaders.get(index)
        if leader is None or leader["metadata"].get("deletionTimestamp"):
            return GroupState(False, False)
        template = self.templates.get(_revision(leader))
        updated = _revision(leader) == self.found.template.revision
        ready = _is_ready(leader)
        if template is not None and template.size > 1:
            workers = self.observed.sets.get(leader["metadata"]["name"])
            own = workers is not None and _owned_by(workers, leader)
            counted = ((workers or {}).get("status") or {}).get("readyReplicas") or 0
            ready = ready and own and counted == template.size - 1
        return GroupState(ready, updated)

    def _wanted_groups(self, replicas: int) -> dict[str, tuple[str, GroupTemplate]]:
        """Return PodGroup → index and template, of the present pods and of those to come."""
        found = {}
        for index in range(replicas):
            name = leaderworkerset.group_name(self.found.name, index, self.found.template.revision)
            found[name] = (str(index), self.found.template)
        for pod in self.observed.pods:
            index = (pod["metadata"].get("labels") or {}).get(leaderworkerset.GROUP_INDEX, "")
            template = self.templates.get(_revision(pod))
            if index and template is not None:
                name = leaderworkerset.group_name(self.found.name, index, template.revision)
                found.setdefault(name, (index, template))
        return found

    def _keep_groups(self, wanted: Mapping[str, tuple[str, GroupTemplate]]) -> None:
        actions: list[Create | Patch] = []
        for name, (index, template) in wanted.items():
            group = self.observed.groups.get(name)
            if group is None:
                actions.append(
                    Create(
                        POD_GROUPS, bodies.build_group(self.found, template, index, self.observed.priorities)
                    )
                )
            elif patch := spec_patch(
                group, bodies.group_spec(self.found, template, self.observed.priorities), GROUP_FIELDS
            ):
                actions.append(patch_group(group, patch))
        self.plan.stage(*actions)

    # -- StatefulSets --------------------------------------------------------------------------

    def _held_back(self, body: Json) -> Json:
        """Let the pods of a StatefulSet wait until they are finished, where that is this controller's task."""
        if self.observed.scheduler:
            finishing.hold_back(body["spec"]["template"], self.observed.scheduler)
        return body

    def _finish_pods(self) -> None:
        if not self.observed.scheduler:
            return
        self.plan.stage(
            *(
                Patch(
                    PODS,
                    pod["metadata"]["name"],
                    finishing.finish(pod),
                    pod["metadata"]["namespace"],
                    uid=pod["metadata"]["uid"],
                )
                for pod in self.observed.pods
                if finishing.is_held_back(pod) and not pod["metadata"].get("deletionTimestamp")
            )
        )
        for text in finishing.unsupported(self.found.annotations, self.obj["spec"]):
            self.plan.event(EmitEvent(self.about, "Warning", "NotSupported", text, lasting=True))

    def _keep_leaders(self, present: Json | None, wanted: Json) -> None:
        if present is None:
            self.plan.stage(Create(STATEFUL_SETS, wanted))
            message = f"Created leader statefulset {self.found.name}"
            self._event("Normal", "GroupsProgressing", message)
            return
        before = _revision(present)
        spec, now = wanted["spec"], present["spec"]
        changes: Json = {}
        for field in ("replicas", "persistentVolumeClaimRetentionPolicy"):
            if field in spec and not _holds(now.get(field), spec[field]):
                changes[field] = spec[field]
        if before != self.found.template.revision:
            changes["template"] = spec["template"]
        rolling = (now.get("updateStrategy") or {}).get("rollingUpdate") or {}
        wanted_rolling = spec["updateStrategy"]["rollingUpdate"]
        if (rolling.get("partition") or 0) != wanted_rolling["partition"]:
            changes["updateStrategy"] = spec["updateStrategy"]
        annotations = present["metadata"].get("annotations") or {}
        recorded = annotations.get(leaderworkerset.REPLICAS) == str(self.found.replicas)
        if not changes and recorded:
            return
        metadata = {
            **present["metadata"],
            "labels": {**(present["metadata"].get("labels") or {}), **wanted["metadata"]["labels"]},
            "annotations": {**annotations, **wanted["metadata"]["annotations"]},
        }
        self.plan.stage(Update(STATEFUL_SETS, {**present, "metadata": metadata, "spec": {**now, **changes}}))
        partition, last = wanted_rolling["partition"], spec["replicas"] - 1
        if (rolling.get("partition") or 0) > partition or before != self.found.template.revision:
            message = f"Updating replicas {partition} to {last} (inclusive)"
            self._event("Normal", "GroupsUpdating", message)

    def _keep_workers(self, leader: Json) -> None:
        """Create the StatefulSet of the workers, once an earlier one of the same name is gone."""
        template = self.templates.get(_revision(leader))
        if template is None:
            return
        name = leader["metadata"]["name"]
        if template.unique_subdomains and name not in self.observed.services:
            self.plan.stage(Create(SERVICES, bodies.build_group_service(self.found, leader)))
        if template.size == 1 or name in self.observed.sets:
            return
        if self.found.startup_policy == leaderworkerset.LEADER_READY and not _is_ready(leader):
            return
        self.plan.stage(
            Create(STATEFUL_SETS, self._held_back(bodies.build_workers(self.found, template, leader)))
        )
        self._event("Normal", "GroupsProgressing", f"Created worker statefulset for leader pod {name}")

    # -- restarts ------------------------------------------------------------------------------

    def _restart_groups(self) -> set[int]:
        """Delete the leaders of groups that start again as a whole. Return their indices."""
        restarted: set[int] = set()
        for index, leader in self.leaders.items():
            template = self.templates.get(_revision(leader))
            sets = self.observed.sets.get(leader["metadata"]["name"])
            workers = []
            if sets is not None and _owned_by(sets, leader):
                workers = [pod for pod in self.members[str(index)] if _owned_by(pod, sets)]
            if template is None or template.restart_policy not in members.RESTART_POLICIES:
                continue
            failed = members.first_ended(leader, workers, sets)
            if not failed:
                if change := members.record(template, workers, sets):
                    self.plan.stage(change)
                continue
            if not members.may_restart(template, [leader, *workers]):
                continue
            restarted.add(index)
            meta = leader["metadata"]
            if meta.get("deletionTimestamp"):
                continue
            self.plan.stage(
                Delete(PODS, meta["name"], meta["namespace"], meta["uid"], propagation="Foreground")
            )
            message = (
                f"Worker pod {failed} failed, deleted leader pod {meta['name']} to recreate group {index}"
            )
            self._event("Normal", "RecreateGroupOnPodRestart", message)
        return restarted

    # -- end -----------------------------------------------------------------------------------

    def _drop(self, wanted: Mapping[str, tuple[str, GroupTemplate]]) -> None:
        """Delete PodGroups that no pod needs, and old revisions when all groups are updated.

        Until then a group that is recreated may need the revision that it had.
        """
        actions = []
        for name, group in self.observed.groups.items():
            meta = group["metadata"]
            if name not in wanted and not meta.get("deletionTimestamp"):
                actions.append(Delete(POD_GROUPS, name, meta["namespace"], meta["uid"]))
        updated = [state.updated for state in self._states()]
        if len(updated) < self.found.replicas or not all(updated):
            self.plan.stage(*actions)
            return
        used = {self.found.template.revision, *(_revision(pod) for pod in self.observed.pods)}
        used.update(_revision(one) for one in self.observed.sets.values())
        for one in self.observed.revisions:
            if _revision(one) not in used:
                meta = one["metadata"]
                actions.append(Delete(CONTROLLER_REVISIONS, meta["name"], meta["namespace"], meta["uid"]))
        self.plan.stage(*actions)

    def _write_status(self, states: list[GroupState]) -> None:
        created = len(self.leaders)
        status, changed = next_status(self.found, self.obj, states, created, self.observed.now)
        if status != (self.obj.get("status") or {}):
            self.plan.stage(Update(LEADER_WORKER_SETS, {**self.obj, "status": status}, "status"))
            for reason, message in changed:
                self._event("Normal", reason, message)

    def _event(self, kind: str, reason: str, message: str) -> None:
        self.plan.event(EmitEvent(self.about, kind, reason, message))


def _shared(obj: Json) -> Json:
    """Return a LeaderWorkerSet of which all groups share one subdomain: StatefulSets set that of a pod."""
    return {**obj, "spec": {name: part for name, part in obj["spec"].items() if name != "networkConfig"}}


def _holds(present: Any, wanted: Any) -> bool:
    """Return whether a field has the wanted value. The server may have added defaults to a mapping."""
    if isinstance(present, Mapping) and isinstance(wanted, Mapping):
        return all(present.get(name) == value for name, value in wanted.items())
    return present == wanted


def _revision(obj: Json) -> str:
    return (obj["metadata"].get("labels") or {}).get(leaderworkerset.REVISION, "")


def _leader_set(present: Json | None) -> LeaderSet | None:
    if present is None:
        return None
    spec, meta = present["spec"], present["metadata"]
    rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    recorded = (meta.get("annotations") or {}).get(leaderworkerset.REPLICAS) or ""
    replicas = int(spec.get("replicas", 1))
    return LeaderSet(
        replicas,
        int(rolling.get("partition") or 0),
        int(recorded) if recorded.isdecimal() else replicas,
        _revision(present),
    )


def _owned_by(obj: Json, owner: Json) -> bool:
    found = controller_of(obj)
    return found is not None and found.get("uid") == owner["metadata"].get("uid")


def _is_ready(pod: Json) -> bool:
    status = pod.get("status") or {}
    return status.get("phase") == "Running" and any(
        one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or ()
    )
