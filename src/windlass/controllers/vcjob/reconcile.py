"""Reconciliation of a Volcano Job.

Order of the effects: if a transition is decided, the status is written first and its
consequences (deleted pods, the removed Command) follow. No pod is created in that
reconciliation. Otherwise pods are deleted and created, and the status is written last,
so it never lists a pod that was not created. All effects are derived from the status
and the observed objects, never from memory.

Pods are created in batches of :data:`BATCH`, so that a job of a hundred thousand pods
does not delay the others. Only one batch is created while the scheduler reports that
waiting cannot help the gang.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from windlass.api.resources import (
    PODS,
    VOLCANO_JOBS,
)
from windlass.client.event_correlator import ObjectRef
from windlass.controllers.effects import (
    NOTHING,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Update,
    reference,
)
from windlass.controllers.pod_groups import is_admitted
from windlass.controllers.vcjob import pods as bodies
from windlass.controllers.vcjob import status as statuses
from windlass.controllers.vcjob.group import waiting_is_useless
from windlass.controllers.vcjob.members import Member
from windlass.controllers.vcjob.owned_objects import OwnedObjects
from windlass.controllers.vcjob.policies import targeted
from windlass.controllers.vcjob.snapshot import JobSnapshot
from windlass.controllers.vcjob.spec import JobSpec, JobTask, read
from windlass.controllers.vcjob.state_machine import ACTIONS, ACTIVE, ENDING, FINAL, Phase
from windlass.controllers.vcjob.status import JobState, PodCounts
from windlass.controllers.vcjob.transition import COMMAND_ISSUED, JobDecision, TransitionCause, decide
from windlass.controllers.volcano_commands import discard

Json = dict[str, Any]
BATCH = 500
"""Maximum number of pods that one reconciliation creates."""


def reconcile(job: Json, observed: JobSnapshot) -> Effects:
    """Reconcile one job. Pure."""
    if job["metadata"].get("deletionTimestamp"):
        return NOTHING
    about = reference(VOLCANO_JOBS, job)
    try:
        spec = read(job, observed.scheduler)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"the spec cannot be read: {error}"
        return Effects(events=(EmitEvent(about, "Warning", "InvalidJob", message, lasting=True),))
    return _Reconciliation(job, spec, observed, about).effects()


class _Reconciliation:
    """State of one reconciliation. Used once."""

    def __init__(self, job: Json, spec: JobSpec, observed: JobSnapshot, about: ObjectRef) -> None:
        self.job, self.spec, self.observed, self.about = job, spec, observed, about
        self.plan = EffectPlan(about=about)
        self.before = statuses.load(job)
        self.owned = OwnedObjects(spec, observed, self.plan)

    def effects(self) -> Effects:
        observed, before = self.observed, self.before
        group = self.owned.present_group(before)
        decision = decide(
            self.spec,
            before,
            observed.pods,
            self._count(before, self._to_delete(before)),
            group=group,
            commands=observed.commands,
            now=observed.now,
        )
        if decision.next_due is not None:
            self.plan.requeue(decision.next_due)
        for message in decision.refused:
            self._event("Warning", COMMAND_ISSUED, message)
        if decision.cause is not None:
            self._commit(decision, decision.cause)
        else:
            self._converge(decision.state)
        return self.plan.done()

    # A transition: status first, consequences second.

    def _commit(self, decision: JobDecision, cause: TransitionCause) -> None:
        state = decision.state
        to_delete = self._to_delete(state)
        state = replace(state, known=self._known(state, to_delete, ()), attained=self.owned.attained(state))
        self._write_status(state, self._count(state, to_delete))
        self._emit_transition_events(state, cause)
        consequences = [self._delete_pod(member) for member in to_delete.values()]
        if state.phase is Phase.RESTARTING:
            consequences += self.owned.delete_stale_group(state)
        self.plan.stage(*consequences)
        self._remove_commands(state)

    def _emit_transition_events(self, state: JobState, cause: TransitionCause) -> None:
        if cause.trigger in ACTIONS:
            message = f"Start to execute action {cause.trigger}: {cause.message}"
            self._event("Normal", COMMAND_ISSUED if cause.command else "ExecuteAction", message)
        if state.phase is Phase.FAILED:
            self._event("Warning", "Failed", f"The job failed: {state.message}")
        elif state.phase is Phase.COMPLETED:
            self._event("Normal", "Completed", "The job completed")

    # No transition: bring the world in line, then the status.

    def _converge(self, state: JobState) -> None:
        phase = state.phase or Phase.PENDING
        to_delete = self._to_delete(state)
        attained = self.owned.attained(state)
        if attained != state.attained:
            # The scheduler wrote it after the restart was decided. Save it before the
            # group is deleted.
            self._write_status(replace(state, attained=attained), self._count(state, to_delete))
            return
        actions: list[Any] = [self._delete_pod(member) for member in to_delete.values()]
        created: list[tuple[JobTask, int]] = []
        if phase in ACTIVE:
            ready = self.owned.sync_objects(state)
            if ready:
                actions += self.owned.sync_group(state)
                created = self._wanted_pods(state)
            state = replace(state, resources=self.owned.resources())
        elif phase is Phase.RESTARTING:
            actions += self.owned.delete_stale_group(state)
        elif phase not in ENDING:
            actions += self.owned.clean_up(phase, to_delete)
            state = replace(state, resources=_without_plugins(state.resources))
        self.plan.stage(*actions)
        current = replace(state, known=self._known(state, to_delete, ()))
        if created and self._status_changed(current, self._count(state, to_delete)):
            created = []  # Write the current status first: the creation may be rejected for long.
        self._create_pods(state, created)
        state = replace(state, known=self._known(state, to_delete, created))
        self._write_status(state, self._count(state, to_delete, created))
        self._remove_commands(state)
        self._expire(state)

    def _remove_commands(self, state: JobState) -> None:
        """Remove Commands that were executed or rejected. The others wait."""
        done = []
        for command in self.observed.commands:
            executed = command["metadata"].get("uid") == state.command
            if self.before.phase is None and not executed:
                break
            done.append(discard(command))
            if executed and state.command != self.before.command:
                break
        self.plan.stage(*done)

    # Pods.

    def _to_delete(self, state: JobState) -> dict[str, Member]:
        """Return the pods to delete, without those that are terminating."""
        return {
            name: member
            for name, member in self.observed.pods.items()
            if not member.deleting and self._is_to_delete(state, member)
        }

    def _is_to_delete(self, state: JobState, member: Member) -> bool:
        phase = state.phase or Phase.PENDING
        if phase in ACTIVE or phase is Phase.RESTARTING:
            task = self.spec.task(member.task)
            return (
                member.version < state.version
                or task is None
                or not 0 <= member.index < task.replicas
                or targeted(member, state.targets)
            )
        return not member.finished

    def _wanted_pods(self, state: JobState) -> list[tuple[JobTask, int]]:
        """The pods to create: none before the group has been admitted to its queue."""
        group = self.owned.present_group(state)
        self.owned.report_pending_reason(group)
        if not is_admitted(group):
            return []
        wanted = (
            (task, index)
            for task in self.spec.tasks
            if self._dependencies_met(task)
            for index in range(task.replicas)
            if self.spec.pod_name(task.name, index) not in self.observed.pods
        )
        most = BATCH
        if waiting_is_useless(group):
            most = max(0, BATCH - len(self.observed.pods))
        return list(islice(wanted, most))

    def _dependencies_met(self, task: JobTask) -> bool:
        """Return whether the tasks that this task depends on are up (Volcano's rule).

        Such a task is up if minAvailable of its pods run and are ready, or succeeded.
        """
        ready = []
        for name in task.depends_on:
            other = self.spec.task(name)
            if other is None:
                continue
            able = sum(
                member.phase == "Succeeded" or (member.phase == "Running" and member.pod.ready)
                for member in self.observed.pods.values()
                if member.task == name and not member.deleting
            )
            ready.append(able >= other.min_available)
        if len(task.depends_on) > 1 and task.depends_on_any:
            return any(ready)
        return all(ready)

    def _create_pods(self, state: JobState, wanted: list[tuple[JobTask, int]]) -> None:
        if not wanted:
            return
        for name in bodies.classes_not_found(self.spec, self.observed.priorities):
            message = f"PriorityClass {name} does not exist: the pods are created with priority 0"
            self._event("Warning", "PriorityClassNotFound", message, lasting=True)
        classes = self.observed.priorities
        self.plan.stage(
            *(Create(PODS, bodies.build(self.spec, state, task, index, classes)) for task, index in wanted)
        )

    def _delete_pod(self, member: Member) -> Delete:
        return Delete(PODS, member.name, self.spec.namespace, member.pod.uid)

    def _known(
        self, state: JobState, to_delete: Mapping[str, Member], created: list[tuple[JobTask, int]] | tuple[()]
    ) -> dict[str, frozenset[int]]:
        """Return the existing pods, with those that are terminating for another reason."""
        found: dict[str, set[int]] = {task.name: set() for task in self.spec.tasks}
        wanted = {task.name: task.replicas for task in self.spec.tasks}
        for name, member in self.observed.pods.items():
            if member.version != state.version or name in to_delete or member.task not in found:
                continue
            if targeted(member, state.targets):
                continue
            terminating = member.index < wanted[member.task] and member.index in state.known.get(
                member.task, ()
            )
            if not member.deleting or terminating:
                found[member.task].add(member.index)
        for task, index in created:
            found[task.name].add(index)
        return {task: frozenset(indices) for task, indices in found.items() if indices}

    # Status, end of life, events.

    def _count(
        self,
        state: JobState,
        to_delete: Mapping[str, Member],
        created: list[tuple[JobTask, int]] | tuple[()] = (),
    ) -> PodCounts:
        phases = {"Pending": 0, "Running": 0, "Succeeded": 0, "Failed": 0, "Unknown": 0}
        by_task: dict[str, dict[str, int]] = {}
        terminating = 0
        for name, member in self.observed.pods.items():
            if member.deleting or name in to_delete:
                terminating += 1
                continue
            phase = member.phase if member.phase in phases else "Unknown"
            phases[phase] += 1
            by_task.setdefault(member.task, {})[phase] = by_task.get(member.task, {}).get(phase, 0) + 1
        for task, _ in created:
            phases["Pending"] += 1
            by_task.setdefault(task.name, {})["Pending"] = by_task.get(task.name, {}).get("Pending", 0) + 1
        return PodCounts(
            pending=phases["Pending"],
            running=phases["Running"],
            succeeded=phases["Succeeded"],
            failed=phases["Failed"],
            unknown=phases["Unknown"],
            terminating=terminating,
            to_delete=len(to_delete),
            by_task=by_task,
        )

    def _status_changed(self, state: JobState, counts: PodCounts) -> bool:
        return statuses.render(self.job, self.spec, state, counts) != (self.job.get("status") or {})

    def _write_status(self, state: JobState, counts: PodCounts) -> None:
        status = statuses.render(self.job, self.spec, state, counts)
        if status != (self.job.get("status") or {}):
            self.plan.stage(Update(VOLCANO_JOBS, {**self.job, "status": status}, "status"))

    def _expire(self, state: JobState) -> None:
        if self.spec.ttl_seconds is None or state.phase not in FINAL:
            return
        left = state.since + self.spec.ttl_seconds - self.observed.now
        if left > 0:
            self.plan.requeue(left)
            return
        self.plan.stage(
            Delete(VOLCANO_JOBS, self.spec.name, self.spec.namespace, self.spec.uid, propagation="Foreground")
        )

    def _event(self, kind: str, reason: str, message: str, *, lasting: bool = False) -> None:
        self.plan.event(EmitEvent(self.about, kind, reason, message, lasting))


def _without_plugins(resources: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in resources.items() if not name.startswith("plugin-")}
