"""Result of a function that runs as a job."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import PODS
from windlass.sdk.errors import JobDeleted, JobFailed
from windlass.sdk.job_view import JobView, all_lines, output_lines

if TYPE_CHECKING:
    from windlass.cli.jobs.jobs import Job
    from windlass.sdk.payload import Outcome
    from windlass.sdk.session import Session

T = TypeVar("T")
_POLL_SECONDS = 0.1
_LAST_LINES = 20
"""Lines of output that an error shows."""


class Future(JobView, concurrent.futures.Future[T], Generic[T]):
    """Future of a job. ``result()`` returns what the function returned in rank 0.

    All of :class:`concurrent.futures.Future` holds, so ``wait`` and ``as_completed`` take it. ``await future`` waits
    in an event loop. An exception of the function is raised with its own type; its cause names the rank and has the
    traceback of there. :class:`JobFailed` is raised where a job ended without a result. ``cancel()`` ends the job.
    """

    def __init__(self, session: Session) -> None:
        concurrent.futures.Future.__init__(self)
        JobView.__init__(self, session)
        self._outcomes: dict[int, Outcome] = {}
        self._ending = threading.Lock()

    def created(self, job: dict[str, Any]) -> None:
        """Take over the name of the job (called by the session)."""
        self.name, self.namespace = job["metadata"]["name"], job["metadata"]["namespace"]

    def __await__(self) -> Generator[Any, None, T]:
        import asyncio

        return asyncio.wrap_future(self).__await__()

    def __repr__(self) -> str:
        return f"<windlass.Future {self.name or 'not submitted yet'}: {self.state}>"

    def state_of(self, job: Job | None) -> str:
        if self.cancelled():
            return "Cancelled"
        if self.done():
            return "Failed" if self.exception() else "Completed"
        return job.state if job is not None else "Pending"

    @property
    def state(self) -> str:
        """State as in ``windlass ps``: Pending, Starting, Running, Completed, Failed, …"""
        return self.state_of(None if self.done() else self.job())

    @property
    def problem(self) -> str:
        if not self.done() or self.cancelled() or (error := self.exception()) is None:
            return ""
        return f"{type(error).__name__}: {error}"

    def waiting(self, timeout: float | None = None) -> Iterator[float]:
        """Yield seconds to pause until the result is there. Raises as :meth:`result`."""
        clock = self._session.invocation.clock
        until = None if timeout is None else clock.monotonic() + timeout
        while not self.done():
            if until is not None and clock.monotonic() >= until:
                raise concurrent.futures.TimeoutError
            yield _POLL_SECONDS
        self.result()

    def running(self) -> bool:
        """Return whether the function runs. A waiting job does not."""
        return not self.done() and self.state == "Running"

    def _over(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the end of the job; return whether it has ended."""
        with contextlib.suppress(concurrent.futures.TimeoutError, Exception):
            self.exception(timeout=seconds)
        return self.done()

    # Waiting for it and ending it.

    def results(self, timeout: float | None = None) -> list[T]:
        """Return what the function returned in each rank, rank 0 first. Raises as :meth:`result`."""
        self.result(timeout)
        return [self._outcomes[rank].value for rank in sorted(self._outcomes)]

    def cancel(self) -> bool:
        """End the job, also one that runs. Returns ``False`` if it had ended before."""
        from windlass.cli.jobs.cancel import terminate

        with self._ending:
            if self.done():
                return self.cancelled()
            if self.name:
                try:
                    with self._invocation() as invocation:
                        terminate(invocation, self.name, self.namespace, "cancelled by its program")
                except StatusError as problem:
                    if problem.code != 404:
                        raise
            cancelled = concurrent.futures.Future.cancel(self)
            self.set_running_or_notify_cancel()
            return cancelled

    def settle(self, job: dict[str, Any] | None) -> None:
        """Take over the result of an ended job; ``None``: it was deleted (called by the session)."""
        with self._ending:
            if self.done():
                self._session.forget(self.name)
                return
            try:
                self._outcomes = self._read_outcomes(job)
                failure = self._failure(job)
            except Exception as error:
                failure = error
            if failure is not None:
                self.set_exception(failure)
            else:
                self.set_result(self._outcomes[min(self._outcomes)].value)
        self._session.forget(self.name)

    def _read_outcomes(self, job: dict[str, Any] | None) -> dict[int, Outcome]:
        from windlass.sdk import payload

        if self._session.remote:
            texts = self._remote_outcomes() if job is not None else []
        else:
            texts = [path.read_bytes() for path in self._session.results(self.name).glob("outcome-*[0-9]")]
        found = [payload.unpack(text) for text in texts]
        return {outcome.rank: outcome for outcome in found}

    def _remote_outcomes(self) -> list[bytes]:
        from windlass.sdk import payload

        found = []
        with self._invocation() as invocation:
            for pod in invocation.client.list(
                PODS, self.namespace, labels=f"volcano.sh/job-name={self.name}"
            ).items:
                name, phase = pod["metadata"]["name"], (pod.get("status") or {}).get("phase")

                def read(lines: int | None, name: str = name) -> Iterator[str]:
                    return all_lines(invocation.client.logs(self.namespace, name, tail_lines=lines))

                if (data := payload.from_end(read, complete=phase == "Succeeded")) is not None:
                    found.append(data)
        return found

    def _failure(self, job: dict[str, Any] | None) -> BaseException | None:
        raised = sorted((one for one in self._outcomes.values() if one.error), key=lambda one: one.time)
        if raised:
            return raised[0].raised(self.name)
        if job is None:
            return JobDeleted(self.name, f"job {self.name} was deleted before it had ended")
        phase = job["status"]["state"]["phase"]
        if phase == "Completed" and self._outcomes:
            return None
        return self._failed_without_outcome(phase)

    def _failed_without_outcome(self, phase: str) -> JobFailed:
        from windlass.cli.jobs.logs.follow import summary

        job = self.job()
        if job is None:
            return JobFailed(self.name, f"job {self.name}: {phase.lower()}")
        output: list[str] = []
        failed = job.first_failure
        if failed is not None:
            with contextlib.suppress(StatusError, WindlassError), self._invocation() as invocation:
                name = failed[0]["metadata"]["name"]
                output = list(
                    output_lines(invocation.client.logs(self.namespace, name, tail_lines=_LAST_LINES))
                )
        text = summary(job) if job.exit_code else f"{job.name}: {phase.lower()} without a result"
        return JobFailed(self.name, text, failed[1] if failed is not None else job.exit_code, output)
