"""Work in several processes: for what is pure arithmetic and takes seconds."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

_Given = TypeVar("_Given")
_Found = TypeVar("_Found")


def in_processes(
    work: Callable[[_Given], _Found], items: Sequence[_Given], jobs: int
) -> Iterator[tuple[_Given, _Found]]:
    """``work`` of every item, as they are done; with one job or one item in this process, in order.

    ``work`` is a function of a module, and items and results can be pickled. An error of ``work`` is raised here; what
    has not ended by then, or when nobody asks for more, or at Ctrl-C, is ended.
    """
    if jobs <= 1 or len(items) <= 1:
        for item in items:
            yield item, work(item)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    fresh = multiprocessing.get_context("spawn")  # threads and open files of this process stay its own
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(min(jobs, len(items)), mp_context=fresh) as pool:
        with _deaf_children():
            begun = {pool.submit(work, item): item for item in items}
        try:
            for done in as_completed(begun):
                yield begun[done], done.result()
        except BaseException:
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


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
