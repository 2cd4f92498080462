"""Which events the pods tell of, and what the job's policies answer.

Volcano works on edges (a pod *became* Failed); here events are read off the state, so that none is
lost with a process: a pod of the present version that is Failed *is* the event until it is replaced
or the job has left the phases in which policies are listened to. ``JobUpdated`` is declared by the
API but raised by nobody, neither there nor here.

The task's policies are asked before the job's; the first that matches answers. ``*`` matches every
event. An exit code is the first container's. ``PodPending`` needs a timeout.
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
"""Of events of the same second: an end in success explains the failures of those who lost their peer."""


@dataclass(frozen=True, slots=True)
class Happening:
    """An event. ``since`` is when it became so; ``task``/``pod``/``partition`` what it is about."""

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
            return f"pod {self.pod} was taken away"
        if self.event == POD_PENDING:
            return f"pod {self.pod} is still pending"
        if self.event == TASK_COMPLETED:
            return f"all pods of task {self.task} succeeded"
        if self.event == TASK_FAILED:
            return f"containers of task {self.task} were restarted too often"
        return "the gang runs only in part"


@dataclass(frozen=True, slots=True)
class PolicyAction:
    """What a policy does about an event, and when it is due (Unix seconds)."""

    action: JobTrigger
    happening: Happening
    due: float


def targeted(member: Member, targets: Iterable[str]) -> bool:
    """Whether a restart with these targets replaces the pod."""
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


def target_of(answer: PolicyAction) -> str:
    """The target of a partial restart, "" if the event is about nothing that could be restarted alone."""
    what = answer.happening
    if answer.action is JobTrigger.RESTART_POD:
        return f"pod/{what.pod}" if what.pod else ""
    if answer.action is JobTrigger.RESTART_TASK:
        return f"task/{what.task}" if what.task else ""
    return f"partition/{what.task}/{what.partition}" if what.task and what.partition else ""


def missing(spec: JobSpec, state: JobState, pods: Members) -> list[tuple[JobTask, int]]:
    """The pods that were there, are still wanted, and are gone."""
    return [
        (task, index)
        for task in spec.tasks
        for index in sorted(state.known.get(task.name, ()))
        if index < task.replicas and spec.pod_name(task.name, index) not in pods
    ]


def happenings(
    spec: JobSpec, state: JobState, pods: Members, group: Mapping[str, Any] | None, now: float
) -> list[Happening]:
    """Everything that policies could answer, the earliest first. Pods that are being replaced are silent."""
    alive = {
        name: member
        for name, member in pods.items()
        if member.version == state.version and not targeted(member, state.targets)
    }
    found = [
        Happening(
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
        Happening(POD_PENDING, member.pod.created or now, member.task, name, member.partition)
        for name, member in alive.items()
        if member.phase == "Pending" and not member.deleting
    ]
    for task in spec.tasks:
        found += _of_task(task, [m for m in alive.values() if m.task == task.name], pods, now)
    found += _of_group(group, now)
    found.sort(key=lambda what: (what.since, _RANK[what.event], what.task, _index(pods, what.pod), what.pod))
    return found


def _index(pods: Members, name: str) -> int:
    return pods[name].index if name in pods else -1


def _evictions(spec: JobSpec, state: JobState, pods: Members, now: float) -> list[Happening]:
    found = []
    for task, index in missing(spec, state, pods):
        name = spec.pod_name(task.name, index)
        if name not in state.timers:
            found.append(Happening(POD_EVICTED, now, task.name, name, _partition(task, index)))
    for name, since in state.timers.items():
        task, index = _place(spec, name)
        if task is not None:
            found.append(Happening(POD_EVICTED, since, task.name, name, _partition(task, index)))
    return found


def _place(spec: JobSpec, name: str) -> tuple[JobTask | None, int]:
    for task in spec.tasks:
        prefix = f"{spec.name}-{task.name}-"
        if name.startswith(prefix) and name.removeprefix(prefix).isdigit():
            return task, int(name.removeprefix(prefix))
    return None, -1


def _partition(task: JobTask, index: int) -> str:
    if task.partition is None:
        return ""
    return str(index // task.partition.size) if task.partition.size > 0 else "0"


def _of_task(task: JobTask, alive: list[Member], pods: Members, now: float) -> list[Happening]:
    found = []
    done = [m for m in pods.values() if m.task == task.name and m.phase == "Succeeded"]
    if task.replicas and len(done) >= task.replicas and any(m.phase == "Succeeded" for m in alive):
        found.append(
            Happening(TASK_COMPLETED, max((m.pod.ended for m in done), default=now) or now, task.name)
        )
    restarts = sum(m.pod.restarts for m in alive if m.phase in ("Running", "Pending"))
    if task.replicas and task.max_retry != -1 and restarts >= task.max_retry:
        found.append(Happening(TASK_FAILED, now, task.name))
    return found


def _of_group(group: Mapping[str, Any] | None, now: float) -> list[Happening]:
    status = (group or {}).get("status") or {}
    if status.get("phase") != "Unknown":
        return []
    times = [moment(c.get("lastTransitionTime")) for c in status.get("conditions") or ()]
    return [Happening(JOB_UNKNOWN, max(times, default=0.0) or now)]


def policy_actions(spec: JobSpec, found: Iterable[Happening]) -> list[PolicyAction]:
    """What the policies say to each event, in the order of the events."""
    result = []
    for what in found:
        task = spec.task(what.task) if what.task else None
        policy = _match(what, task.policies if task else ()) or _match(what, spec.policies)
        if policy is None or policy.action not in ACTIONS:
            continue
        answer = PolicyAction(JobTrigger(policy.action), what, what.since + (policy.delay_seconds or 0.0))
        if answer.action in TARGETED and not target_of(answer):
            continue
        result.append(answer)
    return result


def _match(what: Happening, policies: Iterable[JobPolicy]) -> JobPolicy | None:
    for policy in policies:
        named = what.event in policy.events or ANY in policy.events
        if named and (what.event != POD_PENDING or policy.delay_seconds is not None):
            return policy
        if policy.exit_code is not None and what.exit_code and policy.exit_code == what.exit_code:
            return policy
    return None
