"""Jobs of every kind from Python: a manifest, or a job that runs.

::

    from windlass import JobBuilder

    job = JobBuilder("pytorchjob", ["torchrun", "train.py"], gpus=2, nodes=4, queue="research").submit()
    print(job.state, job.reason)
    job.wait()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from windlass.sdk.errors import JobDeleted, JobFailed
from windlass.sdk.job_view import JobView
from windlass.sdk.session import Target, session_of

if TYPE_CHECKING:
    from windlass.cli.jobs.jobs import Job
    from windlass.cli.jobs.requests.job_builder import JobRequest

Kind = Literal[
    "vcjob",
    "pytorchjob",
    "tfjob",
    "xgboostjob",
    "paddlejob",
    "jaxjob",
    "mpijob",
    "job",
    "jobset",
    "trainjob",
]
"""Values of ``windlass submit --kind``."""
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class JobBuilder:
    """A job that runs a command, as ``windlass submit --kind`` creates it.

    ``gpus``: GPUs of each rank. ``nodes``: ranks. ``cpus``, ``memory``: quantities of each rank. ``elastic``: least and
    greatest number of ranks of an elastic PyTorchJob. ``env``: environment variables. ``time``: limit (``"2h"``).
    ``checkpoint_path``, ``checkpoint_hook``: where checkpoints land, and what saves one before SIGTERM. ``image``:
    needed on a cluster.
    """

    kind: Kind
    command: Sequence[str]
    name: str = ""
    gpus: int = 0
    nodes: int = 1
    elastic: tuple[int, int] | None = None
    cpus: str | int = ""
    memory: str = ""
    gpu_memory: str = ""
    gpu_model: str = ""
    queue: str = ""
    priority: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    time: str = ""
    image: str = ""
    workdir: str = ""
    checkpoint_path: str = ""
    checkpoint_hook: str = ""

    def manifest(self, target: Target | None = None) -> dict[str, Any]:
        """Return the object that :meth:`submit` creates. Nothing is started.

        Raises :class:`~windlass.api.errors.WindlassError` where the kind cannot express the job.
        """
        from windlass.cli.jobs.requests.job_flags import dry_run_job

        return dry_run_job(session_of(target or Target()).invocation, self._request())

    def submit(self, target: Target | None = None) -> JobHandle:
        """Create the job and return its handle. Raises as :meth:`manifest`, and where the server refuses the job."""
        session = session_of(target or Target())
        metadata = session.create(self._request())["metadata"]
        return JobHandle(session, metadata["name"], metadata["namespace"])

    def _request(self) -> JobRequest:
        from windlass.cli.jobs.requests.job_flags import job_request_of

        given: dict[str, Any] = {
            "words": tuple(self.command),
            "elastic": f"{self.elastic[0]}:{self.elastic[1]}" if self.elastic is not None else "",
            "environment": tuple(f"{key}={value}" for key, value in self.env.items()),
            "cpus": str(self.cpus),
        }
        same = (
            "kind",
            "name",
            "gpus",
            "nodes",
            "memory",
            "gpu_memory",
            "gpu_model",
            "queue",
            "priority",
            "time",
        )
        for key in (*same, "image", "workdir", "checkpoint_path", "checkpoint_hook"):
            given[key] = getattr(self, key)
        return job_request_of(given)


class JobHandle(JobView):
    """A job of any kind, also one that another program created: ``JobHandle.of("train")``."""

    @staticmethod
    def of(name: str, target: Target | None = None) -> JobHandle:
        """Return the handle of a job by its name, ``kind/name`` or ``namespace/name``."""
        session = session_of(target or Target())
        return JobHandle(session, name, session.namespace)

    def __repr__(self) -> str:
        return f"<windlass.JobHandle {self.name}: {self.state}>"

    def state_of(self, job: Job | None) -> str:
        return job.state if job is not None else "Deleted"

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of the job. Raises :class:`JobFailed`, :class:`JobDeleted` and ``TimeoutError``."""
        for pause in self.waiting(timeout):
            self._session.invocation.clock.pause(pause)

    def waiting(self, timeout: float | None = None) -> Iterator[float]:
        """Yield seconds to pause until the job has ended. Raises as :meth:`wait`."""
        clock = self._session.invocation.clock
        until = None if timeout is None else clock.monotonic() + timeout
        while True:
            job = self.job()
            if job is None:
                raise JobDeleted(self.name, f"job {self.name} does not exist")
            if job.finished:
                break
            if until is not None and clock.monotonic() >= until:
                raise TimeoutError(f"job {self.name} is {job.state} after {timeout:g} s: {self.reason}")
            yield _POLL_SECONDS
        if job.state != "Completed":
            from windlass.cli.jobs.logs.follow import summary

            raise JobFailed(self.name, summary(job), job.exit_code)

    def cancel(self) -> str:
        """End the job; return what was done."""
        from windlass.cli.jobs.cancel import end_job

        job = self.job()
        if job is None:
            return "does not exist"
        with self._invocation() as invocation:
            return end_job(invocation, job, "cancelled by its program")

    def _over(self, seconds: float) -> bool:
        job = self.job()
        if job is None or job.finished:
            return True
        self._session.invocation.clock.pause(seconds)
        return False


__all__ = ["JobBuilder", "JobHandle", "Kind"]
