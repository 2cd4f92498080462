"""Labels, annotations and variables of the pods of ``batch/v1`` Jobs, by their wire names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import annotations as names

CONTROLLER_NAME = "kubernetes.io/job-controller"
"""``spec.managedBy`` of Jobs that the controller of Kubernetes runs, or that of Windlass on one machine."""
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Label and annotation of a pod: its index in an Indexed Job."""
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
"""Annotation of a pod: failures of its index before it, with ``backoffLimitPerIndex``."""
INDEX_IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
"""Annotation of a pod: failures of its index before it that a rule ignored."""
TRACKING = "batch.kubernetes.io/job-tracking"
"""Finalizer of pods that are not counted yet."""
JOB_NAME = "batch.kubernetes.io/job-name"
"""Label of a pod: its Job."""
CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
"""Label of a pod: uid of its Job."""
OLD_JOB_NAME, OLD_CONTROLLER_UID = "job-name", "controller-uid"
"""Earlier forms of the two labels, which pods carry as well."""
SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
"""Annotation of a Job: the time for which its CronJob created it (RFC 3339, in the zone of the CronJob)."""
QUEUE_NAME_KUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a job: its queue, in Kueue's way."""
QUEUE_NAMES = (names.QUEUE_NAME_VOLCANO, names.QUEUE_NAME_KAI, names.QUEUE_NAME_LABEL, QUEUE_NAME_KUEUE)
"""Labels and annotations that name a queue. The first one counts, and pods are queued by all but the last."""
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""Environment variable of the index, in all containers of an Indexed Job."""


def queue_of_job(obj: Mapping[str, Any]) -> str:
    """Return the queue that a Job names; ``""`` for none.

    Labels and annotations of Windlass, Volcano, KAI and Kueue count, of the Job or of its
    pod template.
    """
    template = ((obj.get("spec") or {}).get("template") or {}).get("metadata") or {}
    for metadata in (obj.get("metadata") or {}, template):
        found: Mapping[str, str] = {
            **(metadata.get("labels") or {}),
            **(metadata.get("annotations") or {}),
        }
        for name in QUEUE_NAMES:
            if found.get(name):
                return found[name]
    return ""
