"""Objects owned by a job besides its pods: PodGroup, claims, and objects of plugins.

Each method returns actions, or reports through the plan why they are impossible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, POD_GROUPS, SECRETS, SERVICES
from windlass.controllers.effects import Create, Delete, EffectPlan, EmitEvent, Patch, controller_of
from windlass.controllers.pod_groups import patch_group, spec_patch
from windlass.controllers.vcjob import group as groups
from windlass.controllers.vcjob import pods as bodies
from windlass.controllers.vcjob.members import Member
from windlass.controllers.vcjob.plugins import BUILT_IN, served, ssh
from windlass.controllers.vcjob.snapshot import JobSnapshot
from windlass.controllers.vcjob.spec import JobSpec
from windlass.controllers.vcjob.state_machine import FINAL, Phase
from windlass.controllers.vcjob.status import JobState
from windlass.model.records import attained_service

Json = dict[str, Any]
_KINDS = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS, "Service": SERVICES}
_FOREIGN_SECRET_SECONDS = 10.0
"""Delay (seconds) before a Secret of another owner is looked up again. Secrets are not watched."""
_OLD_OWNER_SECONDS = 1.0
"""Delay (seconds) before a retry while an earlier job of the same name owns an object."""


class OwnedObjects:
    """Owned objects of one job, for one reconciliation."""

    def __init__(self, spec: JobSpec, observed: JobSnapshot, plan: EffectPlan) -> None:
        self.spec, self.observed, self.plan = spec, observed, plan
        self._held: set[str] = set()

    def present_group(self, state: JobState) -> Json | None:
        group = self.observed.group
        if group is None or group["metadata"].get("deletionTimestamp") or groups.is_stale(group, state):
            return None
        return group

    def sync_group(self, state: JobState) -> list[Any]:
        if self.observed.group is None:
            return [Create(POD_GROUPS, groups.build(self.spec, state, self.observed.priorities))]
        group = self.present_group(state)
        if group is None:
            return self.delete_stale_group(state)
        patch = spec_patch(group, groups.desired_spec(self.spec, self.observed.priorities), groups.FIELDS)
        return [patch_group(group, patch)] if patch else []

    def delete_stale_group(self, state: JobState) -> list[Any]:
        """Delete the PodGroup of an earlier run after a restart of the whole job.

        The gang then requests resources with a new group. The old group is deleted only
        in the version that was read, since :meth:`attained` was taken from it.
        """
        group = self._stale_group(state)
        return [] if group is None else [self._delete_group(group, group["metadata"].get("resourceVersion"))]

    def attained(self, state: JobState) -> Mapping[str, str]:
        """Return the service attained before the last restart, as annotations of the next group.

        It must be written before the old group is deleted.
        """
        group = self._stale_group(state)
        if group is None:
            return state.attained
        metadata = group["metadata"]
        return (
            attained_service.carried(
                metadata.get("annotations") or {}, metadata.get("creationTimestamp") or ""
            )
            or state.attained
        )

    def _stale_group(self, state: JobState) -> Json | None:
        group = self.observed.group
        if group is None or group["metadata"].get("deletionTimestamp") or not groups.is_stale(group, state):
            return None
        return group

    def _delete_group(self, group: Json, resource_version: str | None = None) -> Delete:
        metadata, namespace = group["metadata"], self.spec.namespace
        uid = metadata.get("uid")
        return Delete(POD_GROUPS, metadata["name"], namespace, uid, resource_version=resource_version)

    def sync_objects(self, state: JobState) -> bool:
        """Create claims and objects of plugins. Return whether pods may be created."""
        unserved = sorted(self.spec.plugins.keys() - BUILT_IN.keys())
        if unserved:
            self._warn("PluginError", f"plugin {', '.join(unserved)} is not served")
            return False
        ready = self._sync_claims()
        actions = []
        for plugin, arguments in served(self.spec.plugins):
            for problem in plugin.problems(arguments):
                self._warn("PluginError", f"plugin {plugin.name}: {problem}")
            if plugin.name == "ssh" and ssh.RECORD in state.resources:
                continue
            for wanted in plugin.objects(self.spec, arguments, self.observed.keys):
                action, usable = self._sync_object(wanted)
                ready = ready and usable
                if not usable:
                    self._held.add(plugin.name)
                actions += action
        self.plan.stage(*actions)
        return ready

    def _sync_object(self, wanted: Json) -> tuple[list[Any], bool]:
        kind, metadata = wanted["kind"], wanted["metadata"]
        present = self.observed.objects.get((kind, metadata["name"]))
        if present is None:
            metadata["ownerReferences"] = [bodies.owner_reference(self.spec)]
            return [Create(_KINDS[kind], wanted)], True
        owner = controller_of(present)
        if owner is not None and owner.get("uid") == self.spec.uid:
            return self._update_data(wanted, present), True
        if owner is not None and owner.get("kind") == "Job" and owner.get("name") == self.spec.name:
            self.plan.requeue(_OLD_OWNER_SECONDS)
            return [], False
        if kind == "Service":
            return [], True
        if kind == "Secret":
            self.plan.requeue(_FOREIGN_SECRET_SECONDS)
        message = f"{kind} {metadata['name']} exists and does not belong to the job: delete or rename it"
        self._warn("PluginError", message)
        return [], False

    def _update_data(self, wanted: Json, present: Json) -> list[Any]:
        if wanted["kind"] != "ConfigMap" or wanted["data"] == (present.get("data") or {}):
            return []
        dropped = dict.fromkeys((present.get("data") or {}).keys() - wanted["data"].keys())
        name = wanted["metadata"]["name"]
        uid = present["metadata"].get("uid")
        patch = {"data": {**dropped, **wanted["data"]}}
        return [Patch(CONFIG_MAPS, name, patch, self.spec.namespace, uid=uid)]

    def _sync_claims(self) -> bool:
        ready, actions = True, []
        for position, volume in enumerate(self.spec.volumes):
            name = bodies.claim_name(self.spec, position, volume)
            if name in self.observed.claims:
                continue
            if volume.claim is None:
                message = (
                    f"pvc {name} is not found, the job will be in the Pending state until the PVC is created"
                )
                self._warn("PVCError", message)
                ready = False
                continue
            claim = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": name,
                    "namespace": self.spec.namespace,
                    "ownerReferences": [bodies.owner_reference(self.spec)],
                },
                "spec": dict(volume.claim),
            }
            actions.append(Create(PERSISTENT_VOLUME_CLAIMS, claim))
        self.plan.stage(*actions)
        return ready

    def resources(self) -> dict[str, str]:
        """Return the entries of ``status.controlledResources``, after :meth:`sync_objects`."""
        names = [name for name in self.spec.plugins if name in BUILT_IN and name not in self._held]
        found = {f"plugin-{name}": name for name in names}
        for position, volume in enumerate(self.spec.volumes):
            name = bodies.claim_name(self.spec, position, volume)
            found[f"volume-pvc-{name}"] = name
        return found

    def clean_up(self, phase: Phase, to_delete: Mapping[str, Member]) -> list[Any]:
        """Return deletions of the group and the plugins' objects once no pod needs them.

        The group of a gang with only finished members is kept as a record of how it
        ended. Any other group would go on requesting resources.
        """
        if to_delete or any(not member.finished for member in self.observed.pods.values()):
            return []
        actions: list[Any] = []
        group = self.observed.group
        if group is not None and not group["metadata"].get("deletionTimestamp"):
            least = int((group.get("spec") or {}).get("minMember") or 0)
            whole = phase in FINAL and len(self.observed.pods) >= max(1, least)
            if not whole:
                actions.append(self._delete_group(group))
        for plugin, arguments in served(self.spec.plugins):
            for wanted in plugin.objects(self.spec, arguments, None):
                actions += self._delete_object(wanted)
        return actions

    def _delete_object(self, wanted: Json) -> list[Any]:
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        present = self.observed.objects.get((kind, name))
        owner = controller_of(present) if present is not None else None
        if present is None or owner is None or owner.get("uid") != self.spec.uid:
            return []
        if present["metadata"].get("deletionTimestamp"):
            return []
        return [Delete(_KINDS[kind], name, self.spec.namespace, present["metadata"].get("uid"))]

    def report_pending_reason(self, group: Json | None) -> None:
        """Report the scheduler's condition of the group as an event of the Job, as Volcano does."""
        conditions = [c for c in _conditions(group) if c.get("status") == "True"]
        newest = max(conditions, key=lambda c: c.get("lastTransitionTime") or "", default=None)
        if newest is not None and newest.get("type") != "Scheduled" and newest.get("message"):
            self._warn("PodGroupPending", f"PodGroup {self.spec.group_name}: {newest['message']}")

    def _warn(self, reason: str, message: str) -> None:
        assert self.plan.about is not None
        self.plan.event(EmitEvent(self.plan.about, "Warning", reason, message, lasting=True))


def _conditions(group: Json | None) -> list[Json]:
    return ((group or {}).get("status") or {}).get("conditions") or []
