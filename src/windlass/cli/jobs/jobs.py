"""Jobs for people: Volcano Jobs, pod groups, and pods that belong to neither.

A :class:`Job` gathers what one line of ``windlass ps`` needs: the job or group, its
pods, and the explanation that the scheduler records while it waits. The reasons shown
are those of the scheduler, the controllers or the node agent; none is derived here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.fields.aigc import SHARD
from windlass.api.fields.kubeflow import REPLICA_INDEX
from windlass.api.reasons import Explanation
from windlass.api.resources import (
    COSCHEDULING_POD_GROUPS,
    KAI_POD_GROUPS,
    NATIVE_POD_GROUPS,
    POD_GROUPS,
    PODS,
    Resource,
)
from windlass.cli import resources
from windlass.cli.jobs.kinds.job_kind import JobKind
from windlass.cli.jobs.kinds.job_kinds import JOB_KINDS
from windlass.cli.jobs.kinds.queue_names import queue_named
from windlass.cli.jobs.kinds.workload_kinds import IDLE
from windlass.cli.text import condition, created, timestamp
from windlass.cli.ungrouped_gangs import GANG
from windlass.jobs.aigc.volumes import CONDITION as VOLUMES_READY

Object = dict[str, Any]

OTHER_GROUPS = {one.api_version: one for one in (KAI_POD_GROUPS, NATIVE_POD_GROUPS, COSCHEDULING_POD_GROUPS)}
"""Kinds of groups of other APIs than Volcano's, by API version."""
_WITHOUT_PODS = {"Finished": "Completed", "Failed": "Failed"}
"""Result of a coscheduling group without pods, by its phase."""
WAITING = ("Pending", "Inqueue")
FINISHED = ("Completed", "Failed", "Terminated", "Aborted", "Succeeded")
_POD_INDEX = "apps.kubernetes.io/pod-index"
"""Label of a StatefulSet's pod with its ordinal."""
_KILLED = (128 + 15, 128 + 9)


def _queue_of(obj: Object) -> str:
    """Return the queue of a Job or a PodGroup, without the suffix of an adopted gang."""
    named = (obj.get("spec") or {}).get("queue") or ""
    return named.removesuffix(names.ADOPTED_SUFFIX) or "default"


def _labelled_queue(obj: Object) -> str:
    """Return the queue by labels and annotations; ``""`` for none.

    This is for objects without a field for the queue.
    """
    return queue_named(obj["metadata"])


@dataclass(slots=True)
class Job:
    """One job.

    ``kind``: one of ``JOB_KINDS``, PodGroup, Pod, or Gang (which has no object; ``obj``
    represents it).
    ``state``: the STATE column. ``seen``: time of the last refresh in Unix seconds; 0
    if unknown.
    """

    kind: str
    obj: Object
    pods: list[Object] = field(default_factory=list)
    group: Object | None = None
    seen: float = 0.0
    creation_error: str = ""
    """Error on creation of objects of the job; empty if they exist or no reason is known."""
    refused: str = ""
    """Failure of a task of a workflow after its program succeeded; else empty."""

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
        if self.definition is not None:
            return self.definition.resource
        return {"PodGroup": POD_GROUPS, "Pod": PODS, GANG: PODS}[self.kind]

    @property
    def definition(self) -> JobKind | None:
        """Kind of the job's object; ``None`` for groups and pods, which are no jobs by themselves."""
        return JOB_KINDS.get(self.kind)

    @property
    def of_kai(self) -> bool:
        """Return whether it is a PodGroup of KAI."""
        return self.resource is KAI_POD_GROUPS

    @property
    def queue(self) -> str:
        if self._queue_source is not None:
            return _labelled_queue(self._queue_source) or "default"
        if self.definition is not None:
            named = self.definition.queue(self.obj) or (_labelled_queue(self.pods[0]) if self.pods else "")
            return named.removesuffix(names.ADOPTED_SUFFIX) or "default"
        return _queue_of(self.group if self.kind == "Pod" and self.group is not None else self.obj)

    @property
    def _queue_source(self) -> Object | None:
        """Object that names the queue by a label or an annotation.

        ``None`` if an object has a field for it.
        """
        if self.kind == "Pod":
            return self.obj if self.group is None else None
        if self.kind != GANG and self.resource not in (NATIVE_POD_GROUPS, COSCHEDULING_POD_GROUPS):
            return None
        return next(filter(_labelled_queue, (self.obj, *self.pods[:1])), self.obj)

    @property
    def names_kai_queue(self) -> bool:
        """Return whether its queue is named in KAI's way.

        Then a queue of KAI is meant, if one of that name exists.
        """
        if self.of_kai or self._queue_source is None:
            return self.of_kai
        labels, annotations = (
            self._queue_source["metadata"].get(kind) or {} for kind in ("labels", "annotations")
        )
        return names.QUEUE_NAME_KAI in labels and names.QUEUE_NAME_VOLCANO not in annotations

    @property
    def phase(self) -> str:
        """Phase of the object."""
        if self.refused:
            return "Failed"
        status = self.obj.get("status") or {}
        if self.resource is COSCHEDULING_POD_GROUPS and not self.pods:
            return _WITHOUT_PODS.get(status.get("phase") or "", "Pending")
        if (
            self.kind == GANG or self.resource in OTHER_GROUPS.values()
        ):  # no phase, or one that another scheduler maintains
            return _phase_of({pod_phase(pod) for pod in self.pods})
        if self.definition is not None:
            return self.definition.phase(self.obj)
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
        is_group = self.definition is None and self.kind != "Pod"
        if phase == "Running" and not is_group and not self.any_running and self.bound:
            return "Starting"
        return phase

    @property
    def waiting(self) -> bool:
        return self.state == "Pending"

    @property
    def finished(self) -> bool:
        return self.phase in FINISHED

    @property
    def idle(self) -> bool:
        """Return whether it is a workload that should have no pods now."""
        return self.phase == IDLE

    @property
    def bound(self) -> int:
        """Number of pods that have a node."""
        return sum(1 for pod in self.pods if (pod.get("spec") or {}).get("nodeName"))

    @property
    def any_running(self) -> bool:
        return any(pod_phase(pod) not in ("Pending", "") for pod in self.pods) or not self.pods

    @property
    def request(self) -> resources.Vector:
        if self.definition is not None:
            roles = (role for role in self.definition.roles(self.obj) if not role.reserved)
            return resources.total_of((role.template, role.replicas) for role in roles)
        if self.kind == "Pod":
            return resources.effective_request(self.obj)
        if self.pods:
            return resources.total(resources.effective_request(pod) for pod in self.pods)
        return resources.vector((self.obj.get("spec") or {}).get("minResources"))

    @property
    def gpus(self) -> str:
        """GPUS column: ``8``, ``0.5``, ``4×10Gi``, ``1g.10gb``; ``-`` for none."""
        if self.definition is not None:
            roles = self.definition.roles(self.obj)
            shown = resources.request_text((one.template, one.replicas) for one in roles if not one.reserved)
            if shown != "-" or any(role.reserved for role in roles):
                return shown
            return resources.request_text((pod, 1) for pod in self.pods)
        if self.kind == "PodGroup" and not self.pods:
            return resources.gpu_text(self.request)
        return resources.request_text((pod, 1) for pod in ([self.obj] if self.kind == "Pod" else self.pods))

    @property
    def shares(self) -> str:
        """Device shares that its pods request; empty if there are none."""
        pods = [self.obj] if self.kind == "Pod" else self.pods
        return "; ".join(dict.fromkeys(filter(None, map(resources.shares_text, pods))))

    @property
    def claims(self) -> str:
        """Resource claims of its pods; empty if there are none."""
        named = dict.fromkeys(
            str(claim.get("name"))
            for pod in ([self.obj] if self.kind == "Pod" else self.pods)
            for claim in (pod.get("spec") or {}).get("resourceClaims") or ()
        )
        return f"claim{'s' if len(named) > 1 else ''} {', '.join(named)}" if named else ""

    @property
    def members(self) -> int:
        """Desired number of pods."""
        spec = self.obj.get("spec") or {}
        if self.definition is not None:
            return sum(role.replicas for role in self.definition.roles(self.obj))
        if self.kind == "Pod":
            return 1
        gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}  # Kubernetes' own PodGroup
        return max(len(self.pods), int(spec.get("minMember") or gang.get("minCount") or 1))

    @property
    def desired_pods(self) -> int:
        """Desired number of pods with those that are no part of the gang, such as the driver of an AIGCJob."""
        return self.members + (self.definition.drivers if self.definition is not None else 0)

    @property
    def nodes(self) -> dict[str, int]:
        """Node → number of its unfinished pods; of all pods if the job is finished."""
        counts: dict[str, int] = {}
        for pod in self.pods:
            node = (pod.get("spec") or {}).get("nodeName")
            if node and (self.finished or pod_phase(pod) not in ("Succeeded", "Failed")):
                counts[node] = counts.get(node, 0) + 1
        return counts

    @property
    def explanation(self) -> Explanation | None:
        """Current explanation of why it waits; ``None`` if none is recorded."""
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
        """Message of the condition that says why it waits, if there is no explanation.

        An AIGCJob that lacks claims or ConfigMaps has no PodGroup: the first of them is named.
        """
        for obj in (self.group, *self.pods, self.obj):
            for kind, status in (("Unschedulable", "True"), ("PodScheduled", "False")):
                current = condition(obj or {}, kind)
                if current is not None and current.get("status") == status:
                    return str(current.get("message") or current.get("reason") or "")
        volumes = condition(self.obj, VOLUMES_READY) or {}
        lacking = volumes.get("status") == "False" and self.group is None
        return str(volumes.get("message") or "").partition(". ")[0] if lacking else ""

    @property
    def gates(self) -> list[str]:
        """Scheduling gates of its pods."""
        gates = (gate["name"] for pod in self.pods for gate in pod["spec"].get("schedulingGates") or ())
        return list(dict.fromkeys(gates))

    @property
    def scheduler(self) -> str:
        """Name of the scheduler of its pods; empty if that is Windlass."""
        return ", ".join(sorted(self._schedulers - {*names.SCHEDULER_NAMES, ""}))

    @property
    def scheduler_name(self) -> str:
        """Scheduler name of its pods, if it is not ``windlass``; else empty.

        Windlass may serve that name, too.
        """
        return ", ".join(sorted(self._schedulers - {names.SCHEDULER_NAMES[0], ""}))

    @property
    def _schedulers(self) -> set[str]:
        return {str(pod["spec"].get("schedulerName") or "") for pod in self.pods}

    @property
    def placeholder(self) -> bool:
        """Return whether a container runs a placeholder, as no command is known."""
        return any(names.PLACEHOLDER in (pod["metadata"].get("annotations") or {}) for pod in self.pods)

    @property
    def created(self) -> float:
        return created(self.obj)

    @property
    def queued_since(self) -> float:
        """Creation in Unix seconds, or earlier if it was created again after an eviction."""
        text = (self.obj["metadata"].get("annotations") or {}).get(names.QUEUED_SINCE)
        earlier = timestamp(text) if text and self.kind == "Pod" else 0.0
        return earlier if 0.0 < earlier < self.created else self.created

    @property
    def finished_at(self) -> float:
        """End in Unix seconds; 0 while it runs and if it is unknown."""
        if not self.finished:
            return 0.0
        if self.definition is not None:
            return self.definition.ended(self.obj)
        ends = [timestamp(end.get("finishedAt")) for pod in self.pods for end in _terminations(pod)]
        return max(ends, default=0.0)

    @property
    def exit_code(self) -> int | None:
        """Exit status: 0 when completed, else that of the first failed pod (at least 1)."""
        if not self.finished:
            return None
        if self.phase in ("Completed", "Succeeded"):
            return 0
        failed = self.first_failure
        return (failed[1] or 1) if failed is not None else 1

    @property
    def succeeded(self) -> int:
        """Number of pods that succeeded, as reported by the Job, else as far as its pods exist."""
        reported = self.definition.succeeded(self.obj) if self.definition is not None else 0
        return max(reported, sum(1 for pod in self.pods if pod_phase(pod) == "Succeeded"))

    @property
    def first_failure(self) -> tuple[Object, int] | None:
        """The pod that failed first, and its exit status (128 + signal for a signal).

        Ranks that were terminated or killed come after those that ended by themselves,
        as one failed rank ends the others. Last come failed pods with status 0: a
        program may end regularly on SIGTERM, for example at its time limit.
        """
        ends: list[tuple[bool, bool, float, str, Object, int]] = []
        for pod in self.pods:
            for end in _terminations(pod):
                code = int(end.get("exitCode") or 0)
                if code or pod_phase(pod) == "Failed":
                    when, name = timestamp(end.get("finishedAt")), pod["metadata"]["name"]
                    ends.append((not code, code in _KILLED, when, name, pod, code))
        if not ends:
            return None
        *_, pod, code = min(ends, key=lambda end: end[:4])
        return pod, code


def _phase_of(phases: set[str]) -> str:
    """Return the phase of a group without one, by the phases of its pods."""
    if phases and phases <= {"Succeeded", "Failed"}:
        return "Failed" if "Failed" in phases else "Completed"
    return "Running" if phases & {"Running", "Succeeded", "Failed"} else "Pending"


def unready(job: Job) -> list[tuple[Object, Object]]:
    """Return the pods that run without being ready, each with its condition Ready.

    Terminating pods are omitted.
    """
    pods = []
    for pod in job.pods:
        if pod_phase(pod) != "Running" or pod["metadata"].get("deletionTimestamp"):
            continue
        conditions = (pod.get("status") or {}).get("conditions") or ()
        ready = next((item for item in conditions if item.get("type") == "Ready"), None)
        if ready is not None and ready.get("status") == "False":
            pods.append((pod, ready))
    return pods


def pod_phase(pod: Mapping[str, Any]) -> str:
    return (pod.get("status") or {}).get("phase") or "Pending"


def _terminations(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return how the pod's containers ended.

    Init containers count if one of them failed before any other container began.
    """
    status = pod.get("status") or {}
    ends = [_terminated(container) for container in status.get("containerStatuses") or ()]
    if not any(ends) and pod_phase(pod) == "Failed":
        ends = [_terminated(container) for container in status.get("initContainerStatuses") or ()]
        ends = [end for end in ends if end and end.get("exitCode")]
    return [end for end in ends if end]


def _terminated(status: Mapping[str, Any]) -> Mapping[str, Any]:
    return (status.get("state") or {}).get("terminated") or {}


UNKNOWN_END = "ContainerStatusUnknown"
_START_ERRORS = ("StartError", "ContainerCannotRun", "RunContainerError")
_CAUSES = ("OOMKilled", UNKNOWN_END, *_START_ERRORS)


def cause_of(pod: Mapping[str, Any], code: int) -> str:
    """Return why the pod ended, if not by itself, in Kubernetes' word; else empty.

    Examples: ``DeadlineExceeded``, ``Evicted``, ``OOMKilled``, ``StartError``.
    """
    if reason := (pod.get("status") or {}).get("reason"):
        return str(reason)
    return _own_cause(pod, code)


def _own_cause(pod: Mapping[str, Any], code: int) -> str:
    reasons = [end.get("reason") for end in _terminations(pod) if int(end.get("exitCode") or 0) == code]
    return str(reasons[0]) if reasons and reasons[0] in _CAUSES else ""


def end_message(pod: Mapping[str, Any], code: int) -> str:
    """Return the message of a container that was not started or got lost; else empty."""
    if _own_cause(pod, code) not in (UNKNOWN_END, *_START_ERRORS):
        return ""
    ends = [end for end in _terminations(pod) if int(end.get("exitCode") or 0) == code]
    return str(ends[0].get("message") or "").strip()


def last_restart(pod: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
    """Return how often the pod's containers were restarted, and how the last of them ended before.

    The end is empty if no container waits for its next start.
    """
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    count = sum(int(status.get("restartCount") or 0) for status in statuses)
    for status in statuses:
        if (status.get("state") or {}).get("waiting"):
            ended = (status.get("lastState") or {}).get("terminated")
            if ended:
                return count, ended
    return count, {}


def rank_of(pod: Mapping[str, Any]) -> str:
    """Return the rank: ``0`` for a task ``main``, else ``worker-1``, else the pod's name."""
    metadata = pod["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    index = (
        labels.get(names.TASK_INDEX)
        or annotations.get(names.TASK_INDEX)
        or labels.get(REPLICA_INDEX)
        or labels.get(_POD_INDEX)
    )
    task = task_of(pod)
    if index is None or SHARD in labels:
        return str(metadata["name"])
    return f"{task}-{index}" if task and task != "main" else str(index)


def task_of(pod: Mapping[str, Any]) -> str:
    """Return the pod's task in its job; empty if there is none."""
    metadata = pod["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return str(labels.get(names.TASK_SPEC) or annotations.get(names.TASK_SPEC) or "")


def rank_text(pod: Mapping[str, Any]) -> str:
    """Return the rank for a sentence: ``rank 3``, or ``worker-3``."""
    rank = rank_of(pod)
    return f"rank {rank}" if rank.isdigit() else rank
