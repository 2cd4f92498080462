"""Muri's traces (Zhao et al., SIGCOMM 2022): derived from Philly, with models and iterations.

``job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0…2,
priority``; times in milliseconds. ``duration`` is what the job runs alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.sim.jobs import TraceJob
from windlass.sim.traces.rows import rows

COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration")


def read(lines: Iterable[str], file: str) -> list[TraceJob]:
    """The jobs. Raises :class:`~windlass.sim.traces.rows.TraceError`."""
    return [
        TraceJob(
            id=row.text("job_id"),
            submit_seconds=row.number("submit_time") / 1000.0,
            duration_seconds=row.number("duration") / 1000.0,
            gpus=row.gpus("num_gpu", least=1),
            model=row.text("model_name"),
            name=row.text("model_name"),
        )
        for row in rows(lines, file, COLUMNS)
    ]
