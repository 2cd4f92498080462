"""Reasons why objects of a job could not be created: its pods, pod group or Services.

The controller of a job reports them as events (``FailedCreate``), as those of Kubernetes do.
Causes are a quota, a webhook, or a name that the server rejects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from windlass.api.errors import StatusError
from windlass.api.reasons import Reason
from windlass.api.resources import EVENTS
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.events import last_seen
from windlass.cli.jobs.jobs import Job

REASON = "FailedCreate"
_SETTLED_SECONDS = 1.0
"""Minimum age of a job in seconds. Before that, missing pods are normal."""
_QUOTA = re.compile(r"exceeded quota: ([^,\s]+)")
_POD = re.compile(r'^pods "([^"]+)"')


def note_creation_errors(invocation: Invocation, jobs: Sequence[Job], *, started: bool = False) -> None:
    """Set ``creation_error`` of the jobs that wait for objects which could not be created.

    ``started``: also of jobs that run with a part of their pods.
    """
    now = invocation.clock.now()
    settled = [job for job in jobs if now - job.created >= _SETTLED_SECONDS]
    lacking = [job for job in settled if _lacks_objects(job) or (started and _lacks_pods(job))]
    by_uid = {uid: job for job in lacking for uid in _creators(job)}
    for namespace in sorted({job.namespace for job in lacking}):
        try:
            events = invocation.client.list(EVENTS, namespace, fields=f"reason={REASON}").items
        except StatusError:
            continue  # without rights for events, the rest is shown
        for event in sorted(events, key=last_seen):
            job = by_uid.get(str((event.get("involvedObject") or {}).get("uid")))
            if job is not None and event.get("reason") == REASON:
                error = str(event.get("message") or "").removeprefix("Error: ")
                job.creation_error = job.creation_error if _names_pod_of(job, error) else error


def creation_remedies(error: str, namespace: str) -> list[str]:
    """Return what helps a job with objects that could not be created."""
    again = (
        "Correct what the error under 'not created' names. The controller then creates the objects by itself."
    )
    if "no PriorityClass with name" in error:
        return ["kubectl get priorityclasses   (the names that the job may use)", again]
    if (quota := _QUOTA.search(error)) is not None:
        look = (
            f"kubectl describe resourcequota {quota[1]} -n {namespace}   (what it allows, and what is used)"
        )
        return [look, "The controller creates the objects by itself once the quota has room for them."]
    return [again]


def _lacks_objects(job: Job) -> bool:
    if not job.waiting:
        return False
    record = job.explanation
    if record is None:
        return len(job.pods) < job.members
    return record.code is Reason.WAITING_FOR_MEMBERS


def _lacks_pods(job: Job) -> bool:
    """Return whether a job that has started has fewer pods than it should have."""
    if job.definition is None or job.waiting or job.finished or job.idle or job.phase == "Suspended":
        return False
    return len(job.pods) < job.desired_pods


def _names_pod_of(job: Job, error: str) -> bool:
    """Return whether an error is about a pod that was created since."""
    named = _POD.search(error)
    return named is not None and any(pod["metadata"]["name"] == named[1] for pod in job.pods)


def _creators(job: Job) -> Iterable[str]:
    """Return the uids of the objects that have controllers to create pods of the job."""
    owners = [owner for pod in job.pods for owner in pod["metadata"].get("ownerReferences") or ()]
    return {uid for uid in (job.obj["metadata"].get("uid"), *(owner.get("uid") for owner in owners)) if uid}
