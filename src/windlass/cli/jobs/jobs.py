"""Jobs as people see them: Volcano Jobs, pod groups, and pods that belong to neither.

A :class:`Job` gathers what one line of ``windlass ps`` needs from the objects: the job or group, its
pods, and the explanation record that the scheduler keeps while it waits. Nothing is judged here: every reason
shown is one that the scheduler, the controllers or the node agent wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.reasons import Explanation
from windlass.api.resources import (
    COSCHEDULING_POD_GROUPS,
    KAI_POD_GROUPS,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    VOLCANO_JOBS,
    Resource,
)
from windlass.cli import resources
from windlass.cli.text import condition, created, timestamp
from windlass.cli.ungrouped_gangs import GANG

Object = dict[str, Any]

OTHER_GROUPS = {one.api_version: one for one in (KAI_POD_GROUPS, NATIVE_POD_GROUPS, COSCHEDULING_POD_GROUPS)}
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
    """``kind``: Job, PodGroup, Pod, or Gang: one without an object, for which ``obj`` stands. ``state``: the word of
    the STATE column. ``seen``: when it was looked at, Unix seconds; 0: nobody knows."""

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
        if self.kind == "PodGroup" and self.obj.get("apiVersion") in OTHER_GROUPS:
            return OTHER_GROUPS[self.obj["apiVersion"]]
        return {"Job": VOLCANO_JOBS, "PodGroup": POD_GROUPS, "Pod": PODS, GANG: PODS}[self.kind]

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
        if self.kind != GANG and self.resource not in (NATIVE_POD_GROUPS, COSCHEDULING_POD_GROUPS):
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
        if (
            self.kind == GANG or self.resource in OTHER_GROUPS.values()
        ):  # they may have none, or one that somebody else keeps
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
        if phase == "Running" and self.kind in ("Job", "Pod") and not self.any_running and self.bound:
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
    def request(self) -> resources.Vector:
        if self.kind == "Job":
            return resources.job_request(self.obj)
        if self.kind == "Pod":
            return resources.effective_request(self.obj)
        if self.pods:
            return resources.total(resources.effective_request(pod) for pod in self.pods)
        return resources.vector((self.obj.get("spec") or {}).get("minResources"))

    @property
    def gpus(self) -> str:
        """Its GPUs in few words, parts of cards among them: ``8``, ``0.5``, ``4×10Gi``, ``1g.10gb``; ``-`` for none."""
        if self.kind == "Job":
            tasks = (self.obj.get("spec") or {}).get("tasks") or ()
            shown = resources.request_text(
                (t.get("template") or {}, int(t.get("replicas", 1))) for t in tasks
            )
            return resources.request_text((pod, 1) for pod in self.pods) if shown == "-" else shown
        if self.kind == "PodGroup" and not self.pods:
            return resources.gpu_text(self.request)
        return resources.request_text((pod, 1) for pod in ([self.obj] if self.kind == "Pod" else self.pods))

    @property
    def parts(self) -> str:
        """What its pods ask of cards in parts, in words; empty for one that asks for none."""
        pods = [self.obj] if self.kind == "Pod" else self.pods
        return "; ".join(dict.fromkeys(filter(None, map(resources.shares_text, pods))))

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
        if self.kind == "Pod":
            return 1
        gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}  # of Kubernetes' own
        return max(len(self.pods), int(spec.get("minMember") or gang.get("minCount") or 1))

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
        ends = [timestamp((status.get("state") or {}).get("lastTransitionTime"))]
        ends += [
            timestamp(end.get("finishedAt"))
            for pod in self.pods
            for end in _terminations(pod)
            if self.kind != "Job"
        ]
        return max(ends, default=0.0)

    @property
    def exit_code(self) -> int | None:
        """The job's exit status: 0 when completed; else that of the pod that failed first, and 1 where that was 0."""
        if not self.finished:
            return None
        if self.phase in ("Completed", "Succeeded"):
            return 0
        failed = self.first_failure
        return (failed[1] or 1) if failed is not None else 1

    @property
    def first_failure(self) -> tuple[Object, int] | None:
        """The pod that failed first, and its exit status (128 + signal for a signal).

        A rank that was terminated or killed comes after those that ended by themselves: when one rank
        fails, its job ends the others. Last come pods that failed although they ended with 0: who is told to end
        (by a time limit, say), saves what it has and leaves in peace.
        """
        ends: list[tuple[bool, bool, float, str, Object, int]] = []
        for pod in self.pods:
            for end in _terminations(pod):
                code = int(end.get("exitCode") or 0)
                if code or pod_phase(pod) == "Failed":
                    when, name = timestamp(end.get("finishedAt")), pod["metadata"]["name"]
                    ends.append((not code, code in _ENDED_BY_OTHERS, when, name, pod, code))
        if not ends:
            return None
        *_, pod, code = min(ends, key=lambda end: end[:4])
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
    task = task_of(pod)
    if index is None:
        return str(metadata["name"])
    return f"{task}-{index}" if task and task != "main" else str(index)


def task_of(pod: Mapping[str, Any]) -> str:
    """The task of its job that it is a rank of; empty for none."""
    metadata = pod["metadata"]
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return str(labels.get(names.TASK_SPEC) or notes.get(names.TASK_SPEC) or "")


def rank_text(pod: Mapping[str, Any]) -> str:
    """The rank in a sentence: ``rank 3``, or ``worker-3``."""
    rank = rank_of(pod)
    return f"rank {rank}" if rank.isdigit() else rank
