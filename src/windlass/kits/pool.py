"""Work in several processes: for what is pure arithmetic and takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

_Given = TypeVar("_Given")
_Found = TypeVar("_Found")


def in_processes(
    work: Callable[[_Given], _Found], items: Sequence[_Given], jobs: int
) -> Iterator[tuple[_Given, _Found]]:
    """``work`` of every item, as they are done; with one job or one item in this process, in order.

    ``work`` is a function of a module, and items and results can be pickled. An error of ``work`` is raised here;
    what has not begun by then is left undone.
    """
    if jobs <= 1 or len(items) <= 1:
        for item in items:
            yield item, work(item)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    fresh = multiprocessing.get_context("spawn")  # threads and open files of this process stay its own
    with ProcessPoolExecutor(min(jobs, len(items)), mp_context=fresh) as pool:
        begun = {pool.submit(work, item): item for item in items}
        try:
            for done in as_completed(begun):
                yield begun[done], done.result()
        finally:
            pool.shutdown(cancel_futures=True)
