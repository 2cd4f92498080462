"""The cycle collector, tuned for a process that keeps hundreds of thousands of small objects for long.

With the interpreter's defaults every 700 new objects start a collection, and a process that builds up
state spends a quarter of its time looking at objects that live on anyway (measured on the engine's
benchmark). What is dropped here is freed by reference counting; only cycles wait for the collector.
"""

from __future__ import annotations

import gc


def expect_long_lives() -> None:
    """Set aside what lives now, and look for cycles seldom. Call once the process has started up."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
