"""Work in several processes: for what is pure arithmetic and takes seconds."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from typing import TypeVar

_Given = TypeVar("_Given")
_Found = TypeVar("_Found")
_LOOK_SECONDS = 0.2
"""How often it is told how far the work is."""


class _Reached:
    """In a process that works for another: how far each item is, and the number of its own one."""

    counts: MutableSequence[int] | None = None
    number = 0


def reached(done: int) -> None:
    """Of ``work`` in a process of :func:`in_processes`: how far it is with its item. Elsewhere nobody hears of it."""
    if _Reached.counts is not None:
        _Reached.counts[_Reached.number] = done


def in_processes(
    work: Callable[[_Given], _Found],
    items: Sequence[_Given],
    jobs: int,
    tell: Callable[[int], None] | None = None,
) -> Iterator[tuple[_Given, _Found]]:
    """``work`` of every item, as they are done; with one job or one item in this process, in order.

    ``work`` is a function of a module, and items and results can be pickled. An error of ``work`` is raised here; what
    has not ended by then, or when nobody asks for more, or at Ctrl-C, is ended. ``tell`` hears some times a second how
    far all items are together, of what their processes have :func:`reached`.
    """
    if jobs <= 1 or len(items) <= 1:
        for item in items:
            yield item, work(item)
        return
    import multiprocessing
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

    fresh = multiprocessing.get_context("spawn")  # threads and open files of this process stay its own
    others = set(multiprocessing.active_children())
    counts = fresh.RawArray("q", len(items))
    with ProcessPoolExecutor(
        min(jobs, len(items)), mp_context=fresh, initializer=_hear, initargs=(counts,)
    ) as pool:
        with _deaf_children():
            begun = {pool.submit(_work, work, at, item): item for at, item in enumerate(items)}
        try:
            open_ = set(begun)
            while open_:
                done, open_ = wait(open_, _LOOK_SECONDS if tell else None, FIRST_COMPLETED)
                if tell is not None:
                    tell(sum(counts))
                for one in done:
                    yield begun[one], one.result()
        except BaseException:
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _hear(counts: MutableSequence[int]) -> None:
    """A process begins to work for another."""
    _Reached.counts = counts


def _work(work: Callable[[_Given], _Found], number: int, item: _Given) -> _Found:
    _Reached.number = number
    return work(item)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes begun in here do not hear Ctrl-C, which goes to all of a terminal: who began them ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
