"""Philly (Jeon et al., ATC 2019), as the filtered lists have it.

Two forms: ``submit_s,duration_s,gpus,vc`` (seconds from the first day of the window), and that of the list
that Pollux and Sia use, ``timestamp,duration,num_gpus,gpu_time,cluster``. The virtual cluster is the queue.
Neither has CPU or memory: jobs are taken to ask for their share of the node in proportion.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.sim.jobs import TraceJob
from windlass.sim.traces.rows import rows
from windlass.sim.traces.times import moment

COLUMNS = ("submit_s", "duration_s", "gpus")
LISTED = ("timestamp", "duration", "num_gpus", "cluster")


def read(lines: Iterable[str], file: str) -> list[TraceJob]:
    """The jobs. Raises :class:`~windlass.sim.traces.rows.TraceError`."""
    return [
        TraceJob(
            id=str(number),
            submit_seconds=row.number("submit_s"),
            duration_seconds=row.number("duration_s"),
            gpus=row.gpus("gpus", least=1),
            queue=row.text("vc", "default"),
        )
        for number, row in enumerate(rows(lines, file, COLUMNS))
    ]


def read_list(lines: Iterable[str], file: str) -> list[TraceJob]:
    """The same of the longer form; its times become seconds from the first one."""
    found = [(row, moment(row, "timestamp")) for row in rows(lines, file, LISTED)]
    first = min((begun for _, begun in found), default=0.0)
    return [
        TraceJob(
            id=str(number),
            submit_seconds=begun - first,
            duration_seconds=row.number("duration"),
            gpus=row.gpus("num_gpus", least=1),
            queue=row.text("cluster", "default"),
        )
        for number, (row, begun) in enumerate(found)
    ]
