"""GenTD26 (Alibaba cluster-trace-v2026-GenAI): requests for images.

``gmt_create,predict_type,predict_status,exec_time_seconds,groupId,…,checkpoint_model_version_id,num_lora``. A
request is a job of one GPU; its base model is ``model``. Only those that succeeded have a run time worth playing.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.sim.jobs import TraceJob
from windlass.sim.traces.rows import rows
from windlass.sim.traces.times import moment

COLUMNS = ("gmt_create", "predict_status", "exec_time_seconds", "groupId", "checkpoint_model_version_id")


def read(lines: Iterable[str], file: str) -> list[TraceJob]:
    """The requests that succeeded, from the first on. Raises :class:`~windlass.sim.traces.rows.TraceError`."""
    found = [
        (number, row, moment(row, "gmt_create"))
        for number, row in enumerate(rows(lines, file, COLUMNS))
        if row.text("predict_status") == "SUCCEED"
    ]
    first = min((begun for *_, begun in found), default=0.0)
    return [
        TraceJob(
            id=str(number),
            submit_seconds=begun - first,
            duration_seconds=row.number("exec_time_seconds"),
            gpus=1,
            user=row.text("groupId"),
            name=row.text("checkpoint_model_version_id"),
            model=row.text("checkpoint_model_version_id"),
        )
        for number, row, begun in found
    ]
