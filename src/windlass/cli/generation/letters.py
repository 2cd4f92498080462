"""Dead letters of a generation job: from its driver while it runs, from its outputs afterwards."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from windlass.api import aigc_fields as fields
from windlass.api.errors import WindlassError
from windlass.api.resources import AIGC_JOBS, SECRETS, SERVICES
from windlass.cli.errors import remedy_with_target
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.job_index import find
from windlass.cli.jobs.jobs import Job, pod_phase
from windlass.client.batch_driver import BatchDriver, DriverUnreachable, forwarded

ENDED = ("Succeeded", "Failed")


def generation_job(invocation: Invocation, name: str) -> Job:
    """Return a job that has items. Raises :class:`WindlassError` for another kind."""
    job = find(invocation, name)
    if job.resource is not AIGC_JOBS:
        raise WindlassError(
            "WL-ITEMS-400",
            f"{job.name} is a {job.kind} and has no items",
            evidence="items are the rows of an AIGCJob",
            remedies=(remedy_with_target("windlass ps", invocation.context.target_flags),),
        )
    return job


def driver(invocation: Invocation, job: Job) -> BatchDriver | None:
    """Return the running driver of a job; ``None`` if it has none."""
    name = f"{job.name}-driver"
    pod = next((pod for pod in job.pods if pod["metadata"]["name"] == name), None)
    if pod is None or pod_phase(pod) != "Running":
        return None
    secret = invocation.client.find(SECRETS, f"{job.name}-batch", job.namespace)
    service = invocation.client.find(SERVICES, name, job.namespace)
    if secret is None or service is None:
        return None
    token = base64.b64decode(secret["data"]["token"]).decode()
    port = int(service["spec"]["ports"][0]["port"])
    return forwarded(invocation.new_client(), job.namespace, name, port, token)


def dead_letters(invocation: Invocation, job: Job, limit: int) -> list[dict[str, Any]]:
    """Return id, group, attempts, reason and message of the items that failed for good."""
    if _has_ended(job):
        return list(_of_outputs(invocation, job, limit))
    found = driver(invocation, job)
    if found is None:
        raise _not_reached(invocation, job)
    try:
        return list(found.get(f"/v1/deadletters?limit={limit}")["items"])
    except DriverUnreachable:
        raise _not_reached(invocation, job) from None


def retry(invocation: Invocation, job: Job, ids: Sequence[str]) -> str:
    """Run dead letters again, and return what was done."""
    found = driver(invocation, job) if not _has_ended(job) else None
    if found is not None:
        try:
            count = found.post("/v1/retry", {"ids": list(ids)})["retried"]
            return f"runs {count} dead letters again"
        except DriverUnreachable:
            raise _not_reached(invocation, job) from None
    if not _has_ended(job):
        raise _not_reached(invocation, job)
    if ids:
        raise WindlassError(
            "WL-ITEMS-409",
            f"{job.name} has ended, and dead letters of an ended job run again together",
            evidence=f"its state is {job.state}",
            remedies=(
                remedy_with_target(f"windlass items retry {job.name}", invocation.context.target_flags),
            ),
        )
    annotations = job.obj["metadata"].get("annotations") or {}
    number = annotations.get(fields.RETRY) or "0"
    value = str(int(number) + 1 if number.isdecimal() else 1)
    patch = {"metadata": {"annotations": {fields.RETRY: value}}}
    invocation.client.patch(AIGC_JOBS, job.name, patch, job.namespace)
    count = int(((job.obj.get("status") or {}).get("items") or {}).get("deadLetter") or 0)
    return f"starts again with its {count} dead letters"


def _has_ended(job: Job) -> bool:
    return (job.obj.get("status") or {}).get("phase") in ENDED


def _not_reached(invocation: Invocation, job: Job) -> WindlassError:
    return WindlassError(
        "WL-ITEMS-503",
        f"the driver of {job.name} does not answer",
        evidence=f"it keeps the items while the job runs; the state of the job is {job.state}",
        remedies=(remedy_with_target(f"windlass show {job.name}", invocation.context.target_flags),),
    )


def _of_outputs(invocation: Invocation, job: Job, limit: int) -> Iterator[dict[str, Any]]:
    """Yield the error rows of the outputs."""
    path = str((job.obj.get("status") or {}).get("outputs") or "")
    if not path or not os.path.isfile(path):
        raise WindlassError(
            "WL-ITEMS-404",
            f"the outputs of {job.name} are not on this machine",
            evidence=f"the job has ended; its outputs are at {path}" if path else "it has no outputs yet",
            remedies=(
                remedy_with_target(f"windlass items retry {job.name}", invocation.context.target_flags),
            ),
        )
    count = 0
    for row in _rows(path):
        if row.get("error") and count < limit:
            count += 1
            yield {
                "id": row.get("id"),
                "attempts": row.get("attempts"),
                "reason": row.get("reason"),
                "message": row["error"],
            }


def _rows(path: str) -> Iterator[dict[str, Any]]:
    with open(path, encoding="utf-8", errors="replace", newline="") as stream:
        if path.endswith(".csv"):
            import csv

            yield from csv.DictReader(stream)
            return
        for line in stream:
            if line.strip():
                yield json.loads(line)
