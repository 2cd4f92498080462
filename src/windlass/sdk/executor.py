"""``submit``, ``map`` and an executor."""

from __future__ import annotations

import concurrent.futures
import inspect
import itertools
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack

from windlass.sdk.future import Future
from windlass.sdk.session import Session, Target, session_of

if TYPE_CHECKING:
    from windlass.cli.jobs.requests.job_builder import JobRequest

P = ParamSpec("P")
T = TypeVar("T")
_CHUNKS_PER_WORKER = 4


class Options(TypedDict, total=False):
    """Resources and place of a job; the flags of ``windlass run``.

    ``gpus``: GPUs of each rank. ``nodes``: ranks. ``cpus``, ``memory``: quantities of each rank (``"500m"``,
    ``"16Gi"``). ``gpu_memory``: memory of a share of a GPU. ``gpu_model``: accepted models. ``queue``, ``priority``:
    names. ``name``: of the job. ``env``: environment variables. ``time``: limit (``"2h"``). ``image``: needed on a
    cluster. ``target``: control plane and namespace.
    """

    gpus: int
    nodes: int
    cpus: str | int
    memory: str
    gpu_memory: str
    gpu_model: str
    queue: str
    priority: str
    name: str
    env: Mapping[str, str]
    time: str
    image: str
    target: Target


_NAMES = frozenset(Options.__annotations__)


def submit(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
    """Run ``function(*args, **kwargs)`` as a job and return its future.

    Keywords of :class:`Options` describe the job, all others are passed to the function. Raises
    :class:`WindlassError` where the job cannot be created; starts the control plane of this machine if it doesn't run.
    """
    options: Options = {key: kwargs.pop(key) for key in _NAMES & kwargs.keys()}  # type: ignore[assignment]
    return _Submission(function, args, kwargs, options).start()


def map(
    function: Callable[..., T],
    *iterables: Iterable[Any],
    workers: int = 4,
    chunksize: int = 0,
    **options: Unpack[Options],
) -> Iterator[T]:
    """Yield ``function(*items)`` for the items of the iterables, in their order.

    ``workers``: jobs at the same time. ``chunksize``: items of a job; 0: by the number of items and workers.
    """
    items = list(zip(*iterables, strict=False))
    size = chunksize or max(1, -(-len(items) // (workers * _CHUNKS_PER_WORKER)))
    with Executor(workers, **options) as executor:
        yield from executor.map(lambda *each: function(*each), *zip(*items, strict=True), chunksize=size)


class Executor(concurrent.futures.Executor):
    """Executor of functions as jobs, each with the same resources.

    ``max_workers``: jobs of this executor at the same time; the next is submitted when one has ended. ``None``: all at
    once, so that the queue decides.
    """

    def __init__(self, max_workers: int | None = None, **options: Unpack[Options]) -> None:
        if max_workers is not None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        if unknown := options.keys() - _NAMES:
            raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
        self._max, self._options = max_workers, options
        self._lock = threading.Lock()
        self._waiting: deque[_Submission] = deque()
        self._open: set[concurrent.futures.Future[Any]] = set()
        self._shut = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run ``fn(*args, **kwargs)`` as a job. All keywords are the function's."""
        submission: _Submission[T] = _Submission(fn, args, kwargs, self._options)
        with self._lock:
            if self._shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            waits = self._max is not None and len(self._open) >= self._max
            if waits:
                self._waiting.append(submission)
            else:
                self._open.add(submission.future)
        if not waits:
            try:
                submission.start()
            except BaseException:
                self._ended(submission.future)
                raise
        future: concurrent.futures.Future[T] = submission.future
        future.add_done_callback(self._ended)
        return submission.future

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[T]:
        """Yield ``fn(*items)`` in the order of the items; ``chunksize`` items share a job."""
        if chunksize < 1:
            raise ValueError("chunksize must be at least 1")
        items = zip(*iterables, strict=False)
        chunks = iter(lambda: list(itertools.islice(items, chunksize)), [])
        results = super().map(_Chunk(fn), chunks, timeout=timeout)
        return itertools.chain.from_iterable(results)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more functions. ``cancel_futures``: drop those that are not submitted as jobs yet."""
        with self._lock:
            self._shut = True
            dropped = list(self._waiting) if cancel_futures else []
            if cancel_futures:
                self._waiting.clear()
            open_now = [*self._open, *(one.future for one in self._waiting)]
        for submission in dropped:
            submission.future.cancel()
        if wait:
            concurrent.futures.wait(open_now)

    def _ended(self, future: concurrent.futures.Future[Any]) -> None:
        """Submit what waits for the place of an ended job."""
        with self._lock:
            self._open.discard(future)
        while True:
            with self._lock:
                if not self._waiting or (self._max is not None and len(self._open) >= self._max):
                    return
                submission = self._waiting.popleft()
                if submission.future.done():  # cancelled meanwhile
                    continue
                self._open.add(submission.future)
            try:
                submission.start()
            except Exception as error:
                submission.future.set_exception(error)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Call of a function for several items in one job."""

    function: Callable[..., Any]

    def __call__(self, items: list[tuple[Any, ...]]) -> list[Any]:
        return [self.function(*each) for each in items]

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", "map")


def _check_call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise :class:`TypeError` for a call that the function cannot take, before a job is created for it."""
    if not callable(function):
        raise TypeError(f"{function!r} is not a function; windlass run and windlass submit take a command")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions of C have none
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(
            f"{name}{signature}: {error}; options of a job: {', '.join(sorted(_NAMES))}"
        ) from None


@dataclass(slots=True)
class _Submission(Generic[T]):
    """One call that becomes a job."""

    function: Callable[..., T]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Options
    future: Future[T] = field(init=False)
    _session: Session = field(init=False)

    def __post_init__(self) -> None:
        _check_call(self.function, self.args, self.kwargs)
        self._session = session_of(self.options.get("target", Target()))
        self.future = Future(self._session)

    def start(self) -> Future[T]:
        from windlass.sdk import payload

        parts = payload.pack(self.function, self.args, self.kwargs, remote=self._session.remote)
        job = self._session.submit(self.future, self._request(), parts)
        self.future.created(job)
        return self.future

    def _request(self) -> JobRequest:
        from windlass.cli.jobs.requests.job_builder import base_name
        from windlass.cli.jobs.requests.job_flags import job_request_of
        from windlass.kits import rng as chance

        options = self.options
        function = getattr(self.function, "__name__", "") or type(self.function).__name__
        base = base_name((re.sub(r"^<lambda>$", "function", function).replace("_", "-"),))
        given: dict[str, Any] = {
            "words": ("python",),  # the session replaces it
            "gpus": options.get("gpus", 0),
            "nodes": options.get("nodes", 1),
            "cpus": str(options.get("cpus", "")),
            "elastic": "",
            "environment": tuple(f"{key}={value}" for key, value in options.get("env", {}).items()),
            "name": options.get("name") or f"{base}-{chance.name_suffix(chance.system())}",
        }
        for key in ("memory", "gpu_memory", "gpu_model", "queue", "priority", "time", "image"):
            given[key] = options.get(key, "")
        return job_request_of(given, followed=True)
