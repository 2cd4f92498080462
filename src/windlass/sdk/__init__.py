"""Python functions as jobs: ``submit``, ``map`` and an executor, on this machine and on a cluster.

::

    from windlass import submit

    future = submit(train, "data.csv", gpus=4, nodes=2)   # two ranks with four GPUs each
    print(future.state, future.reason)
    for line in future.logs():
        print(line)
    result = future.result()

The jobs are those of ``windlass run``: they wait in a queue, start as a gang and are listed by ``windlass ps``.
The names of this package are also names of ``windlass``.
"""

from __future__ import annotations

from windlass.sdk.errors import ItemFailed, JobDeleted, JobFailed, RemoteTraceback
from windlass.sdk.executor import Executor, map, submit
from windlass.sdk.future import Future
from windlass.sdk.job_builder import JobBuilder, JobHandle
from windlass.sdk.session import Target
from windlass.sdk.workflows.workflow import Workflow

__all__ = [
    "Executor",
    "Future",
    "ItemFailed",
    "JobBuilder",
    "JobDeleted",
    "JobFailed",
    "JobHandle",
    "RemoteTraceback",
    "Target",
    "Workflow",
    "map",
    "submit",
]
