"""One look at a Volcano Job: from the job and what surrounds it to what has to be done.

Order of the effects. When the decision is a transition, the status is written first and only then its
consequences (pods deleted, the Command removed); no pod is created in that look. Otherwise pods are
deleted and created, and the status is written last, so that it never tells of a pod that was not made.
Every part is derived from the status and from what is there, never from memory.

Pods are created :data:`BATCH` at a time, so that one job of a hundred thousand does not keep the others
waiting; and no more than one batch is created while the scheduler says that waiting cannot help the gang.
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
from windlass.controllers.vcjob import pods as bodies
from windlass.controllers.vcjob import status as statuses
from windlass.controllers.vcjob.group import waiting_is_useless
from windlass.controllers.vcjob.members import Member
from windlass.controllers.vcjob.observed import JobSnapshot
from windlass.controllers.vcjob.owned_objects import OwnedObjects
from windlass.controllers.vcjob.policies import targeted
from windlass.controllers.vcjob.spec import JobSpec, JobTask, read
from windlass.controllers.vcjob.state_machine import ACTIONS, ACTIVE, ENDING, FINAL, Phase
from windlass.controllers.vcjob.status import JobState, PodCounts
from windlass.controllers.vcjob.transition import COMMAND_ISSUED, JobDecision, TransitionCause, decide
from windlass.controllers.volcano_commands import discard

Json = dict[str, Any]
BATCH = 500
"""The most pods that one look creates."""


def step(job: Json, seen: JobSnapshot) -> Effects:
    """Look at a job once. Pure."""
    if job["metadata"].get("deletionTimestamp"):
        return NOTHING
    about = reference(VOLCANO_JOBS, job)
    try:
        spec = read(job, seen.scheduler)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        words = f"the spec cannot be read: {error}"
        return Effects(events=(EmitEvent(about, "Warning", "InvalidJob", words, lasting=True),))
    return _Look(job, spec, seen, about).effects()


class _Look:
    """The parts of one step, which share what is seen. Used once."""

    def __init__(self, job: Json, spec: JobSpec, seen: JobSnapshot, about: ObjectRef) -> None:
        self.job, self.spec, self.seen, self.about = job, spec, seen, about
        self.plan = EffectPlan(about=about)
        self.before = statuses.load(job)
        self.owned = OwnedObjects(spec, seen, self.plan)

    def effects(self) -> Effects:
        seen, before = self.seen, self.before
        group = self.owned.present_group(before)
        decision = decide(
            self.spec,
            before,
            seen.pods,
            self._count(before, self._doomed(before)),
            group=group,
            commands=seen.commands,
            now=seen.now,
        )
        if decision.next_due is not None:
            self.plan.look_again(decision.next_due)
        for words in decision.refused:
            self._event("Warning", COMMAND_ISSUED, words)
        if decision.cause is not None:
            self._commit(decision, decision.cause)
        else:
            self._carry_on(decision.state)
        return self.plan.done()

    # A transition: status first, consequences second.

    def _commit(self, decision: JobDecision, cause: TransitionCause) -> None:
        state = decision.state
        doomed = self._doomed(state)
        state = replace(state, known=self._known(state, doomed, ()), past=self.owned.past(state))
        self._write_status(state, self._count(state, doomed))
        self._tell(state, cause)
        consequences = [self._delete_pod(member) for member in doomed.values()]
        if state.phase is Phase.RESTARTING:
            consequences += self.owned.drop_stale_group(state)
        self.plan.stage(*consequences)
        self._remove_commands(state)

    def _tell(self, state: JobState, cause: TransitionCause) -> None:
        if cause.trigger in ACTIONS:
            words = f"Start to execute action {cause.trigger}: {cause.message}"
            self._event("Normal", COMMAND_ISSUED if cause.command else "ExecuteAction", words)
        if state.phase is Phase.FAILED:
            self._event("Warning", "Failed", f"The job failed: {state.message}")
        elif state.phase is Phase.COMPLETED:
            self._event("Normal", "Completed", "The job completed")

    # No transition: bring the world in line, then the status.

    def _carry_on(self, state: JobState) -> None:
        phase = state.phase or Phase.PENDING
        doomed = self._doomed(state)
        past = self.owned.past(state)
        if past != state.past:
            # The scheduler wrote it after the restart was decided: it is kept before the group goes.
            self._write_status(replace(state, past=past), self._count(state, doomed))
            return
        actions: list[Any] = [self._delete_pod(member) for member in doomed.values()]
        created: list[tuple[JobTask, int]] = []
        if phase in ACTIVE:
            ready = self.owned.keep_objects()
            if ready:
                actions += self.owned.keep_group(state)
                created = self._wanted_pods(state)
            state = replace(state, resources=self.owned.resources())
        elif phase is Phase.RESTARTING:
            actions += self.owned.drop_stale_group(state)
        elif phase not in ENDING:
            actions += self.owned.tidy(phase, doomed)
            state = replace(state, resources=_without_plugins(state.resources))
        self.plan.stage(*actions)
        as_it_is = replace(state, known=self._known(state, doomed, ()))
        if created and self._status_changed(as_it_is, self._count(state, doomed)):
            created = []  # first what is, then what shall be: creating may be refused for long
        self._create_pods(state, created)
        state = replace(state, known=self._known(state, doomed, created))
        self._write_status(state, self._count(state, doomed, created))
        self._remove_commands(state)
        self._expire(state)

    def _remove_commands(self, state: JobState) -> None:
        """Those that were carried out or refused; the others wait for the next look."""
        done = []
        for command in self.seen.commands:
            carried_out = command["metadata"].get("uid") == state.command
            if self.before.phase is None and not carried_out:
                break
            done.append(discard(command))
            if carried_out and state.command != self.before.command:
                break
        self.plan.stage(*done)

    # Pods.

    def _doomed(self, state: JobState) -> dict[str, Member]:
        """The pods that have to go, without those that are going."""
        return {
            name: member
            for name, member in self.seen.pods.items()
            if not member.deleting and self._has_to_go(state, member)
        }

    def _has_to_go(self, state: JobState, member: Member) -> bool:
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
        self.owned.tell_why_waiting(group)
        if ((group or {}).get("status") or {}).get("phase") in (None, "", "Pending"):
            return []
        wanted = (
            (task, index)
            for task in self.spec.tasks
            if self._dependencies_met(task)
            for index in range(task.replicas)
            if self.spec.pod_name(task.name, index) not in self.seen.pods
        )
        most = BATCH
        if waiting_is_useless(group):
            most = max(0, BATCH - len(self.seen.pods))
        return list(islice(wanted, most))

    def _dependencies_met(self, task: JobTask) -> bool:
        """Volcano's rule: of the other task, minAvailable pods run and are ready, or succeeded."""
        ready = []
        for name in task.depends_on:
            other = self.spec.task(name)
            if other is None:
                continue
            able = sum(
                member.phase == "Succeeded" or (member.phase == "Running" and member.pod.ready)
                for member in self.seen.pods.values()
                if member.task == name and not member.deleting
            )
            ready.append(able >= other.min_available)
        if len(task.depends_on) > 1 and task.depends_on_any:
            return any(ready)
        return all(ready)

    def _create_pods(self, state: JobState, wanted: list[tuple[JobTask, int]]) -> None:
        if not wanted:
            return
        for name in bodies.classes_not_found(self.spec, self.seen.priorities):
            words = f"PriorityClass {name} does not exist: the pods are created with priority 0"
            self._event("Warning", "PriorityClassNotFound", words, lasting=True)
        classes = self.seen.priorities
        self.plan.stage(
            *(Create(PODS, bodies.build(self.spec, state, task, index, classes)) for task, index in wanted)
        )

    def _delete_pod(self, member: Member) -> Delete:
        return Delete(PODS, member.name, self.spec.namespace, member.pod.uid)

    def _known(
        self, state: JobState, doomed: Mapping[str, Member], created: list[tuple[JobTask, int]] | tuple[()]
    ) -> dict[str, frozenset[int]]:
        """The pods that are there, and those that are going although nobody here wanted it."""
        found: dict[str, set[int]] = {task.name: set() for task in self.spec.tasks}
        wanted = {task.name: task.replicas for task in self.spec.tasks}
        for name, member in self.seen.pods.items():
            if member.version != state.version or name in doomed or member.task not in found:
                continue
            if targeted(member, state.targets):
                continue
            going = member.index < wanted[member.task] and member.index in state.known.get(member.task, ())
            if not member.deleting or going:
                found[member.task].add(member.index)
        for task, index in created:
            found[task.name].add(index)
        return {task: frozenset(indices) for task, indices in found.items() if indices}

    # Status, end of life, words.

    def _count(
        self,
        state: JobState,
        doomed: Mapping[str, Member],
        created: list[tuple[JobTask, int]] | tuple[()] = (),
    ) -> PodCounts:
        phases = {"Pending": 0, "Running": 0, "Succeeded": 0, "Failed": 0, "Unknown": 0}
        by_task: dict[str, dict[str, int]] = {}
        terminating = 0
        for name, member in self.seen.pods.items():
            if member.deleting or name in doomed:
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
            doomed=len(doomed),
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
        left = state.since + self.spec.ttl_seconds - self.seen.now
        if left > 0:
            self.plan.look_again(left)
            return
        self.plan.stage(
            Delete(VOLCANO_JOBS, self.spec.name, self.spec.namespace, self.spec.uid, propagation="Foreground")
        )

    def _event(self, kind: str, reason: str, message: str, *, lasting: bool = False) -> None:
        self.plan.event(EmitEvent(self.about, kind, reason, message, lasting))


def _without_plugins(resources: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in resources.items() if not name.startswith("plugin-")}
