"""Dead letters of a generation job: from its driver while it runs, from its outputs afterwards."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from windlass.api.errors import WindlassError
from windlass.api.fields import aigc
from windlass.api.resources import AIGC_JOBS, SECRETS, SERVICES
from windlass.cli.errors import remedy_with_target
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.job_index import find, refresh
from windlass.cli.jobs.jobs import Job, pod_phase
from windlass.cli.text import plural
from windlass.client.batch_driver import BatchDriver, DriverUnreachable, forwarded
from windlass.items.places import STATE_FOLDER
from windlass.jobs.aigc.status import MAX_GROUPS
from windlass.kits.printable import with_article

ENDED = ("Succeeded", "Failed")
WAIT_SECONDS = 20.0
"""Maximum time in seconds for which a driver that is being started again is awaited."""
_IDLE = ("", "Pending", "Suspended")
"""Phases of jobs without a driver that starts by itself in a moment."""
Result = TypeVar("Result")


def generation_job(invocation: Invocation, name: str) -> Job:
    """Return a job that has items. Raises :class:`WindlassError` for another kind."""
    job = find(invocation, name)
    if job.resource is not AIGC_JOBS:
        raise WindlassError(
            "WL-ITEMS-400",
            f"{job.name} is {with_article(job.kind)} and has no items",
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
    from windlass.jobs.aigc.pods import token_of

    token = token_of(secret)
    port = int(service["spec"]["ports"][0]["port"])
    return forwarded(invocation.new_client(), job.namespace, name, port, token)


def dead_letters(invocation: Invocation, job: Job, limit: int) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return the items that failed for good, and the number of them by reason.

    At most ``limit`` items are returned, each with id, attempts, reason and message.
    """
    if has_ended(job):
        return _of_outputs(invocation, job, limit)
    answer = _answer(invocation, job, lambda found: found.get(f"/v1/deadletters?limit={limit}"))
    if answer is None:
        return _of_outputs(invocation, job, limit)
    return list(answer["items"]), dict(answer.get("reasons") or {})


def _answer(invocation: Invocation, job: Job, ask: Callable[[BatchDriver], Result]) -> Result | None:
    """Return the answer of the driver of a job; ``None`` if the job has ended meanwhile.

    A driver that is being started is awaited. Raises :class:`WindlassError` if none answers.
    """
    deadline = invocation.clock.monotonic() + WAIT_SECONDS
    current: Job | None = job
    while current is not None and not has_ended(current):
        found = driver(invocation, current)
        if found is not None:
            try:
                return ask(found)
            except DriverUnreachable:
                pass  # it starts, or ends: the next look tells which
        if current.obj.get("status", {}).get("phase") in _IDLE or invocation.clock.monotonic() > deadline:
            raise not_reached(invocation, current)
        invocation.clock.pause(0.5)
        current = refresh(invocation, job)
    return None


def all_groups(invocation: Invocation, job: Job) -> list[dict[str, Any]]:
    """Return the counts of all groups; the largest ones if no more are at hand."""
    status = job.obj.get("status") or {}
    known: list[dict[str, Any]] = list(status.get("groups") or ())
    if len(known) < MAX_GROUPS:
        return known
    if has_ended(job):
        try:
            path = state_folder(str(status.get("outputs") or "")) / "groups.json"
            return json.loads(path.read_text())
        except (OSError, ValueError):
            return known
    found = driver(invocation, job)
    if found is None:
        return known
    try:
        return list(found.get("/v1/groups")["items"])
    except DriverUnreachable:
        return known


def state_folder(outputs: str) -> Path:
    """Return the folder with the state of a batch. ``outputs``: path of its output file."""
    path = Path(outputs)
    inside = path.parent / STATE_FOLDER
    return inside if inside.is_dir() else path.parent / f".{path.name}{STATE_FOLDER}"


def retry(invocation: Invocation, job: Job, ids: Sequence[str]) -> str:
    """Run dead letters again, and return what was done."""
    answer = _answer(invocation, job, lambda found: found.post("/v1/retry", {"ids": list(ids)}))
    if answer is not None:
        count = answer["retried"]
        if not count:
            return "has no such dead letter to run again" if ids else "has no dead letter to run again"
        return f"runs {count} dead letters again"
    job = refresh(invocation, job) or job
    if ids:
        raise WindlassError(
            "WL-ITEMS-409",
            f"{job.name} has ended, and dead letters of an ended job run again together",
            evidence=f"its state is {job.state}",
            remedies=(_command(invocation, job, "items retry"),),
        )
    status = job.obj.get("status") or {}
    count = int((status.get("items") or {}).get("deadLetter") or 0)
    if not count and status.get("phase") == "Succeeded":
        return "has no dead letter to run again"
    annotations = job.obj["metadata"].get("annotations") or {}
    number = annotations.get(aigc.RETRY) or "0"
    value = str(int(number) + 1 if number.isdecimal() else 1)
    patch = {"metadata": {"annotations": {aigc.RETRY: value}}}
    invocation.client.patch(AIGC_JOBS, job.name, patch, job.namespace)
    return f"starts again with its {plural(count, 'dead letter')}" if count else "starts again"


def has_ended(job: Job) -> bool:
    """Return whether a job has ended, so that its driver has, too."""
    return (job.obj.get("status") or {}).get("phase") in ENDED


def not_reached(invocation: Invocation, job: Job) -> WindlassError:
    """Return the error about a job that cannot tell its items now."""
    phase = str((job.obj.get("status") or {}).get("phase") or "Pending")
    verb, message = "show", f"the driver of {job.name} does not answer"
    evidence = f"it keeps the items while the job runs; the state of the job is {job.state}"
    if phase == "Suspended":
        verb, message = "resume", f"{job.name} is suspended"
        evidence = "its rows are kept, and nothing runs that could read them"
    elif phase in _IDLE:
        message, evidence = f"{job.name} has not started", f"its phase is {phase}: no row was tried yet"
    return WindlassError(
        "WL-ITEMS-503",
        message,
        evidence=evidence,
        remedies=(_command(invocation, job, verb),),
    )


def _command(invocation: Invocation, job: Job, verb: str) -> str:
    """Return a command about a job, for users to copy."""
    command = f"windlass {verb} {job.name}{invocation.namespace_flag(job.namespace)}"
    return remedy_with_target(command, invocation.context.target_flags)


def _of_outputs(invocation: Invocation, job: Job, limit: int) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Return the error rows of the outputs, and the number of them by reason."""
    path = str((job.obj.get("status") or {}).get("outputs") or "")
    if not path or not os.path.isfile(path):
        state = state_folder(path)
        ended = bool(path) and state.is_dir()
        evidence = f"the job has ended; its outputs are at {path}" if path else "it has no outputs yet"
        raise WindlassError(
            "WL-ITEMS-404",
            f"{job.name} ended before its outputs were written"
            if ended
            else f"the outputs of {job.name} are not on this machine",
            evidence=f"its rows are kept in {state}; a retry goes on with those that are left"
            if ended
            else evidence,
            remedies=(_command(invocation, job, "items retry"),),
        )
    found: list[dict[str, Any]] = []
    reasons: Counter[str] = Counter()
    for row in _rows(path):
        if row.get("error"):
            reasons[str(row.get("reason") or "Error")] += 1
            if len(found) < limit:
                known = {name: row.get(name) for name in ("id", "attempts", "reason")}
                found.append({**known, "message": row["error"]})
    return found, dict(reasons.most_common())


def _rows(path: str) -> Iterator[dict[str, Any]]:
    if path.endswith(".parquet"):
        from windlass.items.parquet import read_values

        with open(path, "rb") as table:
            yield from read_values(table)
        return
    with open(path, encoding="utf-8", errors="replace", newline="") as stream:
        if path.endswith(".csv"):
            import csv

            yield from csv.DictReader(stream)
            return
        for line in stream:
            if line.strip():
                yield json.loads(line)
