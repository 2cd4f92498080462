"""Logs of pods whose objects are gone: on this box they stay on disk for a time.

Ending a Volcano Job removes its unfinished pods, as Volcano does; what they wrote is still in the state
folder, and a person who cancelled a job wants to read it. On a cluster there is no such folder.
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
from windlass.cli.jobs.log_lines import LogView

_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@dataclass(frozen=True, slots=True)
class KeptLog:
    """One container's log folder of a pod that is gone."""

    metadata: dict[str, Any]
    container: str
    task: str
    index: str

    @property
    def rank(self) -> str:
        return self.index if self.task == "main" else f"{self.task}-{self.index}"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """``node.runtime.log_reader`` reads with these."""

    container: str
    follow: bool
    previous: bool
    timestamps: bool
    tail_lines: int | None
    since_seconds: float | None


def find(invocation: Invocation, job: Job, options: LogView) -> list[KeptLog]:
    """What is kept of ``job``'s pods that no longer exist: the latest of each rank, begun after the job."""
    folder = invocation.target.state.node / "logs"
    if invocation.target.remote or job.kind != "Job" or not folder.is_dir():
        return []
    present = {pod["metadata"]["uid"] for pod in job.pods}
    latest: dict[tuple[str, str], tuple[float, KeptLog]] = {}
    for task in job.obj["spec"].get("tasks") or ():
        prefix = re.escape(f"{job.name}-{task['name']}")
        pattern = re.compile(rf"{re.escape(job.namespace)}_({prefix}-(\d+))_({_UID})")
        for entry in folder.iterdir():
            found = pattern.fullmatch(entry.name)
            began = _began(entry) if found is not None and found[3] not in present else 0.0
            if found is None or began < job.created:
                continue
            metadata = {"namespace": job.namespace, "name": found[1], "uid": found[3]}
            for container in sorted(entry.iterdir()):
                log = KeptLog(metadata, container.name, task["name"], found[2])
                key = (log.rank, log.container)
                if _asked(log, options) and began >= latest.get(key, (0.0, log))[0]:
                    latest[key] = (began, log)
    return [log for _, log in latest.values()]


def _began(folder: Path) -> float:
    """When the pod's log folder was made (its oldest part)."""
    times = [part.stat().st_ctime for part in folder.rglob("*")] or [folder.stat().st_ctime]
    return min(times)


def _asked(log: KeptLog, options: LogView) -> bool:
    if options.container is not None and log.container != options.container:
        return False
    if options.task is not None and log.task != options.task:
        return False
    return options.rank is None or options.rank in (log.rank, log.index, log.metadata["name"])


def streams(
    invocation: Invocation, kept: list[KeptLog], options: LogView
) -> dict[str, Callable[[], Iterator[bytes]]]:
    """Rank → the bytes of its log, with time stamps."""
    folder = invocation.target.state.node
    return {log.rank: partial(_read, folder, log, options) for log in kept}


def _read(folder: Path, log: KeptLog, options: LogView) -> Iterator[bytes]:
    import asyncio

    from windlass.kits.clock import SystemClock
    from windlass.node.runtime.log_reader import LogNotFound, LogReader

    reader = LogReader(folder, clock=SystemClock(), missing=LogNotFound)
    wanted = _Wanted(log.container, False, options.previous, True, options.tail, options.since_seconds)

    async def collect(chunks: AsyncIterator[bytes]) -> list[bytes]:
        return [chunk async for chunk in chunks]

    try:
        yield from asyncio.run(collect(reader.open({"metadata": log.metadata}, wanted)))
    except LogNotFound:
        return
