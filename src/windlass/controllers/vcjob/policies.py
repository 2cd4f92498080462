"""Events of a job's pods, and the actions of its policies.

Volcano reacts to edges (a pod *became* Failed). Here events are derived from the state,
so a stopped process loses none. A Failed pod of the current version is an event until
it is replaced or the job leaves the phases with policies. ``JobUpdated`` is declared by
the API, but neither Volcano nor Windlass raises it.

A task's policies take precedence over the job's, and the first match decides. ``*``
matches every event. An exit code is the first container's. ``PodPending`` needs a
timeout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.views.wire import moment
from windlass.controllers.vcjob.members import Member, Members
from windlass.controllers.vcjob.spec import JobPolicy, JobSpec, JobTask
from windlass.controllers.vcjob.state_machine import ACTIONS, TARGETED, JobTrigger
from windlass.controllers.vcjob.status import EVERYTHING, UNSUCCEEDED, JobState

ANY = "*"
POD_FAILED = "PodFailed"
POD_EVICTED = "PodEvicted"
POD_PENDING = "PodPending"
TASK_COMPLETED = "TaskCompleted"
TASK_FAILED = "TaskFailed"
JOB_UNKNOWN = "Unknown"
_RANK = {TASK_COMPLETED: 0, POD_FAILED: 1, POD_EVICTED: 2, TASK_FAILED: 3, JOB_UNKNOWN: 4, POD_PENDING: 5}
"""Order of events within one second.

A successful end comes first, since it explains the failures of pods that lost their
peer.
"""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Event. ``since``: when the state began. ``task``, ``pod``, ``partition``: its subject."""

    event: str
    since: float
    task: str = ""
    pod: str = ""
    partition: str = ""
    exit_code: int = 0

    def describe(self) -> str:
        if self.event == POD_FAILED:
            return f"pod {self.pod} failed with exit code {self.exit_code}"
        if self.event == POD_EVICTED:
            return f"pod {self.pod} was evicted or deleted"
        if self.event == POD_PENDING:
            return f"pod {self.pod} is still pending"
        if self.event == TASK_COMPLETED:
            return f"all pods of task {self.task} succeeded"
        if self.event == TASK_FAILED:
            return f"containers of task {self.task} were restarted too often"
        return "the gang runs only in part"


@dataclass(frozen=True, slots=True)
class PolicyAction:
    """Action of a policy on an event, and the time when it is due (Unix seconds)."""

    action: JobTrigger
    event: JobEvent
    due: float


def targeted(member: Member, targets: Iterable[str]) -> bool:
    """Return whether a restart with these targets replaces the pod."""
    for target in targets:
        kind, _, rest = target.partition("/")
        if (
            target == EVERYTHING
            or (target == UNSUCCEEDED and member.phase != "Succeeded")
            or (kind == "pod" and rest == member.name)
            or (kind == "task" and rest == member.task)
            or (kind == "partition" and rest == f"{member.task}/{member.partition}")
        ):
            return True
    return False


def target_of(policy_action: PolicyAction) -> str:
    """Return the target of a partial restart; ``""`` if the event has no such part."""
    event = policy_action.event
    if policy_action.action is JobTrigger.RESTART_POD:
        return f"pod/{event.pod}" if event.pod else ""
    if policy_action.action is JobTrigger.RESTART_TASK:
        return f"task/{event.task}" if event.task else ""
    return f"partition/{event.task}/{event.partition}" if event.task and event.partition else ""


def missing(spec: JobSpec, state: JobState, pods: Members) -> list[tuple[JobTask, int]]:
    """Return the pods that existed, are still wanted, and are gone."""
    return [
        (task, index)
        for task in spec.tasks
        for index in sorted(state.known.get(task.name, ()))
        if index < task.replicas and spec.pod_name(task.name, index) not in pods
    ]


def job_events(
    spec: JobSpec, state: JobState, pods: Members, group: Mapping[str, Any] | None, now: float
) -> list[JobEvent]:
    """Return the events that policies may match, the earliest first.

    Pods that are being replaced raise none.
    """
    alive = {
        name: member
        for name, member in pods.items()
        if member.version == state.version and not targeted(member, state.targets)
    }
    found = [
        JobEvent(
            POD_FAILED,
            member.pod.ended or member.pod.created or now,
            member.task,
            name,
            member.partition,
            member.exit_code,
        )
        for name, member in alive.items()
        if member.phase == "Failed"
    ]
    found += _evictions(spec, state, pods, now)
    found += [
        JobEvent(POD_PENDING, member.pod.created or now, member.task, name, member.partition)
        for name, member in alive.items()
        if member.phase == "Pending" and not member.deleting
    ]
    for task in spec.tasks:
        found += _of_task(task, [m for m in alive.values() if m.task == task.name], pods, now)
    found += _of_group(group, now)
    found.sort(
        key=lambda event: (event.since, _RANK[event.event], event.task, _index(pods, event.pod), event.pod)
    )
    return found


def _index(pods: Members, name: str) -> int:
    return pods[name].index if name in pods else -1


def _evictions(spec: JobSpec, state: JobState, pods: Members, now: float) -> list[JobEvent]:
    found = []
    for task, index in missing(spec, state, pods):
        name = spec.pod_name(task.name, index)
        if name not in state.timers:
            found.append(JobEvent(POD_EVICTED, now, task.name, name, _partition(task, index)))
    for name, since in state.timers.items():
        task, index = _position(spec, name)
        if task is not None:
            found.append(JobEvent(POD_EVICTED, since, task.name, name, _partition(task, index)))
    return found


def _position(spec: JobSpec, name: str) -> tuple[JobTask | None, int]:
    for task in spec.tasks:
        prefix = f"{spec.name}-{task.name}-"
        if name.startswith(prefix) and name.removeprefix(prefix).isdigit():
            return task, int(name.removeprefix(prefix))
    return None, -1


def _partition(task: JobTask, index: int) -> str:
    if task.partition is None:
        return ""
    return str(index // task.partition.size) if task.partition.size > 0 else "0"


def _of_task(task: JobTask, alive: list[Member], pods: Members, now: float) -> list[JobEvent]:
    found = []
    done = [m for m in pods.values() if m.task == task.name and m.phase == "Succeeded"]
    if task.replicas and len(done) >= task.replicas and any(m.phase == "Succeeded" for m in alive):
        found.append(
            JobEvent(TASK_COMPLETED, max((m.pod.ended for m in done), default=now) or now, task.name)
        )
    restarts = sum(m.pod.restarts for m in alive if m.phase in ("Running", "Pending"))
    if task.replicas and task.max_retry != -1 and restarts >= task.max_retry:
        found.append(JobEvent(TASK_FAILED, now, task.name))
    return found


def _of_group(group: Mapping[str, Any] | None, now: float) -> list[JobEvent]:
    status = (group or {}).get("status") or {}
    if status.get("phase") != "Unknown":
        return []
    times = [moment(c.get("lastTransitionTime")) for c in status.get("conditions") or ()]
    return [JobEvent(JOB_UNKNOWN, max(times, default=0.0) or now)]


def policy_actions(spec: JobSpec, found: Iterable[JobEvent]) -> list[PolicyAction]:
    """Return the actions of the policies on these events, in the order of the events."""
    result = []
    for event in found:
        task = spec.task(event.task) if event.task else None
        policy = _match(event, task.policies if task else ()) or _match(event, spec.policies)
        if policy is None or policy.action not in ACTIONS:
            continue
        policy_action = PolicyAction(
            JobTrigger(policy.action), event, event.since + (policy.delay_seconds or 0.0)
        )
        if policy_action.action in TARGETED and not target_of(policy_action):
            continue
        result.append(policy_action)
    return result


def _match(event: JobEvent, policies: Iterable[JobPolicy]) -> JobPolicy | None:
    for policy in policies:
        named = event.event in policy.events or ANY in policy.events
        if named and (event.event != POD_PENDING or policy.delay_seconds is not None):
            return policy
        if policy.exit_code is not None and event.exit_code and policy.exit_code == event.exit_code:
            return policy
    return None
