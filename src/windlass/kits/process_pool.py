"""Pool of processes for CPU-bound work of seconds."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_PROGRESS_SECONDS = 0.2
"""Interval (seconds) between two progress reports."""


class _Progress:
    """Progress of each item, and the number of this process's item, in a worker process."""

    counts: MutableSequence[int] | None = None
    number = 0


def report_progress(done: int) -> None:
    """Report the progress of the current item of ``work`` (:func:`map_in_processes`).

    Outside such a process it does nothing.
    """
    if _Progress.counts is not None:
        _Progress.counts[_Progress.number] = done


def map_in_processes(
    work: Callable[[_Item], _Result],
    items: Sequence[_Item],
    jobs: int,
    on_progress: Callable[[int], None] | None = None,
) -> Iterator[tuple[_Item, _Result]]:
    """Yield items with the results of ``work`` in order of completion.

    With one job or one item, ``work`` runs in this process, in order. ``work`` must be
    a module function, and items and results must be picklable. An error of ``work`` is
    raised here. Unfinished work is terminated then, at Ctrl-C, and when the iterator is
    closed. ``on_progress`` is called several times a second with the total progress of
    all items (:func:`report_progress`).
    """
    if jobs <= 1 or len(items) <= 1:
        for item in items:
            yield item, work(item)
        return
    import multiprocessing
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

    fresh = multiprocessing.get_context("spawn")  # do not inherit threads and open files
    existing = set(multiprocessing.active_children())
    counts = fresh.RawArray("q", len(items))
    with ProcessPoolExecutor(
        min(jobs, len(items)), mp_context=fresh, initializer=_attach_progress, initargs=(counts,)
    ) as pool:
        with _ignore_interrupts():
            started = {pool.submit(_work, work, at, item): item for at, item in enumerate(items)}
        try:
            open_ = set(started)
            while open_:
                done, open_ = wait(open_, _PROGRESS_SECONDS if on_progress else None, FIRST_COMPLETED)
                if on_progress is not None:
                    on_progress(sum(counts))
                for one in done:
                    yield started[one], one.result()
        except BaseException:
            for process in set(multiprocessing.active_children()) - existing:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _attach_progress(counts: MutableSequence[int]) -> None:
    """Attach a new worker process to the shared progress."""
    _Progress.counts = counts


def _work(work: Callable[[_Item], _Result], number: int, item: _Item) -> _Result:
    _Progress.number = number
    return work(item)


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, which a terminal sends to all: the parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
