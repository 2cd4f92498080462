"""Placement of a job, or the reason why it waits: short for ``ps``, long for ``explain``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.fields.stages import STAGE
from windlass.api.generated_names import without_uid
from windlass.api.quantities import is_device
from windlass.api.reasons import FACTS, Blocker, Explanation, NodesRequested, Reason
from windlass.api.resources import AIGC_JOBS
from windlass.cli.jobs.jobs import (
    UNKNOWN_END,
    Job,
    cause_of,
    end_message,
    last_restart,
    pod_phase,
    rank_text,
    unready,
)
from windlass.cli.jobs.kinds.workload_kinds import WORKLOADS, ready
from windlass.cli.text import (
    approximate_duration,
    condition,
    join_words,
    nodes_text,
    plural,
    readable,
    resource_text,
)
from windlass.jobs.progress import read_progress
from windlass.kits.timestamps import age

_WHOLE_PODS = ("tasks", "pods")
"""Resource names of blockers about whole pods of a gang."""

_UNREACHABLE = ("ServerUnreachable", "ServerOverloaded", "ScorerUnreachable")
"""Failures of rows that are about the server, and none of a row."""

SHORT: dict[Reason, str] = {
    Reason.QUEUE_NOT_FOUND: "no such queue",
    Reason.QUEUE_CLOSED: "queue is closed",
    Reason.QUEUE_NOT_LEAF: "queue has children",
    Reason.MISCONFIGURED: "misconfigured",
    Reason.EXCEEDS_CLUSTER: "never: exceeds the cluster",
    Reason.EXCEEDS_EVERY_NODE: "never: exceeds every node",
    Reason.EXCEEDS_EVERY_DOMAIN: "never: exceeds every domain",
    Reason.EXCEEDS_QUEUE_LIMIT: "never: exceeds the queue",
    Reason.NO_MATCHING_NODE: "no node matches",
    Reason.ON_HOLD: "on hold",
    Reason.EARLIEST_START: "reserved for later",
    Reason.SCHEDULING_GATED: "gated",
    Reason.WAITING_FOR_MEMBERS: "pods missing",
    Reason.WAITING_FOR_QUOTA: "queue limit",
    Reason.WAITING_FOR_SHARE: "queue share",
    Reason.NAMESPACE_QUOTA: "namespace quota",
    Reason.TIME_SHARED: "time-shared",
    Reason.INSUFFICIENT_RESOURCES: "nodes in use",
    Reason.TOPOLOGY_PLACEMENT_FAILED: "fits in no domain",
    Reason.DEVICES_FRAGMENTED: "GPUs fragmented",
    Reason.BEHIND_IN_QUEUE: "behind others",
    Reason.WAITING_FOR_VICTIMS: "capacity being freed",
    Reason.DISRUPTION_BUDGETS: "disruption budgets",
    Reason.RESERVING_DEVICE: "shared GPU being reserved",
    Reason.AWAITING_VOLUME: "volume being created",
    Reason.AWAITING_DEVICE: "device being prepared",
    Reason.AWAITING_NODE_LOCK: "another pod gets its GPUs",
    Reason.BIND_FAILED: "start failed, retrying",
    Reason.PENDING_EVALUATION: "not evaluated yet",
    Reason.NODE_SELECTOR_MISMATCH: "no node has the labels",
    Reason.NODE_AFFINITY_MISMATCH: "no node matches",
    Reason.TAINT_NOT_TOLERATED: "nodes are tainted",
    Reason.NODE_UNSCHEDULABLE: "nodes are cordoned",
    Reason.NODE_NOT_READY: "nodes are not ready",
    Reason.POD_AFFINITY_MISMATCH: "affinity not met",
    Reason.POD_ANTI_AFFINITY_CONFLICT: "anti-affinity",
    Reason.HOST_PORT_TAKEN: "host port taken",
    Reason.TOO_MANY_PODS: "nodes full of pods",
    Reason.VOLUME_UNAVAILABLE: "volume unavailable",
    Reason.CLAIM_UNAVAILABLE: "volume claim not usable",
    Reason.NUMA_ALIGNMENT_FAILED: "no NUMA node for it",
    Reason.TOPOLOGY_SPREAD_CONFLICT: "spread would be uneven",
    Reason.NO_SUITABLE_DEVICE: "no such device",
    Reason.DEVICE_SHARES_TAKEN: "devices in use",
    Reason.NODE_OVERLOADED: "nodes are overloaded",
    Reason.NODE_RESERVED: "nodes reserved for others",
    Reason.REFUSED_BY_EXTENDER: "rejected by the extender",
}


_LEADING_REASON = re.compile(r"([A-Z][A-Za-z]+\d*): ")


def brief(job: Job) -> str:
    """Return where the job runs, why it waits, or how it ended."""
    if job.finished:
        text = _end_text(job)
    elif job.waiting:
        text = waiting_text(job)
    else:
        text = nodes_text(job.nodes)
        if job.state == "Starting":
            up = sum(1 for pod in job.pods if pod_phase(pod) == "Running")
            text = f"{text} ranks {up}/{job.members}" if job.members > 1 else text
        if held := unready(job):
            text = f"{text}, {_unready_text(job, [pod for pod, _ in held])}"
        if partly := serving_text(job):
            text = f"{text}, {partly}"
        text = ", ".join(filter(None, (progress_text(job), text, _workers_text(job), _blocked_text(job))))
    return f"{text} [placeholder]".strip() if job.placeholder else text


def last_error(job: Job) -> tuple[str, str]:
    """Return reason and message of the last failure of a generation job that runs; empty without one."""
    if job.resource is not AIGC_JOBS or job.finished:
        return "", ""
    found = (job.obj.get("status") or {}).get("lastError") or {}
    return str(found.get("reason") or ""), str(found.get("message") or "")


def _blocked_text(job: Job) -> str:
    """Return what a generation job on its nodes waits for, or why it starts again: ``OutputInUse``.

    A message that begins with a reason is shortened to it: ``windlass show`` prints the rest.
    """
    reason, _ = last_error(job)
    if reason in _UNREACHABLE:
        return reason
    message = ""
    if job.resource is AIGC_JOBS:
        message = str((job.obj.get("status") or {}).get("message") or "")
    found = _LEADING_REASON.match(message)
    return found[1] if found else message


def _workers_text(job: Job) -> str:
    """Return the workers of a generation job that run: ``1/2 workers``; empty if its only one runs."""
    if job.resource is not AIGC_JOBS:
        return ""
    found = (job.obj.get("status") or {}).get("workers") or {}
    running, desired = int(found.get("running") or 0), int(found.get("desired") or 0)
    return f"{running}/{plural(desired, 'worker')}" if desired and (running, desired) != (1, 1) else ""


def serving_text(job: Job) -> str:
    """Return how many pods of a workload without an end are ready; empty if all are."""
    if job.definition is None or job.definition.resource not in WORKLOADS:
        return ""
    found, wanted = ready(job.obj), job.members
    return f"{found} of {plural(wanted, 'pod')} ready" if found < wanted else ""


def waiting_pods(job: Job, most: int = 3, apart: Sequence[str] = ()) -> str:
    """Return why pods of a running job have no node, one line for each; empty if all have one.

    ``apart``: stages that are explained elsewhere.
    """
    waiting = [
        f"{pod['metadata']['name']}: {message}"
        for pod in job.pods
        if not (pod.get("spec") or {}).get("nodeName")
        and (pod["metadata"].get("labels") or {}).get(STAGE) not in apart
        and (message := _scheduling_message(pod))
    ]
    return "\n".join(waiting[:most] + ([f"and {len(waiting) - most} more"] if len(waiting) > most else []))


def _scheduling_message(pod: dict[str, Any]) -> str:
    found = condition(pod, "PodScheduled") or {}
    return str(found.get("message") or "") if found.get("status") == "False" else ""


def progress_text(job: Job) -> str:
    """Return the progress that the program reported: ``42%, 5m left``; empty if it reports none."""
    found = read_progress(job.obj)
    if found is None:
        return ""
    parts = [f"{found.percent}%" if found.percent is not None else ""]
    if found.remaining_seconds is not None:
        passed = max(0.0, job.seen - found.updated_at) if job.seen and found.updated_at else 0.0
        parts.append(f"{age(max(0.0, found.remaining_seconds - passed))} left")
    return ", ".join(filter(None, parts))


def waiting_text(job: Job) -> str:
    """Return why the job waits: ``nodes in use, #2, ~5m``.

    The parts are a short reason (or the nodes requested for it), the position, and the
    time to the start (``due`` once that has passed).
    """
    record = job.explanation
    if job.creation_error and (record is None or record.code is Reason.WAITING_FOR_MEMBERS):
        return f"not created: {job.creation_error}"
    if record is None:
        if job.gates:
            return f"held by {join_words(job.gates)}"
        unevaluated = SHORT[Reason.PENDING_EVALUATION]
        return job.condition_message or (
            f"{unevaluated} by {job.scheduler_name}" if job.scheduler_name else unevaluated
        )
    requested = f"nodes requested: {request_line(record.asked, job.seen)}" if record.asked is not None else ""
    parts = [requested or _short(record)]
    if record.position:
        parts.append(f"#{record.position}")
    if record.estimate_seconds is not None:
        parts.append(approximate_duration(record.estimate_seconds) if record.estimate_seconds else "due")
    return ", ".join(parts)


def request_line(requested: NodesRequested, now: float) -> str:
    """Return the state of requested nodes: ``4 x 8 GPUs, accepted 12s ago``."""
    return f"{requested.what}, {requested.state}{f' {age(now - requested.since)} ago' if requested.since else ''}"


def _short(record: Explanation) -> str:
    if record.code is Reason.INSUFFICIENT_RESOURCES:
        named = [b for b in record.blockers if b.code is record.code and b.needed]
        for blocker in named:
            if blocker.resource in _WHOLE_PODS and blocker.needed != "1":
                return f"{blocker.available or 0} of {blocker.needed} pods fit"
        named = [b for b in named if b.resource not in _WHOLE_PODS]
        for blocker in sorted(named, key=lambda b: not is_device(b.resource)):
            short = resource_text(blocker.resource, blocker.needed)
            return f"needs {short}, {readable(blocker.resource, str(blocker.available or 0))} free"
    return SHORT[record.code]


def _unready_text(job: Job, pods: Sequence[Mapping[str, Any]]) -> str:
    """Return how many pods are not ready, or the restarts of one that keeps failing."""
    for pod in pods:
        count, ended = last_restart(pod)
        if ended:
            code = int(ended.get("exitCode") or 0)
            cause = str(ended.get("reason") or "")
            known = cause if cause not in ("", "Error", "Completed") else ""
            rank = f"{rank_text(pod)}: " if job.members > 1 else ""
            return f"{rank}restarted {plural(count, 'time')}, last {exit_text(code, known)}"
    return f"{plural(len(pods), 'pod')} not ready"


def _end_text(job: Job) -> str:
    if job.phase in ("Completed", "Succeeded"):
        succeeded = job.succeeded
        if job.pods and succeeded < job.members:
            return f"{succeeded} of {job.members} succeeded"
        return "exit 0" if job.pods else ""
    if job.refused:
        return job.refused
    failed = job.first_failure
    if failed is not None:
        pod, code = failed
        rank = f"{rank_text(pod)}: " if job.members > 1 else ""
        why = end_message(pod, code).partition("; ")[0]
        return f"{rank}{exit_text(code, cause_of(pod, code))}{f': {why}' if why else ''}"
    status = job.obj.get("status") or {}
    state = status.get("state") or status
    told = state.get("message") or state.get("reason") or (condition(job.obj, "Failed") or {}).get("message")
    return _BY_COMMAND.sub("", str(told or ""))


_BY_COMMAND = re.compile(r"^\w+ by command \S+: (?=.)")
"""Text of a job controller before the message of ``windlass cancel``."""


END_CAUSES = {
    "DeadlineExceeded": "It reached its time limit (--time, activeDeadlineSeconds) and was ended with SIGTERM. "
    "Submit it again with more time.",
    "Evicted": "Its node was drained, or its capacity was needed for other jobs. A job of windlass run or submit is "
    "restarted automatically.",
    "OOMKilled": "It used more memory than its limit (--memory, resources.limits) and was killed. Submit it again with "
    "more memory.",
    "StartError": "Its command could not be started. `windlass show JOB` prints the reason, such as a missing program.",
    "ContainerCannotRun": "Its container could not be set up. `windlass show JOB` prints the step that failed.",
    "ContainerStatusUnknown": "It ran when its machine or node agent was lost, and no record of its end exists. "
    "Submit it again.",
}
"""Explanation of the reasons for which a pod is ended from outside, by Kubernetes' word.
"""


def exit_text(code: int, cause: str = "") -> str:
    """Return the exit status, with its cause if known.

    Examples: ``exit 1``; ``exit 137 (SIGKILL)``; ``exit 137 (OOMKilled)``;
    ``DeadlineExceeded, exit 0`` for a pod that ended regularly on request.
    """
    if cause == UNKNOWN_END:
        return f"exit status unknown ({cause})"
    if cause and not code:
        return f"{cause}, exit 0"
    if cause:
        return f"exit {code} ({cause})"
    if 128 < code < 160:
        import signal

        try:
            return f"exit {code} ({signal.Signals(code - 128).name})"
        except ValueError:
            return f"exit {code}"
    return f"exit {code}"


# The long form.

_ANY_UID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![0-9a-f-])")


def verdict(record: Explanation) -> str:
    """Return whether the job will run as it is."""
    return {
        "yes": "yes, waiting helps: it starts when the resources that it waits for are free",
        "no": "no, waiting does not help: the job or the cluster must change",
        "maybe": "perhaps: it depends on a change outside of the scheduler",
    }[record.waiting_helps]


def blocker_line(blocker: Blocker) -> str:
    """Return one blocker with its numbers."""
    parts = []
    if blocker.nodes:
        parts.append(plural(blocker.nodes, "node"))
    if blocker.resource in _WHOLE_PODS:
        several = "pod" if str(blocker.needed) == "1" else "pods"
        parts.append(f"{blocker.needed} {several} needed at once, {blocker.available or 0} fit")
    elif blocker.resource:
        amount = f"needs {readable(blocker.resource, str(blocker.needed or '?'))}"
        if blocker.available != "":
            amount += f", has {readable(blocker.resource, str(blocker.available))}"
        parts.append(f"{blocker.resource} {amount}")
    if blocker.detail:
        parts.append(blocker.detail)
    return (
        f"{blocker.code}: {'; '.join(parts)}" if parts else f"{blocker.code}: {FACTS[blocker.code].meaning}"
    )


def group_title(key: str) -> str:
    """Return the name of a group: ``train`` for ``default/train-<uid>``.

    The pod group of a job has the name of the job and its uid.
    """
    return without_uid(key.removeprefix("default/").replace("pod:", "", 1))


def short_names(text: str) -> str:
    """Return a sentence with its groups named as in :func:`group_title`."""
    parts = [part.replace("/pod:", "/", 1).removeprefix("default/") for part in text.split(" ")]
    return " ".join(_ANY_UID.sub("", part) for part in parts)


def ahead_text(record: Explanation, most: int = 5) -> str:
    names = [group_title(name) for name in record.ahead[:most]]
    more = len(record.ahead) - most
    return join_words([*names, plural(more, "more", "more")] if more > 0 else names)
