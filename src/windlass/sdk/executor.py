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
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, TypeVar, Unpack

from windlass.sdk.future import Future
from windlass.sdk.session import Session, Target, session_of

if TYPE_CHECKING:
    from windlass.cli.jobs.requests.job_builder import JobRequest

P = ParamSpec("P")
T = TypeVar("T")
_CHUNKS_PER_WORKER = 4
ITEMS_FROM = 1000
"""Minimum number of items for which ``map`` makes one job of the item engine by itself."""
NOT_WITH_ITEMS = ("gpu_memory", "gpu_model", "image", "nodes")
"""Options that the item engine does not have."""


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
    engine: Literal["auto", "jobs", "items"] = "auto",
    retries: int = 0,
    timeout: float = 0.0,
    errors: Literal["raise", "return"] = "raise",
    progress: Callable[[Mapping[str, Any]], None] | bool | None = None,
    keep: bool = False,
    **options: Unpack[Options],
) -> Iterator[T]:
    """Yield ``function(*items)`` for the items of the iterables, in their order.

    ``workers``: jobs, or workers of one job, at the same time. ``chunksize``: items of a job; 0: by the
    number of items and workers. ``engine``: ``jobs`` makes a job of each share; ``items`` makes one
    job with a ledger, in which each call has one result, whatever is killed. ``auto`` takes ``items``
    on this machine from 1000 items on, or if one of the following is given.

    ``retries``: further attempts of a call that raises. ``timeout``: seconds of one call. ``errors``:
    ``return`` yields exceptions in the place of results. ``progress``: ``True`` for a line on the
    standard error, or a function of the counts. ``keep``: results stay for the next call of the same map.

    Raises ``ValueError`` and ``TypeError`` for arguments that are wrong, before anything is created.
    """
    asked = bool(retries or timeout or errors != "raise" or progress or keep)
    _check_map(options, engine, errors, workers, chunksize, retries, timeout)
    if engine == "jobs" and asked:
        raise ValueError("retries, timeout, errors, progress and keep need engine='items'")
    calls: Iterator[tuple[Any, ...]] = zip(*iterables, strict=False)
    given = _MapOptions(workers, chunksize, retries, timeout, errors, progress, keep)
    return _mapped(function, calls, engine, asked, given, options)


def _check_map(
    options: Mapping[str, Any],
    engine: str,
    errors: str,
    workers: int,
    chunksize: int,
    retries: int,
    timeout: float,
) -> None:
    """Raise for arguments of ``map`` that are wrong, with those that are right."""
    if unknown := options.keys() - _NAMES:
        raise TypeError(f"map has no option {min(unknown)!r}: its options are {', '.join(sorted(_NAMES))}")
    for name, word, words in (
        ("engine", engine, ("auto", "jobs", "items")),
        ("errors", errors, ("raise", "return")),
    ):
        if word not in words:
            raise ValueError(f"{name} is {word!r}: use one of {', '.join(repr(one) for one in words)}")
    for name, number, least in (
        ("workers", workers, 1),
        ("chunksize", chunksize, 0),
        ("retries", retries, 0),
        ("timeout", timeout, 0),
    ):
        if number < least:
            raise ValueError(f"{name} is {number}: it must be at least {least}")


@dataclass(frozen=True, slots=True)
class _MapOptions:
    """Arguments of ``map`` about its calls."""

    workers: int
    chunksize: int
    retries: int
    timeout: float
    errors: str
    progress: Callable[[Mapping[str, Any]], None] | bool | None
    keep: bool


def _mapped(
    function: Callable[..., T],
    calls: Iterator[tuple[Any, ...]],
    engine: str,
    asked: bool,
    given: _MapOptions,
    options: Options,
) -> Iterator[T]:
    session = session_of(options.get("target", Target()))
    if engine == "auto":
        first = list(itertools.islice(calls, ITEMS_FROM))
        possible = not session.remote and options.get("nodes", 1) == 1
        possible = possible and not any(options.get(name) for name in NOT_WITH_ITEMS)
        engine = "items" if asked or (possible and len(first) == ITEMS_FROM) else "jobs"
        calls = itertools.chain(first, calls)
    if engine == "items":
        from windlass.sdk.item_map import ItemMap

        work = ItemMap(
            session,
            function,
            options,
            given.workers,
            given.chunksize,
            given.retries,
            given.timeout,
            given.errors,
            given.progress,
            given.keep,
        )
        yield from work.run(calls)
        return
    items = list(calls)
    if not items:
        return
    size = given.chunksize or max(1, -(-len(items) // (given.workers * _CHUNKS_PER_WORKER)))
    with Executor(given.workers, **options) as executor:
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
