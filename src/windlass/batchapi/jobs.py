"""AIGCJob of a batch, and the status of the batch by that of its job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windlass.api.annotations import OPENAI_BATCH
from windlass.api.fields.aigc import HOST_NETWORK, on_loopback
from windlass.batchapi.objects import (
    CANCELLED,
    CANCELLING,
    ENDED,
    EXPIRED,
    FAILED,
    FINALIZING,
    RUNNING,
    WINDOW_SECONDS,
    LineError,
    StoredBatch,
)

API_VERSION, KIND = "kurator.dev/v1alpha1", "AIGCJob"


def job_of(
    batch: StoredBatch,
    namespace: str,
    input_path: str,
    output_path: str,
    url: str,
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the AIGCJob that runs a batch.

    ``url``: base URL of the server with the models. ``settings``: further fields of the
    spec, such as ``queue`` and ``priorityClass``.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": job_name(batch),
            "namespace": namespace,
            "labels": {OPENAI_BATCH: batch.id},
        },
        "spec": {
            "priorityClass": "low",
            **settings,
            **_network(url),
            "runtimeRef": {"name": "openai", "url": url},
            "input": {"source": "file", "format": "jsonl", "path": input_path, "idField": "custom_id"},
            "items": {"maxFailedPercent": 100},
            "outputs": {"path": output_path, "format": "jsonl"},
            "policy": {"activeDeadlineSeconds": WINDOW_SECONDS},
        },
    }


def _network(url: str) -> dict[str, Any]:
    """Return the pod template of workers that reach a server on the loopback of their node."""
    if not on_loopback(url):
        return {}
    return {"template": {"spec": {**HOST_NETWORK, "containers": [{"name": "worker"}]}}}


def job_name(batch: StoredBatch) -> str:
    """Return the name of the AIGCJob: lower case, as names of objects are."""
    return batch.id.replace("_", "-").lower()


def advance(batch: StoredBatch, job: Mapping[str, Any] | None, now: int) -> StoredBatch:
    """Return the batch by the state of its job. ``None``: the job is gone.

    A batch that is to be finalized has ``FINALIZING``; the caller writes its files.
    """
    if batch.status in ENDED or batch.status == FINALIZING or not batch.job:
        return batch
    if job is None:
        if batch.status == CANCELLING:
            return replace(batch, status=FINALIZING, finalizing_at=now)
        lost = LineError(None, "job_deleted", f"AIGCJob {batch.job} was deleted")
        return replace(batch, status=FAILED, failed_at=now, errors=(lost,))
    status = job.get("status") or {}
    items = status.get("items") or {}
    counted = replace(
        batch,
        total=int(items.get("total") or batch.total),
        completed=int(items.get("done") or 0),
        failed=int(items.get("failed") or 0) or int(items.get("deadLetter") or 0),
    )
    if status.get("phase") in ("Succeeded", "Failed"):
        return replace(counted, status=FINALIZING, finalizing_at=now)
    if batch.status == CANCELLING:
        return counted
    return replace(counted, status=RUNNING, in_progress_at=batch.in_progress_at or now)


def end(batch: StoredBatch, completed: int, failed: int, now: int) -> StoredBatch:
    """Return a finalized batch. ``completed`` and ``failed``: lines of both files."""
    counted = replace(batch, completed=completed, failed=failed)
    if batch.cancelling_at is not None:
        return replace(counted, status=CANCELLED, cancelled_at=now)
    missing = batch.total - completed - failed
    if missing > 0 and now >= batch.created_at + WINDOW_SECONDS:
        return replace(counted, status=EXPIRED, expired_at=now)
    if missing > 0 and not completed:
        lost = LineError(None, "job_failed", f"AIGCJob {batch.job} failed before any request was answered")
        return replace(counted, status=FAILED, failed_at=now, errors=(lost,))
    return replace(counted, status="completed", completed_at=now)
