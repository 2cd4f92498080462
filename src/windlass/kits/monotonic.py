"""Time for small supervisors that must start in milliseconds.

:mod:`windlass.kits.clock` imports asyncio, which a shim or a sandbox must not. Time
here cannot be replaced by tests: code with decisions (back-off, deadlines of pods)
takes a ``Clock``.
"""

from __future__ import annotations

import time


def now_ns() -> int:
    """Unix time in nanoseconds."""
    return time.time_ns()


def monotonic() -> float:
    """Seconds that never run backwards."""
    return time.monotonic()


def pause(seconds: float) -> None:
    """Block this thread."""
    time.sleep(seconds)


_second = -1
_prefix = ""


def rfc3339_nano(nanoseconds: int) -> str:
    """``2026-01-01T12:00:00.000000001Z``: always nine digits, so that lines sort by time."""
    global _second, _prefix
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    if seconds != _second:
        _prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        _second = seconds
    return f"{_prefix}.{rest:09d}Z"
