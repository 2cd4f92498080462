"""Jobs as people see them: Volcano Jobs, pod groups, and pods that belong to neither.

A :class:`Job` gathers what one line of ``windlass ps`` needs from the objects: the job or group, its
pods, and the explanation record that the scheduler keeps while it waits. Nothing is judged here: every reason
shown is one that the scheduler, the controllers or the node agent wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.api import annotations as names
from windlass.api.errors import StatusError
from windlass.api.reasons import Explanation
from windlass.api.resources import (
    COSCHEDULING_POD_GROUPS,
    KAI_POD_GROUPS,
    POD_GROUPS,
    PODS,
    VOLCANO_JOBS,
    Resource,
)
from windlass.cli import amounts
from windlass.cli.invocation import Invocation
from windlass.cli.words import condition, created, moment

if TYPE_CHECKING:
    from windlass.client.blocking import BlockingClient

Object = dict[str, Any]

_OTHERS = {one.api_version: one for one in (KAI_POD_GROUPS, COSCHEDULING_POD_GROUPS)}
"""Groups of other APIs than Volcano's."""
_WITHOUT_PODS = {"Finished": "Completed", "Failed": "Failed"}
"""What a group of the coscheduling plug-in came to whose pods are gone."""
WAITING = ("Pending", "Inqueue")
FINISHED = ("Completed", "Failed", "Terminated", "Aborted", "Succeeded")
_ENDED_BY_OTHERS = (128 + 15, 128 + 9)


def _queue_of(obj: Object) -> str:
    """The queue that a Job or a PodGroup names, without the mark of a gang that was handed over."""
    named = (obj.get("spec") or {}).get("queue") or ""
    return named.removesuffix(names.ADOPTED_SUFFIX) or "default"


def _queue_said(obj: Object) -> str:
    """The queue that an object without a field for it names; ``""`` for none."""
    labels, notes = (obj["metadata"].get(kind) or {} for kind in ("labels", "annotations"))
    return (
        notes.get(names.QUEUE_NAME_VOLCANO)
        or labels.get(names.QUEUE_NAME_KAI)
        or labels.get(names.QUEUE_NAME_LABEL)
        or ""
    )


@dataclass(slots=True)
class Job:
    """``kind``: Job, PodGroup or Pod. ``state``: the word of the STATE column. ``seen``: when it was looked at, Unix
    seconds; 0: nobody knows."""

    kind: str
    obj: Object
    pods: list[Object] = field(default_factory=list)
    group: Object | None = None
    seen: float = 0.0

    @property
    def name(self) -> str:
        return self.obj["metadata"]["name"]

    @property
    def namespace(self) -> str:
        return self.obj["metadata"].get("namespace", "default")

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def resource(self) -> Resource:
        if self.kind == "PodGroup" and self.obj.get("apiVersion") in _OTHERS:
            return _OTHERS[self.obj["apiVersion"]]
        return {"Job": VOLCANO_JOBS, "PodGroup": POD_GROUPS, "Pod": PODS}[self.kind]

    @property
    def of_kai(self) -> bool:
        """Whether it is a PodGroup of KAI."""
        return self.resource is KAI_POD_GROUPS

    @property
    def queue(self) -> str:
        if self._speaker is not None:
            return _queue_said(self._speaker) or "default"
        return _queue_of(self.group if self.kind == "Pod" and self.group is not None else self.obj)

    @property
    def _speaker(self) -> Object | None:
        """What names the queue by a label or an annotation; ``None`` where an object has a field for it."""
        if self.kind == "Pod":
            return self.obj if self.group is None else None
        if self.resource is not COSCHEDULING_POD_GROUPS:
            return None
        return next(filter(_queue_said, (self.obj, *self.pods[:1])), self.obj)

    @property
    def names_kai_queue(self) -> bool:
        """Whether its queue is named in KAI's way: a queue of KAI is meant where there is one of that name."""
        if self.of_kai or self._speaker is None:
            return self.of_kai
        labels, notes = (self._speaker["metadata"].get(kind) or {} for kind in ("labels", "annotations"))
        return names.QUEUE_NAME_KAI in labels and names.QUEUE_NAME_VOLCANO not in notes

    @property
    def phase(self) -> str:
        """The object's own phase."""
        status = self.obj.get("status") or {}
        if self.resource is COSCHEDULING_POD_GROUPS and not self.pods:
            return _WITHOUT_PODS.get(status.get("phase") or "", "Pending")
        if self.resource in _OTHERS.values():  # they may have none, or one that somebody else keeps
            return _phase_of({pod_phase(pod) for pod in self.pods})
        if self.kind == "Job":
            return (status.get("state") or {}).get("phase") or "Pending"
        return status.get("phase") or "Pending"

    @property
    def state(self) -> str:
        phase = self.phase
        if self.obj["metadata"].get("deletionTimestamp"):
            return "Deleting"
        if phase in ("Succeeded",):
            return "Completed"
        if phase == "Inqueue":
            phase = "Pending"
        if phase == "Pending" and self.bound and self.explanation is None:
            return "Starting"
        if phase == "Running" and self.kind != "PodGroup" and not self.any_running and self.bound:
            return "Starting"
        return phase

    @property
    def waiting(self) -> bool:
        return self.state == "Pending"

    @property
    def finished(self) -> bool:
        return self.phase in FINISHED

    @property
    def bound(self) -> int:
        """Pods that have a node."""
        return sum(1 for pod in self.pods if (pod.get("spec") or {}).get("nodeName"))

    @property
    def any_running(self) -> bool:
        return any(pod_phase(pod) not in ("Pending", "") for pod in self.pods) or not self.pods

    @property
    def request(self) -> amounts.Vector:
        if self.kind == "Job":
            return amounts.job_request(self.obj)
        if self.kind == "Pod":
            return amounts.of_pod(self.obj)
        if self.pods:
            return amounts.total(amounts.of_pod(pod) for pod in self.pods)
        return amounts.vector((self.obj.get("spec") or {}).get("minResources"))

    @property
    def gpus(self) -> str:
        """Its GPUs in few words, parts of cards among them: ``8``, ``0.5``, ``4×10Gi``, ``1g.10gb``; ``-`` for none."""
        if self.kind == "Job":
            tasks = (self.obj.get("spec") or {}).get("tasks") or ()
            shown = amounts.asked_text((t.get("template") or {}, int(t.get("replicas", 1))) for t in tasks)
            return amounts.asked_text((pod, 1) for pod in self.pods) if shown == "-" else shown
        if self.kind == "PodGroup" and not self.pods:
            return amounts.gpu_text(self.request)
        return amounts.asked_text((pod, 1) for pod in ([self.obj] if self.kind == "Pod" else self.pods))

    @property
    def parts(self) -> str:
        """What its pods ask of cards in parts, in words; empty for one that asks for none."""
        pods = [self.obj] if self.kind == "Pod" else self.pods
        return "; ".join(dict.fromkeys(filter(None, map(amounts.parts_text, pods))))

    @property
    def claims(self) -> str:
        """The device claims of its pods, in words; empty for none."""
        named = dict.fromkeys(
            str(claim.get("name"))
            for pod in ([self.obj] if self.kind == "Pod" else self.pods)
            for claim in (pod.get("spec") or {}).get("resourceClaims") or ()
        )
        return f"claim{'s' if len(named) > 1 else ''} {', '.join(named)}" if named else ""

    @property
    def members(self) -> int:
        """How many pods it is meant to have."""
        spec = self.obj.get("spec") or {}
        if self.kind == "Job":
            return sum(int(task.get("replicas", 1)) for task in spec.get("tasks") or ())
        return max(len(self.pods), int(spec.get("minMember") or 1)) if self.kind == "PodGroup" else 1

    @property
    def nodes(self) -> dict[str, int]:
        """Node → pods of this job on it, of those that are not finished; of all once the job is."""
        counts: dict[str, int] = {}
        for pod in self.pods:
            node = (pod.get("spec") or {}).get("nodeName")
            if node and (self.finished or pod_phase(pod) not in ("Succeeded", "Failed")):
                counts[node] = counts.get(node, 0) + 1
        return counts

    @property
    def explanation(self) -> Explanation | None:
        """Why it waits, as the scheduler recorded it, as of now; ``None`` when nothing is recorded."""
        for obj in (self.group, self.obj, *self.pods):
            text = ((obj or {}).get("metadata", {}).get("annotations") or {}).get(names.EXPLANATION)
            if text:
                try:
                    return Explanation.from_dict(msgspec.json.decode(text)).as_of(self.seen)
                except (msgspec.DecodeError, ValueError, KeyError, TypeError):
                    continue
        return None

    @property
    def condition_message(self) -> str:
        """What a condition says about why it waits, for want of a record."""
        for obj in (self.group, *self.pods, self.obj):
            for kind, status in (("Unschedulable", "True"), ("PodScheduled", "False")):
                found = condition(obj or {}, kind)
                if found is not None and found.get("status") == status:
                    return str(found.get("message") or found.get("reason") or "")
        return ""

    @property
    def gates(self) -> list[str]:
        """What holds its pods back before any scheduler may look at them."""
        found = (gate["name"] for pod in self.pods for gate in pod["spec"].get("schedulingGates") or ())
        return list(dict.fromkeys(found))

    @property
    def scheduler(self) -> str:
        """Who places its pods, where that is another one than Windlass; else empty."""
        return ", ".join(sorted(self._schedulers - {*names.SCHEDULER_NAMES, ""}))

    @property
    def asked(self) -> str:
        """Whom its pods ask by another name than Windlass' own, which may serve that name too; else empty."""
        return ", ".join(sorted(self._schedulers - {names.SCHEDULER_NAMES[0], ""}))

    @property
    def _schedulers(self) -> set[str]:
        return {str(pod["spec"].get("schedulerName") or "") for pod in self.pods}

    @property
    def placeholder(self) -> bool:
        """Whether a container runs a placeholder because nothing said what to run."""
        return any(names.PLACEHOLDER in (pod["metadata"].get("annotations") or {}) for pod in self.pods)

    @property
    def created(self) -> float:
        return created(self.obj)

    @property
    def finished_at(self) -> float:
        """Unix seconds of the end; 0 while it goes on or when it cannot be told."""
        if not self.finished:
            return 0.0
        status = self.obj.get("status") or {}
        ends = [moment((status.get("state") or {}).get("lastTransitionTime"))]
        ends += [
            moment(end.get("finishedAt"))
            for pod in self.pods
            for end in _terminations(pod)
            if self.kind != "Job"
        ]
        return max(ends, default=0.0)

    @property
    def exit_code(self) -> int | None:
        """The job's exit status: 0 when completed; else that of the pod that failed first."""
        if not self.finished:
            return None
        if self.phase in ("Completed", "Succeeded"):
            return 0
        failed = self.first_failure
        return failed[1] if failed is not None else 1

    @property
    def first_failure(self) -> tuple[Object, int] | None:
        """The pod that failed first, and its exit status (128 + signal for a signal).

        A rank that was terminated or killed comes after those that ended by themselves: when one rank
        fails, its job ends the others.
        """
        ends: list[tuple[bool, float, str, Object, int]] = []
        for pod in self.pods:
            for end in _terminations(pod):
                code = int(end.get("exitCode") or 0)
                if code:
                    when, name = moment(end.get("finishedAt")), pod["metadata"]["name"]
                    ends.append((code in _ENDED_BY_OTHERS, when, name, pod, code))
        if not ends:
            return None
        *_, pod, code = min(ends, key=lambda end: end[:3])
        return pod, code


def _phase_of(phases: set[str]) -> str:
    """The phase of a group that keeps none, by the phases of its pods."""
    if phases and phases <= {"Succeeded", "Failed"}:
        return "Failed" if "Failed" in phases else "Completed"
    return "Running" if phases & {"Running", "Succeeded", "Failed"} else "Pending"


def unready(job: Job) -> list[tuple[Object, Object]]:
    """The pods that run without being ready, each with its condition Ready; not those that are on their way out."""
    found = []
    for pod in job.pods:
        if pod_phase(pod) != "Running" or pod["metadata"].get("deletionTimestamp"):
            continue
        conditions = (pod.get("status") or {}).get("conditions") or ()
        ready = next((one for one in conditions if one.get("type") == "Ready"), None)
        if ready is not None and ready.get("status") == "False":
            found.append((pod, ready))
    return found


def pod_phase(pod: Mapping[str, Any]) -> str:
    return (pod.get("status") or {}).get("phase") or "Pending"


def _terminations(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = []
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = (status.get("state") or {}).get("terminated")
        if ended:
            found.append(ended)
    return found


def cause_of(pod: Mapping[str, Any], code: int) -> str:
    """Why the pod was ended with this exit status, where that was not its own doing, in Kubernetes' word:
    ``DeadlineExceeded``, ``Evicted``, ``OOMKilled``."""
    if reason := (pod.get("status") or {}).get("reason"):
        return str(reason)
    ends = {int(end.get("exitCode") or 0): end.get("reason") for end in _terminations(pod)}
    return "OOMKilled" if ends.get(code) == "OOMKilled" else ""


def rank_of(pod: Mapping[str, Any]) -> str:
    """``0`` for the first pod of ``windlass run`` (task ``main``); else ``worker-1``; else the pod's name."""
    metadata = pod["metadata"]
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    index = labels.get(names.TASK_INDEX) or notes.get(names.TASK_INDEX)
    task = labels.get(names.TASK_SPEC) or notes.get(names.TASK_SPEC)
    if index is None:
        return str(metadata["name"])
    return f"{task}-{index}" if task and task != "main" else str(index)


def rank_words(pod: Mapping[str, Any]) -> str:
    """The rank in a sentence: ``rank 3``, or ``worker-3``."""
    rank = rank_of(pod)
    return f"rank {rank}" if rank.isdigit() else rank


# Gathering.


def fetch(invocation: Invocation, namespace: str | None) -> list[Job]:
    """All jobs of a namespace (``None``: of all)."""
    client = invocation.client
    found = assemble(
        client.list(VOLCANO_JOBS, namespace).items,
        [*client.list(POD_GROUPS, namespace).items, *_other_groups(client, namespace)],
        client.list(PODS, namespace).items,
    )
    now = invocation.clock.now()
    for job in found:
        job.seen = now
    return found


def _other_groups(client: BlockingClient, namespace: str | None) -> list[Object]:
    """Groups of other APIs than Volcano's; none of a kind that the cluster does not know, or this user may not see."""
    found: list[Object] = []
    for resource in _OTHERS.values():
        try:
            items = client.list(resource, namespace).items
        except StatusError as error:
            if error.code not in (403, 404):
                raise
            continue
        found += [{"apiVersion": resource.api_version, "kind": resource.kind, **item} for item in items]
    return found


def assemble(jobs: Iterable[Object], groups: Iterable[Object], pods: Iterable[Object]) -> list[Job]:
    """Pods to their job or group; groups to their job or pod."""
    by_job = {_key(job): Job("Job", job) for job in jobs}
    by_group: dict[tuple[str, str, str], Job] = {}
    loose: list[Object] = []
    pod_groups: dict[str, Object] = {}
    for group in groups:
        owner = _owner(group)
        if owner.get("kind") == "Job" and _space_key(group, owner["name"]) in by_job:
            by_job[_space_key(group, owner["name"])].group = group
        elif owner.get("kind") == "Pod":
            pod_groups[str(owner.get("uid"))] = group
        else:
            job = Job("PodGroup", group, group=group)
            by_group[_group_key(job)] = job
    for pod in pods:
        job = _home(pod, by_job, by_group)
        if job is None:
            loose.append(pod)
        else:
            job.pods.append(pod)
    singles = [Job("Pod", pod, [pod], pod_groups.get(str(pod["metadata"].get("uid")))) for pod in loose]
    return [*by_job.values(), *by_group.values(), *singles]


def _home(
    pod: Object, jobs: Mapping[tuple[str, str], Job], groups: Mapping[tuple[str, str, str], Job]
) -> Job | None:
    metadata = pod["metadata"]
    notes, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    name = labels.get(names.JOB_NAME) or notes.get(names.JOB_NAME)
    if name and _space_key(pod, name) in jobs:
        return jobs[_space_key(pod, name)]
    for resource, group in (
        (KAI_POD_GROUPS, notes.get(names.GROUP_NAME_KAI)),
        (POD_GROUPS, notes.get(names.GROUP_NAME) or notes.get(names.GROUP_NAME_VOLCANO)),
        (COSCHEDULING_POD_GROUPS, labels.get(names.GROUP_NAME_COSCHEDULING)),
    ):
        if group and (found := groups.get((resource.group, *_space_key(pod, group)))) is not None:
            return found
    return None


def _group_key(job: Job) -> tuple[str, str, str]:
    """Groups of several APIs may have one name."""
    return (job.resource.group, *_key(job.obj))


def _key(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _space_key(obj: Object, name: str) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), name


def _owner(obj: Object) -> Mapping[str, Any]:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return owner
    owners: Sequence[Mapping[str, Any]] = obj["metadata"].get("ownerReferences") or ()
    return owners[0] if owners else {}


def find(invocation: Invocation, name: str) -> Job:
    """The job that a person means by ``name``, ``job/name``, ``pod/name`` or ``namespace/name``.

    Raises :class:`WindlassError` (``WL-JOB-404``) with the nearest names.
    """
    from windlass.cli.failures import missing

    kind, slash, rest = name.partition("/")
    wanted, space = (rest if slash else name), invocation.home_namespace
    kinds = _KIND_WORDS.get(kind.lower(), ()) if slash else ("Job", "PodGroup", "Pod")
    if slash and not kinds:
        space, kinds = kind, ("Job", "PodGroup", "Pod")
    client = invocation.client
    if "Job" in kinds:
        job = client.find(VOLCANO_JOBS, wanted, space)
        if job is not None:
            return _with_members(invocation, Job("Job", job))
    if "PodGroup" in kinds:
        group = client.find(POD_GROUPS, wanted, space) or _other_group(client, wanted, space)
        if group is not None:
            return _with_members(invocation, Job("PodGroup", group, group=group))
    if "Pod" in kinds:
        pod = client.find(PODS, wanted, space)
        if pod is not None:
            return _alone(invocation, pod)
    known = [job.name for job in fetch(invocation, space)]
    raise missing("jobs", wanted, known)


_KIND_WORDS = {
    "job": ("Job",),
    "jobs": ("Job",),
    "vcjob": ("Job",),
    "vj": ("Job",),
    "job.batch.volcano.sh": ("Job",),
    "podgroup": ("PodGroup",),
    "podgroups": ("PodGroup",),
    "pg": ("PodGroup",),
    "pod": ("Pod",),
    "pods": ("Pod",),
    "po": ("Pod",),
}


def _alone(invocation: Invocation, pod: Object) -> Job:
    return Job("Pod", pod, [pod], _group_of_pod(invocation, pod), invocation.clock.now())


def _with_members(invocation: Invocation, job: Job) -> Job:
    client = invocation.client
    job.seen = invocation.clock.now()
    if job.kind == "Job":
        job.pods = client.list(PODS, job.namespace, labels=f"{names.JOB_NAME}={job.name}").items
        uid = job.obj["metadata"].get("uid")
        job.group = client.find(POD_GROUPS, f"{job.name}-{uid}", job.namespace)
        return job
    pods = client.list(PODS, job.namespace).items
    job.pods = [pod for pod in pods if _home(pod, {}, {_group_key(job): job}) is job]
    return job


def _other_group(client: BlockingClient, name: str, namespace: str | None) -> Object | None:
    for resource in _OTHERS.values():
        try:
            found = client.find(resource, name, namespace)
        except StatusError as error:
            if error.code not in (403, 404):  # 404: the kind itself is not served
                raise
            continue
        if found is not None:
            return found
    return None


def _group_of_pod(invocation: Invocation, pod: Object) -> Object | None:
    notes = pod["metadata"].get("annotations") or {}
    name = notes.get(names.GROUP_NAME) or notes.get(names.GROUP_NAME_VOLCANO)
    return invocation.client.find(POD_GROUPS, name, pod["metadata"].get("namespace")) if name else None


def refresh(invocation: Invocation, job: Job) -> Job | None:
    """The job as it is now; ``None`` once it is gone."""
    obj = invocation.client.find(job.resource, job.name, job.namespace)
    if obj is None or obj["metadata"].get("uid") != job.obj["metadata"].get("uid"):
        return None
    if job.kind == "Pod":
        return _alone(invocation, obj)
    return _with_members(invocation, Job(job.kind, obj, group=obj if job.kind == "PodGroup" else None))
