"""View of one job from Python: state, reason and output."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from windlass.api.errors import StatusError, WindlassError

if TYPE_CHECKING:
    from windlass.cli.jobs.jobs import Job
    from windlass.sdk.async_job import AsyncJob
    from windlass.sdk.session import Session

_POLL_SECONDS = 0.2
_LEADING = ("master", "launcher", "chief", "head")
"""Parts of the names of pods with rank 0."""


class JobView:
    """One job of a session. ``name`` is empty until the job is created."""

    def __init__(self, session: Session, name: str = "", namespace: str = "") -> None:
        self._session = session
        self.name, self.namespace = name, namespace

    def _over(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the end of the job; return whether it has ended."""
        raise NotImplementedError

    @property
    def state(self) -> str:
        """State as in ``windlass ps``: Pending, Starting, Running, Completed, Failed, …"""
        return self.state_of(self.job())

    def state_of(self, job: Job | None) -> str:
        """Return the state of the job as it was just read."""
        raise NotImplementedError

    @property
    def problem(self) -> str:
        """Exception of the job's function; empty if it has none."""
        return ""

    def waiting(self, timeout: float | None = None) -> Iterator[float]:
        """Yield seconds to pause until the job has ended. Raises ``TimeoutError`` and the job's failure."""
        raise NotImplementedError

    def cancel(self) -> object:
        """End the job."""
        raise NotImplementedError

    @property
    def aio(self) -> AsyncJob:
        """Methods for an event loop: ``await job.aio.wait()``."""
        from windlass.sdk.async_job import AsyncJob

        return AsyncJob(self)

    def _repr_html_(self) -> str:
        from windlass.sdk.notebook import html_of

        return html_of(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def job(self) -> Job | None:
        """Return the job with its pods as the command line shows it; ``None`` if it isn't there."""
        from windlass.cli.jobs.job_index import find

        if not self.name:
            return None
        try:
            with self._invocation() as invocation:
                return find(invocation, self.name)
        except (StatusError, WindlassError):
            return None

    @property
    def reason(self) -> str:
        """Cause of the wait or of the end of the job, as in ``windlass ps``; empty if there is nothing to say."""
        from windlass.cli.jobs.reasons import brief

        job = self.job()
        return brief(job) if job is not None else ""

    def logs(self, rank: int = 0, *, follow: bool = True) -> Iterator[str]:
        """Yield the lines that a rank prints, without line ends.

        ``follow``: until the rank ends, beginning before it has started; otherwise what is there.
        """
        from windlass.cli.jobs.logs.log_lines import LogView
        from windlass.cli.jobs.logs.log_stream import LogFeed

        found = self._pod(rank, wait=follow)
        if found is None:
            return
        pod, container = found
        with self._invocation() as invocation:
            if not follow:
                yield from output_lines(invocation.client.logs(self.namespace, pod, container=container))
                return
            feed = LogFeed(self.namespace, pod, container, LogView())
            chunks = (
                piece.data + (b"\n" if piece.complete else b"")
                for pieces in feed.pieces(invocation.new_client, invocation.clock)
                for piece in pieces
            )
            yield from output_lines(chunks)

    def _pod(self, rank: int, *, wait: bool) -> tuple[str, str] | None:
        """Return pod and container of a rank once its output can be read; ``None`` if it will never be there."""
        over = not wait
        while True:
            job = self.job()
            pods = _by_rank(job) if job is not None else []
            if rank < len(pods):
                pod = pods[rank]
                if not wait or (pod.get("status") or {}).get("phase") not in ("Pending", None):
                    return pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
            if over:  # before this look
                return None
            over = self._over(_POLL_SECONDS)

    @contextlib.contextmanager
    def _invocation(self) -> Iterator[Any]:
        """Yield an invocation with a client of its own, as each thread needs one."""
        from dataclasses import replace

        invocation = replace(self._session.invocation, namespace=self.namespace, _client=None)
        try:
            yield invocation
        finally:
            invocation.client.close()


def _by_rank(job: Job) -> list[dict[str, Any]]:
    """Return the pods of a job, the leading one first.

    None while some are missing, as ranks are unknown then. A finished job may have deleted pods.
    """
    from windlass.cli.text import natural_key

    if len(job.pods) < job.members and not job.finished:
        return []
    names = [(pod["metadata"]["name"], pod) for pod in job.pods]
    leads = {name for name, _ in names if any(f"-{word}-" in f"{name}-" for word in _LEADING)}
    return [pod for name, pod in sorted(names, key=lambda one: (one[0] not in leads, natural_key(one[0])))]


def output_lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """Yield lines of output without those that carry an outcome."""
    from windlass.sdk.remote_call import MARK

    for line in all_lines(chunks):
        output, mark, _ = line.partition(MARK)
        if output or not mark:
            yield output


def all_lines(chunks: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")
