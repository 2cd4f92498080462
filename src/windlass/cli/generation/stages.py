"""Stages of a generation job as a table of ``windlass show``."""

from __future__ import annotations

from typing import Any

from windlass.api.resources import AIGC_JOBS
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.jobs import Job
from windlass.cli.output import wide_tables
from windlass.cli.text import timestamp
from windlass.kits import durations

HEADER = ["STAGE", "KIND", "PHASE", "WORKERS", "DONE", "WAITING", "FAILED", "S/ITEM", "BEGAN", "TOOK"]


def show(invocation: Invocation, job: Job) -> None:
    """Write the stages of an AIGCJob; nothing for other jobs."""
    status = job.obj.get("status") or {}
    if job.obj.get("kind") != AIGC_JOBS.kind or not status.get("stages"):
        return
    invocation.out.line("\nStages")
    now = invocation.clock.now()
    rows = [_row(stage, timestamp(status.get("startTime")), now) for stage in status["stages"]]
    wide_tables.show(invocation, HEADER, rows, optional=("S/ITEM", "FAILED"))


def _row(stage: dict[str, Any], started: float, now: float) -> list[str]:
    began, ended = timestamp(stage.get("startedAt")), timestamp(stage.get("finishedAt"))
    seconds = float(stage.get("secondsPerItem") or 0)
    return [
        stage["name"],
        stage["kind"] + (" (on CPU)" if stage.get("onCPU") else ""),
        stage["phase"],
        f"{stage.get('ready', 0)} of {stage.get('desired', 0)}",
        str(stage.get("done", 0)),
        str(stage.get("waiting", 0)),
        str(stage.get("failed", 0)),
        f"{seconds:.3g}" if seconds else "-",
        f"+{durations.write(max(0, round(began - started)))}" if began and started else "-",
        durations.write(max(0, round((ended or now) - began))) if began else "-",
    ]
