"""Run times that a policy goes by in a replay: exact, as the owners of jobs say, or learned from jobs that have ended.

A job is asked about when it comes, and learned from when it has ended, as in life. What its owner states is
``TraceJob.requested_seconds``; where nothing is stated, ``user`` goes by what is learned.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace as altered

from windlass.model.cluster.run_time_traits import with_prediction
from windlass.predict.history import History
from windlass.predict.known import Oracle, Stated
from windlass.predict.model import CompletedRun, RunTimeModel, Traits
from windlass.sim.jobs import WHOLE, TraceJob
from windlass.spi.objects import Group

ORACLE, USER, LEARNED = "oracle", "user", "learned"
RUN_TIMES = (ORACLE, USER, LEARNED)


def traits_of(job: TraceJob, key: str) -> Traits:
    """Return the traits of a job before it runs; its size is in GPUs. ``key``: a unique name."""
    asked = (job.cpu_milli, job.memory_bytes, job.gpu_milli % WHOLE)
    shape = " ".join(map(str, asked)) if any(asked) else ""
    return Traits(job.user, job.queue, job.name, max(job.gpus, 1), job.requested_seconds, key, shape)


class ReplayEstimates:
    """Run-time estimates for the policy of a replay.

    ``kind``: one of :data:`RUN_TIMES`, otherwise raises ``ValueError``; ``keys``: the engine's names of ``jobs``.
    """

    def __init__(self, kind: str, keys: Sequence[str], jobs: Sequence[TraceJob]) -> None:
        self._model = _model(kind, keys, jobs)
        self._learns = kind != ORACLE

    def dress(self, group: Group, job: TraceJob) -> Group:
        """The group with what is expected of it, as on a cluster; as it is where nothing is known."""
        found = self._model.predict(traits_of(job, group.key))
        if found is None:
            return group
        if found.stated:
            return altered(group, run_estimate=found.seconds)
        return with_prediction(group, found)

    def ended(self, key: str, job: TraceJob, seconds: float) -> None:
        """The job has ended, and would have run for so long without a stop: as on a cluster, where time in which it was
        suspended does not count, nor what it had to do again."""
        if self._learns:
            self._model.observe(CompletedRun(key, traits_of(job, key), seconds))


def _model(kind: str, keys: Sequence[str], jobs: Sequence[TraceJob]) -> RunTimeModel:
    if kind == ORACLE:
        return Oracle({key: job.duration_seconds for key, job in zip(keys, jobs, strict=True)})
    if kind == USER:
        return Stated(History())
    if kind == LEARNED:
        return History()
    raise ValueError(f"there are no run times {kind!r}: {', '.join(RUN_TIMES)}")
