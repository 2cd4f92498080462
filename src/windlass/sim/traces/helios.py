"""Helios (Hu et al., SC 2021): the job log of one of its clusters.

``job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue``: times as
``2020-06-09 18:41:01``, ``duration`` in seconds. The virtual cluster is the queue. Jobs without GPUs are left
out: the clusters' nodes are counted in GPUs. (The ten-minute counts of the same clusters, and samples that name
applications, hold no durations: they are no jobs.)
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.sim.jobs import TraceJob
from windlass.sim.traces.rows import rows
from windlass.sim.traces.times import moment

COLUMNS = ("job_id", "user", "vc", "gpu_num", "cpu_num", "submit_time", "duration")


def read(lines: Iterable[str], file: str) -> list[TraceJob]:
    """The jobs with GPUs, from the first submission on. Raises
    :class:`~windlass.sim.traces.rows.TraceError`."""
    found = [(row, gpus) for row in rows(lines, file, COLUMNS) if (gpus := row.gpus("gpu_num"))]
    begun = [moment(row, "submit_time") for row, _ in found]
    first = min(begun, default=0.0)
    return [
        TraceJob(
            id=row.text("job_id"),
            submit_seconds=at - first,
            duration_seconds=row.number("duration"),
            gpus=gpus,
            queue=row.text("vc", "default"),
            user=row.text("user"),
        )
        for (row, gpus), at in zip(found, begun, strict=True)
    ]
