"""What stands beside a job's pods: its PodGroup, its claims, and the objects of its plugins.

Each method answers with actions, or says (through the plan) why something cannot be done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, POD_GROUPS, SERVICES
from windlass.controllers.effects import Create, Delete, EffectPlan, EmitEvent, Patch, controller_of
from windlass.controllers.vcjob import group as groups
from windlass.controllers.vcjob import pods as bodies
from windlass.controllers.vcjob.members import Member
from windlass.controllers.vcjob.observed import JobSnapshot
from windlass.controllers.vcjob.plugins import BUILT_IN
from windlass.controllers.vcjob.spec import JobSpec
from windlass.controllers.vcjob.state_machine import FINAL, Phase
from windlass.controllers.vcjob.status import JobState
from windlass.model.records import attained_service

Json = dict[str, Any]
_KINDS = {"ConfigMap": CONFIG_MAPS, "Service": SERVICES}
_OLD_OWNER_SECONDS = 1.0
"""How soon to look again for an object that an earlier job of the same name still holds."""


class OwnedObjects:
    """For one look at one job."""

    def __init__(self, spec: JobSpec, seen: JobSnapshot, plan: EffectPlan) -> None:
        self.spec, self.seen, self.plan = spec, seen, plan

    def present_group(self, state: JobState) -> Json | None:
        group = self.seen.group
        if group is None or group["metadata"].get("deletionTimestamp") or groups.is_stale(group, state):
            return None
        return group

    def keep_group(self, state: JobState) -> list[Any]:
        if self.seen.group is None:
            return [Create(POD_GROUPS, groups.build(self.spec, state, self.seen.priorities))]
        group = self.present_group(state)
        if group is None:
            return self.drop_stale_group(state)
        patch = groups.spec_patch(group, groups.desired_spec(self.spec, self.seen.priorities))
        return [self._patch_group(group, patch)] if patch else []

    def _patch_group(self, group: Json, patch: Json) -> Patch:
        metadata = group["metadata"]
        return Patch(
            POD_GROUPS,
            metadata["name"],
            {"spec": patch},
            self.spec.namespace,
            resource_version=metadata.get("resourceVersion"),
        )

    def drop_stale_group(self, state: JobState) -> list[Any]:
        """After a restart of the whole job the gang asks for room anew, with a new group. The old one goes as it was
        seen or not yet: what it says is :meth:`past`."""
        group = self._stale_group(state)
        return [] if group is None else [self._delete_group(group, group["metadata"].get("resourceVersion"))]

    def past(self, state: JobState) -> Mapping[str, str]:
        """What the job attained before its last restart, for its next group; to be written before the old one goes."""
        group = self._stale_group(state)
        if group is None:
            return state.past
        metadata = group["metadata"]
        return (
            attained_service.carried(
                metadata.get("annotations") or {}, metadata.get("creationTimestamp") or ""
            )
            or state.past
        )

    def _stale_group(self, state: JobState) -> Json | None:
        group = self.seen.group
        if group is None or group["metadata"].get("deletionTimestamp") or not groups.is_stale(group, state):
            return None
        return group

    def _delete_group(self, group: Json, resource_version: str | None = None) -> Delete:
        metadata, namespace = group["metadata"], self.spec.namespace
        uid = metadata.get("uid")
        return Delete(POD_GROUPS, metadata["name"], namespace, uid, resource_version=resource_version)

    def keep_objects(self) -> bool:
        """Claims, and what the plugins want. False while one is missing without which no pod may start."""
        unserved = sorted(self.spec.plugins.keys() - BUILT_IN.keys())
        if unserved:
            self._trouble("PluginError", f"plugin {', '.join(unserved)} is not served")
            return False
        ready = self._keep_claims()
        actions = []
        for name, arguments in sorted(self.spec.plugins.items()):
            for problem in BUILT_IN[name].problems(arguments):
                self._trouble("PluginError", f"plugin {name}: {problem}")
            for wanted in BUILT_IN[name].objects(self.spec, arguments):
                action, usable = self._keep_object(wanted)
                ready = ready and usable
                actions += action
        self.plan.stage(*actions)
        return ready

    def _keep_object(self, wanted: Json) -> tuple[list[Any], bool]:
        kind, metadata = wanted["kind"], wanted["metadata"]
        present = self.seen.objects.get((kind, metadata["name"]))
        if present is None:
            metadata["ownerReferences"] = [bodies.owner_reference(self.spec)]
            return [Create(_KINDS[kind], wanted)], True
        owner = controller_of(present)
        if owner is not None and owner.get("uid") == self.spec.uid:
            return self._update_data(wanted, present), True
        if owner is not None and owner.get("kind") == "Job" and owner.get("name") == self.spec.name:
            self.plan.look_again(_OLD_OWNER_SECONDS)
            return [], False
        if kind == "Service":
            return [], True
        words = f"{kind} {metadata['name']} exists and does not belong to the job: delete or rename it"
        self._trouble("PluginError", words)
        return [], False

    def _update_data(self, wanted: Json, present: Json) -> list[Any]:
        if wanted["kind"] != "ConfigMap" or wanted["data"] == (present.get("data") or {}):
            return []
        gone = dict.fromkeys((present.get("data") or {}).keys() - wanted["data"].keys())
        name = wanted["metadata"]["name"]
        uid = present["metadata"].get("uid")
        patch = {"data": {**gone, **wanted["data"]}}
        return [Patch(CONFIG_MAPS, name, patch, self.spec.namespace, uid=uid)]

    def _keep_claims(self) -> bool:
        ready, actions = True, []
        for position, volume in enumerate(self.spec.volumes):
            name = bodies.claim_name(self.spec, position, volume)
            if name in self.seen.claims:
                continue
            if volume.claim is None:
                words = (
                    f"pvc {name} is not found, the job will be in the Pending state until the PVC is created"
                )
                self._trouble("PVCError", words)
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
        found = {f"plugin-{name}": name for name in self.spec.plugins if name in BUILT_IN}
        for position, volume in enumerate(self.spec.volumes):
            name = bodies.claim_name(self.spec, position, volume)
            found[f"volume-pvc-{name}"] = name
        return found

    def tidy(self, phase: Phase, doomed: Mapping[str, Member]) -> list[Any]:
        """After the end: the group and the plugins' objects, once no pod is left that could need them.

        The group of a gang whose members all finished stays with them, as the record of how it ended;
        any other would go on asking for room.
        """
        if doomed or any(not member.finished for member in self.seen.pods.values()):
            return []
        actions: list[Any] = []
        group = self.seen.group
        if group is not None and not group["metadata"].get("deletionTimestamp"):
            least = int((group.get("spec") or {}).get("minMember") or 0)
            whole = phase in FINAL and len(self.seen.pods) >= max(1, least)
            if not whole:
                actions.append(self._delete_group(group))
        for name, arguments in sorted(self.spec.plugins.items()):
            for wanted in BUILT_IN[name].objects(self.spec, arguments) if name in BUILT_IN else ():
                actions += self._drop_object(wanted)
        return actions

    def _drop_object(self, wanted: Json) -> list[Any]:
        kind, name = wanted["kind"], wanted["metadata"]["name"]
        present = self.seen.objects.get((kind, name))
        owner = controller_of(present) if present is not None else None
        if present is None or owner is None or owner.get("uid") != self.spec.uid:
            return []
        if present["metadata"].get("deletionTimestamp"):
            return []
        return [Delete(_KINDS[kind], name, self.spec.namespace, present["metadata"].get("uid"))]

    def tell_why_waiting(self, group: Json | None) -> None:
        """What the scheduler says of the group, told on the Job, where Volcano's users look: let in or not."""
        conditions = [c for c in _conditions(group) if c.get("status") == "True"]
        newest = max(conditions, key=lambda c: c.get("lastTransitionTime") or "", default=None)
        if newest is not None and newest.get("type") != "Scheduled" and newest.get("message"):
            self._trouble("PodGroupPending", f"PodGroup {self.spec.group_name}: {newest['message']}")

    def _trouble(self, reason: str, message: str) -> None:
        assert self.plan.about is not None
        self.plan.event(EmitEvent(self.plan.about, "Warning", reason, message, lasting=True))


def _conditions(group: Json | None) -> list[Json]:
    return ((group or {}).get("status") or {}).get("conditions") or []
