"""Memory of a process that keeps hundreds of thousands of small objects for long, and moves many more.

With the interpreter's defaults every 700 new objects start a collection, and a process that builds up
state spends a quarter of its time looking at objects that live on anyway (measured on the engine's
benchmark). What is dropped here is freed by reference counting; only cycles wait for the collector.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_TOP_PAD = -1, -2
_KEPT_BYTES = 64 * 2**20
_PAD_BYTES = 2**20


def expect_long_lives() -> None:
    """Set aside what lives now, and look for cycles seldom, a little at a time: what counts is how many
    more objects there are, so where as many go as come a look at two thousand more is one at ten thousand new
    ones, some milliseconds. What survives that is looked at once more with each ten thousand more (about 3 ms; with
    each two million more it was a third of a second at a time and the same in sum), then as good as never again.
    Call once the process has started up, and again once it has read what it will keep."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 5, 20_000)


@contextmanager
def hardly_looking() -> Iterator[None]:
    """Inside, look for cycles only once there are a million more objects: for work that keeps most of what it makes and
    leaves next to no cycles behind. The settings before hold again after it."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def collect_again() -> None:
    """What was set aside may have been dropped since (a whole state was replaced by another): look at all of it
    once. Nothing is done where nothing was set aside."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
        gc.freeze()


def keep_freed_memory() -> bool:
    """Keep up to 64 MiB of freed memory at hand instead of giving it back to the system at once.

    glibc gives back what is free at the top of its heap beyond 128 KiB. A process that makes and drops
    buffers of that size all the time then pays for the same pages over and over: a seventh of the server's
    time with ten watchers. Returns whether the C library knows how to do that.
    """
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_M_TOP_PAD, _PAD_BYTES))
