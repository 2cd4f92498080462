"""Admission of ``batch/v1`` Jobs: the selector and the labels that the server adds."""

from __future__ import annotations

from typing import Any

from windlass.api.fields.batch import (
    CONTROLLER_NAME,
    CONTROLLER_UID,
    JOB_NAME,
    OLD_CONTROLLER_UID,
    OLD_JOB_NAME,
    QUEUE_NAME_KUEUE,
)
from windlass.api.resources import BATCH_JOBS
from windlass.api.validation import names
from windlass.server.admission.plugin import Review


def select_pods(review: Review) -> None:
    """Give a new Job the selector of its pods, and its pod template their labels."""
    spec = review.object.get("spec")
    if review.resource is not BATCH_JOBS or not review.creating or not review.main:
        return
    name = str(review.object["metadata"].get("name") or "")
    problems = names.dns_label(name)
    if problems:
        listed = " ".join(problems)
        review.warn(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
            f"a DNS label is recommended: [{listed}]"
        )
    if not isinstance(spec, dict):
        return
    _start_queued(review, spec)
    manager = spec.get("managedBy")
    if manager not in (None, "", CONTROLLER_NAME):
        review.warn(
            f"advice: spec.managedBy: {manager} -> this Job is left to that controller, and Windlass does not run it; "
            "to run it here, leave spec.managedBy out"
        )
    if spec.get("manualSelector"):
        return
    uid = review.object["metadata"].get("uid", "")
    template = spec.get("template")
    if not isinstance(template, dict):
        return
    template.setdefault("metadata", {})
    labels = template["metadata"].setdefault("labels", {})
    added = {OLD_JOB_NAME: name, JOB_NAME: name, OLD_CONTROLLER_UID: uid, CONTROLLER_UID: uid}
    for label, value in added.items():
        labels.setdefault(label, value)
    if not review.object["metadata"].get("labels"):
        review.object["metadata"]["labels"] = dict(labels)
    selector = spec.setdefault("selector", {})
    selector.setdefault("matchLabels", {}).setdefault(CONTROLLER_UID, uid)


def _start_queued(review: Review, spec: dict[str, Any]) -> None:
    """Start a new Job that Kueue would start once its queue admits it. Its pods wait in the queue."""
    queue = (review.object["metadata"].get("labels") or {}).get(QUEUE_NAME_KUEUE)
    if queue and spec.get("suspend"):
        spec["suspend"] = False
        review.warn(
            f"alias: {QUEUE_NAME_KUEUE} with spec.suspend: true -> suspend: false, because the pods of the Job wait "
            f"in queue {queue} themselves; to hold the Job back, patch spec.suspend to true"
        )
