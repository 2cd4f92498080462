"""Logs of pods that no longer exist (in single-node mode).

The end of a job deletes its unfinished pods, or all of them, as its kind has it. Their
logs stay in the state directory for some time. On a cluster there are none.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from windlass.cli.invocation import Invocation
from windlass.cli.jobs.jobs import Job
from windlass.cli.jobs.logs.log_lines import LogView

_REST = r"(?:-\d+)*(?:-[a-z0-9]{5})?"
"""End of a pod's name after its first index: indices of kinds that have several, and a random part."""
_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclass(frozen=True, slots=True)
class RetainedLog:
    """Log directory of one container of a pod that no longer exists."""

    metadata: dict[str, Any]
    container: str
    task: str
    index: str

    @property
    def rank(self) -> str:
        return self.index if self.task == "main" else f"{self.task}-{self.index}"


@dataclass(frozen=True, slots=True)
class _ReadOptions:
    """Options for ``node.runtime.log_reader``."""

    container: str
    follow: bool
    previous: bool
    timestamps: bool
    tail_lines: int | None
    since: str
    stream: str = ""


def find(invocation: Invocation, job: Job, options: LogView) -> list[RetainedLog]:
    """Return the retained logs of ``job``: for each rank the latest since its creation."""
    directory = invocation.target.state.node / "logs"
    if invocation.target.remote or not directory.is_dir():
        return []
    present = {pod["metadata"]["uid"] for pod in job.pods}
    latest: dict[tuple[str, str], tuple[float, RetainedLog]] = {}
    for task in _roles(job):
        prefix = re.escape(f"{job.name}-{task}".lower())
        pattern = re.compile(rf"{re.escape(job.namespace)}_({prefix}-(\d+){_REST})_({_UID})")
        for entry in directory.iterdir():
            match = pattern.fullmatch(entry.name)
            created_at = _created_at(entry) if match is not None and match[3] not in present else 0.0
            if match is None or created_at < job.created:
                continue
            metadata = {"namespace": job.namespace, "name": match[1], "uid": match[3]}
            index = "-".join(
                filter(str.isdecimal, match[1].removeprefix(f"{job.name}-{task}-".lower()).split("-"))
            )
            for container in sorted(entry.iterdir()):
                log = RetainedLog(metadata, container.name, task, index)
                key = (log.rank, log.container)
                if _is_selected(log, options) and created_at >= latest.get(key, (0.0, log))[0]:
                    latest[key] = (created_at, log)
    return [log for _, log in latest.values()]


def _roles(job: Job) -> list[str]:
    """Return the parts of the names of pods between the job's name and the index of a pod."""
    if job.kind == "Job" and job.definition is None:
        return [task["name"] for task in job.obj["spec"].get("tasks") or ()]
    return [role.name for role in job.definition.roles(job.obj)] if job.definition is not None else []


def _created_at(directory: Path) -> float:
    """Return the time at which the pod's log directory was created (its oldest part)."""
    times = [part.stat().st_ctime for part in directory.rglob("*")] or [directory.stat().st_ctime]
    return min(times)


def _is_selected(log: RetainedLog, options: LogView) -> bool:
    if options.container is not None and log.container != options.container:
        return False
    if options.task is not None and log.task != options.task:
        return False
    return options.rank is None or options.rank in (log.rank, log.index, log.metadata["name"])


def streams(
    invocation: Invocation, logs: list[RetainedLog], options: LogView
) -> dict[str, Callable[[], Iterator[bytes]]]:
    """Return rank → the bytes of its log, with time stamps."""
    directory = invocation.target.state.node
    return {log.rank: partial(_read, directory, log, options) for log in logs}


def read_pod(
    invocation: Invocation, namespace: str, name: str, uid: str, container: str, options: LogView
) -> Iterator[bytes] | None:
    """Return the log of one container of a deleted pod, or ``None`` if it is not retained."""
    directory = invocation.target.state.node
    if (
        invocation.target.remote
        or not (directory / "logs" / f"{namespace}_{name}_{uid}" / container).is_dir()
    ):
        return None
    metadata = {"namespace": namespace, "name": name, "uid": uid}
    return _read(directory, RetainedLog(metadata, container, "", ""), options)


def _read(directory: Path, log: RetainedLog, options: LogView) -> Iterator[bytes]:
    import asyncio

    from windlass.kits.clock import SystemClock
    from windlass.kits.timestamps import rfc3339_micro
    from windlass.node.runtime.log_reader import LogNotFound, LogReader

    clock = SystemClock()
    reader = LogReader(directory, clock=clock, missing=LogNotFound)
    since = rfc3339_micro(clock.now() - options.since_seconds)[:-1] if options.since_seconds else ""
    wanted = _ReadOptions(log.container, False, options.previous, True, options.tail, since)

    async def collect(chunks: AsyncIterator[bytes]) -> list[bytes]:
        return [chunk async for chunk in chunks]

    try:
        yield from asyncio.run(collect(reader.open({"metadata": log.metadata}, wanted)))
    except LogNotFound:
        return
